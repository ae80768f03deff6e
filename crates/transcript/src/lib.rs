//! What did a run write? Its transcript on disk, the readers' positions in it, and its terminal.
//!
//! The process of a run appends to a [`TranscriptWriter`]. Every other process opens a
//! [`TranscriptReader`] on the same directory, without a request to any process.
//!
//! Read in this order: `recording` (the files of a transcript), [`SessionRecord`] (the facts
//! besides the output), `poll` (how far each reader has read), [`screen`] and [`keys`] (the
//! terminal).

#![forbid(unsafe_code)]

pub mod keys;
mod poll;
mod recording;
pub mod screen;
mod session_record;
mod utf8;

pub use poll::{DEFAULT_POLL_CHARS, Polls, TranscriptPoll};
pub use recording::{
    Appended, Batch, Chunk, ChunkStream, Cursor, DEFAULT_LOG_LINES, Fault, Gap, LinePage,
    LineRange, SessionOutcome, ShownOutput, TextPiece, Totals, TranscriptError, TranscriptLimits,
    TranscriptReader, TranscriptStatus, TranscriptWriter, now_ms,
};
pub use session_record::SessionRecord;
