//! Polling: each reader gets the output that is new to it, regardless of other readers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::recording::{Cursor, ShownOutput, TranscriptError, TranscriptReader, TranscriptStatus};

/// The largest number of characters in one poll.
pub const DEFAULT_POLL_CHARS: usize = 30_000;

/// How many readers of one session are remembered. Beyond that, the reader with the oldest poll
/// starts again from the beginning.
const MAX_READERS: usize = 256;

/// The cursors of all pollers of one session, by session key. They can be stored, so that pollers
/// do not read everything again after a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Polls {
    readers: BTreeMap<String, PollerState>,
    polls: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PollerState {
    cursor: Cursor,
    /// The number of the last poll, which identifies the reader that was away longest.
    poll: u64,
}

/// The new output for one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptPoll {
    pub shown: ShownOutput,
    /// Read before the output: if it is final, no more output follows.
    pub status: TranscriptStatus,
}

impl Polls {
    /// The output since this reader's last poll. The cursor also moves past the part that `shown`
    /// leaves out; that part is counted there and can be read from the log.
    pub fn poll(
        &mut self,
        reader: &str,
        transcript: &TranscriptReader,
        max_chars: usize,
    ) -> Result<TranscriptPoll, TranscriptError> {
        let status = transcript.status()?;
        let (shown, next) = transcript.new_since(self.cursor(reader), max_chars)?;
        self.polls += 1;
        let seen = PollerState {
            cursor: next,
            poll: self.polls,
        };
        self.readers.insert(reader.to_string(), seen);
        self.forget_oldest();
        Ok(TranscriptPoll { shown, status })
    }

    /// The position of this reader; the start for a new reader.
    pub fn cursor(&self, reader: &str) -> Cursor {
        self.readers
            .get(reader)
            .map_or(Cursor::START, |seen| seen.cursor)
    }

    fn forget_oldest(&mut self) {
        while self.readers.len() > MAX_READERS {
            let oldest = self
                .readers
                .iter()
                .min_by_key(|(_, seen)| seen.poll)
                .map(|(reader, _)| reader.clone());
            let Some(oldest) = oldest else { return };
            self.readers.remove(&oldest);
        }
    }
}
