//! Why a call for a node was refused, in the texts for its caller.

use interlock_wire::{ErrorCode, WireError};

use crate::nodes::Node;
use crate::nodes::extension::{node_code, node_words};
use crate::tools::run_outcome::RunRefusal;

/// The owner of the gateway wants the call judged by an allowlist, and the node has none.
pub(super) fn not_judged(node: &Node) -> RunRefusal {
    let message = format!(
        "exec denied: allowlist miss (security=allowlist here, and the node {} does not say that it judges by an allowlist)",
        node.name()
    );
    let remedy = "set security=allowlist in its document, or ask=on-miss: interlock approvals set --node NODE --file FILE";
    RunRefusal::denied("EXEC_DENIED", message)
        .with_remedy(Some(remedy))
        .on(node)
}

/// A deny rule of this gateway's document matches.
pub(super) fn denied_here(node: &Node, reason: &str) -> RunRefusal {
    RunRefusal::denied("EXEC_DENIED", format!("exec denied: {reason}")).on(node)
}

/// Deny rules of this gateway cannot see the whole command, and no approver is asked.
pub(super) fn not_seen(node: &Node) -> RunRefusal {
    let message =
        "exec denied: the deny rules of this gateway cannot see every word of the command";
    let remedy = "write the command without substitutions, or set ask=on-miss";
    RunRefusal::denied("EXEC_DENIED", message)
        .with_remedy(Some(remedy))
        .on(node)
}

/// The node refused, or could not be reached.
pub(super) fn refused(node: &Node, error: &WireError) -> RunRefusal {
    let words = node_words(error);
    if let Some(code) = own_code(node, error) {
        let (message, remedy) = match words.split_once('\n') {
            Some((message, remedy)) => (message, Some(remedy)),
            None => (words.as_str(), None),
        };
        return RunRefusal::denied(code, message)
            .with_remedy(remedy)
            .on(node);
    }
    let refusal = match words.split_once(": ") {
        Some((code @ ("SYSTEM_RUN_DENIED" | "SYSTEM_RUN_DISABLED"), reason)) => {
            let message = format!("exec denied by the node {}: {reason}", node.name());
            let remedy = format!(
                "its owner can see and change its policy: interlock approvals get --node {}",
                node.id
            );
            RunRefusal::denied(code, message).with_remedy(Some(remedy))
        }
        _ => RunRefusal::failed(error.detail_code().unwrap_or("NODE_FAILED"), words),
    };
    refusal.on(node)
}

/// The code of an Interlock node's own refusal, as its machine's callers get it. The text follows,
/// and after a line break the remedy.
fn own_code<'a>(node: &Node, error: &'a WireError) -> Option<&'a str> {
    let code = node_code(error).filter(|_| node.is_interlock())?;
    let is_of_protocol = [
        ErrorCode::INVALID_REQUEST,
        ErrorCode::SYSTEM_RUN_DENIED,
        ErrorCode::UNAVAILABLE,
    ]
    .iter()
    .any(|known| known.as_str() == code);
    (!is_of_protocol).then_some(code)
}

/// The answer of a foreign node to `system.run` cannot be read.
pub(super) fn unreadable_result(node: &Node) -> RunRefusal {
    let message = "the node's answer cannot be read; whether the command ran is not known";
    RunRefusal::failed("NODE_ANSWER_INVALID", message).on(node)
}

/// The node was lost while the run was being started.
pub(super) fn not_known_to_run(node: &Node) -> RunRefusal {
    let message = "the node was lost while the command was being started; its outcome is found out when the node is back, and comes as an event. Do not send it again.";
    RunRefusal::failed("NODE_DISCONNECTED", message).on(node)
}

/// The caller left while the node was not connected.
pub(super) fn cancelled_later(node: &Node) -> RunRefusal {
    let message = "cancelled; the node is not connected, and ends the command when it is back";
    RunRefusal::failed("CANCELLED", message).on(node)
}

/// Another client made the node forget the session of the run.
pub(super) fn forgotten(node: &Node) -> RunRefusal {
    let message = "the session was removed while the command was waited for";
    RunRefusal::failed("SESSION_REMOVED", message).on(node)
}

/// The caller left; a run on a foreign node cannot be ended.
pub(super) fn left_running(node: &Node) -> RunRefusal {
    let message = "cancelled; the command may go on running on the node";
    RunRefusal::failed("CANCELLED", message).on(node)
}
