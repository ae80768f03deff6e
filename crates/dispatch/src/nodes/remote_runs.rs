//! Runs whose transcripts Interlock nodes keep: which caller follows them, and how their ends are
//! recorded here, no matter which process of this gateway started them.
//!
//! The node has the truth. It is asked when it reports the end of a run, and about all of its runs
//! when it connects. Nothing depends on a single message.

use std::sync::Arc;
use std::time::Duration;

use interlock_approvals::EVENT_TAIL_CHARS;
use interlock_host::{EndListener, OpenRun};
use interlock_sessions::{EndedSession, Followed, SessionStatus};
use interlock_store::{NullableField, RecordedOutcome, RecordedStatus};
use interlock_supervisor::names;
use interlock_wire::WireError;
use interlock_wire::node::extension::{
    EndHow, GoneState, RunEnd, RunGone, RunGoneOutcome, RunRead,
};

use super::extension::{ask, node_code, owner};
use super::{Node, Nodes};
use crate::dispatcher::Dispatcher;
use crate::work::blocking;

/// How much of a node's id the names of its sessions contain.
const TAG: usize = 12;

/// How often a node is asked again after its answer was lost.
const TRIES: usize = 3;

/// The name of a node's session on this gateway: its name there, and the beginning of the node's
/// id. `None` if the node's text is not a session name.
pub fn session_id(name: &str, node_id: &str) -> Option<String> {
    let tag = node_tag(node_id)?;
    names::is_session_name(name).then(|| format!("{name}@{tag}"))
}

/// The part of a node's id in the names of its sessions.
pub fn node_tag(node_id: &str) -> Option<&str> {
    node_id.get(..TAG)
}

/// The two parts of such a name.
pub fn parse(id: &str) -> Option<(&str, &str)> {
    let (name, tag) = id.split_once('@')?;
    let is_tag = tag.len() == TAG && tag.bytes().all(|byte| byte.is_ascii_hexdigit());
    (names::is_session_name(name) && is_tag).then_some((name, tag))
}

/// A run that a caller of this process waits for. Until that wait ends, the caller records the
/// run's end.
#[derive(Debug)]
pub struct AwaitedRun {
    dispatcher: Arc<Dispatcher>,
    run_id: String,
}

impl AwaitedRun {
    pub fn new(dispatcher: &Arc<Dispatcher>, run_id: &str) -> Self {
        let id = run_id.to_owned();
        dispatcher.nodes.lock().awaited.insert(id.clone(), None);
        Self {
            dispatcher: Arc::clone(dispatcher),
            run_id: id,
        }
    }

    /// Sets the name of the run's session. While a caller waits for it, the session is not listed
    /// as a background session.
    pub fn called(&self, name: &str) {
        let mut state = self.dispatcher.nodes.lock();
        state
            .awaited
            .insert(self.run_id.clone(), Some(name.to_owned()));
    }
}

impl Drop for AwaitedRun {
    fn drop(&mut self) {
        self.dispatcher.nodes.lock().awaited.remove(&self.run_id);
    }
}

impl Nodes {
    fn is_awaited(&self, run_id: &str) -> bool {
        self.lock().awaited.contains_key(run_id)
    }

    /// Whether a caller waits for the result of this session.
    pub fn is_in_front(&self, session: &str) -> bool {
        let state = self.lock();
        let mut names = state.awaited.values().flatten();
        names.any(|name| name == session)
    }

    /// The names of the sessions on one node whose results callers wait for.
    pub fn names_in_front(&self, tag: &str) -> Vec<String> {
        let state = self.lock();
        let names = state.awaited.values().flatten();
        let names = names.filter_map(|id| parse(id).filter(|(_, of)| *of == tag));
        names.map(|(name, _)| name.to_owned()).collect()
    }

    /// Ends the run as soon as its node is connected.
    pub fn cancel_later(&self, run_id: &str) {
        self.lock().cancelled.insert(run_id.to_owned());
    }

    fn is_cancelled(&self, run_id: &str) -> bool {
        self.lock().cancelled.contains(run_id)
    }
}

/// Checks all runs of a node for this gateway after the node connected.
pub async fn reconcile(dispatcher: Arc<Dispatcher>, node_id: String) {
    let (reader, of) = (Arc::clone(&dispatcher), node_id.clone());
    let runs = blocking(move || reader.host.remote_runs(Some(&of))).await;
    let Ok(Ok(runs)) = runs else {
        tracing::warn!(node = node_id, "its runs cannot be looked up");
        return;
    };
    for run in runs {
        reconcile_run(&dispatcher, &node_id, run).await;
    }
}

/// Records the runs of a node that can no longer be asked as unknown.
pub async fn abandon(dispatcher: &Arc<Dispatcher>, node_id: &str) {
    let (reader, of) = (Arc::clone(dispatcher), node_id.to_owned());
    let runs = blocking(move || reader.host.remote_runs(Some(&of))).await;
    for run in runs.ok().and_then(Result::ok).unwrap_or_default() {
        if !dispatcher.nodes.is_awaited(&run.id) {
            record_end(
                dispatcher,
                run,
                None,
                String::new(),
                EndListener::SessionEvent,
            )
            .await;
        }
    }
}

/// Handles a node's report that a run of this gateway has ended, by asking for the outcome.
pub async fn run_has_ended(dispatcher: &Arc<Dispatcher>, node_id: &str, run_id: &str) {
    let (reader, of) = (Arc::clone(dispatcher), node_id.to_owned());
    let id = run_id.to_owned();
    // The run must belong to this node.
    let run = blocking(move || reader.host.remote_run(&of, &id)).await;
    if let Some(run) = run.ok().and_then(Result::ok).flatten() {
        reconcile_run(dispatcher, node_id, run).await;
    }
}

/// Asks about one run, and records the result.
pub async fn reconcile_run(dispatcher: &Arc<Dispatcher>, node_id: &str, run: OpenRun) {
    for _ in 0..TRIES {
        let Some(node) = connected_interlock_node(dispatcher, node_id) else {
            return;
        };
        if dispatcher.nodes.is_cancelled(&run.id)
            && cancel(dispatcher, &node, &run.id).await.is_ok()
        {
            dispatcher.nodes.lock().cancelled.remove(&run.id);
        }
        let read = RunRead {
            owner: owner(dispatcher, node_id),
            run_id: run.id.clone(),
            // An event shows the end of the output.
            show_chars: Some(2 * EVENT_TAIL_CHARS),
            ..RunRead::default()
        };
        let followed: Result<Followed, WireError> =
            ask(dispatcher, &node, &read, Duration::ZERO).await;
        match followed {
            Ok(followed) => return learned(dispatcher, node_id, &run, &followed).await,
            // The run was never started there, or was forgotten there.
            Err(error) if node_code(&error) == Some("SESSION_NOT_FOUND") => {
                if dispatcher.nodes.is_awaited(&run.id) {
                    return;
                }
                let outcome = match cancel(dispatcher, &node, &run.id).await {
                    Ok(gone) => match gone.state {
                        GoneState::Never => Some(never()),
                        GoneState::Over => gone.outcome.as_ref().and_then(reported_outcome),
                        GoneState::Starting | GoneState::Done => continue,
                    },
                    Err(_) => continue,
                };
                return record_end(
                    dispatcher,
                    run,
                    outcome,
                    String::new(),
                    EndListener::SessionEvent,
                )
                .await;
            }
            Err(error) => tracing::warn!(%error, run = run.id, "a run on a node cannot be read"),
        }
    }
}

/// The outcome of a run whose start request was lost.
pub fn never() -> RecordedOutcome {
    RecordedOutcome::new(RecordedStatus::NotStarted)
        .with_message("the order was lost on its way to the node")
}

/// The outcome that a node remembers, as far as it makes sense.
pub fn reported_outcome(said: &RunGoneOutcome) -> Option<RecordedOutcome> {
    let status = [
        RecordedStatus::Exited,
        RecordedStatus::NotStarted,
        RecordedStatus::Signaled,
        RecordedStatus::TimedOut,
    ]
    .into_iter()
    .find(|known| said.status.as_deref() == Some(known.as_str()))?;
    Some(RecordedOutcome {
        duration_ms: said.duration_ms,
        exit_code: match said.exit_code {
            Some(code) => NullableField::Value(code),
            None => NullableField::Absent,
        },
        output_bytes: said.output_bytes,
        signal: said.signal,
        ..RecordedOutcome::new(status)
    })
}

/// The node, if it is connected and may be asked.
pub fn connected_interlock_node(dispatcher: &Dispatcher, node_id: &str) -> Option<Arc<Node>> {
    let config = dispatcher.host.config().ok()?;
    let node = dispatcher.nodes.get(node_id)?;
    node.keeps_sessions(&config.config().gateway.nodes)
        .then_some(node)
}

/// Ends a run on its node, with all its processes. A run without a session there will not be
/// started later.
pub async fn cancel(
    dispatcher: &Arc<Dispatcher>,
    node: &Node,
    run_id: &str,
) -> Result<RunGone, WireError> {
    end(dispatcher, node, run_id, EndHow::Cancel).await
}

/// Lets the node forget a run whose result was received completely.
pub async fn forget(dispatcher: &Arc<Dispatcher>, node: &Node, run_id: &str) {
    if let Err(error) = end(dispatcher, node, run_id, EndHow::Forget).await {
        tracing::debug!(%error, run = run_id, "a node keeps a session that is not needed");
    }
}

async fn end(
    dispatcher: &Arc<Dispatcher>,
    node: &Node,
    run_id: &str,
    how: EndHow,
) -> Result<RunGone, WireError> {
    let params = RunEnd {
        owner: owner(dispatcher, &node.id),
        run_id: run_id.to_owned(),
        session_id: None,
        how,
    };
    ask(dispatcher, node, &params, Duration::ZERO).await
}

async fn learned(dispatcher: &Arc<Dispatcher>, node_id: &str, run: &OpenRun, followed: &Followed) {
    if dispatcher.nodes.is_awaited(&run.id) {
        return;
    }
    let Some(name) = session_id(&followed.session_id, node_id) else {
        tracing::warn!(node = node_id, "a session without a name");
        return;
    };
    if run.session.is_none() {
        to_background(dispatcher, &run.id, &name).await;
    }
    if is_over(&followed.standing) {
        let run = OpenRun {
            session: Some(name.clone()),
            ..run.clone()
        };
        let outcome = outcome(followed, &name);
        record_end(
            dispatcher,
            run,
            outcome,
            tail(followed),
            EndListener::SessionEvent,
        )
        .await;
    }
}

pub fn is_over(standing: &EndedSession) -> bool {
    !matches!(
        standing.status,
        SessionStatus::Running | SessionStatus::Unreachable
    )
}

/// Records that no caller waits for the run any more, and that its session has this name.
pub async fn to_background(dispatcher: &Arc<Dispatcher>, run_id: &str, name: &str) {
    let (writer, id, name) = (Arc::clone(dispatcher), run_id.to_owned(), name.to_owned());
    let written = blocking(move || writer.host.remote_run_to_background(&id, &name)).await;
    if let Ok(Err(error)) = written {
        tracing::warn!(%error, run = run_id, "a session on a node is not recorded");
    }
}

/// Records the end of a run. Only the first recorder succeeds.
pub async fn record_end(
    dispatcher: &Arc<Dispatcher>,
    run: OpenRun,
    outcome: Option<RecordedOutcome>,
    tail: String,
    listener: EndListener,
) {
    let id = run.id.clone();
    let writer = Arc::clone(dispatcher);
    let recorded = blocking(move || {
        let recorded = writer
            .host
            .end_remote_run(&run, outcome.as_ref(), &tail, listener);
        writer.events.look_now();
        recorded
    })
    .await;
    dispatcher.nodes.lock().cancelled.remove(&id);
    if let Ok(Err(error)) = recorded {
        tracing::warn!(%error, run = id, "the end of a run on a node is not recorded");
    }
}

/// The outcome for the record; `None` if the end was not observed.
pub fn outcome(followed: &Followed, name: &str) -> Option<RecordedOutcome> {
    let standing = &followed.standing;
    let mut outcome = match standing.status {
        SessionStatus::Running | SessionStatus::Lost | SessionStatus::Unreachable => return None,
        _ if standing.timed_out => RecordedOutcome::timed_out(),
        _ => match (standing.signal, standing.exit_code) {
            (Some(signal), _) => RecordedOutcome::signaled(signal),
            (None, code) => RecordedOutcome::exited(code.map(i64::from)),
        },
    };
    if let Some(ended) = followed.ended_at_ms {
        outcome = outcome.with_duration_ms(ended.saturating_sub(followed.started_at_ms));
    }
    Some(outcome.with_session(Some(name)))
}

/// The end of the run's output.
pub fn tail(followed: &Followed) -> String {
    let text = followed.shown.as_ref().map_or("", |shown| &shown.text);
    let skip = text.chars().count().saturating_sub(EVENT_TAIL_CHARS);
    text.chars().skip(skip).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_on_a_node_is_named_by_both_and_nothing_else_is() {
        let node = "9f3a12bc44de77".repeat(4);
        let id = session_id("calm-otter", &node).unwrap();
        assert_eq!(id, "calm-otter@9f3a12bc44de");
        assert_eq!(parse(&id), Some(("calm-otter", "9f3a12bc44de")));
        for name in ["../x", "calm", "calm-otter@x", "", "calm-otter\n"] {
            assert_eq!(session_id(name, &node), None, "{name}");
        }
        for id in [
            "calm-otter",
            "calm-otter@",
            "calm-otter@9f3a",
            "calm-otter@9f3a12bc44dez",
            "../x@9f3a12bc44de",
            "a-b@9f3a12bc44de@9f3a12bc44de",
        ] {
            assert_eq!(parse(id), None, "{id}");
        }
        assert_eq!(session_id("calm-otter", "short"), None);
    }
}
