//! A transcript as pieces of text, for readers that only remember how many bytes they have read.

use serde::{Deserialize, Serialize};

use super::{TranscriptError, TranscriptReader};
use crate::utf8;

/// The text after an offset. No character is cut in two or repeated.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TextPiece {
    /// The offset of its first byte.
    pub offset: u64,
    /// The offset of the next piece.
    pub next_offset: u64,
    pub text: String,
    /// The number of bytes between the requested offset and this piece, which can no longer be
    /// read.
    pub missed_bytes: u64,
}

impl TextPiece {
    /// Whether there is nothing after the offset, or only part of a character.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.missed_bytes == 0
    }
}

impl TranscriptReader {
    /// About `max_bytes` of the text after an offset. Empty beyond the end.
    pub fn text_from(&self, offset: u64, max_bytes: usize) -> Result<TextPiece, TranscriptError> {
        // The status is read first: if it is final, the following read is complete.
        let is_final = self.status()?.outcome.is_final();
        let cursor = self.cursor_at(offset)?;
        let batch = self.read_from(cursor, max_bytes)?;
        let bytes: Vec<u8> = batch
            .chunks
            .iter()
            .flat_map(|chunk| chunk.bytes.iter().copied())
            .collect();
        let mut whole = utf8::complete(&bytes);
        if whole < bytes.len() && is_final && self.read_from(batch.next, 1)?.next == batch.next {
            // The missing bytes of the last character will never arrive.
            whole = bytes.len();
        }
        let held = (bytes.len() - whole) as u64;
        Ok(TextPiece {
            offset: cursor.offset + batch.gap.bytes,
            next_offset: batch.next.offset - held,
            text: String::from_utf8_lossy(&bytes[..whole]).into_owned(),
            missed_bytes: batch.gap.bytes,
        })
    }
}
