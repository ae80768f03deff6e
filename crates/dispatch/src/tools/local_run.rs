//! A run on this machine.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use interlock_command::Source;
use interlock_config::ConfigFile;
use interlock_engine::Signal;
use interlock_host::parameters::{ExecParameters, InputMode};
use interlock_host::{
    EffectReport, EffectState, EndListener, Exec, ExecError, ExecRequest, RequestedPlace, Running,
    Yield,
};
use interlock_plan::{PlanShield, PlanStdin, PtySize};
use interlock_supervisor::{ClientError, EndedRun, StartedRun, Waited};
use interlock_transcript::{LineRange, TranscriptReader};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use super::pipeline::{ApprovedStart, OutcomeReceiver, RunHost, RunStart, deliver_refusal};
use super::run_outcome::{
    InsideReport, RunEndReport, RunLocation, RunRefusal, RunningReport, ToolOutcome,
};
use super::{Progress, ToolCall, events};
use crate::dispatcher::Dispatcher;
use crate::work::{blocking, waiting};

/// Default size of a detached PTY.
const PTY_SIZE: PtySize = PtySize {
    columns: 120,
    rows: 30,
};

/// How long one read of a transcript waits for more output.
const FOLLOW_WAIT: Duration = Duration::from_secs(1);

/// The most characters in one progress report. The result contains everything that is shown.
const PROGRESS_CHARS: usize = 4_000;

/// How much of a continuing run's output a result shows.
const TAIL_LINES: u64 = 20;
const TAIL_BYTES: usize = 4_000;

/// How often a call reports that it waits for a decision about its changes.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The requester of an approval whose caller is gone.
const NO_REQUESTER: &str = "a run that ended";

/// The beginning of the event about an approved run that was not started.
const NOT_RUN: &str = "Exec not run";

/// A call of `exec` for this machine.
#[derive(Debug)]
pub(super) struct LocalRun {
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) call: ToolCall,
    /// The config that the call began with.
    pub(super) config: Arc<ConfigFile>,
    pub(super) parameters: ExecParameters,
    pub(super) cwd: String,
    pub(super) yields: Yield,
}

impl RunHost for LocalRun {
    fn carry_out(
        self: Arc<Self>,
        start: RunStart,
        receiver: OutcomeReceiver,
    ) -> BoxFuture<'static, ()> {
        let dispatcher = Arc::clone(&self.dispatcher);
        Box::pin(async move {
            let _ = waiting(&dispatcher, move || self.carry_out_here(start, receiver)).await;
        })
    }

    fn location(&self) -> RunLocation {
        RunLocation::gateway(&self.cwd)
    }
}

impl LocalRun {
    fn request(&self, config: Option<Arc<ConfigFile>>) -> ExecRequest<'_> {
        let parameters = &self.parameters;
        ExecRequest {
            agent: &self.call.agent,
            config,
            caller: &self.call.context,
            source: Source::Text(parameters.command.clone()),
            cwd: self.cwd.clone(),
            env: parameters.env.clone(),
            ask: parameters.ask,
            gateway: None,
            timeout_seconds: parameters.timeout.map(|time| {
                // Fractions are rounded up, so that a short limit never becomes "no limit".
                time.as_secs() + u64::from(time.subsec_nanos() > 0)
            }),
            base_env: &self.dispatcher.environment,
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
            place: RequestedPlace {
                host: parameters.host,
                needs_sandbox: false,
                is_cwd_usual: false,
                elevated: parameters.elevated,
                sender: self.call.sender.clone(),
                retry: parameters.retry.clone(),
                effects: parameters.effects,
            },
        }
    }

    /// Judges, starts and waits on the calling thread.
    pub(super) fn carry_out_here(&self, start: RunStart, receiver: OutcomeReceiver) {
        let dispatcher = &self.dispatcher;
        match start {
            RunStart::Judged => {
                let request = self.request(Some(Arc::clone(&self.config)));
                let is_free = |id: &str| !dispatcher.approvals.is_held(id);
                match dispatcher
                    .host
                    .exec_again(&request, &dispatcher.supervisor, &is_free)
                {
                    Ok(Exec::Started(running)) => self.attend(*running, receiver),
                    Ok(Exec::Pending(pending)) => {
                        receiver.deliver(ToolOutcome::Pending {
                            approval: Box::new(pending.approval),
                            location: self.location(),
                        });
                    }
                    Err(error) => {
                        receiver.deliver(ToolOutcome::Refused(refusal(dispatcher, &error)));
                    }
                }
            }
            RunStart::Approved(ApprovedStart { id, held }) => {
                // The config may have changed since the approval was stored.
                let request = self.request(None);
                let begun = dispatcher
                    .host
                    .run_approved(&id, &request, &dispatcher.supervisor);
                drop(held);
                match begun {
                    Ok(running) => self.attend(running, receiver),
                    Err(error) => {
                        let conversation = (self.call.agent.as_str(), &*self.call.session_key);
                        let refusal = refusal(dispatcher, &error);
                        deliver_refusal(
                            dispatcher,
                            conversation,
                            (&id, NOT_RUN),
                            refusal,
                            receiver,
                        );
                    }
                }
            }
        }
    }

    /// Waits for the end of a run. Meanwhile a caller gets its output, and the run is ended if the
    /// caller cancels.
    fn attend(&self, running: Running, receiver: OutcomeReceiver) {
        let mut cancelling = None;
        if !receiver.is_absent() {
            let started = running.conversation.started();
            if let Some(progress) = self.call.progress.clone() {
                follow(&self.dispatcher, &started.session.name, progress);
            }
            cancelling = self.call.cancellation.clone().map(|cancelled| {
                let dispatcher = Arc::clone(&self.dispatcher);
                let name = started.session.name.clone();
                let ending = end_when_cancelled(dispatcher, cancelled, name);
                AbortOnDropHandle::new(Handle::current().spawn(ending))
            });
        }
        let waited = running.conversation.wait();
        // Dropped before the caller gets its result, so that a client that leaves afterwards
        // cancels nothing. Otherwise a run that went to the background would end with its call.
        drop(cancelling);
        let exec = self.config.config().exec_for(self.call.agent.as_str());
        let waiting = EffectWait {
            patience: self.call.patience(&exec),
            progress: self.call.progress.clone(),
            requester: &self.call.requester,
        };
        let receiver = (receiver, Some(waiting));
        let conversation = &*self.call.session_key;
        finish(
            &self.dispatcher,
            running,
            &waited,
            (conversation, &self.cwd),
            receiver,
        );
    }
}

/// Runs the stored plan of an approval that an earlier process of this gateway asked for.
pub(super) fn resume(
    dispatcher: &Dispatcher,
    conversation: (&str, &str),
    approved: ApprovedStart,
    receiver: OutcomeReceiver,
) {
    let ApprovedStart { id, held } = approved;
    let begun = dispatcher
        .host
        .resume_run(&id, &dispatcher.environment, &dispatcher.supervisor);
    drop(held);
    match begun {
        Ok(running) => {
            let cwd = running.conversation.started().session.cwd.clone();
            let waited = running.conversation.wait();
            let place = (conversation.1, &*cwd);
            finish(dispatcher, running, &waited, place, (receiver, None));
        }
        Err(error) => {
            let refusal = refusal(dispatcher, &error);
            deliver_refusal(dispatcher, conversation, (&id, NOT_RUN), refusal, receiver);
        }
    }
}

/// Delivers the outcome of a run that was waited for, and then records it. The caller does not wait
/// for the record.
fn finish(
    dispatcher: &Dispatcher,
    running: Running,
    waited: &Result<Waited, ClientError>,
    (session_key, cwd): (&str, &str),
    (receiver, waiting): (OutcomeReceiver, Option<EffectWait<'_>>),
) {
    let Running {
        conversation,
        ticket,
        elevation,
        inside,
    } = running;
    let started = conversation.started();
    let name = started.session.name.as_str();
    let mut is_whole = false;
    let outcome = match waited {
        Ok(Waited::Ended(ended)) => {
            is_whole = ended.shown.omitted_bytes == 0;
            if !is_whole {
                // The result names the session, so the session must exist for a caller that reads
                // it at once.
                let session = dispatcher.supervisor.session(name);
                let _ = session.and_then(|session| session.to_background());
            }
            let mut report = RunEndReport::local(started, ended, cwd);
            report.elevation = elevation;
            let inside = inside.as_ref().and_then(|inside| {
                let noted = dispatcher.host.note_denials(inside, &ticket, name, ended);
                noted
                    .inspect_err(|error| tracing::error!(run = ticket.run_id, %error, "what a sandbox denied is not noted"))
                    .ok()
            });
            report.inside = inside.map(|noted| InsideReport {
                may_ask: may_ask_to_leave(dispatcher),
                noted,
            });
            if started.session.shield == Some(PlanShield::Sandbox) {
                let waiting = waiting.filter(|_| !receiver.is_absent());
                report.effect = settle_effect(dispatcher, &ticket.run_id, (name, ended), waiting);
            }
            report.has_no_events =
                !receiver.is_absent() && events::has_none(dispatcher, session_key);
            ToolOutcome::Ended(Box::new(report))
        }
        Ok(Waited::Yielded) => ToolOutcome::Running(running_report(dispatcher, started, cwd)),
        Err(error) => ToolOutcome::Refused(RunRefusal::failed(error.code(), error.to_string())),
    };
    let listener = receiver.deliver(outcome);
    let recorded = dispatcher
        .host
        .record_end(&ticket, name, waited.as_ref(), listener);
    if let Err(error) = recorded {
        tracing::error!(run = ticket.run_id, %error, "the end of a run is not recorded");
    }
    // Otherwise the transcript is kept, so that it can be read.
    if is_whole && listener == EndListener::Caller {
        let _ = conversation.taken();
    }
}

/// How a call waits for the decision about its run's changes.
struct EffectWait<'a> {
    patience: Duration,
    progress: Option<tokio::sync::mpsc::Sender<Progress>>,
    requester: &'a str,
}

/// Commits the run's changes. If an approver has to decide, the call waits as for a command. After
/// that, the changes are committed when they are allowed, and the conversation is notified.
fn settle_effect(
    dispatcher: &Dispatcher,
    run_id: &str,
    ended: (&str, &EndedRun),
    waiting: Option<EffectWait<'_>>,
) -> Option<EffectReport> {
    let requester = waiting
        .as_ref()
        .map_or(NO_REQUESTER, |waiting| waiting.requester);
    let report = dispatcher
        .host
        .effects()
        .settle_effect(run_id, requester, Some(ended))?;
    let (EffectState::ApprovalPending, Some(id)) = (report.state, &report.approval_id) else {
        return Some(report);
    };
    dispatcher.approvals.look_now();
    let Some(waiting) = waiting else {
        return Some(report);
    };
    let approvals = dispatcher.host.approvals();
    let until = Instant::now() + waiting.patience;
    loop {
        if let Some(progress) = &waiting.progress {
            let _ = progress.blocking_send(Progress::Waiting(report.words()));
        }
        let left = until.saturating_duration_since(Instant::now());
        match approvals.wait(id, left.min(REPORT_INTERVAL)) {
            Ok(Some(_)) => break,
            Ok(None) if left.is_zero() || dispatcher.stop.is_cancelled() => return Some(report),
            Ok(None) => {}
            Err(_) => return Some(report),
        }
    }
    dispatcher
        .host
        .effects()
        .settle_decided_effect(run_id)
        .or(Some(report))
}

/// Whether a model is told how to ask: only if the owner lets runs leave their sandbox.
fn may_ask_to_leave(dispatcher: &Dispatcher) -> bool {
    let config = dispatcher.host.config();
    config.is_ok_and(|config| config.config().tools.elevated.enabled == Some(true))
}

fn running_report(dispatcher: &Dispatcher, started: &StartedRun, cwd: &str) -> RunningReport {
    let last = LineRange {
        offset: None,
        limit: Some(TAIL_LINES),
    };
    let session = &started.session;
    let directory = dispatcher.supervisor.place().session(&session.name);
    let tail = TranscriptReader::open(&directory)
        .and_then(|spool| spool.by_lines(last, TAIL_BYTES))
        .map(|page| page.text)
        .unwrap_or_default();
    RunningReport {
        session: session.name.clone(),
        pid: session.pid,
        started_at_ms: Some(started.started_ms),
        tail,
        location: RunLocation::of_started(started, cwd),
    }
}

fn refusal(dispatcher: &Dispatcher, error: &ExecError) -> RunRefusal {
    if matches!(error, ExecError::Approval(_)) {
        dispatcher.approvals.look_now();
    }
    RunRefusal::of_exec(error)
}

/// Ends the run when its caller cancels.
async fn end_when_cancelled(
    dispatcher: Arc<Dispatcher>,
    cancelled: tokio_util::sync::CancellationToken,
    name: String,
) {
    cancelled.cancelled().await;
    let end = move || {
        let session = dispatcher.supervisor.session(&name);
        let _ = session.and_then(|session| session.kill(Signal::TERM));
    };
    let _ = blocking(end).await;
}

/// Sends a run's output to its caller for as long as the caller listens.
fn follow(dispatcher: &Arc<Dispatcher>, name: &str, progress: tokio::sync::mpsc::Sender<Progress>) {
    let directory = dispatcher.supervisor.place().session(name);
    let (dispatcher, name) = (Arc::clone(dispatcher), name.to_owned());
    tokio::task::spawn_blocking(move || {
        let _ = follow_transcript(&dispatcher, &name, &directory, &progress);
    });
}

/// Returns `None` when there is no more output to report, or the caller is gone.
fn follow_transcript(
    dispatcher: &Dispatcher,
    name: &str,
    directory: &Path,
    progress: &tokio::sync::mpsc::Sender<Progress>,
) -> Option<()> {
    let session = dispatcher.supervisor.session(name).ok()?;
    let spool = TranscriptReader::open(directory).ok()?;
    let mut cursor = spool.cursor_at(0).ok()?;
    loop {
        let standing = session.wait(cursor.offset, FOLLOW_WAIT).ok()?;
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
