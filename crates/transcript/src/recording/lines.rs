//! A transcript by line numbers, for `process log`.

use std::ops::ControlFlow;

use super::record::newlines;
use super::shown::push_left_out;
use super::snapshot::StreamMark;
use super::walk::{Gap, TranscriptPiece};
use super::{TranscriptError, TranscriptReader, reader};
use crate::utf8;

/// How many lines `process log` returns by default.
pub const DEFAULT_LOG_LINES: u64 = 200;

/// A range of lines, counted from 0.
///
/// | offset | limit | lines |
/// | --- | --- | --- |
/// | | | the last 200 |
/// | | n | the last n |
/// | a | | from a to the end |
/// | a | n | n lines from a on |
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineRange {
    pub offset: Option<u64>,
    pub limit: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinePage {
    /// Whole lines, with a note in place of each missing part.
    pub text: String,
    pub first_line: u64,
    /// The next line to request; `None` at the end.
    pub next_line: Option<u64>,
    pub total_lines: u64,
    /// The missing part of these lines: not kept, or the rest of a line too long for a page.
    pub omitted: Gap,
}

impl TranscriptReader {
    /// As many lines as fit into about `max_bytes`. A single longer line is cut, and the cut is
    /// counted. If the first lines are no longer kept, the page starts with their gap.
    pub fn by_lines(
        &self,
        range: LineRange,
        max_bytes: usize,
    ) -> Result<LinePage, TranscriptError> {
        let view = self.view()?;
        let total_lines = view.total_lines()?;
        let (first, limit) = match (range.offset, range.limit) {
            (Some(offset), limit) => (offset, limit.unwrap_or(u64::MAX)),
            (None, limit) => {
                let limit = limit.unwrap_or(DEFAULT_LOG_LINES);
                (total_lines.saturating_sub(limit), limit)
            }
        };
        let stop = first.saturating_add(limit).min(total_lines);
        if first >= stop {
            return Ok(LinePage {
                first_line: first.min(total_lines),
                next_line: (first < total_lines).then_some(first),
                total_lines,
                ..LinePage::default()
            });
        }
        let start = view.line_start(first)?;
        let mut page = Collector {
            max_bytes: max_bytes.max(1),
            stop,
            text: String::new(),
            run: Vec::new(),
            size: 0,
            at: start,
            omitted: Gap::default(),
            whole_lines: 0,
            is_full: false,
        };
        view.snapshot
            .walk(start, &mut |piece| Ok(page.take(&piece)))?;
        if page.is_full {
            page.cut_to_whole_lines(&view)?;
        } else if page.at.lines < stop && view.end.offset > view.kept_end.offset {
            page.gap(Gap::between(page.at, view.end));
        }
        page.flush();
        let reached_end = page.at.offset >= view.end.offset;
        Ok(LinePage {
            text: page.text,
            first_line: start.lines,
            next_line: (!reached_end && page.at.lines < total_lines).then_some(page.at.lines),
            total_lines,
            omitted: page.omitted,
        })
    }
}

struct Collector {
    max_bytes: usize,
    /// The line after the last requested one.
    stop: u64,
    text: String,
    /// The bytes since the last gap that are not yet in `text`.
    run: Vec<u8>,
    size: usize,
    /// The position after the last consumed byte.
    at: StreamMark,
    omitted: Gap,
    /// The number of consumed line ends, without those in gaps.
    whole_lines: u64,
    is_full: bool,
}

impl Collector {
    fn take(&mut self, piece: &TranscriptPiece<'_>) -> ControlFlow<()> {
        match piece {
            TranscriptPiece::Gap(gap) => self.gap(*gap),
            TranscriptPiece::Bytes { bytes, .. } => {
                for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                    if self.at.lines >= self.stop {
                        return ControlFlow::Break(());
                    }
                    let fits = line.len().min(self.max_bytes - self.size);
                    self.run.extend_from_slice(&line[..fits]);
                    self.size += fits;
                    self.at.offset += fits as u64;
                    let ends = newlines(&line[..fits]);
                    self.at.lines += ends;
                    self.whole_lines += ends;
                    if fits < line.len() {
                        self.is_full = true;
                        return ControlFlow::Break(());
                    }
                }
            }
        }
        if self.at.lines >= self.stop {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn gap(&mut self, gap: Gap) {
        self.flush();
        push_left_out(&mut self.text, gap);
        self.omitted.bytes += gap.bytes;
        self.omitted.lines += gap.lines;
        self.at.offset += gap.bytes;
        self.at.lines += gap.lines;
    }

    fn flush(&mut self) {
        self.text.push_str(&String::from_utf8_lossy(&self.run));
        self.run.clear();
    }

    /// The page is full within a line: returns that line, or cuts it if it is the only one.
    fn cut_to_whole_lines(&mut self, view: &reader::SnapshotView) -> Result<(), TranscriptError> {
        let whole = memchr::memrchr(b'\n', &self.run).map_or(0, |last| last + 1);
        if self.whole_lines > 0 {
            self.at.offset -= (self.run.len() - whole) as u64;
            self.run.truncate(whole);
            return Ok(());
        }
        let complete = utf8::complete(&self.run);
        self.at.offset -= (self.run.len() - complete) as u64;
        self.run.truncate(complete);
        let next = view.line_end(self.at.lines)?;
        self.gap(Gap::between(self.at, next));
        Ok(())
    }
}

impl reader::SnapshotView {
    /// The number of newlines, plus one if the last line is unfinished.
    fn total_lines(&self) -> Result<u64, TranscriptError> {
        let Some(view) = self.snapshot.segments.last() else {
            return Ok(self.end.lines);
        };
        let last = view.record(view.records - 1)?;
        let is_open =
            self.end == self.kept_end && view.read(last.position_end() - 1, 1)? != [b'\n'];
        Ok(self.end.lines + u64::from(is_open))
    }

    /// The end of a line, including its newline. If the newline is in a gap, the end of the gap.
    fn line_end(&self, line: u64) -> Result<StreamMark, TranscriptError> {
        let end = self.line_start(line + 1)?;
        if end.lines > line {
            return Ok(end);
        }
        let place = self
            .snapshot
            .first_where(|record| record.lines_before > line)?;
        match self.snapshot.segments.get(place.segment) {
            None => Ok(self.end),
            Some(view) => {
                let record = view.record(place.record)?;
                Ok(StreamMark {
                    offset: record.offset,
                    lines: record.lines_before,
                })
            }
        }
    }

    /// The start of a line. If it is in a gap, the start of the gap; for a line that does not
    /// exist, the end.
    fn line_start(&self, line: u64) -> Result<StreamMark, TranscriptError> {
        if line == 0 {
            return Ok(StreamMark::default());
        }
        // The newline before this line is in the last record with fewer lines before it, or in the
        // gap after that record.
        let place = self
            .snapshot
            .first_where(|record| record.lines_before >= line)?;
        let Some((view, record)) = self.snapshot.before(place)? else {
            return Ok(StreamMark::default());
        };
        let bytes = view.read(record.position, record.length as usize)?;
        let missing = usize::try_from(line - record.lines_before).unwrap_or(usize::MAX);
        let newline = memchr::memchr_iter(b'\n', &bytes).nth(missing - 1);
        Ok(match newline {
            Some(index) => StreamMark {
                offset: record.offset + index as u64 + 1,
                lines: line,
            },
            None => StreamMark {
                offset: record.end(),
                lines: record.lines_before + newlines(&bytes),
            },
        })
    }
}
