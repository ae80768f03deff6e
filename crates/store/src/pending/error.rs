//! The reasons why an operation on an approval is refused. A refused operation has written nothing.

use crate::limits::{MAX_DELIVERIES, MAX_GRANTS, MAX_LEASE_DAYS};
use crate::pending::ApprovalEnd;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    #[error("no such approval: {reference}")]
    NotFound { reference: String },
    #[error("several approvals begin with {reference}")]
    Ambiguous { reference: String },
    #[error("approval {short_id} expired before it was decided")]
    Expired { short_id: String },
    #[error("the approval has been decided already: {winner}")]
    AlreadyDecided { winner: ApprovalEnd },
    #[error("approval {short_id} is for another request: the digest of the plan differs")]
    RequestMismatch { short_id: String },
    #[error("approval {short_id} was not shown to {surface}, so it cannot be decided there")]
    NotShown { short_id: String, surface: String },
    #[error("approval {short_id} cannot be decided by {requester}, which requested it")]
    SelfDecision { short_id: String, requester: String },
    #[error("approval {short_id} does not offer allow-always: nothing could be stored for it")]
    NotOffered { short_id: String },
    #[error("approval {short_id} has {MAX_DELIVERIES} deliveries recorded; no more are taken")]
    TooManyDeliveries { short_id: String },
    #[error("too many approvals are stored: no short id is free")]
    TooMany,
    #[error("{most} approvals of agent {agent} wait for a decision; no more are taken")]
    TooManyPending { agent: String, most: usize },
    #[error("a lease of {days} days is too long; it lasts at most {MAX_LEASE_DAYS} days")]
    LeaseTooLong { days: u64 },
    #[error("agent {agent} has {MAX_GRANTS} grants and leases in force; no more are given")]
    TooManyGrants { agent: String },
    #[error("no such run: {id}")]
    ClaimNotFound { id: String },
    #[error("run {id} has ended already, with another outcome")]
    ClaimFinished { id: String },
    #[error("no approver decided approval {short_id}: it was written by another program")]
    Unrecorded { short_id: String },
    #[error("no approver gave grant {id}: it was written by another program")]
    GrantUnrecorded { id: String },
    #[error("no such grant: {id}")]
    GrantNotFound { id: String },
}

impl ApprovalError {
    /// Returns a stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "APPROVAL_NOT_FOUND",
            Self::Ambiguous { .. } => "APPROVAL_AMBIGUOUS",
            Self::Expired { .. } => "APPROVAL_EXPIRED",
            Self::AlreadyDecided { .. } => "APPROVAL_ALREADY_DECIDED",
            Self::RequestMismatch { .. } => "APPROVAL_REQUEST_MISMATCH",
            Self::NotShown { .. } => "APPROVAL_NOT_SHOWN",
            Self::SelfDecision { .. } => "APPROVAL_SELF_DECISION",
            Self::NotOffered { .. } => "APPROVAL_NOT_OFFERED",
            Self::TooManyDeliveries { .. } => "APPROVAL_TOO_MANY_DELIVERIES",
            Self::TooMany | Self::TooManyPending { .. } => "APPROVAL_TOO_MANY",
            Self::LeaseTooLong { .. } => "LEASE_TOO_LONG",
            Self::TooManyGrants { .. } => "GRANT_TOO_MANY",
            Self::ClaimNotFound { .. } => "RUN_NOT_FOUND",
            Self::ClaimFinished { .. } => "RUN_ENDED",
            Self::Unrecorded { .. } => "APPROVAL_UNRECORDED",
            Self::GrantUnrecorded { .. } => "GRANT_UNRECORDED",
            Self::GrantNotFound { .. } => "GRANT_NOT_FOUND",
        }
    }

    /// Returns what to do next.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => {
                "list those that wait: interlock approvals pending; one that ended is kept for a day only"
            }
            Self::Ambiguous { .. } => "give more of the id, or the short id",
            Self::Expired { .. } => "let the agent ask again",
            Self::AlreadyDecided { .. } => "nothing is left to do; the first answer holds",
            Self::RequestMismatch { .. } => {
                "read the approval again; run exactly what was approved, or ask anew"
            }
            Self::NotShown { .. } => "open the approval there first, then decide",
            Self::SelfDecision { .. } => "let an operator decide, on another connection",
            Self::NotOffered { .. } => "allow it once, for the session, or for a time",
            Self::TooManyDeliveries { .. } => "decide it on a surface that has it already",
            Self::TooMany => "decide those that wait, or let them expire",
            Self::TooManyPending { .. } => {
                "decide or withdraw some of them: interlock approvals pending"
            }
            Self::LeaseTooLong { .. } => {
                "choose a shorter time, or store an entry: interlock approvals allowlist add --help"
            }
            Self::TooManyGrants { .. } => {
                "revoke some of them: interlock approvals grants; or allow it once"
            }
            Self::ClaimNotFound { .. } => "an ended run is kept for a day only; see the audit log",
            Self::ClaimFinished { .. } => "nothing is left to do; the first outcome holds",
            Self::Unrecorded { .. } => "ask anew, and check the records: interlock audit verify",
            Self::GrantUnrecorded { .. } => {
                "take it back, and check the records: interlock approvals grants; interlock audit verify"
            }
            Self::GrantNotFound { .. } => {
                "list the grants: interlock approvals grants; it has ended, or never was"
            }
        }
    }
}
