//! Approvals as newer clients read them, in the forms that the reference's own validators accept:
//! an approval has only the properties of its present state.

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
    /// False if the approval was settled before, perhaps differently.
    pub applied: bool,
    pub approval: ApprovalSnapshot,
}

/// The answer of `approval.history`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalHistoryPage {
    pub items: Vec<ApprovalSnapshot>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One approval. A pending approval has only the first properties.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalSnapshot {
    pub id: String,
    pub status: ApprovalStatus,
    pub presentation: ApprovalPresentation,
    /// The browser path that shows the approval.
    pub url_path: String,
    pub created_at_ms: u64,
    pub expires_at_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_at_ms: Option<u64>,
    /// `user`, `timeout`, `no-route` or `run-aborted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only for an approval that was allowed or denied.
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
    /// Everything that the approver should read besides the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The offered decisions that every client knows; always includes `deny`.
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
    /// The number of all grants, if this answer does not contain all. The next page begins at
    /// `offset`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
}

/// A grant. In the reference, grants belong to automations; here they belong to a conversation,
/// whose key takes the place of the automation's id.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StandingGrant {
    pub grant_id: String,
    pub minted_by_approval_id: String,
    pub agent_id: String,
    /// The conversation of the grant.
    pub cron_job_id: String,
    pub cron_job_name: Option<String>,
    /// The command as approvers were shown it.
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
