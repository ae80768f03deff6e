//! The details of a call of the `exec` tool, as clients read them from the result of
//! `tools.invoke`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::or_default;

/// The result of the `exec` tool for a run that waits for an approval, runs, has ended, or was
/// refused. A tool returns more than this type; a client that prints the details keeps them whole
/// in a [`super::Relayed`]. The tool `process` returns events in the same field.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecDetails {
    /// `approval-pending`, `running`, `completed` or `failed`.
    #[serde(deserialize_with = "or_default")]
    pub status: Option<String>,
    /// The name of the node that runs the command; absent or null for a run at the gateway.
    #[serde(deserialize_with = "or_default")]
    pub node: Option<String>,
    /// The background session, while the run lasts or more of its output is stored.
    #[serde(deserialize_with = "or_default")]
    pub session_id: Option<String>,
    /// The approval that the run waits for.
    #[serde(deserialize_with = "or_default")]
    pub approval_id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub short_id: Option<String>,
    /// Why the run was refused.
    #[serde(deserialize_with = "or_default")]
    pub code: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub message: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub remedy: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub denial: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub exit_code: Option<u64>,
    /// The name of the signal that ended the run.
    #[serde(deserialize_with = "or_default")]
    pub signal: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub timed_out: bool,
    /// The output of a run that has ended.
    #[serde(deserialize_with = "or_default")]
    pub aggregated: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub omitted_bytes: Option<u64>,
    /// Events of the conversation that were not delivered before.
    #[serde(deserialize_with = "or_default")]
    pub events: Vec<DeliveredEvent>,
}

/// An event of a conversation, delivered with the result of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeliveredEvent {
    #[serde(deserialize_with = "or_default")]
    pub text: Option<String>,
}
