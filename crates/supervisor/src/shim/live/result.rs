//! Reports the end of a run to its caller.

use super::{Live, LiveState};
use crate::message::EndedRun;
use interlock_transcript::{ShownOutput, TranscriptReader};

/// The largest result that is sent by the thread which notices the end.
const SMALL_RESULT: usize = 64 * 1024;

impl Live {
    /// Returns how the run ended, with as much of the output as is to be shown. `None` before its
    /// end.
    pub(super) fn result(&self) -> Option<EndedRun> {
        let mut state = self.state();
        if let Some(small) = self.small_result(&mut state) {
            return Some(small);
        }
        // The transcript is about to be read, and needs its final status for that.
        if state.transcript.is_some() {
            self.write_final(&mut state);
        }
        let mut result = state.ended()?;
        drop(state);
        let shown = TranscriptReader::open(&self.directory)
            .and_then(|transcript| transcript.head_and_tail(self.manner.show_chars));
        result.shown = match shown {
            Ok(shown) if shown.total_bytes == result.totals.bytes => shown,
            // If not even the final status could be written, the transcript knows less than this
            // process.
            _ => ShownOutput {
                total_bytes: result.totals.bytes,
                omitted_bytes: result.totals.bytes,
                omitted_lines: result.totals.lines,
                gone_bytes: result.totals.bytes,
                ..ShownOutput::default()
            },
        };
        Some(result)
    }

    /// Returns the result if all of the output is in memory, or if no output is wanted.
    pub(super) fn small_result(&self, state: &mut LiveState) -> Option<EndedRun> {
        let mut result = state.ended()?;
        let total = result.totals.bytes;
        let chars = self.manner.show_chars;
        let is_whole = state.small.len() as u64 == total && state.small.len() <= chars;
        if is_whole {
            result.shown = ShownOutput {
                total_bytes: total,
                shown_bytes: total,
                text: String::from_utf8_lossy(&state.small).into_owned(),
                ..ShownOutput::default()
            };
        } else if chars == 0 {
            result.shown = ShownOutput {
                total_bytes: total,
                omitted_bytes: total,
                omitted_lines: result.totals.lines,
                gone_bytes: result.totals.dropped_bytes + result.totals.lost_bytes,
                ..ShownOutput::default()
            };
        } else {
            return None;
        }
        (result.shown.text.len() <= SMALL_RESULT).then_some(result)
    }
}

impl LiveState {
    fn ended(&self) -> Option<EndedRun> {
        let end = self.end.as_ref()?;
        let record = self.record.as_ref();
        Some(EndedRun {
            outcome: end.outcome.clone(),
            totals: end.totals,
            shown: ShownOutput::default(),
            out_of_memory: record.is_some_and(|record| record.out_of_memory),
            fault: end.fault.clone(),
            limit: end.limit,
            protected_created: record
                .map(|record| record.protected_created.clone())
                .unwrap_or_default(),
        })
    }
}
