//! `apply_patch`: several files in the agent's workspace, all or nothing. Patches of protected files wait
//! for an approver, as runs do.

use std::path::PathBuf;
use std::sync::Arc;

use interlock_approvals::{ApprovalRefusal, PendingApproval};
use interlock_config::ConfigFile;
use interlock_host::parameters::PatchParameters;
use interlock_host::{EndListener, PatchError, PatchOutcome, PatchRequest};
use interlock_patch::PatchSummary;
use serde_json::{Value, json};

use super::exec::{DecisionWait, await_decision, read};
use super::result::ToolResult;
use super::{Asking, CallError, ToolCall, blocking, directory};
use crate::approvals::HeldApproval;
use crate::gateway::Gateway;

/// A call, with everything that its request borrows.
#[derive(Debug)]
struct WantedPatch {
    call: ToolCall,
    parameters: PatchParameters,
    root: PathBuf,
}

impl WantedPatch {
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

    fn pending(&self, approval: &PendingApproval) -> ToolResult {
        ToolResult::pending(approval, &self.root.display().to_string())
    }
}

pub(super) async fn apply_patch(
    gateway: &Arc<Gateway>,
    config: &ConfigFile,
    call: &ToolCall,
    arguments: &Value,
) -> Result<ToolResult, CallError> {
    let parameters = PatchParameters::parse(arguments)?;
    let root = match directory(gateway, call).await? {
        Ok(root) => root,
        Err(refused) => return Ok(refused),
    };
    let wanted = Arc::new(WantedPatch {
        call: call.clone(),
        parameters,
        root,
    });
    let approval = match &call.approval {
        Some(id) => match read(gateway, id).await? {
            Ok(approval) => approval,
            Err(error) => return Ok(refused(&error.into())),
        },
        None => {
            let (host, own) = (Arc::clone(gateway), Arc::clone(&wanted));
            let begun = blocking(move || {
                let is_free = |id: &str| !host.approvals.is_held(id);
                host.host.apply_patch_again(&own.request(), &is_free)
            });
            match begun.await? {
                Ok(PatchOutcome::Applied(summary)) => return Ok(applied(&summary)),
                Ok(PatchOutcome::Pending(approval)) => *approval,
                Err(error) => return Ok(refused(&error)),
            }
        }
    };
    if call.approval.is_none()
        && let Asking::Returned(is_for_caller) = &call.asking
        && is_for_caller(&approval)
    {
        gateway.approvals.look_now();
        return Ok(wanted.pending(&approval));
    }
    let exec = config.config().exec_for(call.agent.as_str());
    match await_decision(gateway, call, &approval, call.patience(&exec)).await? {
        DecisionWait::Decided(held) => {
            let id = approval.id.clone();
            let done = apply_allowed(gateway, &wanted, approval.id, held, EndListener::Caller);
            Ok(match done.await? {
                Ok(summary) => applied(&summary),
                Err(error) => refused(&error).about(&id),
            })
        }
        DecisionWait::Cancelled => Ok(ToolResult::cancelled()),
        DecisionWait::Undecided(later) => {
            let result = wanted.pending(&approval);
            if let Some((decided, held)) = later {
                let gateway = Arc::clone(gateway);
                tokio::spawn(async move {
                    decided.await;
                    apply_later(&gateway, &wanted, approval.id, held).await;
                });
            }
            Ok(result)
        }
    }
}

async fn apply_allowed(
    gateway: &Arc<Gateway>,
    wanted: &Arc<WantedPatch>,
    id: String,
    held: HeldApproval,
    listener: EndListener,
) -> Result<Result<PatchSummary, PatchError>, CallError> {
    let (gateway, wanted) = (Arc::clone(gateway), Arc::clone(wanted));
    blocking(move || {
        let _held = held;
        let done = gateway
            .host
            .apply_approved(&id, &wanted.request(), listener);
        if done.is_err() {
            gateway.approvals.look_now();
        }
        done
    })
    .await
}

/// Applies what was allowed after its caller had got a pending answer. Its conversation is notified
/// of the end; of a denial it has been notified already.
async fn apply_later(
    gateway: &Arc<Gateway>,
    wanted: &Arc<WantedPatch>,
    id: String,
    held: HeldApproval,
) {
    let (reader, asked) = (Arc::clone(gateway), id.clone());
    let ended = blocking(move || reader.host.approvals().ended(&asked)).await;
    if matches!(ended, Ok(Ok(Some(ended))) if !ended.ending.allows()) {
        return;
    }
    let done = apply_allowed(gateway, wanted, id.clone(), held, EndListener::SessionEvent).await;
    if let Ok(Err(error)) = done {
        let ToolCall {
            agent, session_key, ..
        } = &wanted.call;
        not_applied(gateway, (agent.as_str(), session_key), &id, &error);
    }
    gateway.events.look_now();
}

/// Notifies a conversation of an allowed patch that could not be applied, where no record does it.
pub(super) fn not_applied(
    gateway: &Gateway,
    (agent, session_key): (&str, &str),
    id: &str,
    error: &PatchError,
) {
    // The session already has an event about drift, and about a patch that failed while it was
    // applied; a used approval is another call's.
    let is_told = match error {
        PatchError::Approval(error) => {
            matches!(
                error,
                ApprovalRefusal::Drift { .. } | ApprovalRefusal::Used { .. }
            )
        }
        PatchError::Apply(_) => true,
        _ => false,
    };
    if is_told {
        return;
    }
    let text = format!("Patch not applied (gateway id={id}): {error}");
    let payload = json!({ "approvalId": id, "code": error.code() });
    let approvals = gateway.host.approvals();
    if let Err(error) = approvals.note(session_key, agent, &text, &payload) {
        tracing::error!(id, %error, "an approved patch was not applied, and no event says so");
    }
    gateway.events.look_now();
}

fn applied(summary: &PatchSummary) -> ToolResult {
    let details = json!({ "status": "completed", "summary": summary, "host": "gateway" });
    ToolResult::new(summary.to_string(), details, false)
}

fn refused(error: &PatchError) -> ToolResult {
    let (message, remedy) = (error.to_string(), error.remedy());
    if error.is_denial() {
        ToolResult::denied(error.code(), &message, remedy.as_deref())
    } else {
        ToolResult::failed(error.code(), &message, remedy.as_deref())
    }
}
