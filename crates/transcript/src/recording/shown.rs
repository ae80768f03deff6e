//! The beginning and the end of a transcript, with an exact account of the rest.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::record::newlines;
use super::snapshot::StreamMark;
use super::walk::{Gap, TranscriptPiece};
use super::{Cursor, TranscriptError, TranscriptReader, reader};
use crate::utf8;

/// Output as a result contains it: `total_bytes = shown_bytes + omitted_bytes`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShownOutput {
    /// The head, a line about the omitted part, and the tail.
    pub text: String,
    pub total_bytes: u64,
    pub shown_bytes: u64,
    pub omitted_bytes: u64,
    /// The number of newlines in the omitted part.
    pub omitted_lines: u64,
    /// The part of `omitted_bytes` that cannot be read in any other way: dropped for the quota, or
    /// never written.
    pub gone_bytes: u64,
}

impl TranscriptReader {
    /// At most `max_chars` characters of the output, half from its beginning and the rest from its
    /// end. The lines about omitted parts do not count.
    pub fn head_and_tail(&self, max_chars: usize) -> Result<ShownOutput, TranscriptError> {
        let view = self.view()?;
        show(&view, Cursor::START, view.kept_end, max_chars)
    }

    /// Like [`Self::head_and_tail`], for the output after `cursor`. Also returns the next cursor.
    /// While the session runs, an incomplete character at the end is left for the next call.
    pub fn new_since(
        &self,
        cursor: Cursor,
        max_chars: usize,
    ) -> Result<(ShownOutput, Cursor), TranscriptError> {
        let view = self.view()?;
        let mut kept_end = view.kept_end;
        let mut end = view.end;
        if !view.is_final {
            let held = unfinished(&view, cursor)?;
            kept_end.offset -= held;
            end.offset -= held;
        }
        let shown = show(&view, cursor, kept_end, max_chars)?;
        let next = if end.offset > cursor.offset {
            end.into()
        } else {
            cursor
        };
        Ok((shown, next))
    }
}

fn show(
    view: &reader::SnapshotView,
    from: Cursor,
    kept_end: StreamMark,
    max_chars: usize,
) -> Result<ShownOutput, TranscriptError> {
    let from = StreamMark::from(from);
    let end = if view.end == view.kept_end {
        kept_end
    } else {
        view.end
    };
    if end.offset <= from.offset {
        return Ok(ShownOutput::default());
    }
    let window = |chars: usize| {
        chars
            .saturating_mul(utf8::MAX_CHAR)
            .saturating_add(utf8::MAX_CHAR)
    };

    let start = contiguous(view, from, kept_end.offset, window(max_chars))?;
    let is_all = from.offset + start.len() as u64 == kept_end.offset;
    let head = if is_all && utf8::count(&start) <= max_chars {
        &start[..]
    } else {
        &start[..utf8::first(&start, max_chars / 2)]
    };
    let head_end = StreamMark {
        offset: from.offset + head.len() as u64,
        lines: from.lines + newlines(head),
    };

    let tail_chars = max_chars - utf8::count(head);
    let tail = last_part(view, head_end, kept_end.offset, window(tail_chars))?;
    let tail = &tail[utf8::last(&tail, tail_chars)..];
    let tail_start = StreamMark {
        offset: kept_end.offset.max(head_end.offset) - tail.len() as u64,
        lines: kept_end.lines.max(head_end.lines) - newlines(tail),
    };

    let middle = Gap::between(head_end, tail_start);
    let trailing = Gap::between(kept_end, end);
    let mut shown = ShownOutput {
        total_bytes: end.offset - from.offset,
        shown_bytes: (head.len() + tail.len()) as u64,
        omitted_bytes: middle.bytes + trailing.bytes,
        omitted_lines: middle.lines + trailing.lines,
        gone_bytes: end.offset
            - from.offset
            - (view.snapshot.kept_from(from.offset)? - view.snapshot.kept_from(kept_end.offset)?),
        ..ShownOutput::default()
    };
    shown.text.push_str(&String::from_utf8_lossy(head));
    push_left_out(&mut shown.text, middle);
    shown.text.push_str(&String::from_utf8_lossy(tail));
    push_left_out(&mut shown.text, trailing);
    Ok(shown)
}

/// Adds a line in place of missing output.
pub(super) fn push_left_out(text: &mut String, gap: Gap) {
    if gap.is_empty() {
        return;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!(
        "[{} bytes with {} line ends left out here]\n",
        gap.bytes, gap.lines
    ));
}

/// Up to `limit` bytes that follow `from` without a gap.
fn contiguous(
    view: &reader::SnapshotView,
    from: StreamMark,
    end: u64,
    limit: usize,
) -> Result<Vec<u8>, TranscriptError> {
    let mut found = Vec::new();
    view.snapshot.walk(from, &mut |piece| {
        let TranscriptPiece::Bytes { at, bytes, .. } = piece else {
            return Ok(ControlFlow::Break(()));
        };
        let wanted = (limit - found.len())
            .min(usize::try_from(end.saturating_sub(at.offset)).unwrap_or(usize::MAX));
        found.extend_from_slice(&bytes[..bytes.len().min(wanted)]);
        Ok(if wanted > bytes.len() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })?;
    Ok(found)
}

/// Up to `limit` bytes before `end` without a gap, starting neither before `from` nor within a
/// character.
fn last_part(
    view: &reader::SnapshotView,
    from: StreamMark,
    end: u64,
    limit: usize,
) -> Result<Vec<u8>, TranscriptError> {
    let start = end.saturating_sub(limit as u64).max(from.offset);
    let mut within_character = start > from.offset;
    let mut found = Vec::new();
    let start = StreamMark {
        offset: start,
        lines: 0,
    };
    view.snapshot.walk(start, &mut |piece| {
        match piece {
            TranscriptPiece::Gap(_) => {
                found.clear();
                within_character = false;
            }
            TranscriptPiece::Bytes { at, bytes, .. } => {
                let wanted = usize::try_from(end.saturating_sub(at.offset)).unwrap_or(usize::MAX);
                found.extend_from_slice(&bytes[..bytes.len().min(wanted)]);
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if within_character {
        found.drain(..utf8::continuation(&found));
    }
    Ok(found)
}

/// The number of bytes at the end that are an incomplete character.
fn unfinished(view: &reader::SnapshotView, cursor: Cursor) -> Result<u64, TranscriptError> {
    let end = view.kept_end.offset;
    if end <= cursor.offset {
        return Ok(0);
    }
    let tail = last_part(view, cursor.into(), end, utf8::MAX_CHAR)?;
    Ok((tail.len() - utf8::complete(&tail)) as u64)
}
