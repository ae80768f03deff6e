//! Output shown as it comes: read from the transcript, so that a slow reader does not slow down the
//! run.

use std::io::Write as _;
use std::time::Duration;

use interlock_console::output;
use interlock_supervisor::{StartedRun, SupervisorClient};
use interlock_transcript::{ChunkStream, Cursor, TranscriptReader};

/// Read at once.
const BATCH: usize = 256 * 1024;

/// Asked anew after this time.
const WAIT: Duration = Duration::from_secs(30);

pub struct OutputFollower {
    name: String,
    spool: Option<TranscriptReader>,
    cursor: Cursor,
    not_shown: u64,
}

impl OutputFollower {
    pub fn new(client: &SupervisorClient, started: &StartedRun) -> Self {
        let name = started.session.name.clone();
        Self {
            spool: TranscriptReader::open(&client.place().session(&name)).ok(),
            name,
            cursor: Cursor::START,
            not_shown: 0,
        }
    }

    /// Shows output until the run has ended, or can no longer be asked.
    pub fn follow(&mut self, client: &SupervisorClient) {
        let Ok(session) = client.session(&self.name) else {
            return;
        };
        // Also past what could not be kept: that is never shown, and is not waited for again.
        let mut seen = 0;
        while let Ok(standing) = session.wait(seen, WAIT) {
            self.show_rest();
            seen = standing.total_bytes.max(self.cursor.offset);
            if standing.ended || self.spool.is_none() {
                return;
            }
        }
    }

    /// Shows what has not been shown yet.
    pub fn show_rest(&mut self) {
        let Some(spool) = &self.spool else { return };
        while let Ok(batch) = spool.read_from(self.cursor, BATCH) {
            if batch.next == self.cursor {
                return;
            }
            self.not_shown += batch.gap.bytes;
            for chunk in &batch.chunks {
                match chunk.stream {
                    ChunkStream::Stdout | ChunkStream::Pty => output::print_bytes(&chunk.bytes),
                    // A missing reader changes nothing.
                    ChunkStream::Stderr => drop(std::io::stderr().write_all(&chunk.bytes)),
                }
            }
            self.cursor = batch.next;
        }
    }

    /// How many bytes never will be.
    pub fn not_shown(&self) -> u64 {
        self.not_shown
    }
}
