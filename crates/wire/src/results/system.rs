//! The gateway itself: what `health`, `status`, `system-*`, `skills.bins`, `logs.tail` and
//! `audit.*` return.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::or_default;

/// The gateway is alive.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthReport {
    pub ok: bool,
    pub ts: u64,
    pub uptime_ms: u64,
    pub version: String,
    pub default_agent_id: String,
    /// The number of connected clients.
    pub clients: usize,
}

/// The state of the gateway. Foreign gateways use some of these names for other things.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayStatus {
    pub version: Option<String>,
    pub runtime_version: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub pid: u32,
    #[serde(deserialize_with = "or_default")]
    pub ts: u64,
    pub started_at_ms: Option<u64>,
    #[serde(deserialize_with = "or_default")]
    pub uptime_ms: u64,
    /// The number of connected clients.
    #[serde(deserialize_with = "or_default")]
    pub clients: usize,
    /// The number of agents in the config.
    #[serde(deserialize_with = "or_default")]
    pub agents: usize,
    pub default_agent_id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub approvals: ApprovalCounts,
    #[serde(deserialize_with = "or_default")]
    pub runs: RunCounts,
    #[serde(deserialize_with = "or_default")]
    pub supervisor_pid: Option<i32>,
    /// Only for administrators, like the two fields below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_dir: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth_mode: Option<String>,
}

/// The number of approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalCounts {
    pub pending: u64,
}

/// The number of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RunCounts {
    pub running: usize,
}

/// A connected client.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientPresence {
    /// The client's own name.
    pub host: String,
    pub mode: String,
    pub version: String,
    pub platform: String,
    pub device_family: Option<String>,
    pub instance_id: Option<String>,
    pub device_id: Option<String>,
    pub roles: Vec<String>,
    pub scopes: Vec<String>,
    pub ip: Option<String>,
    /// Always `connect`.
    pub reason: String,
    /// The time of the connection.
    pub ts: u64,
}

/// The event `presence`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PresenceChanged {
    pub presence: Vec<ClientPresence>,
}

/// A note for a session was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SystemEventReceipt {
    pub ok: bool,
}

/// The programs that skills use.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SkillPrograms {
    pub bins: Vec<String>,
}

/// The newest lines of the gateway's log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LogTail {
    /// Always `gateway`.
    pub file: String,
    /// The `cursor` of the next request.
    pub cursor: u64,
    /// The size of the stored lines in bytes.
    pub size: usize,
    pub lines: Vec<String>,
    /// True if lines are left out because there are more than requested.
    pub truncated: bool,
    /// True if lines after the given cursor are no longer stored.
    pub reset: bool,
}

/// One page of the audit records, the newest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditPage {
    pub events: Vec<AuditEntry>,
    /// The `cursor` of the next page; null on the last page.
    pub next_cursor: Option<String>,
    /// The total number of matching records, on the first page of a search that the store can
    /// count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

/// One audit record.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditEntry {
    pub seq: u64,
    pub time_ms: i64,
    pub kind: String,
    /// The content of the record, depending on its kind.
    pub body: Value,
    pub hash: String,
}

/// Whether the audit chain is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditChainReport {
    pub intact: bool,
    /// The head of an intact chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The first broken record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The problem with this record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The head of the audit chain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditChainHead {
    pub seq: u64,
    pub hash: String,
    /// Both in one text, to be stored elsewhere.
    pub head: String,
}
