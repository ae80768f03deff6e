//! `exec`: judged, asked about, run, waited for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use interlock_approvals::{ApprovalRefusal, PendingApproval};
use interlock_command::Source;
use interlock_command::display::Secrets;
use interlock_config::ConfigFile;
use interlock_host::parameters::{ExecParameters, InputMode};
use interlock_host::{
    EndListener, Exec, ExecError, ExecRequest, Pending, Route, Running, Yield, route,
};
use interlock_plan::{PlanStdin, PtySize};
use interlock_run::Signal;
use interlock_run::spool::SpoolReader;
use interlock_run::supervisor::{StartedRun, Waited};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::result::{self, ToolResult};
use super::{Asking, CallError, Progress, ToolCall, blocking, directory, waiting};
use crate::approvals::HeldApproval;
use crate::gateway::Gateway;

/// Default size of a detached PTY.
const PTY_SIZE: PtySize = PtySize {
    columns: 120,
    rows: 30,
};

/// How often a waiting caller gets a report of what it waits for.
const TELL: Duration = Duration::from_secs(10);

/// How long a look at a transcript waits for more.
const FOLLOW_MS: u64 = 1_000;

/// Characters in one notice of progress; the result has all that is shown.
const PROGRESS_CHARS: usize = 4_000;

/// A call, with everything that its request borrows.
#[derive(Debug)]
struct WantedExec {
    call: ToolCall,
    parameters: ExecParameters,
    cwd: String,
    yields: Yield,
}

impl WantedExec {
    fn request<'a>(&'a self, gateway: &'a Gateway) -> ExecRequest<'a> {
        let parameters = &self.parameters;
        ExecRequest {
            agent: &self.call.agent,
            caller: &self.call.context,
            source: Source::Text(parameters.command.clone()),
            cwd: self.cwd.clone(),
            env: parameters.env.clone(),
            ask: parameters.ask,
            gateway: None,
            timeout_seconds: parameters.timeout.map(|time| {
                // A part of a second is one: it never becomes "no limit".
                time.as_secs() + u64::from(time.subsec_nanos() > 0)
            }),
            base_env: &gateway.environment,
            session_key: Some(&self.call.session_key),
            pty: parameters.pty.then_some(PTY_SIZE),
            stdin: match parameters.stdin {
                InputMode::Null => PlanStdin::Null,
                InputMode::Pipe => PlanStdin::Pipe,
            },
            yields: self.yields,
            show_chars: self.call.audience.show_chars(),
            requester: &self.call.requester,
            runs_later: true,
        }
    }
}

pub(super) async fn exec(
    gateway: &Arc<Gateway>,
    config: &ConfigFile,
    call: &ToolCall,
    arguments: &Value,
) -> Result<ToolResult, CallError> {
    let parameters = ExecParameters::parse(arguments)?;
    let exec = config.config().exec_for(call.agent.as_str());
    // Before it is routed: a node is outside of a sandbox that the gateway's owner asks for, too.
    if let Err(error) = gateway.host.run_config() {
        let (message, remedy) = (error.to_string(), error.remedy());
        return Ok(ToolResult::denied(
            error.code(),
            &message,
            remedy.as_deref(),
        ));
    }
    let (reader, key) = (Arc::clone(gateway), call.session_key.clone());
    let values = blocking(move || reader.host.session(&key)).await??;
    match route(parameters.host, values.host.or(exec.host)) {
        Ok(Route::Gateway) => {}
        Ok(Route::Node) => {
            let there = super::node::exec(gateway, config, &exec, &values, call, parameters);
            return Box::pin(there).await;
        }
        Err(refused) => {
            let (message, remedy) = (refused.to_string(), refused.remedy());
            return Ok(ToolResult::denied(refused.code(), &message, Some(remedy)));
        }
    }
    let workdir = parameters.workdir.as_deref().map(Path::new);
    let session = match workdir.filter(|workdir| workdir.is_absolute()) {
        // It needs nothing to start from.
        Some(workdir) => workdir.to_owned(),
        None => match directory(gateway, call).await? {
            Ok(session) => session,
            Err(refused) => return Ok(refused),
        },
    };
    let directory = || parameters.directory(&session);
    let wanted = Arc::new(WantedExec {
        call: call.clone(),
        cwd: gateway.host.as_run_account(&call.agent, directory)??,
        yields: Yield::After(match (parameters.background, parameters.yield_after) {
            (true, _) => Duration::ZERO,
            (false, Some(time)) => time,
            (false, None) => exec.background_after(),
        }),
        parameters,
    });
    let approval = match &call.approval {
        Some(id) => read(gateway, id).await?,
        None => match ExecJob::begin(gateway, &wanted, RunBegin::Judged)
            .finish(gateway, call)
            .await?
        {
            ExecDone::Result(result) => return Ok(result),
            ExecDone::Pending(pending) => Ok(pending.approval),
        },
    };
    let approval = match approval {
        Ok(approval) => approval,
        Err(error) => return Ok(ToolResult::refused(&error.into())),
    };
    if call.approval.is_none()
        && let Asking::Returned(is_for_caller) = &call.asking
        && is_for_caller(&approval)
    {
        gateway.approvals.look_now();
        return Ok(ToolResult::pending(&approval, &wanted.cwd));
    }
    let wait = call.patience(&exec);
    ask(gateway, &wanted, approval, wait).await
}

/// A question that was put down before.
pub(super) async fn read(
    gateway: &Arc<Gateway>,
    id: &str,
) -> Result<Result<PendingApproval, ApprovalRefusal>, CallError> {
    let (gateway, id) = (Arc::clone(gateway), id.to_owned());
    blocking(move || gateway.host.approvals().approval(&id, Secrets::Masked)).await
}

/// Waits for an answer for as long as callers have patience, and runs what was allowed.
async fn ask(
    gateway: &Arc<Gateway>,
    wanted: &Arc<WantedExec>,
    approval: PendingApproval,
    wait: Duration,
) -> Result<ToolResult, CallError> {
    let id = approval.id.clone();
    match await_decision(gateway, &wanted.call, &approval, wait).await? {
        DecisionWait::Decided(held) => {
            let job = ExecJob::begin(gateway, wanted, RunBegin::Approved { id, _held: held });
            match job.finish(gateway, &wanted.call).await? {
                ExecDone::Result(result) => Ok(result),
                ExecDone::Pending(pending) => {
                    Ok(ToolResult::pending(&pending.approval, &wanted.cwd))
                }
            }
        }
        DecisionWait::Cancelled => Ok(ToolResult::cancelled()),
        DecisionWait::Undecided(later) => {
            if let Some((decided, held)) = later {
                let (gateway, own) = (Arc::clone(gateway), Arc::clone(wanted));
                tokio::spawn(async move {
                    decided.await;
                    run_later(&gateway, &own, id, held).await;
                });
            }
            Ok(ToolResult::pending(&approval, &wanted.cwd))
        }
    }
}

/// How the wait for a decision ended.
pub(super) enum DecisionWait {
    /// It is decided. What it allows is this call's as long as the value is held.
    Decided(HeldApproval),
    /// The caller wants no result; the approval is withdrawn.
    Cancelled,
    /// The caller's patience is over. Where this call is the one to act on a later decision, it
    /// has what to wait for.
    Undecided(Option<(BoxFuture<'static, ()>, HeldApproval)>),
}

/// Waits for a decision for as long as callers have patience.
pub(super) async fn await_decision(
    gateway: &Arc<Gateway>,
    call: &ToolCall,
    approval: &PendingApproval,
    wait: Duration,
) -> Result<DecisionWait, CallError> {
    let id = approval.id.clone();
    let held = gateway.approvals.hold(&id);
    let waiting = gateway.approvals.wait_for(&id);
    gateway.approvals.look_now();
    let (reader, asked) = (Arc::clone(gateway), id.clone());
    // An approver may have decided before this call began to listen.
    let ended = blocking(move || reader.host.approvals().ended(&asked))
        .await??
        .is_some();
    let mut waiting: BoxFuture<'static, ()> = Box::pin(async move {
        if !ended {
            waiting.await;
        }
    });
    let patience = async {
        if let Asking::Here(asker) = &call.asking
            && !ended
        {
            asker.ask(approval.clone()).await;
        }
        tokio::time::sleep(wait).await;
    };
    tokio::select! {
        biased;
        () = &mut waiting => {}
        () = call.cancelled.cancelled() => {
            let gateway = Arc::clone(gateway);
            blocking(move || {
                // Decided meanwhile: it is not run, since no caller waits for it.
                let _ = gateway.host.approvals().withdraw(&id);
                gateway.approvals.look_now();
            })
            .await?;
            return Ok(DecisionWait::Cancelled);
        }
        () = patience => {
            // A caller that got the question back comes again with it; other callers get an event
            // when it has run.
            let runs_later = call.approval.is_none() && gateway.approvals.holders(&id) == 1;
            return Ok(DecisionWait::Undecided(runs_later.then_some((waiting, held))));
        }
        never = tell_waiting(call, approval) => match never {},
    }
    Ok(DecisionWait::Decided(held))
}

/// Runs what was allowed after its caller had got a pending answer. Its session gets an event at
/// the end; of a denial it has got one already.
async fn run_later(
    gateway: &Arc<Gateway>,
    wanted: &Arc<WantedExec>,
    id: String,
    held: HeldApproval,
) {
    let (reader, asked) = (Arc::clone(gateway), id.clone());
    let ended = blocking(move || reader.host.approvals().ended(&asked)).await;
    let is_over = matches!(ended, Ok(Ok(Some(ended))) if !ended.ending.allows());
    if !is_over {
        // There is no caller to take the result.
        drop(ExecJob::begin(
            gateway,
            wanted,
            RunBegin::Approved { id, _held: held },
        ));
    }
}

/// Says again and again what the call waits for, and where to decide.
pub(super) async fn tell_waiting(
    call: &ToolCall,
    approval: &PendingApproval,
) -> std::convert::Infallible {
    if let Some(progress) = &call.progress {
        let report = Progress::Waiting(result::waits_for(approval));
        while progress.send(report.clone()).await.is_ok() {
            tokio::time::sleep(TELL).await;
        }
    }
    std::future::pending().await
}

/// What a request begins with.
enum RunBegin {
    Judged,
    /// This was asked about and allowed.
    Approved {
        id: String,
        /// Until it has begun, or cannot.
        _held: HeldApproval,
    },
}

/// A request on its way, on a thread of its own.
struct ExecJob {
    started: oneshot::Receiver<StartedRun>,
    done: oneshot::Receiver<ExecDone>,
}

pub(super) enum ExecDone {
    Result(ToolResult),
    Pending(Box<Pending>),
}

impl ExecJob {
    fn begin(gateway: &Arc<Gateway>, wanted: &Arc<WantedExec>, from: RunBegin) -> Self {
        let (gateway, wanted) = (Arc::clone(gateway), Arc::clone(wanted));
        let (tell_started, started) = oneshot::channel();
        let (tell_done, done) = oneshot::channel();
        let own = Arc::clone(&gateway);
        let work = move || {
            let request = wanted.request(&gateway);
            let begun = match &from {
                RunBegin::Approved { id, .. } => gateway
                    .host
                    .run_approved(id, &request, &gateway.supervisor)
                    .map(|running| Exec::Started(Box::new(running))),
                RunBegin::Judged => {
                    let is_free = |id: &str| !gateway.approvals.is_held(id);
                    let supervisor = &gateway.supervisor;
                    gateway.host.exec_again(&request, supervisor, &is_free)
                }
            };
            match begun {
                Ok(Exec::Started(running)) => {
                    let _ = tell_started.send(running.conversation.started().clone());
                    wait(&gateway, *running, &wanted.cwd, tell_done);
                }
                Ok(Exec::Pending(pending)) => {
                    let _ = tell_done.send(ExecDone::Pending(pending));
                }
                Err(error) => {
                    let mut result = refused(&gateway, &error);
                    if let RunBegin::Approved { id, .. } = &from {
                        result = result.about(id);
                    }
                    let sent = tell_done.send(ExecDone::Result(result));
                    if let (Err(_), RunBegin::Approved { id, .. }) = (sent, &from) {
                        let ToolCall {
                            agent, session_key, ..
                        } = &wanted.call;
                        not_run(&gateway, (agent.as_str(), session_key), id, &error);
                    }
                }
            }
        };
        // It goes on when its caller has gone.
        tokio::spawn(async move { waiting(&own, work).await });
        Self { started, done }
    }

    /// Follows it until there is a result. A caller who has enough of it ends the run; one that went
    /// to the background goes on.
    async fn finish(
        mut self,
        gateway: &Arc<Gateway>,
        call: &ToolCall,
    ) -> Result<ExecDone, CallError> {
        let mut name = None;
        loop {
            tokio::select! {
                biased;
                done = &mut self.done => return done.map_err(|_| CallError::Stopping),
                started = &mut self.started, if name.is_none() => {
                    let Ok(started) = started else {
                        // It will not be; the other channel says why.
                        return self.done.await.map_err(|_| CallError::Stopping);
                    };
                    if let Some(progress) = call.progress.clone() {
                        follow(gateway, &started.session.name, progress);
                    }
                    name = Some(started.session.name);
                }
                () = call.cancelled.cancelled(), if name.is_some() => {
                    let gateway = Arc::clone(gateway);
                    let name = name.unwrap_or_default();
                    blocking(move || {
                        let session = gateway.supervisor.session(&name);
                        let _ = session.and_then(|session| session.kill(Signal::TERM));
                    })
                    .await?;
                    return self.done.await.map_err(|_| CallError::Stopping);
                }
            }
        }
    }
}

/// Waits for the end, answers, and then records it: the caller does not wait for the record.
pub(super) fn wait(
    gateway: &Gateway,
    running: Running,
    cwd: &str,
    tell: oneshot::Sender<ExecDone>,
) {
    let Running {
        conversation,
        ticket,
    } = running;
    let waited = conversation.wait();
    let started = conversation.started();
    let result = match &waited {
        Ok(Waited::Ended(ended)) => ToolResult::ended(started, ended, cwd),
        Ok(Waited::Yielded) => ToolResult::running(started, cwd, gateway.supervisor.place()),
        Err(error) => ToolResult::failed(error.code(), &error.to_string(), None),
    };
    let is_whole = matches!(&waited, Ok(Waited::Ended(ended)) if ended.shown.omitted_bytes == 0);
    let name = started.session.name.as_str();
    if matches!(waited, Ok(Waited::Ended(_))) && !is_whole {
        // The result names the session, so it must be there for a caller that reads it at once.
        let session = gateway.supervisor.session(name);
        let _ = session.and_then(|session| session.to_background());
    }
    let is_received = tell.send(ExecDone::Result(result)).is_ok();
    let listener = if is_received {
        EndListener::Caller
    } else {
        EndListener::SessionEvent
    };
    let recorded = gateway
        .host
        .record_end(&ticket, name, waited.as_ref(), listener);
    if let Err(error) = recorded {
        tracing::error!(run = ticket.run_id, %error, "the end of a run is not recorded");
    }
    // Kept otherwise, so that it can be read.
    if is_whole && is_received {
        let _ = conversation.taken();
    }
}

/// An allowed plan could not be run, and no caller waits for it: its session gets an event.
pub(super) fn not_run(
    gateway: &Gateway,
    (agent, session_key): (&str, &str),
    id: &str,
    error: &ExecError,
) {
    // The session already has an event about drift. If another process ran it, that process reports
    // it.
    if let ExecError::Approval(ApprovalRefusal::Drift { .. } | ApprovalRefusal::Used { .. }) = error
    {
        return;
    }
    let text = format!("Exec not run (gateway id={id}): {error}");
    let payload = json!({ "approvalId": id, "code": error.code() });
    let approvals = gateway.host.approvals();
    let noted = approvals.note(session_key, agent, &text, &payload);
    if let Err(error) = noted {
        tracing::error!(id, %error, "an approved run was not made, and its session could not be notified");
    }
    gateway.events.look_now();
}

fn refused(gateway: &Gateway, error: &ExecError) -> ToolResult {
    if matches!(error, ExecError::Approval(_)) {
        gateway.approvals.look_now();
    }
    ToolResult::refused(error)
}

/// Sends what a run writes to the caller, as long as that one listens.
fn follow(gateway: &Arc<Gateway>, name: &str, progress: tokio::sync::mpsc::Sender<Progress>) {
    let directory = gateway.supervisor.place().session(name);
    let (gateway, name) = (Arc::clone(gateway), name.to_owned());
    tokio::task::spawn_blocking(move || {
        let _ = follow_run(&gateway, &name, &directory, &progress);
    });
}

/// `None` when there is no more output to report, or the caller is gone.
fn follow_run(
    gateway: &Gateway,
    name: &str,
    directory: &Path,
    progress: &tokio::sync::mpsc::Sender<Progress>,
) -> Option<()> {
    let session = gateway.supervisor.session(name).ok()?;
    let spool = SpoolReader::open(directory).ok()?;
    let mut cursor = spool.cursor_at(0).ok()?;
    loop {
        let standing = session
            .wait(cursor.offset, Duration::from_millis(FOLLOW_MS))
            .ok()?;
        let (shown, next) = spool.new_since(cursor, PROGRESS_CHARS).ok()?;
        if shown.total_bytes > 0 {
            progress.blocking_send(Progress::Output(shown.text)).ok()?;
        }
        cursor = next;
        if standing.ended || progress.is_closed() {
            return Some(());
        }
    }
}
