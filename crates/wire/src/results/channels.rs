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

/// One chat that gets approvals, with the counts of its messages for the approvals that are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChannelTargetRow {
    pub target: String,
    pub after_ms: u64,
    pub queued: u64,
    pub sent: u64,
    pub failed: u64,
}

/// A key of the config that is not used as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChannelProblem {
    pub key: String,
    pub why: String,
}

/// The results of test messages.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChannelsTested {
    pub targets: Vec<ChannelTested>,
}

/// The result for one target.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ChannelTested {
    pub target: String,
    /// The account's identity according to the platform.
    pub account: String,
    /// Why the platform did not accept the message, or could not change it.
    pub problem: Option<String>,
}
