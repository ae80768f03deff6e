//! Requests for approval, and the policy documents.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::approval::{
    ApprovalDecided, ApprovalDecisionStored, ApprovalDeliveries, ApprovalListing, ApprovalOpened,
    ApprovalRows,
};
use crate::node::SystemRunPlan;
use crate::results::{ApprovalsDocument, Relayed};
use crate::schema::{
    COUNT, Field, ObjectSchema, POSITIVE, PropertyKind, STRING, STRING_OR_NULL, STRINGS, TEXT,
    TEXT_OR_NULL, TEXTS, THREAD_OR_NULL,
};

params! {
    /// Asks for an approval of a command. Null counts as absent.
    ExecApprovalRequest for "exec.approval.request" -> ApprovalDecided {
        optional {
            id "id": String = TEXT,
            command "command": String = TEXT,
            command_argv "commandArgv": Vec<String> = STRINGS,
            system_run_plan "systemRunPlan": SystemRunPlan = PropertyKind::Object(&SystemRunPlan::SHAPE),
            env "env": BTreeMap<String, String> = PropertyKind::Map(&STRING),
            cwd "cwd": String = STRING_OR_NULL,
            node_id "nodeId": String = TEXT_OR_NULL,
            host "host": String = STRING_OR_NULL,
            security "security": String = STRING_OR_NULL,
            ask "ask": String = STRING_OR_NULL,
            warning_text "warningText": String = STRING_OR_NULL,
            command_spans "commandSpans": Vec<CommandSpan> = PropertyKind::List(&PropertyKind::Object(&CommandSpan::SHAPE), usize::MAX),
            agent_id "agentId": String = STRING_OR_NULL,
            resolved_path "resolvedPath": String = STRING_OR_NULL,
            session_key "sessionKey": String = STRING_OR_NULL,
            turn_source_channel "turnSourceChannel": String = STRING_OR_NULL,
            turn_source_to "turnSourceTo": String = STRING_OR_NULL,
            turn_source_account_id "turnSourceAccountId": String = STRING_OR_NULL,
            turn_source_thread_id "turnSourceThreadId": Value = THREAD_OR_NULL,
            timeout_ms "timeoutMs": u64 = POSITIVE,
            two_phase "twoPhase": bool = PropertyKind::Boolean,
            // Newer clients.
            session_id "sessionId": String = STRING_OR_NULL,
            run_id "runId": String = STRING_OR_NULL,
            tool_call_id "toolCallId": String = STRING_OR_NULL,
            /// Decisions that must not be offered.
            unavailable_decisions "unavailableDecisions": Vec<String> = PropertyKind::List(&PropertyKind::OneOf(&["allow-always"]), 1),
            approval_reviewer_device_ids "approvalReviewerDeviceIds": Vec<String> = TEXTS,
            require_delivery_route "requireDeliveryRoute": bool = PropertyKind::Boolean,
            suppress_delivery "suppressDelivery": bool = PropertyKind::Boolean,
            deliver_to_approval_clients_only "deliverToApprovalClientsOnly": bool = PropertyKind::Boolean,
        }
    }
}
object! {
    /// A part of the command text, for highlighting.
    CommandSpan {
        required {
            start_index "startIndex": u64 = COUNT,
            end_index "endIndex": u64 = POSITIVE,
        }
    }
}
params! {
    /// Waits for the decision of an approval.
    ExecApprovalWaitDecision for "exec.approval.waitDecision" -> ApprovalDecided {
        required { id "id": String = TEXT, }
    }
}
params! {
    /// Decides an approval. The optional parameters are additions of Interlock.
    ExecApprovalResolve for "exec.approval.resolve" -> ApprovalDecisionStored {
        required {
            id "id": String = TEXT,
            /// `allow-once`, `allow-session`, `allow-always` or `deny`.
            decision "decision": String = TEXT,
        }
        optional {
            /// The digest of the plan that was shown. A decision with another digest is refused.
            plan_digest "planDigest": String = TEXT,
            /// A lease ends after this time.
            expires_in_ms "expiresInMs": u64 = POSITIVE,
            /// A lease ends after this many runs.
            max_uses "maxUses": u64 = POSITIVE,
            /// The reason of a denial, which the caller reads.
            reason "reason": String = TEXT,
            /// The form that `allow-always` stores. The approval must offer it.
            form "form": String = TEXT,
            /// Another name of `form`.
            always_form "alwaysForm": String = TEXT,
            /// The ticket of the page that showed the whole approval. Without one, a connection
            /// that opened a page of the Control UI allows nothing.
            ticket "ticket": String = TEXT,
        }
    }
}
params! {
    /// Lists the pending approvals. The optional parameters are additions of Interlock.
    ExecApprovalList for "exec.approval.list" -> ApprovalListing {
        optional {
            /// Only the list's row of each approval, for an inbox that opens approvals one by one.
            summary "summary": bool = PropertyKind::Boolean,
            /// The largest number of approvals in one answer. With this or a cursor, the answer is
            /// an object with `approvals`, `total` and `nextCursor`; otherwise it is the list of
            /// all approvals.
            limit "limit": u64 = PropertyKind::Integer(1, 500),
            /// The `nextCursor` of the previous answer.
            cursor "cursor": String = TEXT,
        }
    }
}
object! {
    /// Which pending approvals a page has: those that fit all that is named.
    ApprovalPageFilter {
        optional {
            agent_id "agentId": String = TEXT,
            session_key "sessionKey": String = TEXT,
            /// The node, or the host where there is none.
            host "host": String = TEXT,
        }
    }
}
params! {
    /// A page of the pending approvals as a list shows them, the one that expires first in front, with
    /// the exact number of all that fit. An Interlock extension.
    ExecApprovalPage for "exec.approval.page" -> ApprovalRows {
        optional {
            limit "limit": u64 = PropertyKind::Integer(1, 500),
            /// Where the page begins: `nextCursor` of the last answer.
            cursor "cursor": String = TEXT,
            filter "filter": ApprovalPageFilter = PropertyKind::Object(&ApprovalPageFilter::SHAPE),
        }
    }
}
params! {
    /// Where an approval was shown, and where it could not be. An Interlock extension.
    DeliveriesList for "deliveries.list" -> ApprovalDeliveries {
        required { id "id": String = TEXT, }
    }
}
params! {
    /// Reads one approval. The optional parameters are additions of Interlock.
    ExecApprovalGet for "exec.approval.get" -> ApprovalOpened {
        required { id "id": String = TEXT, }
        optional {
            /// Everything that an inbox shows.
            inbox "inbox": bool = PropertyKind::Boolean,
            /// Includes the secrets that are otherwise masked. For administrators.
            reveal "reveal": bool = PropertyKind::Boolean,
        }
    }
}

/// A policy document. Its other content is checked where it is stored.
const FILE: ObjectSchema = ObjectSchema {
    fields: &[Field::required("version", PropertyKind::Exactly(1))],
    open: true,
};

params! {
    /// The gateway's approvals document.
    ExecApprovalsGet for "exec.approvals.get" -> ApprovalsDocument {}
}
params! {
    /// Replaces the gateway's approvals document.
    ExecApprovalsSet for "exec.approvals.set" -> ApprovalsDocument {
        required { file "file": Value = PropertyKind::Object(&FILE), }
        optional { base_hash "baseHash": String = TEXT, }
    }
}
params! {
    /// A node's approvals document.
    ExecApprovalsNodeGet for "exec.approvals.node.get" -> Relayed<ApprovalsDocument> {
        required { node_id "nodeId": String = TEXT, }
    }
}
params! {
    /// Replaces a node's approvals document.
    ExecApprovalsNodeSet for "exec.approvals.node.set" -> Relayed<ApprovalsDocument> {
        required {
            node_id "nodeId": String = TEXT,
            file "file": Value = PropertyKind::Object(&FILE),
        }
        optional { base_hash "baseHash": String = TEXT, }
    }
}
