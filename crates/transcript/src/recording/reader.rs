//! Reads a transcript, even while it is written or after its writer died.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::snapshot::{StreamMark, TranscriptSnapshot};
use super::status::{SessionOutcome, Totals, TranscriptStatus};
use super::walk::{Gap, TranscriptPiece};
use super::{ChunkStream, TranscriptError};

/// How far a reader has read. A cursor stays valid when the rolling tail drops data: the next read
/// then reports how much is missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// The number of bytes before the cursor.
    pub offset: u64,
    /// The number of newlines before the cursor, so that a gap can also be counted in lines.
    pub lines: u64,
}

impl Cursor {
    pub const START: Self = Self {
        offset: 0,
        lines: 0,
    };
}

impl From<Cursor> for StreamMark {
    fn from(Cursor { offset, lines }: Cursor) -> Self {
        Self { offset, lines }
    }
}

impl From<StreamMark> for Cursor {
    fn from(StreamMark { offset, lines }: StreamMark) -> Self {
        Self { offset, lines }
    }
}

/// Bytes that arrived together on one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub sequence: u64,
    pub stream: ChunkStream,
    pub offset: u64,
    pub time_ms: u64,
    pub bytes: Vec<u8>,
}

/// The result of one read: first `gap`, then `chunks` without a gap between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    pub gap: Gap,
    pub chunks: Vec<Chunk>,
    pub next: Cursor,
}

/// Reads a transcript without keeping files or state, so any number of readers may share one
/// transcript.
#[derive(Debug, Clone)]
pub struct TranscriptReader {
    dir: PathBuf,
}

impl TranscriptReader {
    pub fn open(dir: &Path) -> Result<Self, TranscriptError> {
        let reader = Self {
            dir: dir.to_path_buf(),
        };
        reader.status()?;
        Ok(reader)
    }

    pub fn status(&self) -> Result<TranscriptStatus, TranscriptError> {
        TranscriptStatus::read(&self.dir)
    }

    /// The chunks after `cursor`: about `max_bytes`, but at least one chunk if there is one.
    /// Without new output, the batch is empty and its `next` equals `cursor`.
    pub fn read_from(&self, cursor: Cursor, max_bytes: usize) -> Result<Batch, TranscriptError> {
        let view = self.view()?;
        let mut batch = Batch {
            next: cursor,
            ..Batch::default()
        };
        let mut next = StreamMark::from(cursor);
        let mut size = 0;
        view.snapshot.walk(next, &mut |piece| {
            match piece {
                TranscriptPiece::Gap(_) if !batch.chunks.is_empty() => {
                    return Ok(ControlFlow::Break(()));
                }
                TranscriptPiece::Gap(gap) => {
                    batch.gap = gap;
                    next.offset += gap.bytes;
                    next.lines += gap.lines;
                }
                TranscriptPiece::Bytes { record, at, bytes } => {
                    if size >= max_bytes && !batch.chunks.is_empty() {
                        return Ok(ControlFlow::Break(()));
                    }
                    size += bytes.len();
                    next.offset = at.offset + bytes.len() as u64;
                    next.lines = at.lines + super::record::newlines(bytes);
                    batch.chunks.push(Chunk {
                        sequence: record.sequence,
                        stream: record.stream,
                        offset: at.offset,
                        time_ms: record.time_ms,
                        bytes: bytes.to_vec(),
                    });
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if batch.chunks.is_empty() && view.end.offset > next.offset {
            // The session is over, and its last bytes could not be kept.
            let rest = Gap::between(next, view.end);
            batch.gap.bytes += rest.bytes;
            batch.gap.lines += rest.lines;
            next = view.end;
        }
        batch.next = next.into();
        Ok(batch)
    }

    /// The cursor of a reader that only knows its number of bytes. An offset beyond the end means
    /// the end.
    pub fn cursor_at(&self, offset: u64) -> Result<Cursor, TranscriptError> {
        let view = self.view()?;
        if offset >= view.end.offset {
            return Ok(view.end.into());
        }
        let place = view.snapshot.locate(offset)?;
        let lines = match view.snapshot.segments.get(place.segment) {
            None => view.kept_end.lines,
            Some(segment) => {
                let record = segment.record(place.record)?;
                let inside = usize::try_from(offset.saturating_sub(record.offset)).unwrap_or(0);
                record.lines_before
                    + super::record::newlines(&segment.read(record.position, inside)?)
            }
        };
        Ok(Cursor { offset, lines })
    }

    /// The status of a session whose end was not observed, reconstructed from the kept files.
    pub fn as_lost(&self) -> Result<TranscriptStatus, TranscriptError> {
        let mut status = self.status()?;
        let snapshot = TranscriptSnapshot::take(&self.dir)?;
        let end = snapshot.end()?;
        let last = match snapshot.segments.last() {
            Some(view) => view.record(view.records - 1)?.time_ms,
            None => status.started_ms,
        };
        status.outcome = SessionOutcome::Lost;
        status.ended_ms = Some(last);
        status.totals = Totals {
            bytes: end.offset,
            lines: end.lines,
            dropped_bytes: end.offset - snapshot.kept_from(0)?.min(end.offset),
            lost_bytes: 0,
        };
        Ok(status)
    }

    pub(super) fn view(&self) -> Result<SnapshotView, TranscriptError> {
        // The status is read first: if it is final, the snapshot taken after it is complete.
        let status = self.status()?;
        let snapshot = TranscriptSnapshot::take(&self.dir)?;
        let kept_end = snapshot.end()?;
        let mut end = kept_end;
        if status.outcome.is_final() && status.totals.bytes > end.offset {
            end = StreamMark {
                offset: status.totals.bytes,
                lines: status.totals.lines,
            };
        }
        Ok(SnapshotView {
            snapshot,
            kept_end,
            end,
            is_final: status.outcome.is_final(),
        })
    }
}

/// A snapshot and its end.
#[derive(Debug)]
pub(super) struct SnapshotView {
    pub snapshot: TranscriptSnapshot,
    /// The position after the last kept byte.
    pub kept_end: StreamMark,
    /// The position after the last byte that the session is known to have written.
    pub end: StreamMark,
    pub is_final: bool,
}
