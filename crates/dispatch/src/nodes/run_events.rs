//! The events of sessions about their runs on nodes.

use std::sync::Arc;
use std::time::Duration;

use interlock_approvals::{DENIAL_TEXT, EVENT_TAIL_CHARS};
use interlock_store::{EventKind, NewEvent};
use interlock_wire::node::{SystemRun, SystemRunResult, event_output};
use serde_json::{Value, json};

use super::Node;
use super::system_run::{ForwardedRunFacts, now};
use crate::dispatcher::Dispatcher;
use crate::work::blocking;

/// One event of a run for its session.
#[derive(Debug, Clone)]
pub struct NodeRunEvent {
    kind: EventKind,
    how: String,
    /// The text after the first line.
    tail: String,
    /// Whether the run succeeded without output. Its session is only notified if the owner wants
    /// that.
    is_silent_success: bool,
    payload: Value,
}

impl NodeRunEvent {
    pub fn finished(exit_code: Option<i64>, timed_out: bool, output: &str) -> Self {
        let output = output.trim();
        let skip = output.chars().count().saturating_sub(EVENT_TAIL_CHARS);
        let tail: String = output.chars().skip(skip).collect();
        Self {
            kind: EventKind::Finished,
            how: match (exit_code, timed_out) {
                (_, true) => "timeout".to_owned(),
                (Some(code), _) => format!("code {code}"),
                (None, false) => "outcome unknown".to_owned(),
            },
            is_silent_success: exit_code == Some(0) && tail.is_empty(),
            payload: json!({
                "exitCode": exit_code,
                "output": tail,
                "success": exit_code == Some(0),
                "timedOut": timed_out,
            }),
            tail,
        }
    }

    /// The event for a node's answer.
    pub fn of_result(result: &SystemRunResult) -> Self {
        let output = event_output(&result.stdout, &result.stderr, result.error.as_deref());
        Self::finished(result.exit_code, result.timed_out, &output)
    }

    pub fn denied(reason: &str) -> Self {
        Self {
            kind: EventKind::Denied,
            how: reason.to_owned(),
            tail: DENIAL_TEXT.to_owned(),
            is_silent_success: false,
            payload: json!({ "reason": reason }),
        }
    }

    pub fn running(after: Duration) -> Self {
        Self {
            kind: EventKind::Running,
            how: format!(">{}s", after.as_secs_f64()),
            tail: String::new(),
            is_silent_success: false,
            payload: json!({}),
        }
    }
}

/// How the session is to be notified; `None` if it is not to be.
fn wanted(
    dispatcher: &Dispatcher,
    facts: &ForwardedRunFacts,
    event: &NodeRunEvent,
) -> Option<Wakes> {
    let config = dispatcher.host.config().ok()?;
    let exec = config.config().exec_for(&facts.agent);
    let is_wanted =
        !event.is_silent_success || facts.is_approved || exec.notifies_on_empty_success();
    is_wanted.then(|| Wakes(exec.notifies_on_exit()))
}

/// Whether the session is woken.
#[derive(Debug, Clone, Copy)]
struct Wakes(bool);

/// Queues an event for a session. Waits for the disk.
pub(super) fn notify(
    dispatcher: &Dispatcher,
    node_id: &str,
    run_id: &str,
    facts: &ForwardedRunFacts,
    event: &NodeRunEvent,
) {
    if let Some(wakes) = wanted(dispatcher, facts, event) {
        put(dispatcher, node_id, run_id, facts, event, wakes);
    }
}

fn put(
    dispatcher: &Dispatcher,
    node_id: &str,
    run_id: &str,
    facts: &ForwardedRunFacts,
    event: &NodeRunEvent,
    Wakes(wakes): Wakes,
) {
    let names = match event.kind {
        EventKind::Running => "Exec running",
        EventKind::Denied => "Exec denied",
        EventKind::Finished | EventKind::Note => "Exec finished",
    };
    let mut text = format!("{names} (node={node_id} id={run_id}, {})", event.how);
    if event.kind != EventKind::Finished {
        text.push_str(": ");
        text.push_str(&facts.command);
    }
    if !event.tail.is_empty() {
        text.push('\n');
        text.push_str(&event.tail);
    }
    let mut payload = json!({
        "command": facts.command,
        "host": "node",
        "node": node_id,
        "runId": run_id,
        "sessionKey": facts.session_key,
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut payload, &event.payload) {
        all.extend(more.clone());
    }
    let appended = dispatcher.host.store().change(|change| {
        change.append_event(&NewEvent {
            session_key: &facts.session_key,
            agent: &facts.agent,
            kind: event.kind,
            run_id,
            text: &text,
            payload: &payload,
            wakes,
            now_ms: now(),
        })
    });
    if let Err(error) = appended {
        tracing::warn!(%error, run = run_id, "a session is not notified of its run");
    }
}

/// Like [`notify`], for callers that must not wait themselves. Most often there is nothing to send.
pub(super) async fn notify_now(
    dispatcher: &Arc<Dispatcher>,
    node_id: &str,
    run_id: &str,
    facts: &ForwardedRunFacts,
    event: NodeRunEvent,
) {
    let Some(wakes) = wanted(dispatcher, facts, &event) else {
        return;
    };
    let (dispatcher, facts) = (Arc::clone(dispatcher), facts.clone());
    let (node_id, run_id) = (node_id.to_owned(), run_id.to_owned());
    let _ = blocking(move || put(&dispatcher, &node_id, &run_id, &facts, &event, wakes)).await;
}

/// Queues an event for a run that its caller no longer waits for.
pub async fn notify_later(
    dispatcher: &Arc<Dispatcher>,
    node: &Node,
    run: &SystemRun,
    event: NodeRunEvent,
) {
    notify_of(dispatcher, &node.id, run, event).await;
}

/// Like [`notify_later`], for a node that may not be connected.
pub async fn notify_of(
    dispatcher: &Arc<Dispatcher>,
    node_id: &str,
    run: &SystemRun,
    event: NodeRunEvent,
) {
    let id = run.run_id.clone().unwrap_or_default();
    notify_now(dispatcher, node_id, &id, &ForwardedRunFacts::of(run), event).await;
}
