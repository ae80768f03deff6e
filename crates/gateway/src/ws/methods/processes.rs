//! Sessions of commands: as `process.*`, with all that an operator may do, and as tasks.

use std::time::Duration;

use interlock_host::process::{
    Caller, PollFrom, Process, ProcessError, SessionStatus, Summary, signal_named,
};
use interlock_run::spool::LineRange;
use interlock_wire::params;
use interlock_wire::{Request, WireError};
use serde_json::{Value, json};

use super::{Answer, Context, read, work};
use crate::gateway::Gateway;
use crate::ws::subscriptions::{self, TooMany};

/// Tasks in one answer, where the caller does not say.
const TASKS: u64 = 100;

/// `process.list`.
pub(super) async fn list(context: Context<'_>, request: &Request) -> Answer {
    let asked: params::ProcessList = read(request)?;
    with(context, move |process| {
        let mut sessions = process.list()?;
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

/// `process.poll`: by offset; it moves nobody's cursor.
pub(super) async fn poll(context: Context<'_>, request: &Request) -> Answer {
    let asked: params::ProcessPoll = read(request)?;
    with(context, move |process| {
        let from = PollFrom::Offset(asked.offset.unwrap_or(0));
        let timeout = Duration::from_millis(asked.timeout_ms.unwrap_or(0));
        Ok(json!(process.poll(&asked.session_id, from, timeout)?))
    })
    .await
}

/// `process.log`.
pub(super) async fn log(context: Context<'_>, request: &Request) -> Answer {
    let asked: params::ProcessLog = read(request)?;
    let range = LineRange {
        offset: asked.offset,
        limit: asked.limit,
    };
    with(context, move |process| {
        Ok(json!(process.log(&asked.session_id, range)?))
    })
    .await
}

/// `process.write`.
pub(super) async fn write(context: Context<'_>, request: &Request) -> Answer {
    let asked: params::ProcessWrite = read(request)?;
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
pub(super) async fn kill(context: Context<'_>, request: &Request) -> Answer {
    let asked: params::ProcessKill = read(request)?;
    with(context, move |process| {
        let signal = asked.signal.as_deref().map(signal_named).transpose()?;
        let mut ended = json!(process.kill(&asked.session_id, signal)?);
        ended["sessionId"] = asked.session_id.into();
        Ok(ended)
    })
    .await
}

/// `process.subscribe`.
pub(super) async fn subscribe(context: Context<'_>, request: &Request) -> Answer {
    let asked: params::ProcessSubscribe = read(request)?;
    let id = asked.session_id.clone();
    let summary = with(context, move |process| Ok(json!(process.look(&id)?))).await?;
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
pub(super) fn unsubscribe(context: Context<'_>, request: &Request) -> Answer {
    let asked: params::ProcessUnsubscribe = read(request)?;
    let subscriptions = &context.gateway.subscriptions;
    let was = subscriptions.remove(context.client, &asked.session_id);
    Ok(json!({ "unsubscribed": was }))
}

/// `tasks.list`: the newest first.
pub(super) async fn tasks(context: Context<'_>, request: &Request) -> Answer {
    let asked: params::TasksList = read(request)?;
    with(context, move |process| {
        let mut sessions = process.list()?;
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
        // The cursor names the last one that was told.
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
pub(super) async fn task_get(context: Context<'_>, request: &Request) -> Answer {
    let asked: params::TasksGet = read(request)?;
    with(context, move |process| match process.look(&asked.task_id) {
        Ok(summary) => Ok(json!({ "found": true, "task": task(&summary) })),
        Err(ProcessError::NotFound { .. }) => Ok(json!({ "found": false })),
        Err(error) => Err(error),
    })
    .await
}

/// `tasks.cancel`.
pub(super) async fn task_cancel(context: Context<'_>, request: &Request) -> Answer {
    let asked: params::TasksCancel = read(request)?;
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

fn task_status(session: &Summary) -> &'static str {
    let ended = &session.ended;
    match ended.status {
        SessionStatus::Running => "running",
        SessionStatus::Completed if ended.exit_code == Some(0) => "completed",
        SessionStatus::Killed => "cancelled",
        _ if ended.timed_out => "timed_out",
        SessionStatus::Completed | SessionStatus::Failed | SessionStatus::Lost => "failed",
    }
}

fn task(session: &Summary) -> Value {
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
) -> Answer {
    work(context, move |gateway| {
        process(gateway)
            .and_then(|process| act(&process))
            .map_err(|error| failed(&error))
    })
    .await
}

fn process(gateway: &Gateway) -> Result<Process, ProcessError> {
    let supervisor = gateway.supervisor.clone();
    gateway.host.process(Caller::Operator, supervisor)
}

fn failed(error: &ProcessError) -> WireError {
    let message = match error.remedy() {
        Some(remedy) => format!("{error} ({remedy})"),
        None => error.to_string(),
    };
    WireError::invalid(message).with("code", error.code())
}
