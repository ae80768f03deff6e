//! The audit records of a run: the verdict, the start, the end.

use std::collections::BTreeMap;

use interlock_approvals::clock::now;
use interlock_approvals::{
    NotifySettings, SessionRunEnd, THIS_HOST, clipped_command, confinement_record, gateway_run_id,
    process_name, queue_finished, shown_command,
};
use interlock_command::Source;
use interlock_command::display::{self, Secrets};
use interlock_engine::RunStatus;
use interlock_local::ElevationRefusal;
use interlock_plan::{Elevation, RunPlan};
use interlock_policy::{AgentId, Verdict, quote};
use interlock_sandbox::PreparedSandbox;
use interlock_store::{
    AuditKind, Change, EntryUse, NewRun, RecordedOutcome, RecordedStatus, StoreError,
};
use interlock_supervisor::{ClientError, SupervisorPaths, Waited};
use serde_json::{Value, json};

use super::events::ended_tail;
use crate::exec::ExecRequest;
use crate::local::{HostError, LocalHost};
use crate::prepare::command_text;

/// A started run, until its end is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the caller that waits for a run records its end"]
pub struct RunTicket {
    /// The id of the approval if an approver allowed this run.
    pub run_id: String,
    pub(crate) agent: String,
    /// Whether a claim exists that needs an outcome.
    pub(crate) is_claimed: bool,
}

impl RunTicket {
    /// Whether the conversation is notified of the end by an event. True for runs that were
    /// approved on this host.
    fn has_event(&self) -> bool {
        self.is_claimed && gateway_run_id(&self.run_id).is_none()
    }
}

/// Where a run is confined, and how far it leaves its sandbox, for its records.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RecordedConfinement<'a> {
    pub(crate) sandbox: Option<&'a PreparedSandbox>,
    pub(crate) elevation: Elevation,
}

/// Records a verdict, the code of a refusal that followed in spite of it, and where the run would
/// be confined. Also records the use of the entries that allow the run.
pub(crate) fn record_verdict(
    change: &Change<'_>,
    request: &ExecRequest<'_>,
    verdict: &Verdict,
    refused: Option<&str>,
    place: RecordedConfinement<'_>,
) -> Result<(), StoreError> {
    let agent = request.agent.as_str();
    let shown = RecordedCommand::of(&request.source);
    let (env, env_is_exact) = recorded_env(&request.env);
    if refused.is_none() {
        for used in &verdict.entries {
            change.use_entry(&EntryUse {
                entry: used.key.clone(),
                used_at_ms: now(),
                command: shown.text.clone(),
                resolved: used.resolved.clone(),
            })?;
        }
    }
    let segments: Vec<Value> = verdict
        .segments
        .iter()
        .map(|judged| {
            json!({
                "canonical": judged.canonical,
                "reason": judged.reason.code,
                "satisfiedBy": judged.satisfied_by,
            })
        })
        .collect();
    let workspace = request.caller.workspace();
    let mut record = json!({
        "agent": agent,
        "argv": shown.argv,
        "ask": request.ask,
        "binding": verdict.binding.kind,
        "command": shown.text,
        "cwd": request.cwd,
        "env": env,
        "exact": shown.is_exact && env_is_exact,
        "input": request.input(),
        "reason": verdict.reason,
        "refused": refused,
        "segments": segments,
        "transport": verdict.transport,
        "verdict": verdict.outcome,
        "workspace": (!workspace.is_empty()).then_some(workspace),
    });
    if let Some(sandbox) = place.sandbox {
        record["sandbox"] = json!(sandbox.plan.summary());
    }
    if place.elevation.leaves() {
        record["sandbox"] = json!({ "elevated": place.elevation });
    }
    change.append(AuditKind::Verdict, &record, now())?;
    Ok(())
}

/// Replaces a value that is secret.
const MASKED: &str = "***";

/// The environment overrides of a call as the audit stores them, and whether all values are exact.
fn recorded_env(env: &BTreeMap<String, String>) -> (BTreeMap<&str, &str>, bool) {
    let mut is_exact = true;
    let pairs = env.iter().map(|(name, value)| {
        let text = format!("{name}={} :", quote(value));
        let shown = display::command(&text, Secrets::Masked);
        if shown.is_ok_and(|shown| shown.text == text) {
            (name.as_str(), value.as_str())
        } else {
            is_exact = false;
            (name.as_str(), MASKED)
        }
    });
    (pairs.collect(), is_exact)
}

/// A command as the audit stores it: without secrets.
struct RecordedCommand {
    text: String,
    /// The argument vector of the request, if nothing in it had to be masked.
    argv: Option<Vec<String>>,
    /// Whether the text is the complete, unmasked command.
    is_exact: bool,
}

impl RecordedCommand {
    fn of(source: &Source) -> Self {
        let command = command_text(source);
        let shown = display::command(&command, Secrets::Masked);
        let is_exact = shown.as_ref().is_ok_and(|shown| shown.text == command);
        Self {
            text: shown.map_or_else(|bytes| format!("[{bytes} bytes]"), |shown| shown.text),
            argv: match source {
                Source::Argv(argv) if is_exact => Some(argv.clone()),
                _ => None,
            },
            is_exact,
        }
    }
}

/// Records that the tool is closed to an agent, so that nothing was judged.
pub(crate) fn record_closed(
    change: &Change<'_>,
    request: &ExecRequest<'_>,
) -> Result<(), StoreError> {
    let record = json!({
        "agent": request.agent.as_str(),
        "command": RecordedCommand::of(&request.source).text,
        "cwd": request.cwd,
        "refused": "TOOL_DENIED",
        "verdict": "deny",
    });
    change.append(AuditKind::Verdict, &record, now())?;
    Ok(())
}

/// Records the start of a run that the policy allows without an approval. Claims record their own
/// start.
pub(crate) fn started_record(
    change: &Change<'_>,
    ticket: &RunTicket,
    plan: &RunPlan,
    session_key: &str,
) -> Result<(), StoreError> {
    let mut record = json!({
        "agent": ticket.agent,
        "digest": plan.digest().as_str(),
        "shield": plan.shield.words(),
        "runId": ticket.run_id,
    });
    if let Some(sandbox) = confinement_record(plan) {
        change.keep_sandbox(&ticket.run_id, &sandbox)?;
        record["sandbox"] = sandbox;
    }
    if let Some(tree) = &plan.tree {
        record["tree"] = tree.level().as_str().into();
    }
    change.append(AuditKind::RunStarted, &record, now())?;
    open_run(change, ticket, None, plan, session_key)
}

/// Opens the record of a run. From then on the run needs an outcome, no matter which process learns
/// of it.
pub(crate) fn open_run(
    change: &Change<'_>,
    ticket: &RunTicket,
    approval_id: Option<&str>,
    plan: &RunPlan,
    session_key: &str,
) -> Result<(), StoreError> {
    change.open_run(&NewRun {
        id: &ticket.run_id,
        approval_id,
        agent: &ticket.agent,
        session_key,
        host: THIS_HOST,
        node: None,
        command: &clipped_command(&shown_command(&plan.command, Secrets::Masked).text),
        waiter: process_name(),
        now_ms: now(),
    })?;
    Ok(())
}

/// Records the end of a run, in its claim or separately, and the event for its session. `false` if
/// another process already recorded the end.
pub(super) fn end_run(
    change: &Change<'_>,
    run_id: &str,
    end: &SessionRunEnd<'_>,
) -> Result<bool, StoreError> {
    let Some(run) = change.close_run(run_id)? else {
        return Ok(false);
    };
    let is_claimed = run.approval_id.is_some();
    record_outcome(change, run_id, &run.agent, is_claimed, end.outcome)?;
    queue_finished(change, &run, end)?;
    Ok(true)
}

/// Records the outcome of a run: in its claim, if there is one, or separately. `None` records that
/// it is unknown.
pub fn record_outcome(
    change: &Change<'_>,
    run_id: &str,
    agent: &str,
    is_claimed: bool,
    outcome: Option<&RecordedOutcome>,
) -> Result<(), StoreError> {
    let state = match (is_claimed, outcome) {
        (true, Some(outcome)) => return change.finish_claim(run_id, outcome, now()),
        (true, None) => return change.mark_unknown(run_id, now()),
        (false, Some(_)) => "finished",
        (false, None) => "unknown",
    };
    let mut record = json!({
        "agent": agent,
        "outcome": outcome,
        "runId": run_id,
        "state": state,
    });
    change.add_sandbox_of_ended(run_id, &mut record)?;
    change.append(AuditKind::RunEnded, &record, now())?;
    Ok(())
}

/// Who is notified of the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndListener {
    /// The caller waits and gets the end in its result, so no event repeats it.
    Caller,
    /// No caller waits, so the session gets an event.
    SessionEvent,
}

impl LocalHost {
    /// Records that a call asked to leave its sandbox and was refused. Nothing was judged.
    pub fn record_kept_inside(
        &self,
        agent: &AgentId,
        source: &Source,
        session_key: &str,
    ) -> Result<(), HostError> {
        let record = json!({
            "agent": agent.as_str(),
            "command": RecordedCommand::of(source).text,
            "refused": ElevationRefusal::CODE,
            "sessionKey": session_key,
            "verdict": "deny",
        });
        let recorded = self.store().change(|change| {
            change.append(AuditKind::Verdict, &record, now())?;
            Ok::<_, StoreError>(())
        });
        Ok(recorded?)
    }

    /// Records how a run ended, or that it went to the background as this session. Returns an error
    /// if other processes hold the database; the record is then written later, if this process
    /// lives.
    pub fn record_end(
        &self,
        ticket: &RunTicket,
        session: &str,
        waited: Result<&Waited, &ClientError>,
        listener: EndListener,
    ) -> Result<(), HostError> {
        let record = self.run_end_record(ticket, session, waited, listener);
        let store = self.store();
        Ok(store.change_or_defer(move |change| record.write(change), not_recorded(ticket))?)
    }

    /// Like [`Self::record_end`], but writes the record a moment later, for callers that do not
    /// wait for it. If the process is killed first, the end stays unrecorded; see
    /// [`LocalHost::recover`].
    pub fn record_end_later(
        &self,
        ticket: &RunTicket,
        session: &str,
        waited: Result<&Waited, &ClientError>,
        listener: EndListener,
    ) {
        let record = self.run_end_record(ticket, session, waited, listener);
        let store = self.store();
        store.change_deferred(move |change| record.write(change), not_recorded(ticket));
    }

    fn run_end_record(
        &self,
        ticket: &RunTicket,
        session: &str,
        waited: Result<&Waited, &ClientError>,
        listener: EndListener,
    ) -> RunEndRecord {
        let outcome = match waited {
            Ok(Waited::Ended(ended)) => {
                let outcome = &ended.outcome;
                let duration = u64::try_from(outcome.duration.as_millis()).unwrap_or(u64::MAX);
                Some(
                    recorded(outcome.status)
                        .with_duration_ms(duration)
                        .with_output_bytes(ended.totals.bytes)
                        .with_protected_created(&ended.protected_created)
                        .with_programs(outcome.programs.as_ref().map(|own| serde_json::json!(own)))
                        .with_session(Some(session)),
                )
            }
            Ok(Waited::Yielded) => {
                return RunEndRecord::Background {
                    ticket: ticket.clone(),
                    session: session.to_owned(),
                };
            }
            Err(_) => None,
        };
        let tail = match waited {
            Ok(Waited::Ended(ended)) if ticket.has_event() => {
                ended_tail(ended, &SupervisorPaths::new(self.state_dir()), session)
            }
            _ => String::new(),
        };
        self.end_of(ticket, outcome, tail, listener)
    }

    fn end_of(
        &self,
        ticket: &RunTicket,
        outcome: Option<RecordedOutcome>,
        tail: String,
        listener: EndListener,
    ) -> RunEndRecord {
        let has_event = ticket.has_event();
        RunEndRecord::Ended {
            run_id: ticket.run_id.clone(),
            outcome: outcome.map(Box::new),
            tail,
            notify: if has_event {
                self.approvals().notify_settings(&ticket.agent)
            } else {
                NotifySettings::NOTHING
            },
            is_known: has_event && listener == EndListener::Caller,
        }
    }

    /// Records that a run was not started, or that it is unknown whether it was.
    pub(crate) fn failed_start(
        &self,
        ticket: &RunTicket,
        error: &ClientError,
    ) -> Result<(), HostError> {
        let is_known = matches!(
            error,
            ClientError::Refused(_) | ClientError::NotStarted(_) | ClientError::StillThere(_)
        );
        let outcome = RecordedOutcome::new(RecordedStatus::NotStarted)
            .with_code(error.code())
            .with_message(error.to_string());
        let outcome = is_known.then_some(outcome);
        let record = self.end_of(ticket, outcome, String::new(), EndListener::SessionEvent);
        Ok(self.store().change(|change| record.write(change))?)
    }
}

fn not_recorded(ticket: &RunTicket) -> impl FnOnce(&StoreError) + Send + 'static {
    let run_id = ticket.run_id.clone();
    move |error| tracing::error!(run = run_id, %error, "the end of a run is not recorded")
}

/// The last report of the process that waited for a run.
#[derive(Debug)]
enum RunEndRecord {
    Ended {
        run_id: String,
        outcome: Option<Box<RecordedOutcome>>,
        tail: String,
        notify: NotifySettings,
        /// Whether the caller already knows the end, so that no event repeats it.
        is_known: bool,
    },
    Background {
        ticket: RunTicket,
        session: String,
    },
}

impl RunEndRecord {
    fn write(&self, change: &Change<'_>) -> Result<(), StoreError> {
        match self {
            Self::Ended {
                run_id,
                outcome,
                tail,
                notify,
                is_known,
            } => {
                let how = SessionRunEnd {
                    outcome: outcome.as_deref(),
                    tail,
                    notify: *notify,
                };
                end_run(change, run_id, &how)?;
                if *is_known {
                    change.mark_run_events_delivered(run_id, now())?;
                }
            }
            Self::Background { ticket, session } => {
                let record = json!({
                    "agent": ticket.agent,
                    "runId": ticket.run_id,
                    "session": session,
                    "state": "background",
                });
                change.to_background(&ticket.run_id, session)?;
                change.append(AuditKind::RunStarted, &record, now())?;
            }
        }
        Ok(())
    }
}

fn recorded(status: RunStatus) -> RecordedOutcome {
    match status {
        RunStatus::Exited(code) => RecordedOutcome::exited(Some(code.into())),
        RunStatus::Signaled(signal) => RecordedOutcome::signaled(signal),
        RunStatus::TimedOut => RecordedOutcome::timed_out(),
    }
}
