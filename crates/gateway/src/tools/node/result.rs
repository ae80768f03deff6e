//! The results of runs on nodes for their callers.

use std::time::Duration;

use interlock_approvals::{ApprovalRefusal, DENIAL_TEXT, PendingApproval};
use interlock_host::process::{Followed, SessionStatus};
use interlock_wire::node::SystemRunResult;
use interlock_wire::{ErrorCode, WireError, refusal};
use serde_json::{Value, json};

use super::kept::KeptPlace;
use crate::nodes::Node;
use crate::nodes::extension::{node_code, node_words};
use crate::tools::model_text::{ModelText, RunLocation, cut, ended_status, line_of_gap, read_rest};
use crate::tools::result::{
    ToolResult, approve_command, how_to_decide, join, running_text, shown_of, signal_name,
};

/// Lines that say what is left out are not counted.
const MARKS: usize = 1_000;

/// A run that ended, or could not start. None where the node's answer cannot be read.
pub(super) fn ended(
    node: &Node,
    result: Option<SystemRunResult>,
    cwd: Option<&str>,
    took: Duration,
    most: usize,
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
    let (output, left_out) = cut(output, most);
    let mut notes = Vec::new();
    if left_out > 0 {
        let said = "(what is left out cannot be read from here: the node keeps no sessions)";
        notes.push(said.to_owned());
    }
    let model_notes = notes.clone();
    if result.timed_out {
        let seconds = took.as_secs();
        notes.push(format!("Command timed out after {seconds} seconds."));
    } else if let Some(code) = result.exit_code.filter(|code| *code != 0) {
        notes.push(format!("(Command exited with code {code})"));
    }
    let has_completed = result.exit_code.is_some() && !result.timed_out;
    let how = match result.exit_code {
        _ if result.timed_out => "timed out".to_owned(),
        Some(code) => format!("exit code {code}"),
        None => "failed".to_owned(),
    };
    let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let node_name = node.name();
    let location = RunLocation {
        cwd,
        node: Some(&node_name),
    };
    let model = ModelText {
        status: ended_status(&how, duration_ms, location),
        output: Some(output.clone()),
        notes: model_notes,
    };
    let mut details = json!({
        "status": if has_completed { "completed" } else { "failed" },
        "exitCode": result.exit_code,
        "timedOut": result.timed_out,
        "durationMs": duration_ms,
        "cwd": cwd,
        "aggregated": output,
    });
    if left_out > 0 {
        details["omittedBytes"] = left_out.into();
    }
    let result = ToolResult::new(join(&output, &notes), details, !has_completed);
    with_node(result.with_model(model), node)
}

/// What the owner of the gateway wants judged by an allowlist goes to no node that has none.
pub(super) fn not_judged(node: &Node) -> ToolResult {
    let message = format!(
        "exec denied: allowlist miss (security=allowlist here, and the node {} does not say that it judges by an allowlist)",
        node.name()
    );
    let remedy = "set security=allowlist in its document, or ask=on-miss: interlock approvals set --node NODE --file FILE";
    with_node(
        ToolResult::denied("EXEC_DENIED", &message, Some(remedy)),
        node,
    )
}

/// A deny rule of this gateway's document matches.
pub(super) fn denied_here(node: &Node, why: &str) -> ToolResult {
    let message = format!("exec denied: {why}");
    with_node(ToolResult::denied("EXEC_DENIED", &message, None), node)
}

/// Deny rules of this gateway cannot see all of the command, and no approver is asked.
pub(super) fn not_seen(node: &Node) -> ToolResult {
    let message =
        "exec denied: the deny rules of this gateway cannot see every word of the command";
    let remedy = "write the command without substitutions, or set ask=on-miss";
    with_node(
        ToolResult::denied("EXEC_DENIED", message, Some(remedy)),
        node,
    )
}

/// No approver can be asked about the run.
pub(super) fn not_asked(node: &Node, error: &ApprovalRefusal) -> ToolResult {
    let remedy = error.remedy();
    let result = ToolResult::denied(error.code(), &error.to_string(), remedy.as_deref());
    with_node(result, node)
}

/// The node, or the way to it, said no.
pub(super) fn refused(node: &Node, error: &WireError) -> ToolResult {
    let said = node_words(error);
    let said = said.as_str();
    if let Some(code) = own_code(node, error) {
        let (message, remedy) = match said.split_once('\n') {
            Some((message, remedy)) => (message, Some(remedy)),
            None => (said, None),
        };
        return with_node(ToolResult::denied(code, message, remedy), node);
    }
    let result = match said.split_once(": ") {
        Some((code @ ("SYSTEM_RUN_DENIED" | "SYSTEM_RUN_DISABLED"), why)) => {
            let message = format!("exec denied by the node {}: {why}", node.name());
            let remedy = format!(
                "its owner can see and change its policy: interlock approvals get --node {}",
                node.id
            );
            ToolResult::denied(code, &message, Some(&remedy))
        }
        _ => {
            let code = error.detail_code().unwrap_or("NODE_FAILED").to_owned();
            ToolResult::failed(&code, said, None)
        }
    };
    with_node(result, node)
}

/// The code of a refusal in which an Interlock node speaks for itself, as its machine does to its
/// own callers: the text follows, and after a line break what to do instead.
fn own_code<'a>(node: &Node, error: &'a WireError) -> Option<&'a str> {
    let code = node_code(error).filter(|_| node.is_interlock())?;
    let is_of_protocol = [ErrorCode::INVALID_REQUEST, ErrorCode::UNAVAILABLE]
        .iter()
        .any(|known| known.as_str() == code);
    (!is_of_protocol).then_some(code)
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

/// A run that an Interlock node keeps has ended.
pub(super) fn kept_ended(node: &Node, followed: &Followed, name: &str, most: usize) -> ToolResult {
    let standing = &followed.standing;
    let mut shown = followed.shown.clone().unwrap_or_default();
    // The node was asked for this limit: this is for one that shows more.
    shown.text = cut(shown.text, most.saturating_add(MARKS)).0;
    let ended = followed.ended_at_ms.unwrap_or(followed.started_at_ms);
    let duration = ended.saturating_sub(followed.started_at_ms);
    let mut notes = Vec::new();
    let has_completed = standing.status == SessionStatus::Completed;
    let signal = standing.signal.map(signal_name);
    // What the reference notes behind the output is in the first line for models.
    let (first, how) = match (&signal, standing.exit_code) {
        _ if standing.timed_out => {
            let first = format!(
                "Command timed out after {} seconds. It was ended with everything that it had started.",
                duration / 1_000
            );
            (Some(first), "timed out and ended".to_owned())
        }
        (Some(signal), _) => {
            let first = format!("Command aborted by signal {signal}");
            (Some(first), format!("ended by {signal}"))
        }
        (None, Some(code)) => {
            let first = (code != 0).then(|| format!("(Command exited with code {code})"));
            (first, format!("exit code {code}"))
        }
        (None, None) if standing.status == SessionStatus::Lost => {
            let first = "The supervisor of the command on the node died, and the command with it.";
            (Some(first.to_owned()), "lost".to_owned())
        }
        (None, None) => (None, "failed".to_owned()),
    };
    if standing.out_of_memory {
        notes.push("The command ran out of its memory limit.".to_owned());
    }
    let mut model_notes = notes.clone();
    let mut details = json!({
        "status": if has_completed { "completed" } else { "failed" },
        "exitCode": standing.exit_code.filter(|_| has_completed),
        "timedOut": standing.timed_out,
        "durationMs": duration,
        "cwd": followed.cwd,
        "raceFree": followed.race_free,
        "aggregated": shown.text,
        "totalBytes": shown.total_bytes,
        "shownBytes": shown.shown_bytes,
    });
    if let Some(signal) = signal {
        details["signal"] = signal.into();
    }
    if standing.out_of_memory {
        details["outOfMemory"] = true.into();
    }
    if shown.omitted_bytes > 0 {
        details["sessionId"] = name.into();
        details["omittedBytes"] = shown.omitted_bytes.into();
        notes.push(shown_of((shown.shown_bytes, shown.total_bytes), name));
        let line = line_of_gap(&shown.text, shown.omitted_bytes, shown.omitted_lines);
        let counts = (shown.omitted_bytes, shown.total_bytes);
        model_notes.push(read_rest(counts, name, line));
    }
    notes.splice(..0, first);
    let node_name = node.name();
    let location = RunLocation {
        cwd: Some(&followed.cwd),
        node: Some(&node_name),
    };
    let model = ModelText {
        status: ended_status(&how, duration, location),
        output: Some(shown.text.clone()),
        notes: model_notes,
    };
    let result = ToolResult::new(join(&shown.text, &notes), details, !has_completed);
    with_node(result.with_model(model), node)
}

/// It goes on in the background, on the node.
pub(super) fn kept_running(
    node: &Node,
    name: &str,
    place: Option<&KeptPlace>,
    tail: &str,
) -> ToolResult {
    let pid = place.and_then(|place| place.pid);
    let shown_pid = pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
    let said = format!(
        "Command still running on the node {} (session {name}{shown_pid}). Use process (list/poll/log/write/kill/clear/remove) for follow-up.",
        node.name()
    );
    let text = if tail.is_empty() {
        said
    } else {
        format!("{said}\n\n{tail}")
    };
    let details = json!({
        "status": "running",
        "sessionId": name,
        "pid": pid,
        "startedAt": place.map(|place| place.started_at_ms),
        "cwd": place.map(|place| &place.cwd),
        "tail": tail,
    });
    let node_name = node.name();
    let location = RunLocation {
        cwd: place.map(|place| place.cwd.as_str()),
        node: Some(&node_name),
    };
    let model = running_text(name, pid, location, tail);
    let result = ToolResult::new(text, details, false).with_model(model);
    with_node(result, node)
}

/// The order was under way when the node was lost.
pub(super) fn not_known_to_run(node: &Node) -> ToolResult {
    let message = "the node was lost while the command was being started; its outcome is found out when the node is back, and comes as an event. Do not send it again.";
    with_node(ToolResult::failed("NODE_DISCONNECTED", message, None), node)
}

/// The caller left while the node was not connected.
pub(super) fn cancelled_later(node: &Node) -> ToolResult {
    let message = "cancelled; the node is not connected, and ends the command when it is back";
    with_node(ToolResult::failed("CANCELLED", message, None), node)
}

pub(super) fn forgotten(node: &Node) -> ToolResult {
    let message = "the session was removed while the command was waited for";
    with_node(ToolResult::failed("SESSION_REMOVED", message, None), node)
}

/// The caller left; the run cannot be called back.
pub(super) fn left_running(node: &Node) -> ToolResult {
    let message = "cancelled; the command may go on running on the node";
    with_node(ToolResult::failed("CANCELLED", message, None), node)
}

/// An approver has to decide.
pub(super) fn pending(node: &Node, approval: &PendingApproval) -> ToolResult {
    let choices = approval.offered.iter().map(|decision| decision.as_str());
    let advice = "It runs when an approver allows it; the outcome comes as an event.";
    let result = ToolResult::new(
        format!(
            "Approval required on the node {}. {} {advice}",
            node.name(),
            how_to_decide(approval)
        ),
        json!({
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
        false,
    );
    with_node(result, node)
}

fn with_node(mut result: ToolResult, node: &Node) -> ToolResult {
    result.details["host"] = "node".into();
    result.details["node"] = node.name().into();
    result.details["nodeId"] = node.id.as_str().into();
    result
}
