//! The end of a run's output.

use std::path::Path;

use interlock_supervisor::{EndedRun, SupervisorPaths};
use interlock_transcript::{LineRange, TranscriptReader};

/// How much of the end of a run's output is read.
const TAIL_LINES: u64 = 400;
const TAIL_BYTES: usize = 64 * 1024;

/// Returns the end of a run's output: from the result, or from the transcript if the result is
/// shorter.
pub fn last_output(state_dir: &Path, session: &str, ended: &EndedRun) -> String {
    if ended.shown.omitted_bytes == 0 && ended.shown.total_bytes == ended.totals.bytes {
        return ended.shown.text.clone();
    }
    let directory = SupervisorPaths::new(state_dir).session(session);
    let last = LineRange {
        offset: None,
        limit: Some(TAIL_LINES),
    };
    TranscriptReader::open(&directory)
        .and_then(|transcript| transcript.by_lines(last, TAIL_BYTES))
        .map_or_else(|_| ended.shown.text.clone(), |page| page.text)
}
