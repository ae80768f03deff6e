//! `apply_patch`: several files in the agent's workspace, all or nothing. Patches of protected files
//! wait for an approver, as runs do.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use interlock_approvals::ApprovalRefusal;
use interlock_config::ConfigFile;
use interlock_host::parameters::PatchParameters;
use interlock_host::{EndListener, PatchError, PatchOutcome, PatchRequest};
use interlock_patch::PatchSummary;
use serde_json::{Value, json};

use super::pipeline::{self, ApprovedStart, OutcomeReceiver, RunHost, RunStart};
use super::result::ToolResult;
use super::run_outcome::{RunLocation, RunRefusal, ToolOutcome};
use super::{CallError, ToolCall, no_workspace, start_directory};
use crate::dispatcher::Dispatcher;
use crate::work::blocking;

pub(super) async fn apply_patch(
    dispatcher: &Arc<Dispatcher>,
    config: &Arc<ConfigFile>,
    call: &ToolCall,
    arguments: &Value,
) -> Result<ToolResult, CallError> {
    let parameters = PatchParameters::parse(arguments)?;
    let root = {
        let (dispatcher, config, call) = (Arc::clone(dispatcher), Arc::clone(config), call.clone());
        let start = move || {
            let scope = dispatcher.host.scope_under(&call.agent, config)?;
            start_directory(&scope, &call)
        };
        match blocking(start).await? {
            Ok(root) => root,
            Err(error) => return Ok(no_workspace(&error)),
        }
    };
    let patch = Arc::new(PatchRun {
        dispatcher: Arc::clone(dispatcher),
        call: call.clone(),
        parameters,
        root,
    });
    let exec = config.config().exec_for(call.agent.as_str());
    pipeline::run(dispatcher, patch, call, call.patience(&exec)).await
}

/// A call of `apply_patch`.
#[derive(Debug)]
struct PatchRun {
    dispatcher: Arc<Dispatcher>,
    call: ToolCall,
    parameters: PatchParameters,
    root: PathBuf,
}

impl RunHost for PatchRun {
    fn carry_out(
        self: Arc<Self>,
        start: RunStart,
        receiver: OutcomeReceiver,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = blocking(move || self.carry_out_here(start, receiver)).await;
        })
    }

    fn location(&self) -> RunLocation {
        RunLocation::gateway(&self.root.display().to_string())
    }
}

impl PatchRun {
    fn request(&self) -> PatchRequest<'_> {
        PatchRequest {
            agent: &self.call.agent,
            session_key: Some(&self.call.session_key),
            model: self.parameters.model.as_deref(),
            caller: &self.call.context,
            root: self.root.clone(),
            input: &self.parameters.input,
            dry_run: self.parameters.dry_run,
            requester: &self.call.requester,
            runs_later: true,
        }
    }

    fn carry_out_here(&self, start: RunStart, receiver: OutcomeReceiver) {
        let (dispatcher, request) = (&self.dispatcher, self.request());
        match start {
            RunStart::Judged => {
                let is_free = |id: &str| !dispatcher.approvals.is_held(id);
                receiver.deliver(
                    match dispatcher.host.apply_patch_again(&request, &is_free) {
                        Ok(PatchOutcome::Applied(summary)) => ToolOutcome::Patched(summary),
                        Ok(PatchOutcome::Pending(approval)) => ToolOutcome::Pending {
                            approval,
                            location: self.location(),
                        },
                        Err(error) => ToolOutcome::Refused(RunRefusal::of_patch(&error)),
                    },
                );
            }
            RunStart::Approved(ApprovedStart { id, held }) => {
                let listener = if receiver.is_absent() {
                    EndListener::SessionEvent
                } else {
                    EndListener::Caller
                };
                let applied = dispatcher.host.apply_approved(&id, &request, listener);
                drop(held);
                let conversation = (self.call.agent.as_str(), &*self.call.session_key);
                deliver(dispatcher, conversation, &id, applied, receiver);
            }
        }
    }
}

/// Applies the stored patch of an approval that an earlier process of this gateway asked for.
pub(super) fn resume(
    dispatcher: &Dispatcher,
    conversation: (&str, &str),
    approved: ApprovedStart,
    receiver: OutcomeReceiver,
) {
    let ApprovedStart { id, held } = approved;
    let applied = dispatcher.host.resume_patch(&id);
    drop(held);
    deliver(dispatcher, conversation, &id, applied, receiver);
}

/// Delivers what became of an approved patch. Without a caller, the conversation is notified of a
/// patch that could not be applied, where no record does that.
fn deliver(
    dispatcher: &Dispatcher,
    (agent, session_key): (&str, &str),
    id: &str,
    applied: Result<PatchSummary, PatchError>,
    receiver: OutcomeReceiver,
) {
    if applied.is_err() {
        dispatcher.approvals.look_now();
    }
    let (outcome, error) = match applied {
        Ok(summary) => (ToolOutcome::Patched(summary), None),
        Err(error) => {
            let refusal = RunRefusal::of_patch(&error).about(id);
            (ToolOutcome::Refused(refusal), Some(error))
        }
    };
    let listener = receiver.deliver(outcome);
    if listener == EndListener::SessionEvent
        && let Some(error) = error.filter(|error| !is_reported(error))
    {
        let text = format!("Patch not applied (gateway id={id}): {error}");
        let payload = json!({ "approvalId": id, "code": error.code() });
        let approvals = dispatcher.host.approvals();
        if let Err(error) = approvals.note(session_key, agent, &text, &payload) {
            tracing::error!(id, %error, "an approved patch was not applied, and no event says so");
        }
    }
    dispatcher.events.look_now();
}

/// The conversation already has an event about drift, and about a patch that failed while it was
/// applied. A used approval is another call's.
fn is_reported(error: &PatchError) -> bool {
    match error {
        PatchError::Approval(error) => {
            matches!(
                error,
                ApprovalRefusal::Drift { .. } | ApprovalRefusal::Used { .. }
            )
        }
        PatchError::Apply(_) => true,
        _ => false,
    }
}
