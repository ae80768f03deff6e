//! Approvals as newer clients read them, in the forms that the reference's own validators accept: no
//! property more than those of the state that an approval is in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::approval::DecisionWord;

/// The answer of `approval.get`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApprovalSnapshotFound {
    pub approval: ApprovalSnapshot,
}

/// The answer of `approval.resolve`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApprovalSettled {
    /// False where it had been settled before, perhaps otherwise.
    pub applied: bool,
    pub approval: ApprovalSnapshot,
}

/// The answer of `approval.history`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalHistoryPage {
    pub items: Vec<ApprovalSnapshot>,
    /// Where the next page begins, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One approval. Of a pending one only the first properties are there.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalSnapshot {
    pub id: String,
    pub status: ApprovalStatus,
    pub presentation: ApprovalPresentation,
    /// Where the approval is shown in a browser.
    pub url_path: String,
    pub created_at_ms: u64,
    pub expires_at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at_ms: Option<u64>,
    /// `user`, `timeout`, `no-route` or `run-aborted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of one that was allowed or denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<DecisionWord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<ApprovalOrigin>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolver: Option<ApprovalResolver>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalStatus {
    #[default]
    Pending,
    Allowed,
    Denied,
    Expired,
    Cancelled,
}

/// What an approver is shown.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalPresentation {
    /// `exec`
    pub kind: String,
    pub command_text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_preview: Option<String>,
    /// All that the approver should read besides the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Of those that every client knows; always with `deny`.
    pub allowed_decisions: Vec<DecisionWord>,
}

/// Where an approval came from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalOrigin {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
}

/// Who settled an approval.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApprovalResolver {
    /// `runtime` for an approver, whose name is the id; `system` for the gateway itself.
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// The answer of `exec.approval.grants.list`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StandingGrants {
    pub grants: Vec<StandingGrant>,
    /// How many there are, where these are not all of them; `offset` goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
}

/// A grant. The reference gives them to automations; here they belong to a conversation, which stands
/// in their place.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StandingGrant {
    pub grant_id: String,
    pub minted_by_approval_id: String,
    pub agent_id: String,
    /// The conversation that the grant is for.
    pub cron_job_id: String,
    pub cron_job_name: Option<String>,
    /// As approvers were shown it.
    pub command: String,
    pub cwd: Option<String>,
    pub created_at_ms: u64,
    pub expires_at_ms: Option<u64>,
    pub revoked_at_ms: Option<u64>,
    pub revoked_by: Option<String>,
    pub last_used_at_ms: Option<u64>,
    pub use_count: u64,
}

/// The answer of `exec.approval.grants.revoke`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GrantRevoked {
    /// `revoked` or `not-found`.
    pub outcome: String,
}
