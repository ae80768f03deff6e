//! What is remembered?
//!
//! Everything durable lies in one SQLite file of the state directory. Read [`approvals`] for the
//! policy document, [`pending`] for approvals that wait for a person, [`grant`] for what a decision
//! allows beyond one run, [`audit`] for the chain of records of all that happened; then `change`
//! for how several of these are done at once, `database` and `schema` for where it all lies,
//! `limits` and `error` for what is refused.

#![forbid(unsafe_code)]

mod agent_token;
mod approvals;
mod audit;
mod change;
mod database;
mod error;
mod forwarded;
mod grant;
mod json;
mod limits;
mod pairing;
mod pending;
mod schema;

pub use agent_token::AgentToken;
pub use approvals::{ApprovalsStore, Author, MAX_DOCUMENT_BYTES, StoredDocument};
pub use audit::{
    AuditExport, AuditFilter, AuditHash, AuditHead, AuditHeadInvalid, AuditKind, AuditOrder,
    AuditRecord, AuditVerification, ChainBreak, ChainProblem,
};
pub use change::Change;
pub use database::{DATABASE_NAME, Store};
pub use error::StoreError;
pub use grant::{Grant, GrantKey, GrantUse};
pub use limits::{
    MAX_AUDIT_BODY_BYTES, MAX_DELIVERIES, MAX_NAME_BYTES, MAX_PAGE, MAX_PLAN_BYTES,
    MAX_PREVIEW_BYTES,
};
pub use pairing::{DeviceToken, PairedDevice, PairedNode, Pairing, PairingRequest};
pub use pending::{
    Answer, Approval, ApprovalError, ApprovalRequest, ApprovalSummary, CLAIM_WINDOW_MS, Claim,
    ClaimState, Claiming, CreatedApproval, Decided, Decision, Delivery, DeliveryState, Ended,
    Ending, ExpiredApproval, FallbackAnswer, ForwardedClaim, Lease, NotAllowed, PendingPage,
    Purged,
};
