//! One `interlock exec` call on this machine: the verdict, the wait for an approver where the
//! policy asks for one, the run, and the result.

use std::process::ExitCode;
use std::sync::mpsc::channel;

use interlock_approvals::companion::CourierWaits;
use interlock_arguments::{ExecArguments, StateArguments};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_host::{
    EffectReport, EndListener, Exec, ExecError, ExecRequest, LocalHost, NotedDenials, Pending,
    RunTicket, Running,
};
use interlock_inbox::approval_wait::{self, AwaitedApproval, Settled, Unawaited};
use interlock_supervisor::{ClientError, StartedRun, SupervisorClient, Waited};
use serde_json::{Value, json};
use signal_hook::iterator::Signals;

use super::attended::attend;
use super::effect::SettledEffect;
use super::events::UndeliveredEvents;
use super::follow::OutputFollower;
use super::hint::{hint, remedy};
use super::interrupt::end_run_on_signal;
use super::result::{
    ended_result, exit_code, note_denials, note_end, note_running, running_result, shown_host,
};
use super::{input, networks, notice};
use crate::process::attach::{self, AttachEnd};

/// The state that the steps of one call share.
pub(super) struct TerminalCall<'a> {
    pub host: &'a LocalHost,
    pub state: &'a StateArguments,
    pub all: &'a ExecArguments,
    pub client: &'a SupervisorClient,
    pub request: &'a ExecRequest<'a>,
    /// Undelivered events of the conversation. This call delivers them with its result.
    pub events: &'a UndeliveredEvents<'a>,
    /// Whether the standard input of this process is passed to the run.
    pub is_input_passed: bool,
    pub has_pipe: bool,
    pub is_attended: bool,
}

/// How a call continues after its verdict.
pub(super) enum BegunCall {
    Running(Box<Running>),
    /// The approval is still pending, and the call ends with this exit code.
    Left(ExitCode),
}

impl TerminalCall<'_> {
    /// Starts the run: at once if the policy allows it, otherwise when an approver has allowed it.
    pub(super) fn begin(&self, signals: &mut Signals) -> Result<BegunCall, Failure> {
        let begun = match &self.all.approval {
            Some(id) => return self.run_approved(id),
            None => self.host.exec(self.request, self.client),
        };
        match begun.map_err(|error| self.failure(error))? {
            Exec::Started(running) => Ok(BegunCall::Running(running)),
            Exec::Pending(pending) if self.all.no_wait => self.leave(&pending),
            Exec::Pending(pending) => self.wait_for_decision(&pending, signals),
        }
    }

    /// Starts the run that an approval allows.
    fn run_approved(&self, id: &str) -> Result<BegunCall, Failure> {
        let running = self.host.run_approved(id, self.request, self.client);
        if running.is_err() {
            // The answer to this call reports the failure, so no event has to.
            let _ = self.host.approvals().mark_outcome_delivered(id);
        }
        let running = running.map_err(|error| self.failure(error))?;
        Ok(BegunCall::Running(Box::new(running)))
    }

    /// Leaves the approval pending and ends the call.
    fn leave(&self, pending: &Pending) -> Result<BegunCall, Failure> {
        let print = |result| self.events.print(result);
        let left = Unawaited {
            approval: &pending.approval,
            reason: &pending.verdict.reason.message,
            hint: remedy(&pending.verdict, self.state, (self.all, self.has_pipe)),
        };
        let print: Option<&dyn Fn(Value)> = self.all.request.json.then_some(&print);
        approval_wait::leave(self.host, self.state, left, print).map(BegunCall::Left)
    }

    fn wait_for_decision(
        &self,
        pending: &Pending,
        signals: &mut Signals,
    ) -> Result<BegunCall, Failure> {
        let asked = AwaitedApproval {
            approval: &pending.approval,
            reason: &pending.verdict.reason.message,
            json: self.all.request.json,
            courier: self
                .host
                .approvals()
                .courier(&pending.approval, CourierWaits::ForDecision),
        };
        match approval_wait::settle(self.host, self.state, asked, signals)? {
            Settled::Decided => self.run_approved(&pending.approval.id),
            Settled::Left { code, .. } => Ok(BegunCall::Left(code)),
        }
    }

    /// Shows the output of the run, records how the run ended, and answers the caller.
    pub(super) fn see_through(self, running: Running, signals: Signals) -> CommandOutcome {
        let Running {
            conversation,
            ticket,
            elevation,
            inside,
        } = running;
        let json = self.all.request.json;
        let started = conversation.started().clone();
        let session = started.session.name.as_str();
        if inside
            .as_ref()
            .is_some_and(|inside| inside.asks_for_hosts())
        {
            networks::begin(self.state, self.client, json, self.is_attended);
        }
        if self.is_input_passed {
            input::pass(self.client, session);
        }
        let notice = notice::begin(self.host, &ticket);
        let (done, is_done) = channel::<()>();
        let interrupted = end_run_on_signal(self.client, session, signals, is_done);
        if self.is_attended && self.is_detached(&started) {
            self.record(&ticket, session, Ok(&Waited::Yielded));
            attach::tell_detached(self.state, session);
            return Ok(ExitCode::SUCCESS);
        }
        let mut follower = OutputFollower::new(self.client, &started);
        if !json && !self.all.background && !self.is_attended {
            follower.follow(self.client);
        }
        let waited = conversation.wait();
        drop(notice);
        let effect = self.settle_effect(&started, &ticket, &waited);
        self.record(&ticket, session, waited.as_ref());
        let ended = match waited {
            Ok(Waited::Ended(ended)) => ended,
            Ok(Waited::Yielded) => {
                self.answer_running(&started);
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Err(lost(error)),
        };
        let denied = inside.and_then(|inside| {
            let noted = self.host.note_denials(&inside, &ticket, session, &ended);
            noted
                .inspect_err(|error| output::note(&format!("interlock: {error}")))
                .ok()
        });
        let shown_whole = if json {
            let mut result = ended_result(&started, &ended, &self.request.cwd, elevation);
            add_sandbox(&mut result, denied.as_ref(), effect.as_ref());
            self.events.print(result);
            ended.shown.omitted_bytes == 0
        } else {
            if !self.is_attended {
                follower.show_rest();
            }
            note_end(&ended, follower.not_shown(), elevation);
            if let Some(effect) = effect.as_ref().filter(|effect| effect.is_noteworthy()) {
                output::note(&format!("interlock: {}", output::line(&effect.words())));
            }
            note_denials(denied.as_ref());
            true
        };
        if shown_whole {
            // The transcript is no longer needed. If output was omitted, it is kept so that the
            // caller can read the rest.
            let _ = conversation.taken();
        }
        drop(done);
        // Connections that cannot be recorded now stay in their file for the next process.
        let _ = self.host.record_connections();
        let code = interrupted.get().copied();
        Ok(code
            .unwrap_or_else(|| exit_code(ended.outcome.status))
            .into())
    }

    /// Connects the caller's terminal to the run. Returns whether the caller detached, so that the
    /// run continues in the background.
    fn is_detached(&self, started: &StartedRun) -> bool {
        match attend(self.host, self.client, started) {
            Ok(left) => matches!(left, AttachEnd::Detached),
            // The run goes on or has ended by itself; its result follows.
            Err(error) => {
                output::note(&format!("interlock: {error}"));
                false
            }
        }
    }

    /// Settles the file changes of a run in a sandbox: commits them or asks for approval.
    fn settle_effect(
        &self,
        started: &StartedRun,
        ticket: &RunTicket,
        waited: &Result<Waited, ClientError>,
    ) -> Option<EffectReport> {
        let Ok(Waited::Ended(ended)) = waited else {
            return None;
        };
        let effect = SettledEffect {
            host: self.host,
            state: self.state,
            all: self.all,
            run_id: &ticket.run_id,
            ended: (&started.session.name, ended),
        };
        (shown_host(started) == "sandbox")
            .then(|| effect.settle())
            .flatten()
    }

    fn answer_running(&self, started: &StartedRun) {
        if self.all.request.json {
            let result = running_result(started, &self.request.cwd, self.client);
            self.events.print(result);
        } else {
            note_running(started, self.state);
        }
    }

    /// Records the end of the run. The caller waits here and gets the result, so no event repeats
    /// it.
    fn record(&self, ticket: &RunTicket, session: &str, waited: Result<&Waited, &ClientError>) {
        let recorded = self
            .host
            .record_end(ticket, session, waited, EndListener::Caller);
        if let Err(error) = recorded {
            output::note(&format!(
                "interlock: the end of the run is not recorded: {error}"
            ));
        }
    }

    fn failure(&self, error: ExecError) -> Failure {
        let hint = hint(&error, self.state, (self.all, self.has_pipe));
        Failure::Exec {
            error: Box::new(error),
            hint,
        }
    }
}

/// Adds to the result what the sandbox denied, and whether the run's file changes were committed.
fn add_sandbox(result: &mut Value, denied: Option<&NotedDenials>, effect: Option<&EffectReport>) {
    if let Some(noted) = denied {
        result["sandbox"] = json!({ "runId": noted.run_id, "denials": noted.denials });
    }
    if let Some(effect) = effect {
        result["effect"] = json!(effect);
    }
}

fn lost(error: ClientError) -> Failure {
    Failure::Exec {
        error: Box::new(error.into()),
        hint: None,
    }
}
