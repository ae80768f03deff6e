//! `interlock.run`, `.read` and `.end`: a run of an Interlock gateway. The run is a background
//! session of this machine from its start, and the gateway continues to read it where it stopped. A
//! lost connection, or a restart of either process, changes nothing for the run.

use std::time::Duration;

use interlock_approvals::RecordedOutcome;
use interlock_host::{NoSession, Yield};
use interlock_plan::{PlanStdin, PtySize};
use interlock_sessions::{Followed, Process, ProcessCaller, SessionStatus, owner_digest};
use interlock_wire::node::NodeInvokeRequest;
use interlock_wire::node::extension::{
    EndHow, GoneState, MAX_READ_BYTES, MAX_READ_WAIT_MS, RunEnd, RunGone, RunGoneOutcome, RunOrder,
    RunRead, RunStarted,
};
use interlock_wire::{Secret, WireError};

use super::call::{self, given};
use super::run::{Begun, MAX_RUN_ID, RunHow, WaitedRun, start};
use super::sessions::{failed, process_of};
use crate::serve::{CommandAnswer, NodeService};

/// Default size of a detached terminal.
pub(super) const PTY_SIZE: PtySize = PtySize {
    columns: 120,
    rows: 30,
};

/// The code for a session that does not exist or belongs to another caller.
const NOT_FOUND: &str = "SESSION_NOT_FOUND";

/// A shorter owner secret could be guessed.
const MIN_OWNER: usize = 32;

/// The most characters that a result shows.
const MAX_SHOWN_CHARS: usize = 1_000_000;

/// A run that has not ended after this time becomes a session, regardless of the gateway's request.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Starts a run, if the policy of this machine permits it.
pub(crate) fn order(service: &NodeService, request: &NodeInvokeRequest) -> CommandAnswer {
    match begin(service, request) {
        Ok((started, Some(over))) => CommandAnswer::of(Ok(started)).ending(over),
        Ok((started, None)) => CommandAnswer::of(Ok(started)),
        Err(error) => CommandAnswer::of(Err::<(), _>(error)),
    }
}

pub(super) fn stdin(is_pipe: bool) -> PlanStdin {
    if is_pipe {
        PlanStdin::Pipe
    } else {
        PlanStdin::Null
    }
}

/// Starts a run. Also returns its end, if the answer contains all of it.
fn begin(
    service: &NodeService,
    request: &NodeInvokeRequest,
) -> Result<(RunStarted, Option<WaitedRun>), WireError> {
    let order: RunOrder = request.read()?;
    let owner = owner(&order.owner)?;
    let run = &order.run;
    let run_id = given(run.run_id.as_deref()).filter(|id| id.len() <= MAX_RUN_ID);
    let run_id = run_id.ok_or_else(|| WireError::invalid("INVALID_REQUEST: runId required"))?;
    run.command_text()?;
    let agent = call::agent(run.agent_id.as_deref())?;
    // If the owner of this machine does not let the agent handle sessions, the gateway waits.
    let handles_sessions = process_of(
        service,
        ProcessCaller::Gateway {
            owner: owner.clone(),
            agent: Some(agent),
            session_key: String::new(),
        },
    )
    .is_ok();
    let how = RunHow {
        pty: order.pty.then_some(PTY_SIZE),
        stdin: stdin(order.stdin_pipe),
        yields: Yield::After(Duration::from_millis(order.wait_ms).min(MAX_WAIT)),
        shows_output: order.wait_ms > 0,
        owner: Some(&owner),
        operator_patience: None,
    };
    let running = match start(service, run, run_id, &how) {
        Ok(Begun::Running(running)) => running,
        Ok(Begun::Not(name)) => {
            return Err(WireError::unavailable(format!("spawn {name} ENOENT")));
        }
        Err(stop) => return Err(stop.into_error()),
    };
    let over = if handles_sessions {
        WaitedRun::wait(*running)
    } else {
        WaitedRun::left(*running)
    };
    let started = over.started();
    let session = &started.session;
    let mut answer = RunStarted {
        run_id: run_id.to_owned(),
        session_id: session.name.clone(),
        pid: session.pid,
        started_at_ms: started.started_ms,
        cwd: session.cwd.clone(),
        handles_sessions,
        ended: None,
    };
    let directory = service.supervisor.place().session(&session.name);
    let whole = over.ended().and_then(|ended| {
        let most = order.show_chars.min(MAX_SHOWN_CHARS);
        Followed::of_result(started, ended, &directory, most)
    });
    if let Some(whole) = whole {
        answer.ended = serde_json::to_value(whole).ok();
        return Ok((answer, Some(over)));
    }
    over.leave(service);
    Ok((answer, None))
}

/// Returns the state of a run and its output since the given offset.
pub(crate) fn read(
    service: &NodeService,
    request: &NodeInvokeRequest,
) -> Result<Followed, WireError> {
    let asked: RunRead = request.read()?;
    let (process, name) = session(
        service,
        &asked.owner,
        &asked.run_id,
        asked.session_id.as_deref(),
    )?;
    let wait = Duration::from_millis(asked.wait_ms.min(MAX_READ_WAIT_MS));
    let most = asked.max_bytes.min(MAX_READ_BYTES);
    let followed = process.follow(&name, asked.offset, wait, most);
    let mut followed = followed.map_err(|error| failed(&error))?;
    let has_ended = followed.standing.status != SessionStatus::Running;
    if let Some(chars) = asked.show_chars.filter(|_| has_ended) {
        let shown = process.shown(&name, chars.min(MAX_SHOWN_CHARS));
        followed.shown = Some(shown.map_err(|error| failed(&error))?);
    }
    Ok(followed)
}

/// Ends a run that the gateway no longer needs, or forgets an ended one.
pub(crate) fn end(
    service: &NodeService,
    request: &NodeInvokeRequest,
) -> Result<RunGone, WireError> {
    let asked: RunEnd = request.read()?;
    let gone = |state, outcome| Ok(RunGone { state, outcome });
    let found = session(
        service,
        &asked.owner,
        &asked.run_id,
        asked.session_id.as_deref(),
    );
    let (process, name) = match found {
        Err(error) if error.code.as_str() == NOT_FOUND && asked.how == EndHow::Cancel => {
            let known = service.host.forbid_forwarded(&asked.run_id);
            return match known.map_err(|error| WireError::unavailable(error.to_string()))? {
                NoSession::Never => gone(GoneState::Never, None),
                NoSession::Starting => gone(GoneState::Starting, None),
                NoSession::Over(outcome) => {
                    gone(GoneState::Over, outcome.map(|outcome| remembered(*outcome)))
                }
            };
        }
        found => found?,
    };
    let done = match asked.how {
        EndHow::Cancel => process.cancel(&name),
        EndHow::Forget => process.clear(&name).map(|_| ()),
    };
    done.map_err(|error| failed(&error))?;
    gone(GoneState::Done, None)
}

/// The recorded end of a run, for its gateway.
fn remembered(outcome: RecordedOutcome) -> RunGoneOutcome {
    RunGoneOutcome {
        code: outcome.code.map(Into::into),
        duration_ms: outcome.duration_ms,
        exit_code: outcome.exit_code.value().copied(),
        message: outcome.message.map(Into::into),
        output_bytes: outcome.output_bytes,
        session: outcome.session.value().cloned(),
        signal: outcome.signal,
        status: outcome.status.map(|status| status.as_str().to_owned()),
    }
}

/// The digest that identifies this gateway's sessions.
pub(super) fn owner(secret: &Secret) -> Result<String, WireError> {
    if secret.expose().len() < MIN_OWNER {
        return Err(WireError::invalid("INVALID_REQUEST: owner required"));
    }
    Ok(owner_digest(secret.expose()))
}

/// The session of a run that this gateway ordered. Other sessions do not exist for it.
fn session(
    service: &NodeService,
    secret: &Secret,
    run_id: &str,
    near: Option<&str>,
) -> Result<(Process, String), WireError> {
    let caller = ProcessCaller::Gateway {
        owner: owner(secret)?,
        agent: None,
        session_key: String::new(),
    };
    let process = process_of(service, caller).map_err(|error| failed(&error))?;
    let name = match near {
        // Only the session's name is known. It is looked up among this gateway's sessions.
        Some(name) if run_id.is_empty() => name.to_owned(),
        near => process
            .of_run(run_id, near)
            .map_err(|error| failed(&error))?,
    };
    Ok((process, name))
}
