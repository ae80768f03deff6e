//! The transcript of one session on disk.
//!
//! Everything that a session writes becomes a numbered stream: each chunk has a sequence number and
//! the offset of its first byte, counted from the session's first byte. Offsets also count bytes
//! that could not be kept, so readers see every gap with its exact size.
//!
//! | file | holds |
//! | --- | --- |
//! | `head.bytes`, `head.index` | the first half of the quota |
//! | `tail-N.bytes`, `tail-N.index` | pieces of the rolling tail; the oldest is deleted to make room |
//! | `status.json` | how the session stands or ended, and the totals; replaced by rename |
//! | `reserve` | a block that is given back when the disk is full, so that the exit status still fits |
//!
//! Bytes are written before the record that names them, and a record contains a checksum. A reader
//! that follows a writer, or that comes after a crash, only sees whole chunks.

mod lines;
mod reader;
mod record;
mod segment;
mod shown;
mod snapshot;
mod status;
mod text;
mod walk;
mod writer;

pub use lines::{DEFAULT_LOG_LINES, LinePage, LineRange};
pub use reader::{Batch, Chunk, Cursor, TranscriptReader};
pub use record::ChunkStream;
pub use shown::ShownOutput;
pub use status::{SessionOutcome, Totals, TranscriptStatus};
pub use text::TextPiece;
pub use walk::Gap;
pub use writer::{Appended, Fault, TranscriptLimits, TranscriptWriter, now_ms};

use std::io;
use std::path::{Path, PathBuf};

/// Why a transcript could not be made or read. Appending never fails: bytes that cannot be kept are
/// counted.
#[derive(Debug, thiserror::Error)]
pub enum TranscriptError {
    #[error("failed to {action} {}: {source}", path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is damaged: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
}

impl TranscriptError {
    fn file<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self::File {
            action,
            path: path.to_path_buf(),
            source,
        }
    }
}
