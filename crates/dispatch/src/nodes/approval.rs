//! A run on a node that an approver allowed: the stored plan and nothing else, once.

use interlock_approvals::ApprovalRefusal;
use interlock_command::display::Secrets;
use interlock_rules::RulesError;
use interlock_store::{ApprovalDecision, ApprovalEnding, ApprovalError, StoreError};
use interlock_wire::approval::{ApprovalDetails, SystemRunBinding};
use interlock_wire::node::{SystemRun, SystemRunPlan};
use interlock_wire::{WireError, refusal};
use serde_json::{Value, json};

use crate::dispatcher::Dispatcher;
use interlock_connections::Client;

/// The property of a stored request with the device that made it. No surface shows it.
pub const ASKED_BY_DEVICE: &str = "requestedByDeviceId";

/// Whether the caller claims that the run was approved. Only the record can confirm that.
pub fn is_claimed(run: &SystemRun) -> bool {
    let decision = run.approval_decision.as_deref();
    run.approved == Some(true) || matches!(decision, Some("allow-once" | "allow-always"))
}

/// Claims an approval and returns the run that it allows. The caller's request must equal the
/// approved one; the stored plan is what is sent on. Waits for the disk.
pub fn redeem(
    dispatcher: &Dispatcher,
    client: &Client,
    node_id: &str,
    run: &SystemRun,
) -> Result<SystemRun, WireError> {
    let id = run.run_id.as_deref().map(str::trim).unwrap_or_default();
    if id.is_empty() {
        return Err(refusal::MISSING_RUN_ID.error());
    }
    let approval = dispatcher.host.approvals().approval(id, Secrets::Masked);
    let approval = approval.map_err(|error| refused(&error))?;
    // The approval must be named by its full id and must be for another host.
    let Some(subject) = approval.remote.filter(|_| approval.id == id) else {
        return Err(refusal::UNKNOWN_APPROVAL_ID.error());
    };
    let ended = approval.ended.as_ref().map(|ended| ended.ending);
    if ended == Some(ApprovalEnding::Expired) {
        return Err(refusal::APPROVAL_EXPIRED.error());
    }
    check_caller(&subject, &approval.requester, client)?;
    let details: ApprovalDetails = serde_json::from_value(subject)
        .map_err(|_| WireError::from(&refusal::UNKNOWN_APPROVAL_ID))?;
    match details.node_id.as_deref() {
        None => return Err(refusal::APPROVAL_NODE_BINDING_MISSING.error()),
        Some(node) if node != node_id => return Err(refusal::APPROVAL_NODE_MISMATCH.error()),
        Some(_) => {}
    }
    let plan = check_request(&details, run)?;
    let decision = dispatcher.host.approvals().use_remote(id);
    let decision = decision.map_err(|error| refused(&error))?;
    Ok(approved_run(plan, run, id, decision))
}

/// The run that a claimed approval allows, by the stored plan.
pub fn approved_run(
    plan: &SystemRunPlan,
    run: &SystemRun,
    id: &str,
    decision: ApprovalDecision,
) -> SystemRun {
    let decision = match decision {
        ApprovalDecision::AllowAlways => "allow-always",
        _ => "allow-once",
    };
    SystemRun {
        run_id: Some(id.to_owned()),
        approved: Some(true),
        approval_decision: Some(decision.to_owned()),
        ..planned(plan, run)
    }
}

/// A run with the values of its plan.
pub fn planned(plan: &SystemRunPlan, run: &SystemRun) -> SystemRun {
    SystemRun {
        command: plan.argv.clone(),
        raw_command: Some(plan.command_text.clone()),
        system_run_plan: Some(json!(plan)),
        cwd: plan.cwd.clone(),
        agent_id: plan.agent_id.clone(),
        session_key: plan.session_key.clone(),
        ..run.clone()
    }
}

/// Checks that the device that requested the approval uses it. Programs without a device reconnect
/// for every step, so among them only those that act for the gateway's owner may use it.
fn check_caller(subject: &Value, requester: &str, client: &Client) -> Result<(), WireError> {
    match (subject[ASKED_BY_DEVICE].as_str(), &client.device) {
        (Some(asked), Some(uses)) if asked == uses => Ok(()),
        (Some(_), _) => Err(refusal::APPROVAL_DEVICE_MISMATCH.error()),
        (None, _) if requester == client.surface() => Ok(()),
        (None, None) if client.program.mode == "backend" && requester.starts_with("ws:") => Ok(()),
        (None, _) => Err(refusal::APPROVAL_CLIENT_MISMATCH.error()),
    }
}

/// The stored plan, if the request is the one that it was made for.
fn check_request<'a>(
    details: &'a ApprovalDetails,
    run: &SystemRun,
) -> Result<&'a SystemRunPlan, WireError> {
    let mismatch = || WireError::from(&refusal::APPROVAL_REQUEST_MISMATCH);
    let plan = details.system_run_plan.as_ref().ok_or_else(mismatch)?;
    let binding = details.system_run_binding.as_ref().ok_or_else(mismatch)?;
    let env = run.env.clone().unwrap_or_default();
    let asked = SystemRunBinding::new(
        &run.command,
        run.cwd.as_deref(),
        run.agent_id.as_deref(),
        run.session_key.as_deref(),
        &env,
    );
    binding.covers(&asked)?;
    match run.plan()? {
        Some(sent) if sent != *plan => Err(mismatch()),
        _ => Ok(plan),
    }
}

fn refused(error: &ApprovalRefusal) -> WireError {
    match error {
        ApprovalRefusal::State(RulesError::Store(StoreError::Approval(
            ApprovalError::NotFound { .. } | ApprovalError::Ambiguous { .. },
        ))) => refusal::UNKNOWN_APPROVAL_ID.error(),
        ApprovalRefusal::Expired { .. } => refusal::APPROVAL_EXPIRED.error(),
        ApprovalRefusal::State(error) => WireError::unavailable(error.to_string()),
        error => refusal::APPROVAL_REQUIRED
            .error()
            .with("why", error.to_string()),
    }
}
