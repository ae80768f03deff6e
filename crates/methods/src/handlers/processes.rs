//! Background sessions as `process.*`, with everything that an operator may do, and as tasks.

use std::time::Duration;

use interlock_approvals::usual_session_key;
use interlock_dispatch::nodes::sessions::{self, SessionHandler, SessionWanted};
use interlock_dispatch::session_pages;
use interlock_policy::AgentId;
use interlock_sessions::{
    CursorInvalid, MAX_POLL_WAIT, PollFrom, Process, ProcessAnswer, ProcessCaller, ProcessError,
    ProcessParameters, SessionAction, SessionCursor, SessionListRequest, SessionStatus,
    SessionSummary, signal_named,
};
use interlock_transcript::LineRange;
use interlock_wire::results::{
    ProcessListing, ProcessLogPage, ProcessPerformed, ProcessPolled, ProcessStanding,
    ProcessSubscribed, ProcessUnsubscribed, ProcessWritten, Relayed, TaskCanceled, TaskEntry,
    TaskFound, TaskListing,
};
use interlock_wire::{WireError, params};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Context, work};
use crate::gateway::Gateway;
use crate::subscriptions::{self, TooMany};

/// Tasks in one answer if the caller names no limit.
const TASKS: u64 = 100;

/// Sessions in one answer if the caller names no limit.
const LISTED: u64 = 200;

/// `process.list`: the newest first, page by page.
pub(crate) async fn list(
    context: Context<'_>,
    asked: params::ProcessList,
) -> Result<Relayed<ProcessListing>, WireError> {
    let after = asked.cursor.as_deref().map(str::parse).transpose();
    let request = SessionListRequest {
        after: after.map_err(|error: CursorInvalid| {
            WireError::invalid(format!("cursor {error}")).with("code", "CURSOR_INVALID")
        })?,
        limit: Some(most(asked.limit, LISTED)),
        agent_id: asked.agent_id.clone(),
        prefix: asked.prefix,
        ..SessionListRequest::default()
    };
    let agent = asked.agent_id.filter(|_| asked.agent_view == Some(true));
    let agent = agent.map(|agent| AgentId::new(&agent)).transpose();
    let agent = agent.map_err(|error| WireError::invalid(format!("agentId {error}")))?;
    let who = match &agent {
        Some(agent) => SessionHandler {
            agent: Some(agent.clone()),
            session_key: usual_session_key(agent.as_str()),
        },
        None => SessionHandler::OPERATOR,
    };
    let page = session_pages::page(&context.gateway.dispatcher, &who, request).await?;
    let page = page.map_err(|error| failed(&error))?;
    Ok(written(&ProcessAnswer::List(page)))
}

/// Returns the caller's limit, or the default.
fn most(asked: Option<u64>, usual: u64) -> usize {
    usize::try_from(asked.unwrap_or(usual)).unwrap_or(usize::MAX)
}

/// `process.poll`: reads from an offset and moves no cursor.
pub(super) async fn poll(
    context: Context<'_>,
    asked: params::ProcessPoll,
) -> Result<Relayed<ProcessPolled>, WireError> {
    if sessions::is_remote(&asked.session_id) {
        let timeout = Duration::from_millis(asked.timeout_ms.unwrap_or(0)).min(MAX_POLL_WAIT);
        let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or_default();
        let action = SessionAction::Poll {
            session_id: asked.session_id,
            timeout,
        };
        let arguments = json!({ "action": "poll", "timeout": milliseconds });
        let from = Some(asked.offset.unwrap_or(0));
        return elsewhere(context, action, arguments, from).await;
    }
    with(context, move |process| {
        let from = PollFrom::Offset(asked.offset.unwrap_or(0));
        let timeout = Duration::from_millis(asked.timeout_ms.unwrap_or(0));
        Ok(written(&process.poll(&asked.session_id, from, timeout)?))
    })
    .await
}

/// `process.log`.
pub(crate) async fn log(
    context: Context<'_>,
    asked: params::ProcessLog,
) -> Result<Relayed<ProcessLogPage>, WireError> {
    let range = LineRange {
        offset: asked.offset,
        limit: asked.limit,
    };
    if sessions::is_remote(&asked.session_id) {
        let arguments = json!({
            "action": "log", "offset": range.offset, "limit": range.limit,
        });
        let action = SessionAction::Log {
            session_id: asked.session_id,
            range,
        };
        return elsewhere(context, action, arguments, None).await;
    }
    with(context, move |process| {
        Ok(written(&process.log(&asked.session_id, range)?))
    })
    .await
}

/// `process.write`.
pub(super) async fn write(
    context: Context<'_>,
    asked: params::ProcessWrite,
) -> Result<Relayed<ProcessWritten>, WireError> {
    if sessions::is_remote(&asked.session_id) {
        let eof = asked.eof.unwrap_or(false);
        let arguments = json!({ "action": "write", "data": asked.data, "eof": eof });
        let action = SessionAction::Write {
            session_id: asked.session_id,
            data: asked.data,
            eof,
        };
        return elsewhere(context, action, arguments, None).await;
    }
    with(context, move |process| {
        let eof = asked.eof.unwrap_or(false);
        let data = asked.data.as_bytes();
        Ok(written(&process.write(&asked.session_id, data, eof)?))
    })
    .await
}

/// `process.kill`.
pub(super) async fn kill(
    context: Context<'_>,
    asked: params::ProcessKill,
) -> Result<Relayed<ProcessStanding>, WireError> {
    if sessions::is_remote(&asked.session_id) {
        let arguments = json!({ "action": "kill", "signal": asked.signal });
        let action = SessionAction::Kill {
            session_id: asked.session_id,
            signal: asked.signal,
        };
        return elsewhere(context, action, arguments, None).await;
    }
    with(context, move |process| {
        let signal = asked.signal.as_deref().map(signal_named).transpose()?;
        let ended = written(&process.kill(&asked.session_id, signal)?);
        Ok(ended.with("sessionId", asked.session_id))
    })
    .await
}

/// `process.perform`: performs any action of the tool, on any session.
pub(crate) async fn perform(
    context: Context<'_>,
    asked: params::ProcessPerform,
) -> Result<Relayed<ProcessPerformed>, WireError> {
    let arguments = Value::Object(asked.args);
    let parameters = ProcessParameters::parse(&arguments)
        .map_err(|error| WireError::invalid(error.to_string()).with("code", error.code()))?;
    let action = SessionAction::from(parameters);
    if action.session_id().is_some_and(sessions::is_remote) {
        return elsewhere(context, action, arguments, None).await;
    }
    with(context, move |process| {
        Ok(written(&process.perform(action)?))
    })
    .await
}

/// `process.subscribe`.
pub(super) async fn subscribe(
    context: Context<'_>,
    asked: params::ProcessSubscribe,
) -> Result<ProcessSubscribed, WireError> {
    let id = asked.session_id.clone();
    let summary = if sessions::is_remote(&id) {
        look_elsewhere(context, &id).await?
    } else {
        with(context, move |process| process.look(&id)).await?
    };
    let offset = asked.from_offset.unwrap_or(0);
    subscriptions::subscribe(context.gateway, context.client, &asked.session_id, offset).map_err(
        |TooMany| {
            WireError::unavailable("too many subscriptions; end one by process.unsubscribe")
                .with("code", "TOO_MANY_SUBSCRIPTIONS")
        },
    )?;
    Ok(ProcessSubscribed {
        subscribed: true,
        from_offset: offset,
        session: written(&summary),
    })
}

/// `process.unsubscribe`.
pub(super) fn unsubscribe(
    context: Context<'_>,
    asked: &params::ProcessUnsubscribe,
) -> ProcessUnsubscribed {
    let subscriptions = &context.gateway.subscriptions;
    let unsubscribed = subscriptions.remove(context.client, &asked.session_id);
    ProcessUnsubscribed { unsubscribed }
}

/// `tasks.list`: the newest first.
pub(super) async fn tasks(
    context: Context<'_>,
    asked: params::TasksList,
) -> Result<TaskListing, WireError> {
    let after = match asked.cursor.as_deref().filter(|cursor| !cursor.is_empty()) {
        Some(cursor) => Some(task_cursor(context, cursor).await?),
        None => None,
    };
    let request = SessionListRequest {
        after,
        limit: Some(most(asked.limit, TASKS)),
        conversation: asked.session_key.clone(),
        agent_id: asked.agent_id.clone(),
        background: true,
        ..SessionListRequest::default()
    };
    let (gateway, who) = (context.gateway, SessionHandler::OPERATOR);
    let statuses = asked.statuses();
    let page = if statuses.is_empty() {
        session_pages::page(&gateway.dispatcher, &who, request).await?
    } else {
        let passes = |one: &SessionSummary| statuses.contains(&task_status(one));
        session_pages::filtered(&gateway.dispatcher, &who, request, passes).await?
    };
    let page = page.map_err(|error| failed(&error))?;
    Ok(TaskListing {
        count: page.sessions.len(),
        total: page.total,
        tasks: page.sessions.iter().map(task).collect(),
        next_cursor: page.next_cursor,
    })
}

/// Returns the cursor behind which a page of tasks begins. A client gives `nextCursor` or the id of
/// a task.
async fn task_cursor(context: Context<'_>, cursor: &str) -> Result<SessionCursor, WireError> {
    if let Ok(place) = cursor.parse() {
        return Ok(place);
    }
    let id = cursor.to_owned();
    let summary = if sessions::is_remote(cursor) {
        look_elsewhere(context, cursor).await
    } else {
        with(context, move |process| process.look(&id)).await
    };
    let summary = summary.map_err(|_| {
        WireError::invalid("cursor is neither a nextCursor nor the id of a task")
            .with("code", "CURSOR_INVALID")
    })?;
    Ok(SessionCursor::at(&summary))
}

/// `tasks.get`.
pub(super) async fn task_get(
    context: Context<'_>,
    asked: params::TasksGet,
) -> Result<TaskFound, WireError> {
    if sessions::is_remote(&asked.task_id) {
        let summary = look_elsewhere(context, &asked.task_id).await.ok();
        return Ok(found(summary.as_ref()));
    }
    with(context, move |process| match process.look(&asked.task_id) {
        Ok(summary) => Ok(found(Some(&summary))),
        Err(ProcessError::NotFound { .. }) => Ok(found(None)),
        Err(error) => Err(error),
    })
    .await
}

/// `tasks.cancel`.
pub(super) async fn task_cancel(
    context: Context<'_>,
    asked: params::TasksCancel,
) -> Result<TaskCanceled, WireError> {
    if sessions::is_remote(&asked.task_id) {
        return cancel_elsewhere(context, asked.task_id).await;
    }
    with(context, move |process| {
        let id = &asked.task_id;
        let before = match process.look(id) {
            Ok(before) => before,
            Err(ProcessError::NotFound { .. }) => {
                return Ok(TaskCanceled::default());
            }
            Err(error) => return Err(error),
        };
        // A session that has ended is not canceled any more, even while its last processes exit.
        let is_over = before.ended.status != SessionStatus::Running;
        let reason = match process.kill(id, None) {
            _ if is_over => Some(before.ended.to_string()),
            Ok(_) => None,
            Err(error @ (ProcessError::Finished { .. } | ProcessError::Lost { .. })) => {
                Some(error.to_string())
            }
            Err(error) => return Err(error),
        };
        Ok(canceled(reason, process.look(id).ok().as_ref()))
    })
    .await
}

/// Performs an action on a node, for a session there.
async fn elsewhere<T>(
    context: Context<'_>,
    action: SessionAction,
    arguments: Value,
    poll_from: Option<u64>,
) -> Result<Relayed<T>, WireError> {
    let wanted = SessionWanted {
        action,
        arguments,
        poll_from,
    };
    let done = sessions::perform(
        &context.gateway.dispatcher,
        &SessionHandler::OPERATOR,
        wanted,
    )
    .await;
    done.map(|answer| written(&answer))
        .map_err(|error| WireError::invalid(error.to_string()).with("code", error.code()))
}

/// Returns the summary of one session on a node.
async fn look_elsewhere(context: Context<'_>, id: &str) -> Result<SessionSummary, WireError> {
    let request = SessionListRequest {
        prefix: Some(id.to_owned()),
        ..SessionListRequest::default()
    };
    let page = sessions::page(
        &context.gateway.dispatcher,
        &SessionHandler::OPERATOR,
        &request,
    )
    .await;
    let mut all = page.sessions.into_iter();
    all.find(|session| session.session_id == id).ok_or_else(|| {
        WireError::invalid(format!("No session found for {id}")).with("code", "SESSION_NOT_FOUND")
    })
}

async fn cancel_elsewhere(context: Context<'_>, id: String) -> Result<TaskCanceled, WireError> {
    let Ok(before) = look_elsewhere(context, &id).await else {
        return Ok(TaskCanceled::default());
    };
    let is_over = before.ended.status != SessionStatus::Running;
    let action = SessionAction::Kill {
        session_id: id.clone(),
        signal: None,
    };
    let killed: Result<Relayed<ProcessStanding>, WireError> =
        elsewhere(context, action, json!({ "action": "kill" }), None).await;
    let reason = match killed {
        _ if is_over => Some(before.ended.to_string()),
        Ok(_) => None,
        Err(error) => Some(error.message),
    };
    let after = look_elsewhere(context, &id).await.ok();
    Ok(canceled(reason, after.as_ref()))
}

fn task_status(session: &SessionSummary) -> &'static str {
    let ended = &session.ended;
    match ended.status {
        // There is no evidence that an unreachable session has ended.
        SessionStatus::Running | SessionStatus::Unreachable => "running",
        SessionStatus::Completed if ended.exit_code == Some(0) => "completed",
        SessionStatus::Killed => "cancelled",
        _ if ended.timed_out => "timed_out",
        SessionStatus::Completed | SessionStatus::Failed | SessionStatus::Lost => "failed",
    }
}

fn task(session: &SessionSummary) -> TaskEntry {
    let status = task_status(session);
    TaskEntry {
        id: session.session_id.clone(),
        task_id: session.session_id.clone(),
        kind: "exec".to_owned(),
        runtime: "cli".to_owned(),
        status: status.to_owned(),
        title: session.name.clone(),
        task: session.command.clone(),
        agent_id: session.agent_id.clone(),
        session_key: session.session_key.clone(),
        created_at: session.started_at_ms,
        started_at: session.started_at_ms,
        updated_at: session.ended_at_ms.unwrap_or(session.started_at_ms),
        ended_at: session.ended_at_ms,
        error: (status == "failed").then(|| session.ended.to_string()),
    }
}

fn found(session: Option<&SessionSummary>) -> TaskFound {
    TaskFound {
        found: session.is_some(),
        task: session.map(task),
    }
}

/// Answers for a task that was found: it is canceled unless there is a reason why not.
fn canceled(reason: Option<String>, after: Option<&SessionSummary>) -> TaskCanceled {
    TaskCanceled {
        found: true,
        cancelled: reason.is_none(),
        reason: Some(reason),
        task: Some(after.map(task)),
    }
}

/// Returns a result in the form that hosts exchange, because the result of a session on a node is
/// passed on as it came.
fn written<T>(result: &impl Serialize) -> Relayed<T> {
    Relayed::new(json!(result))
}

/// Works on sessions with the rights of an operator.
async fn with<T: Send + 'static>(
    context: Context<'_>,
    act: impl FnOnce(&Process) -> Result<T, ProcessError> + Send + 'static,
) -> Result<T, WireError> {
    work(context, move |gateway| {
        process(gateway)
            .and_then(|process| act(&process))
            .map_err(|error| failed(&error))
    })
    .await
}

fn process(gateway: &Gateway) -> Result<Process, ProcessError> {
    gateway.dispatcher.process(ProcessCaller::Operator)
}

fn failed(error: &ProcessError) -> WireError {
    let message = match error.remedy() {
        Some(remedy) => format!("{error} ({remedy})"),
        None => error.to_string(),
    };
    WireError::invalid(message).with("code", error.code())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use interlock_sessions::{EndedSession, LogAnswer, PollAnswer, SessionPage, Stale, Written};
    use interlock_transcript::ShownOutput;
    use serde::de::DeserializeOwned;

    use super::*;

    fn ended() -> EndedSession {
        EndedSession {
            status: SessionStatus::Failed,
            exit_code: Some(130),
            signal: Some(2),
            timed_out: true,
            out_of_memory: true,
        }
    }

    /// Checks that the wire crate describes every field that a host writes.
    fn check_described<T: Serialize + DeserializeOwned>(result: &impl Serialize) {
        let sent = json!(result);
        let read: T = serde_json::from_value(sent.clone()).unwrap();
        assert_eq!(json!(read), sent);
    }

    #[test]
    fn the_wire_crate_describes_what_hosts_write() {
        let (session_id, name) = ("calm-lake".to_owned(), "run make".to_owned());
        let summary = SessionSummary {
            session_id: session_id.clone(),
            name: name.clone(),
            ended: ended(),
            agent_id: "main".to_owned(),
            session_key: Some("agent:main:main".to_owned()),
            command: "make".to_owned(),
            cwd: "/src".to_owned(),
            pid: Some(7),
            pty: true,
            stdin_writable: true,
            background: true,
            waiting_for_input: true,
            started_at_ms: 1,
            ended_at_ms: Some(2),
            age_ms: 3,
            runtime_ms: 4,
            total_bytes: Some(5),
            stale: Stale::when(true),
            node: Some("mac".to_owned()),
            node_id: Some("n1".to_owned()),
        };
        check_described::<ProcessListing>(&ProcessAnswer::List(SessionPage {
            sessions: vec![summary],
            total: Some(2),
            next_cursor: Some("1.calm-lake".to_owned()),
            other_conversations: Some(3),
        }));
        check_described::<ProcessPolled>(&PollAnswer {
            session_id: session_id.clone(),
            name: name.clone(),
            ended: ended(),
            stale: Stale::when(true),
            output: ShownOutput::default(),
            next_offset: 1,
        });
        check_described::<ProcessLogPage>(&LogAnswer {
            session_id: session_id.clone(),
            name,
            ended: ended(),
            stale: Stale::when(false),
            text: "all:".to_owned(),
            offset: 1,
            next_offset: Some(2),
            total_lines: 3,
            omitted_bytes: 4,
            omitted_lines: 5,
        });
        check_described::<ProcessWritten>(&Written {
            session_id: session_id.clone(),
            bytes: 1,
            eof: true,
        });
        let ended = ended();
        check_described::<ProcessStanding>(&ProcessAnswer::Killed { session_id, ended });
    }
}
