//! A session while its process lives: its transcript, its screen and its state.

mod result;
mod sink;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use interlock_engine::{Leftover, Run, RunOutcome, RunStatus, Signal};
use interlock_plan::PlanShield;
use interlock_transcript::screen::Screen;
use interlock_transcript::{
    SessionOutcome, SessionRecord, Totals, TranscriptLimits, TranscriptStatus, TranscriptWriter,
    now_ms,
};
use rustix::event::EventfdFlags;

use super::conversation::{Reserve, SEND_TIME};
use super::protected_paths::WrittenWorkspace;
use crate::cgroup::Group;
use crate::frame;
use crate::message::{
    EndedRun, LimitReached, Manner, SessionStanding, StartedRun, SupervisorRefusal, Waited,
};

pub(super) use sink::Sink;

/// Output up to this size is served from memory.
const SMALL: usize = 16 * 1024;

pub(super) struct Live {
    directory: PathBuf,
    manner: Manner,
    group: Option<Group>,
    time_limit_ms: Option<u64>,
    workspace: Option<WrittenWorkspace>,
    reserve: Option<Reserve>,
    run: OnceLock<Run>,
    state: Mutex<LiveState>,
    changed: Condvar,
    /// Becomes readable when the run has ended. It is never read.
    ended: OwnedFd,
    /// Becomes readable when there may be something to do: ending the process, or announcing the
    /// session.
    woken: OwnedFd,
}

/// The limits of a run, and the workspace that it writes to.
pub(super) struct RunBounds {
    pub group: Option<Group>,
    pub time_limit_ms: Option<u64>,
    pub workspace: Option<WrittenWorkspace>,
}

#[derive(Default)]
struct LiveState {
    /// Present until the final status is written.
    transcript: Option<TranscriptWriter>,
    screen: Option<Screen>,
    record: Option<SessionRecord>,
    started_ms: u64,
    /// The client that ordered the run, as long as it is to get the result.
    orderer: Option<Arc<UnixStream>>,
    /// Others may know of the session: it has a status, and the orderer knows its name.
    announced: bool,
    /// The beginning of the output, as long as that is the whole output.
    small: Vec<u8>,
    total_bytes: u64,
    /// Number of requests that wait for output.
    waiting: usize,
    end: Option<LiveEnd>,
    /// The result was sent, and its confirmation is awaited until this time.
    answered_until: Option<Instant>,
    survivors: Option<Vec<Leftover>>,
    /// The result was received completely.
    taken: bool,
    /// The client that may have another order, once nothing is left of this run.
    next_orderer: Option<Arc<UnixStream>>,
    /// The supervisor wants no further orders for this process.
    drains: bool,
    /// The supervisor is gone, and the run is being ended because of that.
    abandoned: bool,
    /// Number of requests that are being answered.
    busy: usize,
    /// The run exceeded its output limit, and is being ended.
    wrote_too_much: bool,
    /// A program reported that no process could be started. This is checked only if the number of
    /// processes is limited.
    says_no_process: bool,
    /// The most that the run used of a private in-memory file system, and whether one was full.
    tmp_peak: u64,
    was_tmp_full: bool,
    /// Set if the run was about to fill a file system of the host and is being ended: the space
    /// that must stay free, and the space that was free.
    disk_low: Option<(u64, u64)>,
}

struct LiveEnd {
    outcome: RunOutcome,
    totals: Totals,
    fault: Option<String>,
    limit: Option<LimitReached>,
}

impl Live {
    pub fn new(
        directory: PathBuf,
        mut transcript: TranscriptWriter,
        screen: Option<Screen>,
        manner: Manner,
        bounds: RunBounds,
    ) -> io::Result<Arc<Self>> {
        let started_ms = now_ms();
        transcript.set_started(started_ms);
        let reserve = manner.limits.pids.map(|_| Reserve::new()).transpose()?;
        let event = || rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Arc::new(Self {
            directory,
            manner,
            group: bounds.group,
            time_limit_ms: bounds.time_limit_ms,
            workspace: bounds.workspace,
            reserve,
            run: OnceLock::new(),
            state: Mutex::new(LiveState {
                transcript: Some(transcript),
                screen,
                started_ms,
                ..LiveState::default()
            }),
            changed: Condvar::new(),
            ended: event()?,
            woken: event()?,
        }))
    }

    /// Records that the run was started for this orderer. A run that has already reached its end
    /// waits for this. An orderer that does not want to wait always finds a session, even if the
    /// run was faster.
    pub fn begin(
        &self,
        run: Run,
        record: SessionRecord,
        orderer: Arc<UnixStream>,
        tell: impl FnOnce(&SessionRecord),
    ) {
        let _ = self.run.set(run);
        let mut state = self.state();
        if state.wrote_too_much {
            self.run().request_end(Signal::KILL);
        }
        state.record = Some(record);
        state.orderer = Some(orderer);
        if self.manner.wait_ms == Some(0) {
            self.announce_to(&mut state, tell);
            self.yield_to(&mut state);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Announces the session, unless it has already ended. `tell` is called after the session can
    /// be read, and before the orderer knows its name.
    pub fn announce(&self, tell: impl FnOnce(&SessionRecord)) {
        self.announce_to(&mut self.state(), tell);
    }

    fn announce_to(&self, state: &mut LiveState, tell: impl FnOnce(&SessionRecord)) {
        if state.announced || state.end.is_some() {
            return;
        }
        let Some(record) = state.record.clone() else {
            return;
        };
        state.announced = true;
        if let Some(transcript) = &mut state.transcript {
            // If there is no space for it, only its supervisor knows the session.
            let _ = transcript.begin(Some(record.clone()));
        }
        tell(&record);
        let sent = state.orderer.as_ref().map(|orderer| {
            let started = StartedRun {
                started_ms: state.started_ms,
                session: record,
            };
            frame::send(&**orderer, &Ok::<_, SupervisorRefusal>(started))
        });
        if !matches!(sent, Some(Ok(()))) {
            self.dismiss(state);
        }
    }

    /// Sends the result, if it exists and was not sent yet.
    pub fn answer(&self) {
        let state = self.state();
        if state.answered_until.is_some() || state.end.is_none() || state.orderer.is_none() {
            return;
        }
        drop(state);
        let Some(result) = self.result() else { return };
        let mut state = self.state();
        self.send_result(&mut state, result);
    }

    fn send_result(&self, state: &mut LiveState, result: EndedRun) {
        let Some(orderer) = state.orderer.take() else {
            return;
        };
        let mut message = Vec::new();
        if let (false, Some(record)) = (state.announced, &state.record) {
            let started = StartedRun {
                started_ms: state.started_ms,
                session: record.clone(),
            };
            message = frame::encode(&Ok::<_, SupervisorRefusal>(started), &[]).unwrap_or_default();
        }
        let ended = frame::encode(&Waited::Ended(Box::new(result)), &[]);
        message.extend(ended.unwrap_or_default());
        state.answered_until = Some(Instant::now() + SEND_TIME);
        let sent = io::Write::write_all(&mut &*orderer, &message);
        state.orderer = Some(orderer);
        if sent.is_err() {
            self.dismiss(state);
        }
    }

    /// Ends the wait for the run's end.
    pub fn give_way(&self) {
        self.yield_to(&mut self.state());
    }

    fn yield_to(&self, state: &mut LiveState) {
        let Some(orderer) = state.orderer.clone().filter(|_| state.end.is_none()) else {
            return;
        };
        // The disk is updated first, so that a caller that learns the name of a session finds it in
        // the background.
        self.dismiss(state);
        let _ = frame::send(&*orderer, &Waited::Yielded);
    }

    /// Returns the orderer's connection, as long as it is needed.
    pub fn orderer(&self) -> Option<Arc<UnixStream>> {
        self.state().orderer.clone()
    }

    /// Until when the confirmation of the result is awaited, once the result was sent.
    pub fn answered_until(&self) -> Option<Instant> {
        let state = self.state();
        state.answered_until.filter(|_| state.orderer.is_some())
    }

    pub fn has_orderer(&self) -> bool {
        self.state().orderer.is_some()
    }

    /// Records that the orderer no longer gets the result.
    pub fn orderer_is_gone(&self) {
        self.dismiss(&mut self.state());
    }

    fn dismiss(&self, state: &mut LiveState) {
        state.orderer = None;
        if !state.taken {
            self.put_in_background(state);
        }
    }

    pub fn run(&self) -> &Run {
        // This is set before any other thread knows of this value.
        self.run.wait()
    }

    pub fn reserve(&self) -> Option<&Reserve> {
        self.reserve.as_ref()
    }

    pub fn manner(&self) -> &Manner {
        &self.manner
    }

    /// Returns the record of a session that has begun.
    pub fn record(&self) -> Option<SessionRecord> {
        self.state().record.clone()
    }

    pub fn ended_event(&self) -> &OwnedFd {
        &self.ended
    }

    pub fn wake_event(&self) -> &OwnedFd {
        &self.woken
    }

    pub fn clear_wake_event(&self) {
        let _ = rustix::io::read(&self.woken, &mut [0; 8]);
    }

    /// Moves the run to the background: no call waits for its result anymore.
    pub fn to_background(&self) {
        self.put_in_background(&mut self.state());
    }

    fn put_in_background(&self, state: &mut LiveState) {
        let Some(record) = &mut state.record else {
            return;
        };
        if record.background {
            return;
        }
        record.background = true;
        let record = record.clone();
        match &mut state.transcript {
            Some(transcript) if state.end.is_none() => {
                let _ = transcript.describe(|session| *session = record);
            }
            _ => self.write_final(state),
        }
    }

    /// Writes the final status of a session that has ended.
    fn write_final(&self, state: &mut LiveState) {
        if state.abandoned {
            return;
        }
        let Some(end) = &mut state.end else { return };
        if let Some(mut transcript) = state.transcript.take() {
            if let Some(record) = &state.record {
                transcript.set_session(record.clone());
            }
            if let Err(error) = transcript.finish(final_outcome(end.outcome.status)) {
                end.fault.get_or_insert_with(|| error.to_string());
            }
        } else if let Ok(mut status) = TranscriptStatus::read(&self.directory) {
            status.session.clone_from(&state.record);
            let _ = status.write(&self.directory);
        }
    }

    /// Discards the transcript, which no client wants. The files of a session that was never
    /// announced are returned, because they can serve another session.
    pub fn forget(&self) -> Option<TranscriptWriter> {
        let mut state = self.state();
        let unannounced = !state.announced;
        let transcript = state.transcript.take().filter(|_| unannounced);
        if transcript.is_none() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
        transcript
    }

    /// Records that the result was received completely and nothing needs to be kept.
    pub fn taken(&self) {
        self.state().taken = true;
    }

    /// Records that the orderer keeps the connection for another order.
    pub fn another_may_follow(&self, orderer: &Arc<UnixStream>) {
        self.state().next_orderer = Some(Arc::clone(orderer));
    }

    /// Records that this is the last run of the process.
    pub fn drain(&self) {
        self.state().drains = true;
    }

    /// Whether the run is, or was, in a sandbox.
    pub fn is_sandboxed(&self) -> bool {
        let record = self.record();
        record.is_some_and(|record| record.shield == Some(PlanShield::Sandbox))
    }

    /// Returns the client that may have another order for this process, if the supervisor does not
    /// know of this run and allows another.
    pub fn next_orderer(&self) -> Option<Arc<UnixStream>> {
        let mut state = self.state();
        let next = state.next_orderer.take();
        next.filter(|_| !state.announced && !state.drains)
    }

    /// Records that the run is about to be ended because the supervisor is gone. That is not an
    /// outcome of the run: nothing more is recorded, and a later look finds the session lost.
    pub fn abandon(&self) {
        let mut state = self.state();
        state.abandoned = true;
        if state.end.is_none() {
            state.orderer = None;
        }
        if !TranscriptStatus::path(&self.directory).exists() {
            // The session was never announced.
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }

    pub fn set_limits(&self, limits: TranscriptLimits) {
        let own = self.manner.max_spool_bytes;
        if let Some(transcript) = &mut self.state().transcript {
            transcript.set_limits(TranscriptLimits {
                max_spool_bytes: limits.max_spool_bytes.min(own),
            });
        }
    }

    /// Waits until there is more output than `after`, or until the end.
    pub fn wait_for_output(&self, after: u64, limit: Duration) -> SessionStanding {
        let until = Instant::now() + limit;
        let mut state = self.state();
        state.waiting += 1;
        while state.total_bytes <= after && state.end.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.waiting -= 1;
        SessionStanding {
            total_bytes: state.total_bytes,
            ended: state.end.is_some(),
        }
    }

    /// Whether the kernel ended processes of the run because of its memory limit.
    fn ran_out_of_memory(&self) -> bool {
        self.manner.limits.memory_bytes.is_some()
            && self
                .group
                .as_ref()
                .and_then(Group::oom_kills)
                .is_some_and(|kills| kills > 0)
    }

    pub fn with_screen<T>(&self, look: impl FnOnce(&mut Screen) -> T) -> Option<T> {
        self.state().screen.as_mut().map(look)
    }

    /// Returns the screen as bytes, and how much output it shows. There are no bytes without a
    /// terminal.
    pub fn drawing(&self) -> (Vec<u8>, u64) {
        let state = self.state();
        let drawing = state.screen.as_ref().map(Screen::drawing);
        (drawing.unwrap_or_default(), state.total_bytes)
    }

    /// Whether nothing of the run is left.
    pub fn is_over(&self) -> bool {
        self.state().survivors.is_some()
    }

    /// Returns what is left of the run and will stay.
    pub fn survivors(&self) -> Vec<Leftover> {
        self.state().survivors.clone().unwrap_or_default()
    }

    /// Whether no request is being answered.
    pub fn is_quiet(&self) -> bool {
        self.state().busy == 0
    }

    /// Returns the name under which the transcript is kept, if a client may want to read it later.
    pub fn kept(&self) -> Option<String> {
        let mut state = self.state();
        if state.taken {
            return None;
        }
        self.put_in_background(&mut state);
        state.record.as_ref().map(|record| record.name.clone())
    }

    pub fn enter(&self) {
        self.state().busy += 1;
    }

    pub fn leave(&self) {
        self.state().busy -= 1;
        self.wake();
    }

    /// Wakes the process's main loop, because there may be something to do.
    fn wake(&self) {
        let _ = rustix::io::write(&self.woken, &1_u64.to_ne_bytes());
    }

    fn state(&self) -> MutexGuard<'_, LiveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn final_outcome(status: RunStatus) -> SessionOutcome {
    match status {
        RunStatus::Exited(code) => SessionOutcome::Exited { code },
        RunStatus::Signaled(signal) => SessionOutcome::Signalled { signal },
        RunStatus::TimedOut => SessionOutcome::TimedOut { signal: None },
    }
}
