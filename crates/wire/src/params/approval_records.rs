//! Approvals of any kind as newer clients read them: records with one form for every state, and the
//! grants that decisions left behind.

use serde_json::Value;

use crate::approval::ApprovalListed;
use crate::approval_record::{
    ApprovalHistoryPage, ApprovalSettled, ApprovalSnapshotFound, GrantRevoked, StandingGrants,
};
use crate::schema::{OPEN, PropertyKind, TEXT};

/// The kinds of approvals that clients know. Only `exec` exists here.
const KIND: PropertyKind = PropertyKind::OneOf(&["exec", "plugin", "system-agent"]);

params! {
    /// Reads the state of one approval, pending or not.
    ApprovalGet for "approval.get" -> ApprovalSnapshotFound {
        required { id "id": String = TEXT, }
    }
}
params! {
    /// Decides an approval of any kind.
    ApprovalResolve for "approval.resolve" -> ApprovalSettled {
        required {
            id "id": String = TEXT,
            kind "kind": String = KIND,
            /// `allow-once`, `allow-always` or `deny`.
            decision "decision": String = TEXT,
        }
        optional {
            /// For chats, which this gateway does not have. With it, no approval is found.
            reviewer "reviewer": Value = OPEN,
            /// For grants to automations, which this gateway does not have. With it, nothing is
            /// decided.
            grant_expires_in_days "grantExpiresInDays": u64 = PropertyKind::Integer(1, 3650),
        }
    }
}
params! {
    /// Approvals that were decided, expired or withdrawn, the newest first.
    ApprovalHistory for "approval.history" -> ApprovalHistoryPage {
        optional {
            /// The `nextCursor` of the previous page.
            cursor "cursor": String = PropertyKind::Text(1, 512),
            limit "limit": u64 = PropertyKind::Integer(1, 100),
            kind "kind": String = KIND,
        }
    }
}
params! {
    /// Pending approvals of plugins. This gateway has no plugins.
    PluginApprovalList for "plugin.approval.list" -> Vec<ApprovalListed> {}
}
params! {
    /// Pending approvals of the reference's own agent. This gateway has none.
    OpenclawApprovalList for "openclaw.approval.list" -> Vec<ApprovalListed> {}
}
params! {
    /// The grants in force, the newest first.
    ExecApprovalGrantsList for "exec.approval.grants.list" -> StandingGrants {
        optional {
            limit "limit": u64 = PropertyKind::Integer(1, 500),
            offset "offset": u64 = PropertyKind::Integer(0, 1_000_000),
        }
    }
}
params! {
    /// Revokes a grant.
    ExecApprovalGrantsRevoke for "exec.approval.grants.revoke" -> GrantRevoked {
        required { grant_id "grantId": String = TEXT, }
    }
}
