//! The store: everything that Interlock keeps across restarts.
//!
//! All durable data is in one SQLite file in the state directory. Read `approvals` for the policy
//! document, `pending` for pending approvals, `grant` for what a decision allows beyond one run,
//! `contents` for scripts as they were last allowed, `runs` for runs whose end is not recorded yet,
//! `events` for undelivered events of sessions, `session` for settings of sessions, `stale` for
//! results that a session must not rely on any more, `chat` for messages about approvals, and
//! `audit` for the chain of audit records. Then read `change` for how several operations form one
//! transaction, `writer` for how changes share a commit, `database` and `schema` for the file and
//! its tables, and `limits` and `error` for what the store refuses.

#![forbid(unsafe_code)]

mod accepted;
mod agent_token;
mod approvals;
mod audit;
mod change;
mod chat;
mod contents;
mod database;
mod disk;
mod document;
mod entry_use;
mod error;
mod events;
mod forwarded;
mod grant;
mod host_grant;
mod json;
mod limits;
mod pairing;
mod pending;
mod recorded;
mod role_token;
mod run_denial;
mod run_sandbox;
mod runs;
mod schema;
mod seal;
mod session;
mod stale;
mod watch;
mod writer;

pub use agent_token::AgentToken;
pub use approvals::{ApprovalsStore, Author, MAX_DOCUMENT_BYTES, StoredDocument};
pub use audit::{
    ARCHIVE_NAME, ArchiveError, ArchivedAudit, AuditExport, AuditFilter, AuditHash, AuditHead,
    AuditHeadInvalid, AuditKind, AuditOrder, AuditRecord, AuditRecordPage, AuditVerification,
    ChainBreak, ChainProblem,
};
pub use change::Change;
pub use chat::{ChatMessageRow, ChatTargetStatus, ChatWork, SentChatMessage};
pub use contents::ApprovedContent;
pub use database::{DATABASE_NAME, MAX_LOG_BYTES, Store};
pub use document::DocumentStanding;
pub use entry_use::EntryUse;
pub use error::StoreError;
pub use events::{
    EVENT_KEPT_MS, EVENT_KEPT_WHEN_DELIVERED_MS, EventKind, NewEvent, PurgedEvents, SessionEvent,
    WaitingEvents,
};
pub use forwarded::IssuedPlan;
pub use grant::{Grant, GrantKey, GrantUse, MAX_SESSION_GRANT_MS};
pub use host_grant::EVERY_SESSION;
pub use json::lenient_field;
pub use limits::{
    MAX_APPROVAL_ID_BYTES, MAX_AUDIT_BODY_BYTES, MAX_CONTENT_BYTES, MAX_DELIVERIES,
    MAX_DENY_REASON_BYTES, MAX_EVENT_BYTES, MAX_EVENTS, MAX_GRANTS, MAX_LEASE_DAYS, MAX_NAME_BYTES,
    MAX_PAGE, MAX_PLAN_BYTES, MAX_PREVIEW_BYTES, MAX_SESSION_EVENTS,
};
pub use pairing::{
    DeviceToken, Paired, PairedDevice, PairedNode, Pairing, PairingRequest, PushSubscription,
};
pub use pending::{
    Approval, ApprovalAnswer, ApprovalClaim, ApprovalDecision, ApprovalEnd, ApprovalEnding,
    ApprovalError, ApprovalRequest, ApprovalSummary, CLAIM_WINDOW_MS, ClaimState, Claiming,
    CreatedApproval, Decided, Delivery, DeliveryState, EndedPage, ExpiredApproval, FallbackAnswer,
    ForwardedClaim, Lease, MAX_ENDED, MAX_ENDED_BYTES, NotAllowed, NullableField, PendingCursor,
    PendingCursorInvalid, PendingPage, PinnedScript, Purged, RecordedFile, RecordedFileChange,
    RecordedOutcome, RecordedStatus,
};
pub use role_token::{RoleToken, TokenRole};
pub use run_denial::DeniedRun;
pub use runs::{NewRun, OpenRun};
pub use session::{KnownSession, SessionSettings};
pub use stale::{STALE_KEPT_MS, StaleMarks};
pub use watch::StoreWatch;
