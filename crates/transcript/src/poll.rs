//! Polling: each reader gets what is new to it, whatever the others read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::recording::{Cursor, ShownOutput, TranscriptError, TranscriptReader, TranscriptStatus};

/// What one poll shows at most.
pub const DEFAULT_POLL_CHARS: usize = 30_000;

/// How many readers of one session are remembered. Beyond that the one that polled longest ago
/// starts anew.
const MAX_READERS: usize = 256;

/// The cursors of all pollers of one session, by session key. It can be stored, so that a restart
/// does not make a poller read everything again.
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
    /// The number of the poll, to know who has been away longest.
    poll: u64,
}

/// What is new to one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranscriptPoll {
    pub shown: ShownOutput,
    /// Read before the output: if it is final, there will be no more.
    pub status: TranscriptStatus,
}

impl Polls {
    /// What came since this reader's last poll. Its cursor moves past it, also past what `shown`
    /// leaves out: that is counted there and can be read from the log.
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

    /// Where this reader stands; the start for a new one.
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
