//! What is remembered of an approval.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use serde_json::Value;

use crate::error::StoreError;
use crate::json::canonical;
use crate::limits;
use crate::pending::ending::ApprovalEnd;
use crate::pending::outcome::RecordedOutcome;

/// What is asked. It never changes after the approval was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// Canonical text of the plan; what is allowed is this and nothing else.
    pub plan: String,
    /// The digest of the plan. The store compares it and cannot check it against the plan: the
    /// reader of the plan does.
    pub plan_digest: String,
    /// The name of what the plan would do, whenever it is asked: what further runs under a grant
    /// must have in common with it.
    pub content_digest: String,
    pub verdict: Value,
    /// Native, file, text or unbound.
    pub binding: String,
    /// The text that people see; it goes into the audit as well.
    pub preview: String,
    pub agent: String,
    pub session_key: String,
    pub host: String,
    pub node: Option<String>,
    /// The connection or device that asks. It can never decide.
    pub requester: String,
    pub created_at_ms: i64,
    pub expires_at_ms: i64,
    /// What `allow-always` would store. None: that choice is not offered.
    pub always: Option<Value>,
}

impl ApprovalRequest {
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        limits::PLAN.check(&self.plan)?;
        limits::PLAN_DIGEST.check(&self.plan_digest)?;
        limits::CONTENT_DIGEST.check(&self.content_digest)?;
        limits::VERDICT.check(&canonical(&self.verdict))?;
        limits::BINDING.check(&self.binding)?;
        limits::PREVIEW.check(&self.preview)?;
        limits::AGENT.check(&self.agent)?;
        limits::SESSION_KEY.check(&self.session_key)?;
        limits::HOST.check(&self.host)?;
        limits::NODE.check_if_any(self.node.as_deref())?;
        limits::REQUESTER.check(&self.requester)?;
        let always = self.always.as_ref().map(canonical);
        limits::ALWAYS.check_if_any(always.as_deref())
    }
}

/// Everything about one approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// A UUID; also the id of the run that it allows.
    pub id: String,
    /// Five letters for people to type.
    pub short_id: String,
    pub request: ApprovalRequest,
    /// In the order of their time.
    pub deliveries: Vec<Delivery>,
    /// None while it is pending.
    pub ended: Option<ApprovalEnd>,
    /// The claim of the run that it allowed.
    pub claim: Option<ApprovalClaim>,
}

/// An approval in a list: all but what may be large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalSummary {
    pub id: String,
    pub short_id: String,
    pub plan_digest: String,
    /// As in [`ApprovalRequest`].
    pub content_digest: String,
    pub binding: String,
    pub preview: String,
    pub agent: String,
    pub session_key: String,
    pub host: String,
    pub node: Option<String>,
    pub requester: String,
    pub created_at_ms: i64,
    pub expires_at_ms: i64,
}

impl ApprovalSummary {
    /// Whether an approver who has read the one has read the other: the same agent wants the same
    /// done in the same place. Only the conversation may be another.
    pub fn asks_the_same(&self, other: &Self) -> bool {
        self.content_digest == other.content_digest
            && self.binding == other.binding
            && self.preview == other.preview
            && self.agent == other.agent
            && self.host == other.host
            && self.node == other.node
    }
}

/// That a surface (a connection, a chat, a terminal) was sent the approval, or could not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub surface: String,
    pub state: DeliveryState,
    pub at_ms: i64,
    pub detail: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryState {
    /// It is on the disk to be sent.
    Queued,
    Sent,
    Failed,
    Seen,
}

impl DeliveryState {
    const ALL: [Self; 4] = [Self::Queued, Self::Sent, Self::Failed, Self::Seen];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Seen => "seen",
        }
    }
}

impl FromSql for DeliveryState {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let word = value.as_str()?;
        let found = Self::ALL.into_iter().find(|state| state.as_str() == word);
        found.ok_or(FromSqlError::InvalidType)
    }
}

/// That a run was about to be started; it is on the disk before the run is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalClaim {
    /// The approval's id, or an id of its own for a run under a grant.
    pub id: String,
    pub approval_id: String,
    pub grant_id: Option<String>,
    /// The digest of the plan, or of its content for a run under a grant.
    pub digest: String,
    pub agent: String,
    pub session_key: String,
    pub host: String,
    pub node: Option<String>,
    /// Who claimed it, so that a process that starts can tell what it left behind from what
    /// another one is doing.
    pub claimer: String,
    pub claimed_at_ms: i64,
    pub state: ClaimState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimState {
    /// Running, about to, or left behind by a crash.
    Unfinished,
    Finished {
        at_ms: i64,
        outcome: Box<RecordedOutcome>,
    },
    /// It is unknown whether it ran. It is not run again.
    Unknown { at_ms: i64 },
}
