//! Sessions of commands: as `process.*`, with all that an operator may do, and as tasks.

use std::time::Duration;

use interlock_host::parameters::ProcessParameters;
use interlock_host::process::{
    MAX_POLL_WAIT, PollFrom, Process, ProcessCaller, ProcessError, SessionAction, SessionStatus,
    SessionSummary, signal_named,
};
use interlock_transcript::LineRange;
use interlock_wire::params;
use interlock_wire::{Request, WireError};
use serde_json::{Value, json};

use super::{Context, MethodAnswer, read, work};
use crate::gateway::Gateway;
use crate::nodes::sessions::{self, SessionHandler, SessionWanted};
use crate::ws::subscriptions::{self, TooMany};

/// Tasks in one answer, where the caller does not say.
const TASKS: u64 = 100;

/// `process.list`.
pub(super) async fn list(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::ProcessList = read(request)?;
    let elsewhere = sessions::all(context.gateway, &SessionHandler::OPERATOR).await;
    with(context, move |process| {
        let mut sessions = process.list()?;
        sessions.extend(elsewhere);
        sessions.retain(|one| {
            asked
                .agent_id
                .as_ref()
                .is_none_or(|agent| one.agent_id == *agent)
        });
        Ok(json!({ "sessions": sessions }))
    })
    .await
}

/// `process.poll`: by offset; it moves no cursor.
pub(super) async fn poll(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::ProcessPoll = read(request)?;
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
        Ok(json!(process.poll(&asked.session_id, from, timeout)?))
    })
    .await
}

/// `process.log`.
pub(super) async fn log(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::ProcessLog = read(request)?;
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
        Ok(json!(process.log(&asked.session_id, range)?))
    })
    .await
}

/// `process.write`.
pub(super) async fn write(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::ProcessWrite = read(request)?;
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
        Ok(json!(process.write(
            &asked.session_id,
            asked.data.as_bytes(),
            eof
        )?))
    })
    .await
}

/// `process.kill`.
pub(super) async fn kill(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::ProcessKill = read(request)?;
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
        let mut ended = json!(process.kill(&asked.session_id, signal)?);
        ended["sessionId"] = asked.session_id.into();
        Ok(ended)
    })
    .await
}

/// `process.perform`: what the tool can do, for every session.
pub(super) async fn perform(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::ProcessPerform = read(request)?;
    let arguments = Value::Object(asked.args);
    let parameters = ProcessParameters::parse(&arguments)
        .map_err(|error| WireError::invalid(error.to_string()).with("code", error.code()))?;
    let action = SessionAction::from(parameters);
    if action.session_id().is_some_and(sessions::is_remote) {
        return elsewhere(context, action, arguments, None).await;
    }
    with(context, move |process| Ok(json!(process.perform(action)?))).await
}

/// `process.subscribe`.
pub(super) async fn subscribe(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::ProcessSubscribe = read(request)?;
    let id = asked.session_id.clone();
    let summary = if sessions::is_remote(&id) {
        json!(look_elsewhere(context, &id).await?)
    } else {
        with(context, move |process| Ok(json!(process.look(&id)?))).await?
    };
    let offset = asked.from_offset.unwrap_or(0);
    subscriptions::subscribe(context.gateway, context.client, &asked.session_id, offset).map_err(
        |TooMany| {
            WireError::unavailable("too many subscriptions; end one by process.unsubscribe")
                .with("code", "TOO_MANY_SUBSCRIPTIONS")
        },
    )?;
    Ok(json!({ "subscribed": true, "fromOffset": offset, "session": summary }))
}

/// `process.unsubscribe`.
pub(super) fn unsubscribe(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::ProcessUnsubscribe = read(request)?;
    let subscriptions = &context.gateway.subscriptions;
    let was = subscriptions.remove(context.client, &asked.session_id);
    Ok(json!({ "unsubscribed": was }))
}

/// `tasks.list`: the newest first.
pub(super) async fn tasks(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::TasksList = read(request)?;
    let elsewhere = sessions::all(context.gateway, &SessionHandler::OPERATOR).await;
    with(context, move |process| {
        let mut sessions = process.list()?;
        sessions.extend(elsewhere);
        sessions.sort_by_key(|one| (one.started_at_ms, one.session_id.clone()));
        sessions.reverse();
        let statuses = asked.statuses();
        sessions.retain(|one| {
            one.background
                && (statuses.is_empty() || statuses.contains(&task_status(one)))
                && asked
                    .agent_id
                    .as_ref()
                    .is_none_or(|agent| one.agent_id == *agent)
                && (asked.session_key.is_none() || one.session_key == asked.session_key)
        });
        // The cursor names the last one that was listed.
        if let Some(cursor) = &asked.cursor
            && let Some(at) = sessions.iter().position(|one| one.session_id == *cursor)
        {
            sessions.drain(..=at);
        }
        let limit = usize::try_from(asked.limit.unwrap_or(TASKS)).unwrap_or(usize::MAX);
        let is_all = sessions.len() <= limit;
        sessions.truncate(limit);
        let last = sessions.last().map(|one| one.session_id.clone());
        let tasks: Vec<Value> = sessions.iter().map(task).collect();
        Ok(json!({
            "count": tasks.len(),
            "tasks": tasks,
            "nextCursor": last.filter(|_| !is_all),
        }))
    })
    .await
}

/// `tasks.get`.
pub(super) async fn task_get(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::TasksGet = read(request)?;
    if sessions::is_remote(&asked.task_id) {
        return Ok(match look_elsewhere(context, &asked.task_id).await {
            Ok(summary) => json!({ "found": true, "task": task(&summary) }),
            Err(_) => json!({ "found": false }),
        });
    }
    with(context, move |process| match process.look(&asked.task_id) {
        Ok(summary) => Ok(json!({ "found": true, "task": task(&summary) })),
        Err(ProcessError::NotFound { .. }) => Ok(json!({ "found": false })),
        Err(error) => Err(error),
    })
    .await
}

/// `tasks.cancel`.
pub(super) async fn task_cancel(context: Context<'_>, request: &Request) -> MethodAnswer {
    let asked: params::TasksCancel = read(request)?;
    if sessions::is_remote(&asked.task_id) {
        return cancel_elsewhere(context, asked.task_id).await;
    }
    with(context, move |process| {
        let id = &asked.task_id;
        let before = match process.look(id) {
            Ok(before) => before,
            Err(ProcessError::NotFound { .. }) => {
                return Ok(json!({ "found": false, "cancelled": false }));
            }
            Err(error) => return Err(error),
        };
        // What has ended is not cancelled any more, even while the last of it goes.
        let is_over = before.ended.status != SessionStatus::Running;
        let (cancelled, reason) = match process.kill(id, None) {
            _ if is_over => (false, Some(before.ended.to_string())),
            Ok(_) => (true, None),
            Err(error @ (ProcessError::Finished { .. } | ProcessError::Lost { .. })) => {
                (false, Some(error.to_string()))
            }
            Err(error) => return Err(error),
        };
        let after = process.look(id).ok();
        Ok(json!({
            "found": true,
            "cancelled": cancelled,
            "reason": reason,
            "task": after.as_ref().map(task),
        }))
    })
    .await
}

/// A session on a node, handled there.
async fn elsewhere(
    context: Context<'_>,
    action: SessionAction,
    arguments: Value,
    poll_from: Option<u64>,
) -> MethodAnswer {
    let wanted = SessionWanted {
        action,
        arguments,
        poll_from,
    };
    let done = sessions::perform(context.gateway, &SessionHandler::OPERATOR, wanted).await;
    done.map(|answer| json!(answer))
        .map_err(|error| WireError::invalid(error.to_string()).with("code", error.code()))
}

/// What one session on a node is, and how it stands.
async fn look_elsewhere(context: Context<'_>, id: &str) -> Result<SessionSummary, WireError> {
    let mut all = sessions::all(context.gateway, &SessionHandler::OPERATOR)
        .await
        .into_iter();
    all.find(|session| session.session_id == id).ok_or_else(|| {
        WireError::invalid(format!("No session found for {id}")).with("code", "SESSION_NOT_FOUND")
    })
}

async fn cancel_elsewhere(context: Context<'_>, id: String) -> MethodAnswer {
    let Ok(before) = look_elsewhere(context, &id).await else {
        return Ok(json!({ "found": false, "cancelled": false }));
    };
    let is_over = before.ended.status != SessionStatus::Running;
    let action = SessionAction::Kill {
        session_id: id.clone(),
        signal: None,
    };
    let killed = elsewhere(context, action, json!({ "action": "kill" }), None).await;
    let reason = match killed {
        _ if is_over => Some(before.ended.to_string()),
        Ok(_) => None,
        Err(error) => Some(error.message),
    };
    let after = look_elsewhere(context, &id).await.ok();
    Ok(json!({
        "found": true,
        "cancelled": reason.is_none(),
        "reason": reason,
        "task": after.as_ref().map(task),
    }))
}

fn task_status(session: &SessionSummary) -> &'static str {
    let ended = &session.ended;
    match ended.status {
        // Nothing says that it ended.
        SessionStatus::Running | SessionStatus::Unreachable => "running",
        SessionStatus::Completed if ended.exit_code == Some(0) => "completed",
        SessionStatus::Killed => "cancelled",
        _ if ended.timed_out => "timed_out",
        SessionStatus::Completed | SessionStatus::Failed | SessionStatus::Lost => "failed",
    }
}

fn task(session: &SessionSummary) -> Value {
    let status = task_status(session);
    let error = (status == "failed").then(|| session.ended.to_string());
    json!({
        "id": session.session_id,
        "taskId": session.session_id,
        "kind": "exec",
        "runtime": "cli",
        "status": status,
        "title": session.name,
        "task": session.command,
        "agentId": session.agent_id,
        "sessionKey": session.session_key,
        "createdAt": session.started_at_ms,
        "startedAt": session.started_at_ms,
        "updatedAt": session.ended_at_ms.unwrap_or(session.started_at_ms),
        "endedAt": session.ended_at_ms,
        "error": error,
    })
}

/// Works on sessions as an operator.
async fn with(
    context: Context<'_>,
    act: impl FnOnce(&Process) -> Result<Value, ProcessError> + Send + 'static,
) -> MethodAnswer {
    work(context, move |gateway| {
        process(gateway)
            .and_then(|process| act(&process))
            .map_err(|error| failed(&error))
    })
    .await
}

fn process(gateway: &Gateway) -> Result<Process, ProcessError> {
    let supervisor = gateway.supervisor.clone();
    gateway.host.process(ProcessCaller::Operator, supervisor)
}

fn failed(error: &ProcessError) -> WireError {
    let message = match error.remedy() {
        Some(remedy) => format!("{error} ({remedy})"),
        None => error.to_string(),
    };
    WireError::invalid(message).with("code", error.code())
}
