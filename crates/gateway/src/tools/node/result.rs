//! What a caller is told of a run on a node.

use std::time::Duration;

use interlock_host::{DENIAL_TEXT, PendingApproval};
use interlock_wire::node::SystemRunResult;
use interlock_wire::{WireError, refusal};
use serde_json::{Value, json};

use crate::nodes::Node;
use crate::tools::result::{ToolResult, approve_command, how_to_decide, join};

/// A run that ended, or could not start. None where the node's answer cannot be read.
pub(super) fn ended(
    node: &Node,
    result: Option<SystemRunResult>,
    cwd: Option<&str>,
    took: Duration,
) -> ToolResult {
    let Some(result) = result else {
        let message = "the node's answer cannot be read; whether the command ran is not known";
        return with_node(
            ToolResult::failed("NODE_ANSWER_INVALID", message, None),
            node,
        );
    };
    let parts = [
        result.stdout.as_str(),
        result.stderr.as_str(),
        result.error.as_deref().unwrap_or_default(),
    ];
    let mut output = String::new();
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        if !output.is_empty() && !output.ends_with('\n') {
            output.push('\n');
        }
        output.push_str(part);
    }
    let mut notes = Vec::new();
    if result.timed_out {
        let seconds = took.as_secs();
        notes.push(format!("Command timed out after {seconds} seconds."));
    } else if let Some(code) = result.exit_code.filter(|code| *code != 0) {
        notes.push(format!("(Command exited with code {code})"));
    }
    let has_completed = result.exit_code.is_some() && !result.timed_out;
    let details = json!({
        "status": if has_completed { "completed" } else { "failed" },
        "exitCode": result.exit_code,
        "timedOut": result.timed_out,
        "durationMs": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "cwd": cwd,
        "aggregated": output,
    });
    let result = ToolResult {
        text: join(&output, &notes),
        details,
        is_error: !has_completed,
    };
    with_node(result, node)
}

/// The node, or the way to it, said no.
pub(super) fn refused(node: &Node, error: &WireError) -> ToolResult {
    let said = error
        .details
        .as_ref()
        .map(|details| &details["nodeError"]["message"]);
    let said = said.and_then(Value::as_str).unwrap_or(&error.message);
    let result = match said.split_once(": ") {
        Some((code @ ("SYSTEM_RUN_DENIED" | "SYSTEM_RUN_DISABLED"), why)) => {
            let message = format!("exec denied by the node {}: {why}", node.name());
            let remedy =
                "its owner can see and change its policy: interlock approvals get --node ID";
            ToolResult::denied(code, &message, Some(remedy))
        }
        _ => {
            let code = error.detail_code().unwrap_or("NODE_FAILED").to_owned();
            ToolResult::failed(&code, said, None)
        }
    };
    with_node(result, node)
}

/// A person, or the clock, did not let it run.
pub(super) fn not_allowed(error: &WireError) -> ToolResult {
    let expired = refusal::APPROVAL_EXPIRED.detail;
    let code = match error.detail_code() {
        Some(code) if code == expired => expired,
        _ => "APPROVAL_DENIED",
    };
    let why = error
        .details
        .as_ref()
        .and_then(|details| details["why"].as_str());
    let message = why.unwrap_or(&error.message).to_owned();
    let mut result = ToolResult::denied(code, &message, None);
    result.text = format!("{message}\n{DENIAL_TEXT}");
    result.details["denial"] = DENIAL_TEXT.into();
    result.details["host"] = "node".into();
    result
}

/// The caller left; the run cannot be called back.
pub(super) fn left_running(node: &Node) -> ToolResult {
    let message = "cancelled; the command may go on running on the node";
    with_node(ToolResult::failed("CANCELLED", message, None), node)
}

/// Somebody has to decide.
pub(super) fn pending(node: &Node, approval: &PendingApproval) -> ToolResult {
    let choices = approval.choices.iter().map(|choice| choice.as_str());
    let advice = "It runs when somebody allows it; the outcome comes as an event.";
    let result = ToolResult {
        text: format!(
            "Approval required on the node {}. {} {advice}",
            node.name(),
            how_to_decide(approval)
        ),
        details: json!({
            "status": "approval-pending",
            "message": advice,
            "approvalId": approval.id,
            "approvalSlug": approval.id.get(..8),
            "shortId": approval.short_id,
            "expiresAtMs": approval.expires_at_ms,
            "allowedDecisions": choices.collect::<Vec<_>>(),
            "command": approval.command.text,
            "cwd": approval.cwd,
            "binding": approval.binding,
            "warningText": Value::Null,
            "approve": approve_command(approval),
        }),
        is_error: false,
    };
    with_node(result, node)
}

fn with_node(mut result: ToolResult, node: &Node) -> ToolResult {
    result.details["host"] = "node".into();
    result.details["node"] = node.name().into();
    result.details["nodeId"] = node.id.as_str().into();
    result
}
