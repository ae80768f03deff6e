//! What the store keeps of an approval.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use serde_json::Value;

use crate::error::StoreError;
use crate::json::canonical;
use crate::limits;
use crate::pending::ending::ApprovalEnd;
use crate::pending::outcome::RecordedOutcome;

/// What an approver decides about. It never changes after the approval was created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// The canonical text of the plan. The decision allows this plan and nothing else.
    pub plan: String,
    /// The digest of the plan. The store compares digests but cannot check this one against the
    /// plan: readers of the plan must check it.
    pub plan_digest: String,
    /// The digest of what the plan does, independent of when it is requested. Further runs under a
    /// grant must have the same content digest.
    pub content_digest: String,
    pub verdict: Value,
    /// One of native, file, text or unbound.
    pub binding: String,
    /// The text that approvers see. The audit holds it as well.
    pub preview: String,
    pub agent: String,
    pub session_key: String,
    pub host: String,
    pub node: Option<String>,
    /// The connection or device that requests the approval. It can never decide.
    pub requester: String,
    pub created_at_ms: i64,
    pub expires_at_ms: i64,
    /// What `allow-always` would store. `None` if that decision is not offered.
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
    /// A UUID, which is also the id of the run that the approval allows.
    pub id: String,
    /// Five letters for people to type.
    pub short_id: String,
    pub request: ApprovalRequest,
    /// The deliveries in order of their time.
    pub deliveries: Vec<Delivery>,
    /// `None` while the approval is pending.
    pub ended: Option<ApprovalEnd>,
    /// The claim of the run that the approval allowed.
    pub claim: Option<ApprovalClaim>,
}

/// An approval in a list, without its large fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalSummary {
    pub id: String,
    pub short_id: String,
    pub plan_digest: String,
    /// See [`ApprovalRequest::content_digest`].
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
    /// Whether reading one approval means having read the other: the same agent wants the same done
    /// in the same place. Only the conversation may differ.
    pub fn asks_the_same(&self, other: &Self) -> bool {
        self.content_digest == other.content_digest
            && self.binding == other.binding
            && self.preview == other.preview
            && self.agent == other.agent
            && self.host == other.host
            && self.node == other.node
    }
}

/// The state of an approval's delivery to a surface: a connection, a chat or a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub surface: String,
    pub state: DeliveryState,
    pub at_ms: i64,
    pub detail: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryState {
    /// The delivery is on the disk and waits to be sent.
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

/// The claim of a run that was about to start. It is on the disk before the run starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalClaim {
    /// The approval's id, or for a run under a grant an id of its own.
    pub id: String,
    pub approval_id: String,
    pub grant_id: Option<String>,
    /// The digest of the plan, or for a run under a grant the digest of its content.
    pub digest: String,
    pub agent: String,
    pub session_key: String,
    pub host: String,
    pub node: Option<String>,
    /// The process that claimed the run. A starting process uses it to tell its own leftovers from
    /// the runs of another process.
    pub claimer: String,
    pub claimed_at_ms: i64,
    pub state: ClaimState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimState {
    /// The run is in progress, is about to start, or was left behind by a crash.
    Unfinished,
    Finished {
        at_ms: i64,
        outcome: Box<RecordedOutcome>,
    },
    /// It is unknown whether the run took place. It is not started again.
    Unknown { at_ms: i64 },
}
