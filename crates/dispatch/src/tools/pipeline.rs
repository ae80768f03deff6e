//! The pipeline of a call that may need an approver: runs on this machine, runs on nodes, patches.
//!
//! ```text
//! carry_out(Judged) ─► outcome
//!         └─► Pending ─► decision ─► carry_out(Approved) ─► outcome
//! ```
//!
//! A [`RunHost`] judges and starts one call. The approval is stored before this module waits for
//! its decision. Therefore a caller that waits, one that left, one that returned and a restarted
//! gateway (`resume`) all continue here: they only differ in the receiver of the outcome.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use interlock_approvals::{ApprovalRefusal, PendingApproval};
use interlock_command::display::Secrets;
use interlock_host::EndListener;
use serde_json::json;
use tokio::sync::oneshot;

use super::render::waits_for;
use super::result::ToolResult;
use super::run_outcome::{RunLocation, RunRefusal, ToolOutcome};
use super::{Asking, CallError, Progress, ToolCall};
use crate::approvals::HeldApproval;
use crate::dispatcher::Dispatcher;
use crate::work::blocking;

/// How often a waiting caller gets a report about what it waits for.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// One call, and the host that carries it out.
pub trait RunHost: std::fmt::Debug + Send + Sync {
    /// Carries the call out as far as its start permits, and delivers the outcome to the receiver.
    /// The call continues when the receiver leaves; then the conversation is notified of the end.
    fn carry_out(
        self: Arc<Self>,
        start: RunStart,
        receiver: OutcomeReceiver,
    ) -> BoxFuture<'static, ()>;

    /// Where the call runs, for a pending result.
    fn location(&self) -> RunLocation;
}

/// The authority by which a call is carried out.
#[derive(Debug)]
pub enum RunStart {
    /// The policy in force.
    Judged,
    /// A decided approval. Its plan runs, once.
    Approved(ApprovedStart),
}

/// A decided approval.
#[derive(Debug)]
pub struct ApprovedStart {
    pub id: String,
    /// Keeps other calls from using the approval until it was claimed or cannot be.
    pub held: HeldApproval,
}

/// The receiver of an outcome: a waiting caller, or none.
#[derive(Debug)]
pub struct OutcomeReceiver(Option<oneshot::Sender<ToolOutcome>>);

impl OutcomeReceiver {
    /// No caller waits, so the conversation is notified.
    pub fn absent() -> Self {
        Self(None)
    }

    pub(super) fn waiting() -> (Self, oneshot::Receiver<ToolOutcome>) {
        let (sender, outcome) = oneshot::channel();
        (Self(Some(sender)), outcome)
    }

    pub fn is_absent(&self) -> bool {
        self.0.is_none()
    }

    /// Delivers the outcome, and returns who reports it from now on.
    pub fn deliver(self, outcome: ToolOutcome) -> EndListener {
        let is_received = self.0.is_some_and(|sender| sender.send(outcome).is_ok());
        if is_received {
            EndListener::Caller
        } else {
            EndListener::SessionEvent
        }
    }

    /// Returns when no caller waits any more.
    pub async fn gone(&mut self) {
        if let Some(sender) = &mut self.0 {
            sender.closed().await;
        }
    }
}

/// Delivers why an approved call was not carried out. `title` begins the event for a conversation
/// without a caller.
pub(super) fn deliver_refusal(
    dispatcher: &Dispatcher,
    (agent, session_key): (&str, &str),
    (id, title): (&str, &str),
    refusal: RunRefusal,
    receiver: OutcomeReceiver,
) {
    let text = format!("{title} (gateway id={id}): {}", refusal.message);
    let payload = json!({ "approvalId": id, "code": refusal.code });
    let is_reported = refusal.is_reported;
    let listener = receiver.deliver(ToolOutcome::Refused(refusal.about(id)));
    if listener == EndListener::SessionEvent && !is_reported {
        let approvals = dispatcher.host.approvals();
        if let Err(error) = approvals.note(session_key, agent, &text, &payload) {
            tracing::error!(id, %error, "{title}, and its session could not be notified");
        }
    }
    dispatcher.events.look_now();
}

/// Carries a call out, waits for an approver if one is needed, and returns the result.
pub(super) async fn run(
    dispatcher: &Arc<Dispatcher>,
    host: Arc<dyn RunHost>,
    call: &ToolCall,
    patience: Duration,
) -> Result<ToolResult, CallError> {
    let Some(id) = &call.approval else {
        let outcome = start(&host, RunStart::Judged).await?;
        return finish(dispatcher, host, call, outcome, patience).await;
    };
    match read_approval(dispatcher, id).await? {
        Ok(approval) => approve(dispatcher, host, call, approval, patience).await,
        Err(error) => Ok(RunRefusal::of_exec(&error.into()).into()),
    }
}

/// Continues with a judged call: it is over, or an approver has to decide.
pub(super) async fn finish(
    dispatcher: &Arc<Dispatcher>,
    host: Arc<dyn RunHost>,
    call: &ToolCall,
    outcome: ToolOutcome,
    patience: Duration,
) -> Result<ToolResult, CallError> {
    match outcome {
        ToolOutcome::Pending { approval, .. } => {
            approve(dispatcher, host, call, *approval, patience).await
        }
        outcome => Ok(outcome.into()),
    }
}

/// Starts the call in a separate task, which outlives its caller, and waits for the outcome.
async fn start(host: &Arc<dyn RunHost>, start: RunStart) -> Result<ToolOutcome, CallError> {
    let (receiver, outcome) = OutcomeReceiver::waiting();
    tokio::spawn(Arc::clone(host).carry_out(start, receiver));
    outcome.await.map_err(|_| CallError::Stopping)
}

/// Waits for the decision for as long as the caller has patience, and carries out an allowed call.
async fn approve(
    dispatcher: &Arc<Dispatcher>,
    host: Arc<dyn RunHost>,
    call: &ToolCall,
    approval: PendingApproval,
    patience: Duration,
) -> Result<ToolResult, CallError> {
    let id = approval.id.clone();
    let held = dispatcher.approvals.hold(&id);
    let mut decision = AwaitedDecision::of(dispatcher, &id);
    dispatcher.approvals.look_now();
    let pending = || {
        let approval = Box::new(approval.clone());
        let location = host.location();
        ToolResult::from(ToolOutcome::Pending { approval, location })
    };
    if call.approval.is_none()
        && let Asking::Returned(is_for_caller) = &call.asking
        && is_for_caller(&approval)
    {
        let pending = pending();
        tokio::spawn(carry_out_when_decided(
            Arc::clone(dispatcher),
            host,
            decision,
            held,
        ));
        return Ok(pending);
    }
    let is_decided = decision.is_decided().await?;
    let patience = async {
        if let Asking::Here(asker) = &call.asking
            && !is_decided
        {
            asker.ask(approval.clone()).await;
        }
        tokio::time::sleep(patience).await;
    };
    tokio::select! {
        biased;
        () = decision.wait() => {}
        () = call.cancelled() => {
            let dispatcher = Arc::clone(dispatcher);
            blocking(move || {
                // An approval that was decided in the meantime is not used, because no caller waits
                // for its run.
                let _ = dispatcher.host.approvals().withdraw(&id);
                dispatcher.approvals.look_now();
            })
            .await?;
            return Ok(RunRefusal::cancelled().into());
        }
        () = patience => {
            let pending = pending();
            // A caller that returned leaves the approval to the call that requested it.
            if call.approval.is_none() {
                tokio::spawn(carry_out_when_decided(Arc::clone(dispatcher), host, decision, held));
            }
            return Ok(pending);
        }
        never = report_waiting(call, &approval) => match never {},
    }
    let approved = RunStart::Approved(ApprovedStart { id, held });
    Ok(start(&host, approved).await?.into())
}

/// Carries out an allowed call after its caller got a pending result. The conversation is notified
/// of the end; the decision itself notifies it of a denial. A caller that returned takes
/// precedence.
pub(super) async fn carry_out_when_decided(
    dispatcher: Arc<Dispatcher>,
    host: Arc<dyn RunHost>,
    mut decision: AwaitedDecision,
    held: HeldApproval,
) {
    tokio::select! {
        () = decision.wait() => {}
        // The approval outlives this process, and the next one resumes it.
        () = dispatcher.stop.cancelled() => return,
    }
    held.until_alone().await;
    let id = decision.id;
    let (reader, ended) = (Arc::clone(&dispatcher), id.clone());
    let ended = blocking(move || reader.host.approvals().ended(&ended)).await;
    if matches!(ended, Ok(Ok(Some(ended))) if !ended.ending.allows()) {
        return;
    }
    let approved = RunStart::Approved(ApprovedStart { id, held });
    host.carry_out(approved, OutcomeReceiver::absent()).await;
}

/// The decision of an approval, which may have been made before this process listened.
pub(super) struct AwaitedDecision {
    id: String,
    dispatcher: Arc<Dispatcher>,
    published: BoxFuture<'static, ()>,
    /// The state in the record, once it was read.
    is_decided: Option<bool>,
}

impl AwaitedDecision {
    /// Listens from now on, so that no decision is missed.
    pub(super) fn of(dispatcher: &Arc<Dispatcher>, id: &str) -> Self {
        let published = dispatcher.approvals.wait_for(id);
        Self {
            id: id.to_owned(),
            dispatcher: Arc::clone(dispatcher),
            published: Box::pin(async move {
                published.await;
            }),
            is_decided: None,
        }
    }

    /// Whether the approval was decided before this process listened.
    async fn is_decided(&mut self) -> Result<bool, CallError> {
        if let Some(is_decided) = self.is_decided {
            return Ok(is_decided);
        }
        let (dispatcher, id) = (Arc::clone(&self.dispatcher), self.id.clone());
        let ended = blocking(move || dispatcher.host.approvals().ended(&id)).await??;
        Ok(*self.is_decided.insert(ended.is_some()))
    }

    async fn wait(&mut self) {
        // A record that cannot be read now may be readable when the decision is published.
        if !matches!(self.is_decided().await, Ok(true)) {
            (&mut self.published).await;
            self.is_decided = Some(true);
        }
    }
}

/// Reads an earlier stored approval.
async fn read_approval(
    dispatcher: &Arc<Dispatcher>,
    id: &str,
) -> Result<Result<PendingApproval, ApprovalRefusal>, CallError> {
    let (dispatcher, id) = (Arc::clone(dispatcher), id.to_owned());
    blocking(move || dispatcher.host.approvals().approval(&id, Secrets::Masked)).await
}

/// Reports repeatedly what the call waits for, and where to decide.
async fn report_waiting(call: &ToolCall, approval: &PendingApproval) -> std::convert::Infallible {
    if let Some(progress) = &call.progress {
        let report = Progress::Waiting(waits_for(approval));
        while progress.send(report.clone()).await.is_ok() {
            tokio::time::sleep(REPORT_INTERVAL).await;
        }
    }
    std::future::pending().await
}
