//! A run by `system.run`, from its start to its end.
//!
//! A node reports the end of a run by an event, then answers the invocation. If no caller waits for
//! the answer any more, only the event remains, and it goes to the session. Interlock nodes only
//! send the event in that case; otherwise the session is notified of the answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_command::display::{self, Secrets};
use interlock_host::{NewRemoteRun, now_ms, record_outcome};
use interlock_store::{AuditKind, Change, ClaimState, RecordedOutcome, RecordedStatus, StoreError};
use interlock_wire::WireError;
use interlock_wire::node::{
    DEFAULT_SESSION_KEY, ExecDenied, ExecFinished, SYSTEM_RUN, SystemRun, SystemRunResult,
    format_exec_command,
};
use serde_json::{Value, json};

use super::registry::NodesState;
use super::run_events::{NodeRunEvent, notify, notify_now};
use super::{Node, NodeInvocation};
use crate::dispatcher::Dispatcher;
use crate::work::blocking;

/// How much longer than the run itself a node's answer may take.
pub const MARGIN: Duration = Duration::from_secs(10);

/// How many runs are remembered, and for how long.
const MAX_FORWARDED: usize = 4096;
const FORWARDED_KEPT: Duration = Duration::from_hours(24);

/// The facts about a run on a node for the record and the conversation.
#[derive(Debug, Clone)]
pub struct ForwardedRunFacts {
    pub session_key: String,
    pub agent: String,
    /// The command as people are shown it.
    pub command: String,
    /// Whether its caller reports its end.
    is_silent: bool,
    pub is_approved: bool,
    /// Whether a caller waits for the answer.
    is_awaited: bool,
    since: Instant,
}

/// One `system.run` for a node, and how long its answer may take.
#[derive(Debug)]
pub struct NodeRunRequest {
    /// The run with its id. Its claim of an approval must have been checked.
    pub run: SystemRun,
    pub timeout: Option<Duration>,
    pub node_timeout_ms: Option<u64>,
    pub idempotency_key: Option<String>,
}

/// Sends a run to a node and waits for its end. Start and end are recorded for every caller.
pub async fn run_to_end(
    dispatcher: &Arc<Dispatcher>,
    node: &Arc<Node>,
    order: NodeRunRequest,
) -> Result<(Value, Option<String>), WireError> {
    let id = order.run.run_id.clone().unwrap_or_default();
    let facts = ForwardedRunFacts::of(&order.run);
    start(dispatcher, node, &id, &facts).await?;
    let key = (node.id.clone(), id.clone());
    remember(&mut dispatcher.nodes.lock(), key.clone(), facts.clone());
    let invocation = NodeInvocation {
        command: SYSTEM_RUN,
        params: Some(json!(order.run)),
        timeout: order.timeout,
        node_timeout_ms: order.node_timeout_ms,
        idempotency_key: order.idempotency_key,
    };
    let (answer, unthanked) = dispatcher.nodes.invoke_unthanked(node, invocation).await;
    let result = answer
        .as_ref()
        .ok()
        .and_then(|(payload, _)| result(payload));
    if let Some(result) = &result
        && node.is_interlock()
        && !facts.is_silent
    {
        let event = NodeRunEvent::of_result(result);
        notify_now(dispatcher, &node.id, &id, &facts, event).await;
    }
    // Without a caller, the node would notify the session. Now the caller has the answer.
    drop(unthanked);
    let outcome = match &answer {
        Ok(_) => Some(match &result {
            Some(result) => outcome(result.exit_code, result.timed_out),
            None => RecordedOutcome::new(RecordedStatus::Failed),
        }),
        Err(error) if is_lost(error) => None,
        Err(error) => {
            Some(RecordedOutcome::new(RecordedStatus::Refused).with_message(&error.message))
        }
    };
    {
        let mut state = dispatcher.nodes.lock();
        match (&outcome, state.forwarded.get_mut(&key)) {
            (None, Some(facts)) => facts.is_awaited = false,
            // The events of a run come before its answer.
            _ => {
                state.forwarded.remove(&key);
            }
        }
    }
    let failed = id.clone();
    dispatcher
        .host
        .store()
        .change_deferred(ending(id, &facts, outcome), move |error| {
            not_recorded(&failed, error);
        });
    answer
}

/// Whether the outcome of a run is unknown.
fn is_lost(error: &WireError) -> bool {
    *error == WireError::node_timeout() || *error == WireError::node_disconnected(SYSTEM_RUN)
}

/// A node's result of a run; `None` if it cannot be read.
pub fn result(payload: &Value) -> Option<SystemRunResult> {
    serde_json::from_value(payload.clone()).ok()
}

impl ForwardedRunFacts {
    pub fn of(run: &SystemRun) -> Self {
        let text = |text: &Option<String>| {
            let text = text.as_deref().map(str::trim);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let command = text(&run.raw_command).unwrap_or_else(|| format_exec_command(&run.command));
        Self {
            session_key: text(&run.session_key).unwrap_or_else(|| DEFAULT_SESSION_KEY.to_owned()),
            agent: text(&run.agent_id).unwrap_or_else(|| "main".to_owned()),
            command: display::command(&command, Secrets::Masked)
                .map_or_else(|bytes| format!("[{bytes} bytes]"), |shown| shown.text),
            is_silent: run.suppress_notify_on_exit == Some(true),
            is_approved: run.approved == Some(true),
            is_awaited: true,
            since: Instant::now(),
        }
    }
}

impl ForwardedRunFacts {
    /// The run in the form for the record.
    pub fn run<'a>(&'a self, id: &'a str, node: &'a str) -> NewRemoteRun<'a> {
        NewRemoteRun {
            id,
            is_approved: self.is_approved,
            agent: &self.agent,
            session_key: &self.session_key,
            node,
            command: &self.command,
        }
    }
}

fn remember(state: &mut NodesState, key: (String, String), facts: ForwardedRunFacts) {
    if state.forwarded.len() >= MAX_FORWARDED {
        state
            .forwarded
            .retain(|_, other| other.since.elapsed() < FORWARDED_KEPT);
    }
    if state.forwarded.len() >= MAX_FORWARDED {
        let oldest = state.forwarded.iter().min_by_key(|(_, other)| other.since);
        if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
            state.forwarded.remove(&oldest);
        }
    }
    state.forwarded.insert(key, facts);
}

fn outcome(exit_code: Option<i64>, timed_out: bool) -> RecordedOutcome {
    match (exit_code, timed_out) {
        (_, true) => RecordedOutcome::timed_out(),
        (Some(code), _) => RecordedOutcome::exited(Some(code)),
        (None, false) => RecordedOutcome::new(RecordedStatus::Failed),
    }
}

/// Records the start. The start of an approved run is already recorded by its claim.
async fn start(
    dispatcher: &Arc<Dispatcher>,
    node: &Node,
    id: &str,
    facts: &ForwardedRunFacts,
) -> Result<(), WireError> {
    if facts.is_approved {
        return Ok(());
    }
    let record = facts.run(id, &node.id).record();
    let dispatcher = Arc::clone(dispatcher);
    let recorded = blocking(move || append(&dispatcher, AuditKind::RunStarted, &record)).await;
    match recorded {
        Ok(Ok(())) => Ok(()),
        // A run that cannot be recorded must not start.
        Ok(Err(error)) => Err(WireError::unavailable(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

fn append(dispatcher: &Dispatcher, kind: AuditKind, record: &Value) -> Result<(), StoreError> {
    dispatcher.host.store().change(|change| {
        change.append(kind, record, now())?;
        Ok(())
    })
}

/// Records the end of a run: of an approved run in its claim.
fn ending(
    id: String,
    facts: &ForwardedRunFacts,
    outcome: Option<RecordedOutcome>,
) -> impl Fn(&Change<'_>) -> Result<(), StoreError> + Send + 'static {
    let (agent, is_approved) = (facts.agent.clone(), facts.is_approved);
    move |change| record_outcome(change, &id, &agent, is_approved, outcome.as_ref())
}

fn not_recorded(run_id: &str, error: &StoreError) {
    tracing::warn!(%error, run = run_id, "the end of a run on a node is not recorded");
}

pub(super) fn now() -> i64 {
    i64::try_from(now_ms()).unwrap_or(i64::MAX)
}

/// Handles an event of a node, and returns the answer. Waits for the disk.
pub fn receive_event(dispatcher: &Dispatcher, node_id: &str, name: &str, payload: Value) -> Value {
    let unhandled =
        |reason: &str| json!({ "ok": true, "event": name, "handled": false, "reason": reason });
    let unmatched = || unhandled("unmatched_exec_event");
    match name {
        ExecFinished::NAME => {
            let Ok(finished) = serde_json::from_value::<ExecFinished>(payload) else {
                return unmatched();
            };
            match matched(dispatcher, node_id, &finished.run_id, &finished.session_key) {
                Some(facts) => {
                    has_finished(dispatcher, node_id, &facts, &finished);
                    json!({ "ok": true })
                }
                None => unmatched(),
            }
        }
        ExecDenied::NAME => {
            let Ok(denied) = serde_json::from_value::<ExecDenied>(payload) else {
                return unmatched();
            };
            match matched(dispatcher, node_id, &denied.run_id, &denied.session_key) {
                Some(facts) => {
                    if !facts.is_silent {
                        let event = NodeRunEvent::denied(&denied.reason);
                        notify(dispatcher, node_id, &denied.run_id, &facts, &event);
                    }
                    json!({ "ok": true })
                }
                None => unmatched(),
            }
        }
        _ => unhandled("unknown_event"),
    }
}

/// The run of this node with this id and session. A node may not report on other runs.
fn matched(
    dispatcher: &Dispatcher,
    node_id: &str,
    run_id: &str,
    session_key: &str,
) -> Option<ForwardedRunFacts> {
    let key = (node_id.to_owned(), run_id.to_owned());
    let facts = dispatcher.nodes.lock().forwarded.get(&key).cloned();
    let facts = facts.or_else(|| claimed_before(dispatcher, node_id, run_id))?;
    (facts.session_key == session_key).then_some(facts)
}

/// An approved run that another gateway of this state directory sent, and whose end is unknown.
fn claimed_before(
    dispatcher: &Dispatcher,
    node_id: &str,
    run_id: &str,
) -> Option<ForwardedRunFacts> {
    let store = dispatcher.host.store();
    let claim = store.run_claim(run_id).ok()??;
    let is_unknown = matches!(claim.state, ClaimState::Unknown { .. });
    if claim.node.as_deref() != Some(node_id) || !is_unknown {
        return None;
    }
    let approval = store.approval(&claim.approval_id).ok()?;
    Some(ForwardedRunFacts {
        session_key: claim.session_key,
        agent: claim.agent,
        command: approval.request.preview,
        is_silent: false,
        is_approved: true,
        is_awaited: false,
        since: Instant::now(),
    })
}

/// Records the approved runs that an earlier gateway sent, without seeing their end, as unknown.
/// They are not run again. Must only be called by the only gateway of the state directory.
pub fn recover(dispatcher: &Dispatcher) {
    let store = dispatcher.host.store();
    let unfinished = store.unfinished_claims().unwrap_or_default();
    // The node itself knows the runs that it keeps.
    let kept = dispatcher.host.remote_runs(None).unwrap_or_default();
    let is_kept = |id: &String| kept.iter().any(|run| run.id == *id);
    for claim in unfinished
        .iter()
        .filter(|claim| claim.node.is_some() && !is_kept(&claim.id))
    {
        if let Err(error) = dispatcher.host.approvals().finish_remote(&claim.id, None) {
            tracing::warn!(%error, run = claim.id, "the end of a run on a node is not recorded");
        }
    }
}

fn has_finished(
    dispatcher: &Dispatcher,
    node_id: &str,
    facts: &ForwardedRunFacts,
    finished: &ExecFinished,
) {
    if !facts.is_awaited {
        // The run outlived its connection, so this event is its end.
        let key = (node_id.to_owned(), finished.run_id.clone());
        dispatcher.nodes.lock().forwarded.remove(&key);
        let outcome = outcome(finished.exit_code, finished.timed_out);
        let work = ending(finished.run_id.clone(), facts, Some(outcome));
        let (failed, store) = (finished.run_id.clone(), dispatcher.host.store());
        let made = store.change_or_defer(work, move |error| not_recorded(&failed, error));
        if let Err(error) = made {
            not_recorded(&finished.run_id, &error);
        }
    } else if facts.is_silent {
        return;
    }
    let event = NodeRunEvent::finished(finished.exit_code, finished.timed_out, &finished.output);
    notify(dispatcher, node_id, &finished.run_id, facts, &event);
}
