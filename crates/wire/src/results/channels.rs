//! Chats that show approvals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The chats of a gateway.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChannelListing {
    /// Accounts in use: `matrix`, or `matrix/NAME`.
    pub accounts: Vec<String>,
    pub targets: Vec<ChannelTargetRow>,
    pub problems: Vec<ChannelProblem>,
}

/// One chat to which approvals go, with its messages of the approvals that are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChannelTargetRow {
    pub target: String,
    pub after_ms: u64,
    pub queued: u64,
    pub sent: u64,
    pub failed: u64,
}

/// A key of the config that is not used as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChannelProblem {
    pub key: String,
    pub why: String,
}

/// What became of test messages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChannelsTested {
    pub targets: Vec<ChannelTested>,
}

/// One target that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChannelTested {
    pub target: String,
    /// Who the account is, by the platform's word.
    pub account: String,
    /// Why the platform did not take it.
    pub problem: Option<String>,
}
