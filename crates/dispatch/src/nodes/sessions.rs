//! Sessions on nodes, as callers of this gateway handle them. The node performs the tool's actions
//! on the sessions that this gateway ordered there. Its answers are passed on under the sessions'
//! names here.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use interlock_host::{OpenRun, now_ms};
use interlock_policy::AgentId;
use interlock_sessions::{
    EndedSession, Followed, MAX_POLL_WAIT, ProcessAnswer, SessionAction, SessionListRequest,
    SessionPage, SessionStatus, SessionSummary, Stale,
};
use interlock_wire::WireError;
use interlock_wire::node::extension::{MAX_READ_BYTES, ProcessCall, ProcessPageAsked, RunRead};
use serde_json::{Value, json};

use super::Node;
use super::extension::{ask, is_lost, node_code, node_words, owner};
use super::known::with_directory;
use super::remote_runs::{self, connected_interlock_node, node_tag, parse, session_id};
use crate::dispatcher::Dispatcher;
use crate::work::blocking;

/// How long a list of all sessions waits for nodes.
const LIST_TIME: Duration = Duration::from_secs(5);

/// The longest text in a node's session, in characters.
const MAX_TEXT: usize = 4_000;

/// The caller that handles sessions.
#[derive(Debug, Clone)]
pub struct SessionHandler {
    /// The agent whose sessions are meant. An operator handles those of all agents.
    pub agent: Option<AgentId>,
    pub session_key: String,
}

impl SessionHandler {
    pub const OPERATOR: Self = Self {
        agent: None,
        session_key: String::new(),
    };
}

/// Why a node did not perform an action.
#[derive(Debug, thiserror::Error)]
pub enum SessionFailure {
    #[error("No session found for {0}")]
    NotFound(String),
    #[error(
        "the node {0} is not connected: what runs there goes on, and can be handled when it is back"
    )]
    NotConnected(String),
    #[error("{message}")]
    Node { code: String, message: String },
}

impl SessionFailure {
    pub fn code(&self) -> &str {
        match self {
            Self::NotFound(_) => "SESSION_NOT_FOUND",
            Self::NotConnected(_) => "NODE_NOT_CONNECTED",
            Self::Node { code, .. } => code,
        }
    }
}

/// An action on one session, by its name here.
#[derive(Debug, Clone)]
pub struct SessionWanted {
    pub action: SessionAction,
    /// The arguments of the tool, or an object without them, where the action says everything.
    pub arguments: Value,
    /// The offset of a poll that moves no cursor.
    pub poll_from: Option<u64>,
}

/// Whether this id has the form of a session on a node.
pub fn is_remote(id: &str) -> bool {
    parse(id).is_some()
}

/// Performs an action on the node of the session.
pub async fn perform(
    dispatcher: &Arc<Dispatcher>,
    who: &SessionHandler,
    wanted: SessionWanted,
) -> Result<ProcessAnswer, SessionFailure> {
    let id = wanted.action.session_id().unwrap_or_default().to_owned();
    let (name, tag) = parse(&id).ok_or_else(|| SessionFailure::NotFound(id.clone()))?;
    if who.agent.is_some() && dispatcher.nodes.is_in_front(&id) {
        return Err(SessionFailure::NotFound(id));
    }
    let (node_id, node_name) = node_of(dispatcher, tag)
        .await
        .ok_or_else(|| SessionFailure::NotFound(id.clone()))?;
    let Some(node) = connected_interlock_node(dispatcher, &node_id) else {
        return Err(SessionFailure::NotConnected(node_name));
    };
    let is_last = matches!(
        wanted.action,
        SessionAction::Clear { .. } | SessionAction::Remove { .. }
    );
    if let (true, Some(run)) = (is_last, open_run(dispatcher, &id).await) {
        // A forgotten session can no longer be asked about.
        if matches!(wanted.action, SessionAction::Remove { .. }) {
            let _ = remote_runs::cancel(dispatcher, &node, &run.id).await;
        }
        remote_runs::reconcile_run(dispatcher, &node_id, run).await;
    }
    let mut arguments = wanted.arguments;
    arguments["sessionId"] = name.into();
    let call = ProcessCall {
        owner: owner(dispatcher, &node_id),
        agent_id: who.agent.as_ref().map(ToString::to_string),
        session_key: Some(who.session_key.clone()),
        poll_from: wanted.poll_from,
        page: None,
        arguments,
    };
    let waits = match &wanted.action {
        SessionAction::Poll { timeout, .. } => (*timeout).min(MAX_POLL_WAIT),
        _ => Duration::ZERO,
    };
    let value: Value = ask(dispatcher, &node, &call, waits)
        .await
        .map_err(|error| failed(&error, &id, name, &node_name))?;
    let mut answer =
        ProcessAnswer::of_json(&wanted.action, value).map_err(|_| SessionFailure::Node {
            code: "NODE_ANSWER_INVALID".to_owned(),
            message: format!("the answer of the node {node_name} cannot be read"),
        })?;
    answer.rename(&id);
    Ok(answer)
}

/// The state of a session on a node, and its output after an offset, for an operator.
pub async fn read(
    dispatcher: &Arc<Dispatcher>,
    id: &str,
    offset: u64,
    wait: Duration,
) -> Result<Followed, SessionFailure> {
    let (name, tag) = parse(id).ok_or_else(|| SessionFailure::NotFound(id.to_owned()))?;
    let found = node_of(dispatcher, tag).await;
    let (node_id, node_name) = found.ok_or_else(|| SessionFailure::NotFound(id.to_owned()))?;
    let Some(node) = connected_interlock_node(dispatcher, &node_id) else {
        return Err(SessionFailure::NotConnected(node_name));
    };
    let read = RunRead {
        owner: owner(dispatcher, &node_id),
        session_id: Some(name.to_owned()),
        offset: Some(offset),
        wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        max_bytes: MAX_READ_BYTES,
        ..RunRead::default()
    };
    ask(dispatcher, &node, &read, wait)
        .await
        .map_err(|error| failed(&error, id, name, &node_name))
}

fn failed(error: &WireError, id: &str, name: &str, node: &str) -> SessionFailure {
    if is_lost(error) {
        return SessionFailure::NotConnected(node.to_owned());
    }
    match node_code(error) {
        Some("SESSION_NOT_FOUND") => SessionFailure::NotFound(id.to_owned()),
        code => SessionFailure::Node {
            code: code
                .filter(|code| is_code(code))
                .unwrap_or("NODE_FAILED")
                .to_owned(),
            message: node_words(error).replace(name, id),
        },
    }
}

/// Whether a node's code has the form of Interlock's codes.
fn is_code(word: &str) -> bool {
    !word.is_empty()
        && word.len() <= 64
        && word
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

/// The only node whose id has this prefix, and its name for people.
async fn node_of(dispatcher: &Arc<Dispatcher>, tag: &str) -> Option<(String, String)> {
    let (reader, tag) = (Arc::clone(dispatcher), tag.to_owned());
    let found = blocking(move || {
        with_directory(&reader, |directory| {
            // If two ids have this prefix, the session's node is unknown.
            let one = directory.approved_by_prefix(&tag)?;
            let name = one.name.as_ref().unwrap_or(&one.id);
            Some((one.id.as_ref().to_owned(), name.as_ref().to_owned()))
        })
    });
    found.await.ok()?.ok()?
}

async fn open_run(dispatcher: &Arc<Dispatcher>, id: &str) -> Option<OpenRun> {
    let (reader, id) = (Arc::clone(dispatcher), id.to_owned());
    let found = blocking(move || reader.host.store().background_run(&id)).await;
    found.ok()?.ok()?
}

/// A page of the sessions on all nodes that this caller may see, the newest first. Sessions on
/// nodes that cannot be asked are listed as unreachable.
pub async fn page(
    dispatcher: &Arc<Dispatcher>,
    who: &SessionHandler,
    request: &SessionListRequest,
) -> SessionPage {
    let reader = Arc::clone(dispatcher);
    let known = blocking(move || {
        let marks = reader.host.store().stale_marks().ok();
        (reader.host.remote_runs(None), marks)
    });
    let (runs, marks) = known.await.unwrap_or_else(|_| (Ok(Vec::new()), None));
    let runs = runs.unwrap_or_default();
    let connected = dispatcher.nodes.connected().into_iter();
    let able = connected.filter_map(|node| connected_interlock_node(dispatcher, &node.id));
    let asked = able.map(|node| async move {
        let page = tokio::time::timeout(LIST_TIME, of_node(dispatcher, who, &node, request)).await;
        (node.id.clone(), page.ok().and_then(Result::ok))
    });
    let mut pages = Vec::new();
    let mut answered = Vec::new();
    for (node, found) in join_all(asked).await {
        if let Some(found) = found {
            answered.push(node);
            pages.push(found);
        }
    }
    let silent = runs.iter().filter(|run| {
        let is_seen = |agent: &AgentId| run.agent == agent.as_str();
        run.session.is_some()
            && who.agent.as_ref().is_none_or(is_seen)
            && run
                .node
                .as_ref()
                .is_some_and(|node| !answered.contains(node))
    });
    let unreachable = silent
        .filter_map(|run| unreachable(dispatcher, run))
        .collect();
    pages.push(SessionPage::of_whole(unreachable, request));
    let mut page = SessionPage::merged(pages, request.limit);
    for session in &mut page.sessions {
        // Denials since the end of the session are only known here.
        let denied = marks.as_ref().and_then(|marks| {
            let key = session.session_key.as_deref()?;
            marks.since(key, &session.command)
        });
        let ended = session
            .ended_at_ms
            .and_then(|ended| i64::try_from(ended).ok());
        if let (Some(denied), Some(ended)) = (denied, ended) {
            session.stale = Stale::when(session.stale.is_stale || ended <= denied);
        }
    }
    page
}

async fn of_node(
    dispatcher: &Arc<Dispatcher>,
    who: &SessionHandler,
    node: &Node,
    request: &SessionListRequest,
) -> Result<SessionPage, WireError> {
    let Some(asked) = page_of_node(dispatcher, who, node, request) else {
        return Ok(SessionPage::default());
    };
    let call = ProcessCall {
        owner: owner(dispatcher, &node.id),
        agent_id: who.agent.as_ref().map(ToString::to_string),
        session_key: Some(who.session_key.clone()),
        poll_from: None,
        page: Some(asked),
        arguments: json!({ "action": "list" }),
    };
    let value: Value = match ask(dispatcher, node, &call, Duration::ZERO).await {
        // The owner of the node does not let this agent handle sessions, so it has none.
        Err(error) if node_code(&error) == Some("TOOL_DENIED") => {
            return Ok(SessionPage::default());
        }
        value => value?,
    };
    let action = SessionAction::List(request.clone());
    let Ok(ProcessAnswer::List(mut page)) = ProcessAnswer::of_json(&action, value) else {
        return Err(WireError::unavailable("the node's list cannot be read"));
    };
    let is_whole = page.total.is_none();
    let is_seen = |session: &SessionSummary| {
        let is_in_front = || dispatcher.nodes.is_in_front(&session.session_id);
        who.agent.is_none() || !is_in_front()
    };
    let most = request.limit.filter(|_| !is_whole).unwrap_or(usize::MAX);
    let named = page.sessions.into_iter().take(most);
    let named = named.filter_map(|session| named_here(session, who, node));
    page.sessions = named.filter(is_seen).collect();
    if is_whole {
        // A node of a version without pages.
        return Ok(SessionPage::of_whole(page.sessions, request));
    }
    if let Some(prefix) = &request.prefix {
        let before = page.sessions.len();
        page.sessions
            .retain(|session| session.session_id.starts_with(prefix.as_str()));
        let left_out = (before - page.sessions.len()) as u64;
        page.total = page.total.map(|total| total.saturating_sub(left_out));
    }
    Ok(page)
}

/// The page in the form for the node; `None` if no session of the node can be on it.
fn page_of_node(
    dispatcher: &Dispatcher,
    who: &SessionHandler,
    node: &Node,
    request: &SessionListRequest,
) -> Option<ProcessPageAsked> {
    let tag = node_tag(&node.id)?;
    let prefix = request.prefix.as_deref().map(|prefix| {
        let (name, of_tag) = prefix.split_once('@').unwrap_or((prefix, ""));
        tag.starts_with(of_tag).then(|| name.to_owned())
    });
    let prefix = match prefix {
        Some(None) => return None,
        Some(prefix) => prefix,
        None => None,
    };
    let in_front = || dispatcher.nodes.names_in_front(tag);
    Some(ProcessPageAsked {
        limit: request.limit,
        cursor: request
            .after
            .as_ref()
            .map(|after| after.on_node(tag).to_string()),
        conversation: request.conversation.clone(),
        agent_id: request.agent_id.clone(),
        background: request.background,
        prefix,
        // A caller waits for these sessions, so they are not in the background yet.
        except: who.agent.as_ref().map_or_else(Vec::new, |_| in_front()),
    })
}

/// A node's session under its name here; `None` if the node's data makes no sense.
fn named_here(
    mut session: SessionSummary,
    who: &SessionHandler,
    node: &Node,
) -> Option<SessionSummary> {
    let is_own = |agent: &AgentId| session.agent_id == agent.as_str() && session.background;
    if !who.agent.as_ref().is_none_or(is_own) {
        return None;
    }
    session.session_id = session_id(&session.session_id, &node.id)?;
    for text in [
        &mut session.name,
        &mut session.command,
        &mut session.cwd,
        &mut session.agent_id,
    ] {
        if let Some((at, _)) = text.char_indices().nth(MAX_TEXT) {
            text.truncate(at);
        }
    }
    session.node = Some(node.name());
    session.node_id = Some(node.id.clone());
    Some(session)
}

/// The facts known here about a session on a node that cannot be asked.
fn unreachable(dispatcher: &Dispatcher, run: &OpenRun) -> Option<SessionSummary> {
    let node_id = run.node.clone()?;
    let store = dispatcher.host.store();
    let paired = store.node(&node_id).ok().flatten();
    let paired = paired.and_then(|node| node.display_name);
    let started_at_ms = u64::try_from(run.started_at_ms).unwrap_or_default();
    let age_ms = now_ms().saturating_sub(started_at_ms);
    Some(SessionSummary {
        session_id: run.session.clone()?,
        name: run.command.chars().take(80).collect(),
        ended: EndedSession {
            status: SessionStatus::Unreachable,
            exit_code: None,
            signal: None,
            timed_out: false,
            out_of_memory: false,
        },
        agent_id: run.agent.clone(),
        session_key: Some(run.session_key.clone()),
        command: run.command.clone(),
        cwd: String::new(),
        pid: None,
        pty: false,
        stdin_writable: false,
        background: true,
        waiting_for_input: false,
        started_at_ms,
        ended_at_ms: None,
        age_ms,
        runtime_ms: age_ms,
        total_bytes: None,
        stale: Stale::default(),
        node: Some(paired.unwrap_or_else(|| node_id.clone())),
        node_id: Some(node_id),
    })
}
