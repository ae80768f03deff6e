//! From the run to its session: output, the end, and what is left.

use std::sync::{Arc, PoisonError};

use interlock_engine::{Leftover, OutputSink, RunOutcome, StreamKind};
use interlock_transcript::ChunkStream;

use super::{Live, LiveEnd, SMALL};
use crate::message::EndedRun;

/// Hands the output of the run to the session.
pub(in crate::shim) struct Sink(pub Arc<Live>);

impl OutputSink for Sink {
    fn output(&self, stream: StreamKind, bytes: &[u8]) {
        let mut state = self.0.state();
        let stream = match stream {
            StreamKind::Stdout => ChunkStream::Stdout,
            StreamKind::Stderr => ChunkStream::Stderr,
            StreamKind::Terminal => ChunkStream::Pty,
        };
        if let Some(transcript) = &mut state.transcript {
            transcript.append(stream, bytes);
        }
        if state.small.len() as u64 == state.total_bytes && state.small.len() + bytes.len() <= SMALL
        {
            state.small.extend_from_slice(bytes);
        }
        let was_small = state.total_bytes <= SMALL as u64;
        state.total_bytes += bytes.len() as u64;
        if was_small && state.total_bytes > SMALL as u64 && !state.announced {
            self.0.wake();
        }
        let answers = state.screen.as_mut().map(|screen| screen.feed(bytes));
        if state.waiting > 0 {
            self.0.changed.notify_all();
        }
        drop(state);
        if let (Some(answers), Some(run)) = (answers, self.0.run.get())
            && !answers.is_empty()
        {
            let _ = run.write_stdin(&answers);
        }
    }

    fn ended(&self, outcome: &RunOutcome) {
        let mut state = self.0.state();
        while state.record.is_none() {
            state = self
                .0
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if self.0.ran_out_of_memory()
            && let Some(record) = &mut state.record
        {
            record.out_of_memory = true;
        }
        let Some(transcript) = &state.transcript else {
            return;
        };
        state.end = Some(LiveEnd {
            outcome: outcome.clone(),
            totals: transcript.totals(),
            fault: transcript.fault().map(|fault| fault.reason.clone()),
        });
        let small = self.0.small_result(&mut state);
        let is_whole = |ended: &EndedRun| ended.shown.omitted_bytes == 0;
        // Who knows of the session, or has to read its transcript, must find it ended. Else it may
        // be forgotten at once.
        if state.announced || !small.as_ref().is_some_and(is_whole) {
            self.0.write_final(&mut state);
        }
        if let (Some(small), Some(_)) = (small, &state.orderer) {
            self.0.send_result(&mut state, small);
        }
        drop(state);
        self.0.changed.notify_all();
        let _ = rustix::io::write(&self.0.ended, &1_u64.to_ne_bytes());
    }

    fn gone(&self, survivors: &[Leftover]) {
        self.0.state().survivors = Some(survivors.to_vec());
        self.0.wake();
    }
}
