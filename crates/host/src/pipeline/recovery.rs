//! Records the ends of runs without a waiting caller: of background runs, and of runs that a crash
//! left behind.

use std::time::{Duration, Instant};

use interlock_approvals::clock::now;
use interlock_approvals::{NotifySettings, SessionRunEnd, gateway_run_id, is_unattended};
use interlock_store::{OpenRun, RecordedOutcome, Store, StoreError};
use interlock_supervisor::{ListedSession, SessionState, SupervisorClient, SupervisorPaths};
use interlock_transcript::{SessionOutcome, TranscriptStatus};

use super::events::output_tail;
use super::run_records::end_run;
use crate::local::{HostError, LocalHost};

/// How long a single request for the end of a session waits.
const WATCH: Duration = Duration::from_secs(30);

/// How long an ended session may take to write its end.
const SETTLING: Duration = Duration::from_secs(5);

/// The result of recovering one run. Recovery never runs a command again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredRun {
    /// The id of the approval if an approver allowed this run.
    pub run_id: String,
    pub session_key: String,
    /// The name of the background session, if the run got one.
    pub session: Option<String>,
    pub is_approved: bool,
    /// `None` if the outcome is unknown.
    pub outcome: Option<RecordedOutcome>,
}

impl RecoveredRun {
    /// The id that a gateway chose, if a gateway forwarded the run.
    pub fn forwarded_run(&self) -> Option<&str> {
        gateway_run_id(&self.run_id)
    }
}

impl LocalHost {
    /// Records the end of every run that no caller waits for any more: the outcome that its session
    /// reports, or *unknown* without a session. Runs that still run or whose waiting process is
    /// alive are left alone. Each end is recorded once, even if several processes recover at the
    /// same time.
    pub fn recover(&self, supervisor: &SupervisorClient) -> Result<Vec<RecoveredRun>, HostError> {
        self.effects().settle_layers()?;
        let store = self.store();
        let mut runs = store.open_runs()?;
        self.approvals().announce_due(&runs)?;
        runs.retain(|run| is_here(run) && is_unattended(run));
        if runs.is_empty() {
            return Ok(Vec::new());
        }
        let sessions = supervisor.list();
        let mut recovered = Vec::new();
        for mut run in runs {
            let session = sessions.iter().find(|listed| is_session_of(&run, listed));
            if let (None, Some(listed)) = (&run.session, session) {
                // The run outlived the process that waited for it.
                let name = &listed.session.name;
                store.change(|change| change.to_background(&run.id, name))?;
                run.session = Some(name.clone());
            }
            let outcome = match session.map(|listed| listed.state) {
                Some(SessionState::Running) => continue,
                Some(SessionState::Ended) => session.and_then(|listed| outcome(&listed.status)),
                Some(SessionState::Lost) | None => None,
            };
            recovered.extend(self.close_run(&run, supervisor.place(), outcome)?);
        }
        Ok(recovered)
    }

    /// Records the end of one background session if it has ended. For callers that watch the
    /// session. `None` if the session still runs or its end is already recorded.
    pub fn finish_background(
        &self,
        session: &str,
        supervisor: &SupervisorClient,
    ) -> Result<Option<RecoveredRun>, HostError> {
        match self.store().background_run(session)? {
            Some(run) => self.settle_run(&run, supervisor.place()),
            None => Ok(None),
        }
    }

    /// Waits until a background session has ended and records its end. Blocks for as long as that
    /// takes.
    pub fn await_background(
        &self,
        session: &str,
        supervisor: &SupervisorClient,
    ) -> Result<Option<RecoveredRun>, HostError> {
        while let Ok(link) = supervisor.session(session) {
            let waited = link.wait(u64::MAX, WATCH);
            if waited.map_or(true, |standing| standing.ended) {
                break;
            }
        }
        let until = Instant::now() + SETTLING;
        loop {
            let found = self.finish_background(session, supervisor)?;
            if found.is_some() || self.store().background_run(session)?.is_none() {
                return Ok(found);
            }
            if Instant::now() >= until {
                // The session's files say that it runs, but no process runs it: the session is
                // lost.
                let mut recovered = self.recover(supervisor)?.into_iter();
                return Ok(recovered.find(|one| one.session.as_deref() == Some(session)));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Records the ends of all background runs of one session key, as far as their files report
    /// them.
    pub(super) fn settle_session(
        &self,
        session_key: &str,
        supervisor: &SupervisorClient,
    ) -> Result<(), HostError> {
        let mut runs = self.store().open_runs_of(session_key)?;
        self.approvals().announce_due(&runs)?;
        runs.retain(is_here);
        let unattended = || runs.iter().filter(|run| is_unattended(run));
        if unattended().any(|run| run.session.is_none()) {
            self.recover(supervisor)?;
            return Ok(());
        }
        for run in unattended() {
            self.settle_run(run, supervisor.place())?;
        }
        Ok(())
    }

    /// Deletes approvals, claims and grants that ended more than a day ago, and old events. The
    /// audit keeps its records.
    pub fn forget_old(&self) -> Result<(), HostError> {
        let store = self.store();
        store.purge(now())?;
        store.purge_events(now())?;
        store.purge_stale(now())?;
        Ok(self.rules().forget_uses()?)
    }

    fn settle_run(
        &self,
        run: &OpenRun,
        place: &SupervisorPaths,
    ) -> Result<Option<RecoveredRun>, HostError> {
        let notify = || self.approvals().notify_settings(&run.agent);
        Ok(settle_background_run(self.store(), run, place, notify)?)
    }

    fn close_run(
        &self,
        run: &OpenRun,
        place: &SupervisorPaths,
        outcome: Option<RecordedOutcome>,
    ) -> Result<Option<RecoveredRun>, HostError> {
        let notify = self.approvals().notify_settings(&run.agent);
        Ok(close(self.store(), run, place, outcome, notify)?)
    }
}

/// Records the end of a background run if its files report it or are gone.
pub fn settle_background_run(
    store: &Store,
    run: &OpenRun,
    place: &SupervisorPaths,
    notify: impl FnOnce() -> NotifySettings,
) -> Result<Option<RecoveredRun>, StoreError> {
    let Some(name) = &run.session else {
        return Ok(None);
    };
    let directory = place.session(name);
    let outcome = match TranscriptStatus::read(&directory) {
        Ok(status) if !is_of(run, &status) => None,
        Ok(status) if !status.outcome.is_final() => return Ok(None),
        Ok(status) => outcome(&status),
        Err(_) if !TranscriptStatus::path(&directory).exists() => None,
        // The status file is damaged. A caller that asks the supervisor gets a better answer.
        Err(_) => return Ok(None),
    };
    close(store, run, place, outcome, notify())
}

fn close(
    store: &Store,
    run: &OpenRun,
    place: &SupervisorPaths,
    outcome: Option<RecordedOutcome>,
    notify: NotifySettings,
) -> Result<Option<RecoveredRun>, StoreError> {
    let tail = match (&outcome, &run.session) {
        (Some(_), Some(name)) => output_tail(place, name),
        _ => String::new(),
    };
    let how = SessionRunEnd {
        outcome: outcome.as_ref(),
        tail: &tail,
        notify,
    };
    let is_first = store.change(|change| end_run(change, &run.id, &how))?;
    Ok(is_first.then(|| RecoveredRun {
        run_id: run.id.clone(),
        session_key: run.session_key.clone(),
        session: run.session.clone(),
        is_approved: run.approval_id.is_some(),
        outcome,
    }))
}

/// Whether this host makes the run. The ends of other runs are recorded where their host reports.
fn is_here(run: &OpenRun) -> bool {
    run.node.is_none()
}

fn is_session_of(run: &OpenRun, listed: &ListedSession) -> bool {
    match (&listed.session.run_id, &run.session) {
        (Some(id), _) => *id == run.id,
        (None, Some(name)) => *name == listed.session.name,
        (None, None) => false,
    }
}

/// Whether a status belongs to the run. Session names are reused, so the files may belong to
/// another run.
fn is_of(run: &OpenRun, status: &TranscriptStatus) -> bool {
    let session = status.session.as_ref();
    let id = session.and_then(|session| session.run_id.as_ref());
    id.is_none_or(|id| *id == run.id)
}

/// The outcome of a session; `None` if its end was not observed.
fn outcome(status: &TranscriptStatus) -> Option<RecordedOutcome> {
    let mut outcome = match status.outcome {
        SessionOutcome::Exited { code } => RecordedOutcome::exited(Some(code.into())),
        SessionOutcome::Signalled { signal } => RecordedOutcome::signaled(signal),
        SessionOutcome::TimedOut { .. } => RecordedOutcome::timed_out(),
        SessionOutcome::Running | SessionOutcome::Lost => return None,
    };
    if let Some(ended) = status.ended_ms {
        outcome = outcome.with_duration_ms(ended.saturating_sub(status.started_ms));
    }
    let session = status.session.as_ref();
    let programs = session.and_then(|session| session.programs.as_ref());
    let programs = programs.map(|programs| serde_json::json!(programs));
    Some(
        outcome
            .with_output_bytes(status.totals.bytes)
            .with_protected_created(session.map_or(&[], |session| &session.protected_created))
            .with_programs(programs)
            .with_session(session.map(|session| session.name.as_str())),
    )
}
