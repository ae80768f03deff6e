//! Visits a snapshot in order, chunk by chunk, and reports missing parts.

use std::ops::ControlFlow;

use super::TranscriptError;
use super::record::{ChunkRecord, MAX_CHUNK, newlines};
use super::snapshot::{RecordPlace, SegmentView, StreamMark, TranscriptSnapshot};

/// Bytes that the session wrote and the transcript does not or no longer contain, and the number of
/// newlines in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Gap {
    pub bytes: u64,
    pub lines: u64,
}

impl Gap {
    pub fn is_empty(self) -> bool {
        self.bytes == 0
    }

    pub(super) fn between(from: StreamMark, to: StreamMark) -> Self {
        Self {
            bytes: to.offset.saturating_sub(from.offset),
            lines: to.lines.saturating_sub(from.lines),
        }
    }
}

#[derive(Debug)]
pub(super) enum TranscriptPiece<'a> {
    Gap(Gap),
    /// Part of one chunk, or all of it.
    Bytes {
        record: &'a ChunkRecord,
        at: StreamMark,
        bytes: &'a [u8],
    },
}

type Visit<'a> = dyn FnMut(TranscriptPiece<'_>) -> Result<ControlFlow<()>, TranscriptError> + 'a;

impl TranscriptSnapshot {
    /// Visits everything from `from` to the end of the kept bytes.
    pub fn walk(&self, from: StreamMark, visit: &mut Visit<'_>) -> Result<(), TranscriptError> {
        const BLOCK: u64 = 128;
        let mut at = from;
        let RecordPlace {
            segment,
            record: mut next,
        } = self.locate(from.offset)?;
        for view in self.segments.iter().skip(segment) {
            let mut ahead = ReadAhead::new(view)?;
            while next < view.records {
                let block = view.records(next, BLOCK)?;
                next += block.len() as u64;
                for record in &block {
                    if visit_record(record, &mut at, &mut ahead, visit)?.is_break() {
                        return Ok(());
                    }
                }
            }
            next = 0;
        }
        Ok(())
    }
}

fn visit_record(
    record: &ChunkRecord,
    at: &mut StreamMark,
    ahead: &mut ReadAhead<'_>,
    visit: &mut Visit<'_>,
) -> Result<ControlFlow<()>, TranscriptError> {
    if record.offset > at.offset {
        let start = StreamMark {
            offset: record.offset,
            lines: record.lines_before,
        };
        if visit(TranscriptPiece::Gap(Gap::between(*at, start)))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        *at = start;
    }
    let skip = at.offset - record.offset;
    let length = usize::try_from(u64::from(record.length) - skip).unwrap_or(0);
    let bytes = ahead.read(record.position + skip, length)?;
    let flow = visit(TranscriptPiece::Bytes {
        record,
        at: *at,
        bytes,
    })?;
    at.offset += bytes.len() as u64;
    at.lines += newlines(bytes);
    Ok(flow)
}

/// Reads ahead, so that many small chunks cost one read.
struct ReadAhead<'a> {
    view: &'a SegmentView,
    length: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl<'a> ReadAhead<'a> {
    fn new(view: &'a SegmentView) -> Result<Self, TranscriptError> {
        Ok(Self {
            view,
            length: view.length()?,
            start: 0,
            buffer: Vec::new(),
        })
    }

    fn read(&mut self, position: u64, length: usize) -> Result<&[u8], TranscriptError> {
        let end = position + length as u64;
        if position < self.start || end > self.start + self.buffer.len() as u64 {
            let left = usize::try_from(self.length.saturating_sub(position)).unwrap_or(MAX_CHUNK);
            self.buffer = self.view.read(position, left.min(MAX_CHUNK).max(length))?;
            self.start = position;
        }
        let from = usize::try_from(position - self.start).unwrap_or(0);
        Ok(&self.buffer[from..from + length])
    }
}
