//! Runs that another host makes and keeps, from start to end. Any process of this host may learn of
//! the end, also after a restart. Each end is recorded once.

use interlock_approvals::clock::now;
use interlock_approvals::{NotifySettings, SessionRunEnd, clipped_command, process_name};
use interlock_store::{AuditKind, NewRun, OpenRun, RecordedOutcome, StoreError};
use serde_json::{Value, json};

use super::run_records::{EndListener, end_run};
use crate::local::{HostError, LocalHost};

/// A run that another host is about to start.
#[derive(Debug, Clone, Copy)]
pub struct NewRemoteRun<'a> {
    /// The id of the approval if an approver allowed the run.
    pub id: &'a str,
    pub is_approved: bool,
    pub agent: &'a str,
    pub session_key: &'a str,
    pub node: &'a str,
    /// The command as approvers are shown it.
    pub command: &'a str,
}

impl NewRemoteRun<'_> {
    /// The audit record of the run's start.
    pub fn record(&self) -> Value {
        json!({
            "agent": self.agent,
            "command": self.command,
            "host": "node",
            "node": self.node,
            "runId": self.id,
            "sessionKey": self.session_key,
        })
    }
}

impl LocalHost {
    /// Records the start of a run; the start of an approved run is already recorded by its claim.
    /// From then on the run needs an outcome.
    pub fn start_remote_run(&self, run: &NewRemoteRun<'_>) -> Result<OpenRun, HostError> {
        let command = clipped_command(run.command);
        Ok(self.store().change(|change| {
            if !run.is_approved {
                change.append(AuditKind::RunStarted, &run.record(), now())?;
            }
            change.open_run(&NewRun {
                id: run.id,
                approval_id: run.is_approved.then_some(run.id),
                agent: run.agent,
                session_key: run.session_key,
                host: "node",
                node: Some(run.node),
                command: &command,
                waiter: process_name(),
                now_ms: now(),
            })
        })?)
    }

    /// Runs whose end is not known, on one node or on all.
    pub fn remote_runs(&self, node: Option<&str>) -> Result<Vec<OpenRun>, HostError> {
        let store = self.store();
        let Some(node) = node else {
            let mut runs = store.open_runs()?;
            runs.retain(|run| run.node.is_some());
            return Ok(runs);
        };
        Ok(store.open_runs_on(node)?)
    }

    /// The run with this id on this node, if its end is not known.
    pub fn remote_run(&self, node: &str, id: &str) -> Result<Option<OpenRun>, HostError> {
        let run = self.store().open_run_by_id(id)?;
        Ok(run.filter(|run| run.node.as_deref() == Some(node)))
    }

    /// Records that the run is in the background as a session with this name. `false` if the run is
    /// over.
    pub fn remote_run_to_background(&self, id: &str, session: &str) -> Result<bool, HostError> {
        let store = self.store();
        Ok(store.change(|change| change.to_background(id, session))?)
    }

    /// Records the outcome of a run, or that it is unknown, and the event for its session. `false`
    /// if the end is already recorded.
    pub fn end_remote_run(
        &self,
        run: &OpenRun,
        outcome: Option<&RecordedOutcome>,
        tail: &str,
        listener: EndListener,
    ) -> Result<bool, HostError> {
        let is_delivered = listener == EndListener::Caller;
        let how = SessionRunEnd {
            outcome,
            tail,
            notify: if is_delivered && run.approval_id.is_none() {
                NotifySettings::NOTHING
            } else {
                self.approvals().notify_settings(&run.agent)
            },
        };
        Ok(self.store().change(|change| {
            let is_first = end_run(change, &run.id, &how)?;
            if is_delivered {
                change.mark_run_events_delivered(&run.id, now())?;
            }
            Ok::<_, StoreError>(is_first)
        })?)
    }
}
