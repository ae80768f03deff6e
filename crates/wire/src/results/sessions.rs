//! Conversations: what `sessions.*` returns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One page of the conversations, the latest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionListing {
    pub ts: u64,
    /// The path of the gateway's database.
    pub path: String,
    /// The number of conversations on this page.
    pub count: usize,
    /// The number of conversations on all pages.
    pub total: usize,
    pub sessions: Vec<SessionEntry>,
}

/// One conversation. The first six fields are those of [`SessionOverrides`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionEntry {
    #[serde(flatten)]
    pub settings: SessionOverrides,
    pub key: String,
    /// Always `direct`.
    pub kind: String,
    pub agent_id: String,
    /// The time of its last use.
    pub updated_at: u64,
    pub running_processes: usize,
}

/// The settings of a conversation; null where the config decides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionOverrides {
    pub label: Option<String>,
    pub elevated_level: Option<String>,
    pub exec_host: Option<String>,
    pub exec_security: Option<String>,
    pub exec_ask: Option<String>,
    pub exec_node: Option<String>,
}

/// The settings of a conversation were changed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionPatched {
    pub ok: bool,
    /// The path of the gateway's database.
    pub path: String,
    pub key: String,
    pub entry: SessionOverrides,
}

/// A directive was applied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionDirected {
    pub ok: bool,
    pub key: String,
    /// The settings in one line, for the channel of the directive.
    pub text: String,
    pub entry: SessionOverrides,
}

/// The event `sessions.changed`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionChanged {
    pub session_key: String,
    /// Always `patch`.
    pub reason: String,
    pub ts: u64,
}
