//! From the run to its session: output, the end, and what is left.

use std::sync::{Arc, PoisonError};

use interlock_engine::{Leftover, OutputSink, RunOutcome, RunStatus, Signal, StreamKind};
use interlock_plan::PlanShield;
use interlock_transcript::ChunkStream;

use super::{Live, LiveEnd, LiveState, SMALL};
use crate::cgroup::Group;
use crate::message::{EndedRun, LimitReached, SandboxLimit};

/// Hands the output of the run to the session.
pub(in crate::shim) struct Sink(pub Arc<Live>);

impl OutputSink for Sink {
    fn output(&self, stream: StreamKind, bytes: &[u8]) {
        let mut state = self.0.state();
        let bytes = self.0.within_output_limit(&mut state, bytes);
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
        if let (Some(programs), Some(record)) = (&outcome.programs, &mut state.record) {
            record.programs = Some(programs.clone());
        }
        let Some(transcript) = &state.transcript else {
            return;
        };
        let limit = self.0.limit_reached(&state, outcome);
        state.end = Some(LiveEnd {
            outcome: outcome.clone(),
            totals: transcript.totals(),
            fault: transcript.fault().map(|fault| fault.reason.clone()),
            limit,
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

impl Live {
    /// As much of what a run wrote as it may write. One that wrote more is ended.
    fn within_output_limit<'b>(&self, state: &mut LiveState, bytes: &'b [u8]) -> &'b [u8] {
        let Some(most) = self.manner.max_output_bytes else {
            return bytes;
        };
        let left = usize::try_from(most.saturating_sub(state.total_bytes)).unwrap_or(usize::MAX);
        if bytes.len() <= left {
            return bytes;
        }
        if !state.wrote_too_much {
            state.wrote_too_much = true;
            // Not yet known where the run is only just started: then its beginning ends it.
            if let Some(run) = self.run.get() {
                run.request_end(Signal::KILL);
            }
        }
        bytes.get(..left).unwrap_or(bytes)
    }

    /// The limit that a sandboxed run reached, if it did.
    fn limit_reached(&self, state: &LiveState, outcome: &RunOutcome) -> Option<LimitReached> {
        let record = state.record.as_ref()?;
        if record.shield != Some(PlanShield::Sandbox) {
            return None;
        }
        let limits = &self.manner.limits;
        let group = self.group.as_ref();
        if let (true, Some(bound)) = (state.wrote_too_much, self.manner.max_output_bytes) {
            return Some(LimitReached {
                limit: SandboxLimit::Output,
                bound,
                peak: Some(state.total_bytes),
            });
        }
        if let (true, Some(bound)) = (record.out_of_memory, limits.memory_bytes) {
            return Some(LimitReached {
                limit: SandboxLimit::Memory,
                bound,
                peak: group.and_then(Group::memory_peak),
            });
        }
        let refused = group.and_then(Group::pids_refused);
        if let (Some(1..), Some(bound)) = (refused, limits.pids) {
            return Some(LimitReached {
                limit: SandboxLimit::Pids,
                bound,
                peak: group.and_then(Group::pids_peak),
            });
        }
        (outcome.status == RunStatus::TimedOut).then(|| {
            let took = u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX);
            LimitReached {
                limit: SandboxLimit::Time,
                bound: self.time_limit_ms.unwrap_or(took),
                peak: Some(took),
            }
        })
    }
}
