//! `system.run`: judged by this machine, run by its supervisor.

use std::path::Path;
use std::time::Duration;

use interlock_approvals::ApprovalDecision;
use interlock_config::RemoteDocument;
use interlock_engine::RunStatus;
use interlock_host::{
    CarriedPlan, DriftedPart, EndListener, ExecError, ExecRequest, ForwardedRun, ForwardedRunError,
    PrepareError, RunTicket, Running, Yield,
};
use interlock_plan::{PlanStdin, PtySize};
use interlock_policy::env;
use interlock_supervisor::{ClientError, EndedRun, RunConversation, StartedRun, Waited};
use interlock_transcript::{ChunkStream, Cursor, TranscriptError, TranscriptReader};
use interlock_wire::node::{
    DEFAULT_INVOKE_TIMEOUT_MS, Denial, ExecDenied, ExecFinished, NodeInvokeRequest, OutputStream,
    RunOutput, SentPlan, SystemRun, SystemRunPlan, SystemRunResult, TIMEOUT_EXIT_CODE,
};
use interlock_wire::{ErrorCode, WireError};

use super::call::{self, CommandCall, given};
use crate::serve::{CommandAnswer, NodeService};

/// The longest id of a run.
pub(super) const MAX_RUN_ID: usize = 200;
/// How long a run that the operator allowed has to start before its gateway gives up.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);
/// The longest wait for the operator's decision.
const MAX_OPERATOR_PATIENCE: Duration = Duration::from_mins(30);
/// How much of a transcript is read at a time.
const PIECE: usize = 64 * 1024;

pub(crate) fn run(service: &NodeService, request: &NodeInvokeRequest) -> CommandAnswer {
    let params: SystemRun = match request.read() {
        Ok(params) => params,
        Err(error) => return failed(error),
    };
    let run_id = match given(params.run_id.as_deref()) {
        Some(id) if id.len() > MAX_RUN_ID => {
            return failed(WireError::invalid("INVALID_REQUEST: runId is too long"));
        }
        Some(id) => id.to_owned(),
        None => uuid::Uuid::new_v4().to_string(),
    };
    let command = match params.command_text() {
        Ok(texts) => texts.text,
        Err(error) => return failed(error),
    };
    let patience = operator_patience(service, request.timeout_ms);
    match forward(service, &params, &run_id, patience) {
        Ok((result, over)) => {
            let finished = ExecFinished::of(&params, &run_id, &command, &result);
            let answer =
                CommandAnswer::of(Ok(result)).telling_the_same(ExecFinished::NAME, &finished);
            match over {
                Some(over) => answer.ending(over),
                None => answer,
            }
        }
        Err(NoResult::Error(error)) => failed(error),
        Err(NoResult::Denied(denial, error)) => {
            let denied = ExecDenied::of(&params, &run_id, &command, &denial);
            failed(error).telling(ExecDenied::NAME, &denied)
        }
    }
}

/// How long the operator of this machine may take to decide about a run without an approval: as
/// long as a foreign gateway waits for the run. `None` for an Interlock gateway, which asks its own
/// approvers.
fn operator_patience(service: &NodeService, timeout_ms: Option<u64>) -> Option<Duration> {
    if service.gateway_is_interlock() {
        return None;
    }
    let wait = Duration::from_millis(timeout_ms.unwrap_or(DEFAULT_INVOKE_TIMEOUT_MS));
    let wait = wait.min(MAX_OPERATOR_PATIENCE);
    wait.checked_sub(ANSWER_MARGIN)
        .filter(|wait| !wait.is_zero())
}

fn failed(error: WireError) -> CommandAnswer {
    CommandAnswer::of(Err::<(), _>(error))
}

/// Why there is no result.
pub(super) enum NoResult {
    /// The request is wrong or cannot be carried out. The session gets no event.
    Error(WireError),
    /// The policy denies the run, and the session gets an event.
    Denied(Denial, WireError),
}

impl NoResult {
    pub(super) fn into_error(self) -> WireError {
        match self {
            Self::Error(error) | Self::Denied(_, error) => error,
        }
    }
}

impl From<WireError> for NoResult {
    fn from(error: WireError) -> Self {
        Self::Error(error)
    }
}

impl From<Denial> for NoResult {
    fn from(denial: Denial) -> Self {
        let error = denial.error();
        Self::Denied(denial, error)
    }
}

fn forward(
    service: &NodeService,
    params: &SystemRun,
    run_id: &str,
    operator_patience: Option<Duration>,
) -> Result<(SystemRunResult, Option<WaitedRun>), NoResult> {
    let how = RunHow {
        operator_patience,
        ..RunHow::default()
    };
    match service
        .places
        .at_run(|| start(service, params, run_id, &how))?
    {
        Begun::Running(running) => {
            let over = service.places.at_run(|| WaitedRun::wait(*running));
            Ok((over.result(service), Some(over)))
        }
        Begun::Not(name) => Ok((not_started(&name), None)),
    }
}

/// How a run is carried out, where that differs from the protocol's default.
#[derive(Debug)]
pub(super) struct RunHow<'a> {
    pub(super) pty: Option<PtySize>,
    pub(super) stdin: PlanStdin,
    pub(super) yields: Yield,
    pub(super) shows_output: bool,
    /// The owner of the session: an Interlock gateway. It gets this machine's own reason why a
    /// command does not run.
    pub(super) owner: Option<&'a str>,
    /// How long the operator of this machine may take to decide; see
    /// [`ForwardedRun::operator_patience`].
    pub(super) operator_patience: Option<Duration>,
}

impl Default for RunHow<'_> {
    fn default() -> Self {
        Self {
            pty: None,
            stdin: PlanStdin::Null,
            yields: Yield::Never,
            // The output is read from the transcript, by stream.
            shows_output: false,
            owner: None,
            operator_patience: None,
        }
    }
}

/// The start of a run that was not refused.
pub(super) enum Begun {
    Running(Box<Running>),
    /// The program or the working directory does not exist.
    Not(String),
}

/// Judges a run by the policy of this machine, and starts it.
pub(super) fn start(
    service: &NodeService,
    params: &SystemRun,
    run_id: &str,
    how: &RunHow<'_>,
) -> Result<Begun, NoResult> {
    let sent = params.sent_plan()?;
    let env = params.env.clone().unwrap_or_default();
    env::check_overrides(&env).map_err(|rejected| WireError::invalid(rejected.to_string()))?;
    let call = CommandCall {
        agent: call::agent(params.agent_id.as_deref())?,
        source: call::source(&params.command),
        is_cwd_named: given(params.cwd.as_deref()).is_some(),
        cwd: call::directory(params.cwd.as_deref())?,
        env,
        session_key: given(params.session_key.as_deref()).map(str::to_owned),
        gateway: call::gateway_layer(&params.policy_layer.clone().unwrap_or_default())?,
    };
    if params.needs_screen_recording == Some(true) {
        return Err(Denial::SCREEN_RECORDING.into());
    }
    let digest = match &sent {
        SentPlan::Whole(plan) => {
            check_plan(params, plan)?;
            Some(plan.digest())
        }
        SentPlan::None | SentPlan::Partial => None,
    };
    let forwarded = ForwardedRun {
        run_id,
        timeout_ms: params.timeout_ms.filter(|&milliseconds| milliseconds > 0),
        plan: match &digest {
            Some(digest) => CarriedPlan::Digest(digest),
            None if sent == SentPlan::Partial || says_approved(params) => CarriedPlan::Missing,
            None => CarriedPlan::None,
        },
        approved: approved(service, params)?,
        owner: how.owner,
        operator_patience: how.operator_patience,
    };
    if !Path::new(&call.cwd).is_dir() {
        match forwarded.plan {
            CarriedPlan::Digest(_) => return Err(Denial::CWD_CHANGED.into()),
            CarriedPlan::Missing => return Err(Denial::PLAN_MISMATCH.into()),
            CarriedPlan::None => {}
        }
        if how.owner.is_some() {
            return Err(call::no_directory(&call.cwd).into());
        }
        return Ok(Begun::Not(params.command[0].clone()));
    }
    let request = ExecRequest {
        pty: how.pty,
        stdin: how.stdin,
        yields: how.yields,
        show_chars: (!how.shows_output).then_some(0),
        ..call.request(service)
    };
    match service
        .host
        .exec_forwarded(&request, &forwarded, &service.supervisor)
    {
        Ok(running) => Ok(Begun::Running(Box::new(running))),
        Err(ForwardedRunError::Exec(ExecError::Prepare(PrepareError::Missing {
            name, ..
        }))) if how.owner.is_none() => Ok(Begun::Not(name)),
        Err(error) => {
            tracing::info!(run = run_id, code = error.code(), %error, "not run");
            if let (Some(_), ForwardedRunError::Exec(error)) = (how.owner, &error)
                && let Some(own) = call::own_words(error)
            {
                return Err(own.into());
            }
            Err(refused(&error))
        }
    }
}

/// Whether the gateway claims that the run was approved. Such a run needs a plan of this node,
/// regardless of the policy.
fn says_approved(params: &SystemRun) -> bool {
    let decision = params.approval_decision.as_deref();
    params.approved == Some(true)
        || (params.approved.is_none() && matches!(decision, Some("allow-once" | "allow-always")))
}

/// The approver's decision, if it allows the run. Only gateways that may write the document can
/// store the entries of *always*.
fn approved(
    service: &NodeService,
    params: &SystemRun,
) -> Result<Option<ApprovalDecision>, WireError> {
    if params.approved == Some(false) {
        return Ok(None);
    }
    Ok(match params.approval_decision.as_deref() {
        Some("allow-always") => match service.remote_document() {
            Ok(RemoteDocument::Write) => Some(ApprovalDecision::AllowAlways),
            Ok(_) => Some(ApprovalDecision::AllowOnce),
            Err(error) => return Err(WireError::unavailable(error.to_string())),
        },
        Some("allow-once") => Some(ApprovalDecision::AllowOnce),
        None if params.approved == Some(true) => Some(ApprovalDecision::AllowOnce),
        _ => None,
    })
}

/// Checks that the call equals the plan's. The host inspects the files of a plan only after it
/// judged the call and found the plan among those that it issued.
fn check_plan(params: &SystemRun, plan: &SystemRunPlan) -> Result<(), NoResult> {
    let same = |text: Option<&str>, planned: Option<&str>| given(text) == given(planned);
    let is_same = params.command == plan.argv
        && same(params.cwd.as_deref(), plan.cwd.as_deref())
        && same(params.agent_id.as_deref(), plan.agent_id.as_deref())
        && same(params.session_key.as_deref(), plan.session_key.as_deref());
    if !is_same {
        return Err(Denial::PLAN_MISMATCH.into());
    }
    Ok(())
}

/// The result for a missing program or working directory.
fn not_started(name: &str) -> SystemRunResult {
    SystemRunResult {
        error: Some(format!("spawn {name} ENOENT")),
        ..SystemRunResult::default()
    }
}

/// This machine's reasons in the texts that gateways know.
fn refused(error: &ForwardedRunError) -> NoResult {
    let denied = |denial: Denial, message: String| {
        let message = format!("{}: {message}", ErrorCode::SYSTEM_RUN_DENIED);
        NoResult::Denied(
            denial,
            WireError::new(ErrorCode::SYSTEM_RUN_DENIED, message),
        )
    };
    match error {
        ForwardedRunError::ApprovalRequired(_) => Denial::APPROVAL_REQUIRED.into(),
        ForwardedRunError::PlanUnknown => Denial::PLAN_MISMATCH.into(),
        ForwardedRunError::Drift { part, .. } => match part {
            DriftedPart::Cwd => Denial::CWD_CHANGED.into(),
            DriftedPart::Script => Denial::SCRIPT_CHANGED.into(),
            DriftedPart::Program => Denial::PLAN_MISMATCH.into(),
        },
        // The session is notified of that run by the call that started it. The code must not be
        // that of a denial, because a run with this id was started.
        ForwardedRunError::Used => {
            WireError::unavailable(format!("SYSTEM_RUN_DENIED: {error}")).into()
        }
        ForwardedRunError::Exec(error) => match error {
            ExecError::Denied(verdict) => match verdict.reason.code {
                "security-deny" => Denial::SECURITY_DENY.into(),
                "env-rejected" => WireError::invalid(&verdict.reason.message).into(),
                "deny-rule" => denied(Denial::ALLOWLIST_MISS, verdict.reason.message.clone()),
                _ => Denial::ALLOWLIST_MISS.into(),
            },
            ExecError::Tool(_) => Denial::SECURITY_DENY.into(),
            ExecError::Unbound(_) => denied(
                Denial::APPROVAL_REQUIRED,
                "approval cannot safely bind this interpreter/runtime command".to_owned(),
            ),
            // The operator of this machine denied the run, or the allowed plan is no longer valid.
            ExecError::Approval(refusal) if refusal.is_denial() => {
                denied(Denial::APPROVAL_REQUIRED, refusal.to_string())
            }
            ExecError::Refused(_) | ExecError::Script(_) => {
                denied(Denial::ALLOWLIST_MISS, error.to_string())
            }
            ExecError::Prepare(PrepareError::Environment(text)) => WireError::invalid(text).into(),
            ExecError::Input(error) => {
                WireError::invalid(format!("INVALID_REQUEST: {error}")).into()
            }
            error => WireError::unavailable(error.to_string()).into(),
        },
    }
}

/// A run after its wait.
pub(crate) struct WaitedRun {
    conversation: RunConversation,
    end: NodeRunEnd,
}

/// The end of a run, to be recorded.
pub(crate) struct NodeRunEnd {
    ticket: RunTicket,
    session: String,
    waited: Result<Waited, ClientError>,
}

impl WaitedRun {
    /// Waits for the end of the run, or for the ordered time, even if the connection is lost.
    pub(super) fn wait(running: Running) -> Self {
        Self::with(running, RunConversation::wait)
    }

    /// A run that no call on this node waits for.
    pub(super) fn left(running: Running) -> Self {
        Self::with(running, |_| Ok(Waited::Yielded))
    }

    fn with(
        running: Running,
        wait: impl FnOnce(&RunConversation) -> Result<Waited, ClientError>,
    ) -> Self {
        let Running {
            conversation,
            ticket,
            ..
        } = running;
        let end = NodeRunEnd {
            ticket,
            session: conversation.started().session.name.clone(),
            waited: wait(&conversation),
        };
        Self { conversation, end }
    }

    /// Records that the run is now a session, which the gateway reads.
    pub(super) fn leave(self, service: &NodeService) {
        let waited = Ok(Waited::Yielded);
        NodeRunEnd { waited, ..self.end }.record(service);
    }

    /// Splits off the end to record, and the conversation that holds the transcript of an ended
    /// run.
    pub(crate) fn split(self) -> (NodeRunEnd, Option<RunConversation>) {
        let has_ended = self.ended().is_some();
        (self.end, has_ended.then_some(self.conversation))
    }

    pub(super) fn started(&self) -> &StartedRun {
        self.conversation.started()
    }

    /// The end of the run, if it has ended.
    pub(super) fn ended(&self) -> Option<&EndedRun> {
        match &self.end.waited {
            Ok(Waited::Ended(ended)) => Some(ended),
            _ => None,
        }
    }

    fn result(&self, service: &NodeService) -> SystemRunResult {
        let name = &self.started().session.name;
        let mut result = SystemRunResult::default();
        match &self.end.waited {
            Ok(Waited::Ended(ended)) => match ended.outcome.status {
                RunStatus::Exited(code) => {
                    result.exit_code = Some(i64::from(code));
                    result.success = code == 0;
                }
                RunStatus::Signaled(_) => {}
                RunStatus::TimedOut => {
                    result.timed_out = true;
                    let release = service.gateway().release;
                    if release.knows_exit_code_of_timeout() {
                        result.exit_code = Some(TIMEOUT_EXIT_CODE);
                    }
                }
            },
            Ok(Waited::Yielded) => {
                result.error = Some(format!("it went to the background as {name}"));
            }
            Err(error) => result.error = Some(error.to_string()),
        }
        // A run without output may have no files on disk.
        if self.ended().is_some_and(|ended| ended.totals.bytes == 0) {
            return result;
        }
        match output(&service.supervisor.place().session(name)) {
            Ok(output) => (result.stdout, result.stderr) = output.finish(),
            Err(error) => {
                tracing::error!(session = name, %error, "output cannot be read");
                result.error.get_or_insert(error.to_string());
            }
        }
        result
    }
}

impl NodeRunEnd {
    pub(crate) fn record(&self, service: &NodeService) {
        let (session, waited) = (&self.session, self.waited.as_ref());
        if let Err(error) =
            service
                .host
                .record_end(&self.ticket, session, waited, EndListener::Caller)
        {
            tracing::error!(run = self.ticket.run_id, %error, "the end of a run is not recorded");
        }
    }

    /// Records the end after the answer was sent.
    pub(crate) fn record_later(&self, service: &NodeService) {
        let (session, waited) = (&self.session, self.waited.as_ref());
        service
            .host
            .record_end_later(&self.ticket, session, waited, EndListener::Caller);
    }
}

/// The beginning of both streams in order of arrival.
fn output(directory: &Path) -> Result<RunOutput, TranscriptError> {
    let spool = TranscriptReader::open(directory)?;
    let mut output = RunOutput::default();
    let mut cursor = Cursor::START;
    while output.dropped() == 0 {
        let batch = spool.read_from(cursor, PIECE)?;
        output.lose(batch.gap.bytes);
        for chunk in &batch.chunks {
            let stream = match chunk.stream {
                ChunkStream::Stdout | ChunkStream::Pty => OutputStream::Stdout,
                ChunkStream::Stderr => OutputStream::Stderr,
            };
            output.push(stream, &chunk.bytes);
        }
        if batch.next == cursor {
            break;
        }
        cursor = batch.next;
    }
    Ok(output)
}
