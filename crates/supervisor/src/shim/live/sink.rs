//! Passes the output of a run, its end and its leftovers to its session.

use std::sync::{Arc, PoisonError};

use interlock_engine::sandbox::SpaceLook;
use interlock_engine::{Leftover, OutputSink, Run, RunOutcome, RunStatus, Signal, StreamKind};
use interlock_plan::PlanShield;
use interlock_transcript::ChunkStream;

use super::{Live, LiveEnd, LiveState, SMALL};
use crate::cgroup::Group;
use crate::message::{EndedRun, LimitReached, SandboxLimit};
use crate::shim::protected_paths::WrittenWorkspace;

/// Passes the output of the run to the session.
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
        let workspace = self.0.workspace.as_ref();
        let protected = workspace.map(WrittenWorkspace::changed).unwrap_or_default();
        let mut state = self.0.state();
        while state.record.is_none() {
            state = self
                .0
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(record) = &mut state.record {
            record.protected_created = protected;
        }
        if self.0.ran_out_of_memory()
            && let Some(record) = &mut state.record
        {
            record.out_of_memory = true;
        }
        if let Some(space) = self.0.run.get().and_then(Run::space) {
            state.note_memory(&space.look());
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
        // A client that knows of the session, or must read its transcript, must find it ended.
        // Otherwise the session may be forgotten at once.
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
    /// Cuts the output to what the run may still write. A run that writes more is ended.
    fn within_output_limit<'b>(&self, state: &mut LiveState, bytes: &'b [u8]) -> &'b [u8] {
        if self.manner.limits.pids.is_some() && !state.says_no_process {
            state.says_no_process = says_no_process(bytes);
        }
        let Some(most) = self.manner.max_output_bytes else {
            return bytes;
        };
        let left = usize::try_from(most.saturating_sub(state.total_bytes)).unwrap_or(usize::MAX);
        if bytes.len() <= left {
            return bytes;
        }
        if !state.wrote_too_much {
            state.wrote_too_much = true;
            // The run is unknown while it is still starting. `Live::begin` then ends it.
            if let Some(run) = self.run.get() {
                run.request_end(Signal::KILL);
            }
        }
        bytes.get(..left).unwrap_or(bytes)
    }

    /// Records what a look at the file systems of the run found. Returns whether the run must be
    /// ended because of it.
    pub fn note_space(&self, look: &SpaceLook) -> bool {
        let mut state = self.state();
        state.note_memory(look);
        let low = look.disk.filter(|(keep, free)| free < keep);
        if state.end.is_none() && state.disk_low.is_none() {
            state.disk_low = low;
        }
        low.is_some()
    }

    /// Returns the limit that a sandboxed run reached, if it did.
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
        if let Some((bound, free)) = state.disk_low {
            return Some(LimitReached {
                limit: SandboxLimit::Disk,
                bound,
                peak: Some(free),
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
        // Without a control group that counts refusals, two signs together are proof: the run had
        // enough processes to reach the limit, and a program reported a failure.
        let was_refused = outcome.may_lack_processes && state.says_no_process;
        let is_full = was_refused || refused.is_some_and(|refused| refused > 0);
        if let (true, Some(bound)) = (is_full, limits.pids) {
            return Some(LimitReached {
                limit: SandboxLimit::Pids,
                bound,
                peak: group.and_then(Group::pids_peak).or(Some(bound)),
            });
        }
        if outcome.status == RunStatus::TimedOut {
            let took = u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX);
            return Some(LimitReached {
                limit: SandboxLimit::Time,
                bound: self.time_limit_ms.unwrap_or(took),
                peak: Some(took),
            });
        }
        let space = self.run.get().and_then(Run::space)?;
        // A file system that an earlier run left full counts as this run's limit only if this run
        // failed.
        let is_own = !space.was_full() || outcome.status != RunStatus::Exited(0);
        (state.was_tmp_full && is_own).then(|| LimitReached {
            limit: SandboxLimit::Tmp,
            bound: space.tmp_bytes(),
            peak: Some(state.tmp_peak),
        })
    }
}

/// Whether an output contains a message about a process that could not be started, from shells, the
/// C library, or programs that name the error.
fn says_no_process(bytes: &[u8]) -> bool {
    const WORDS: [&[u8]; 5] = [
        b"Cannot fork",
        b"can't fork",
        b"fork failed",
        b"Resource temporarily unavailable",
        b" EAGAIN",
    ];
    let holds = |word: &&[u8]| bytes.windows(word.len()).any(|found| found == *word);
    WORDS.iter().any(holds)
}

impl LiveState {
    fn note_memory(&mut self, look: &SpaceLook) {
        self.tmp_peak = self.tmp_peak.max(look.tmp_used);
        self.was_tmp_full |= look.is_tmp_full;
    }
}
