//! Shows the output of a run as it arrives. The output is read from the transcript, so that a slow
//! reader does not slow down the run.

use std::io::Write as _;
use std::time::Duration;

use interlock_console::output;
use interlock_supervisor::{StartedRun, SupervisorClient};
use interlock_transcript::{ChunkStream, Cursor, TranscriptReader};

/// How many bytes one read of the transcript returns at most.
const BATCH: usize = 256 * 1024;

/// How long one request to the supervisor waits for new output.
const WAIT: Duration = Duration::from_secs(30);

pub struct OutputFollower {
    name: String,
    transcript: Option<TranscriptReader>,
    cursor: Cursor,
    not_shown: u64,
}

impl OutputFollower {
    pub fn new(client: &SupervisorClient, started: &StartedRun) -> Self {
        let name = started.session.name.clone();
        Self {
            transcript: TranscriptReader::open(&client.place().session(&name)).ok(),
            name,
            cursor: Cursor::START,
            not_shown: 0,
        }
    }

    /// Shows output until the run has ended or the supervisor no longer answers.
    pub fn follow(&mut self, client: &SupervisorClient) {
        let Ok(session) = client.session(&self.name) else {
            return;
        };
        // `seen` also advances past output that could not be kept. That output never appears in the
        // transcript, and waiting for it would not end.
        let mut seen = 0;
        while let Ok(standing) = session.wait(seen, WAIT) {
            self.show_rest();
            seen = standing.total_bytes.max(self.cursor.offset);
            if standing.ended || self.transcript.is_none() {
                return;
            }
        }
    }

    /// Shows what has not been shown yet.
    pub fn show_rest(&mut self) {
        let Some(transcript) = &self.transcript else {
            return;
        };
        while let Ok(batch) = transcript.read_from(self.cursor, BATCH) {
            if batch.next == self.cursor {
                return;
            }
            self.not_shown += batch.gap.bytes;
            for chunk in &batch.chunks {
                match chunk.stream {
                    ChunkStream::Stdout | ChunkStream::Pty => output::print_bytes(&chunk.bytes),
                    // A closed stderr must not stop the command.
                    ChunkStream::Stderr => drop(std::io::stderr().write_all(&chunk.bytes)),
                }
            }
            self.cursor = batch.next;
        }
    }

    /// How many bytes of output are lost and were not shown.
    pub fn not_shown(&self) -> u64 {
        self.not_shown
    }
}
