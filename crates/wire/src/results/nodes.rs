//! Nodes: what `node.*` and `exec.approvals.node.*` return.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::node::{NodeEntry, TIMEOUT_EXIT_CODE};

/// One node, and the time of the description.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeDescription {
    pub ts: u64,
    #[serde(flatten)]
    pub node: NodeEntry,
}

/// The policy that a node has for an agent, as the node reports it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePolicyReport {
    pub node_id: String,
    pub agent_id: Option<String>,
    /// The hash of the approvals document on the node.
    pub document_hash: Option<String>,
    /// The levels, each with the sources that it was joined from.
    pub policy: Value,
    /// The version of the program on the node.
    pub version: Option<String>,
}

/// The verdict of a node on a command that it did not run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeExplanation {
    /// `allow`, `ask`, `deny`, or `refused` if an approval could not allow it.
    pub verdict: Option<String>,
    pub reason: VerdictReason,
    pub segments: Vec<ExplainedSegment>,
    /// The directory that the command would run in.
    pub cwd: Option<String>,
    /// The levels, each with the sources that it was joined from.
    pub policy: Value,
    /// What separates a run from Interlock on the node.
    pub shield: Option<String>,
    pub node_id: Option<String>,
}

/// The reason of a verdict.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct VerdictReason {
    pub message: Option<String>,
    /// Where the deciding rule is written.
    pub origin: Option<String>,
}

/// One command of a command line, as a node judged it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ExplainedSegment {
    pub argv: Vec<String>,
    /// The file of the program.
    pub resolved: Option<String>,
    /// The rule that allows it; null if none does.
    pub satisfied_by: Value,
    pub reason: VerdictReason,
}

/// A node was renamed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeRenamed {
    pub node_id: String,
    pub display_name: Option<String>,
}

/// The result of a node's command.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInvoked {
    pub ok: bool,
    pub node_id: String,
    pub command: String,
    pub payload: Value,
    /// The payload as the text that the node sent; null if it sent a value.
    #[serde(rename = "payloadJSON")]
    pub payload_json: Option<String>,
}

impl NodeInvoked {
    /// The result of a run for newer clients, which expect an exit code for a run that its time
    /// limit ended.
    #[must_use]
    pub fn with_timeout_exit_code(mut self) -> Self {
        let has_none = self.payload.get("exitCode").is_none_or(Value::is_null);
        let is_timeout = self.payload.get("timedOut") == Some(&Value::Bool(true));
        if has_none
            && is_timeout
            && let Some(result) = self.payload.as_object_mut()
        {
            result.insert("exitCode".to_owned(), TIMEOUT_EXIT_CODE.into());
            let text = self.payload.to_string();
            self.payload_json = self.payload_json.map(|_| text);
        }
        self
    }
}

/// The gateway received the result of an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInvokeReceipt {
    pub ok: bool,
    /// True if no call waits for this result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ignored: Option<bool>,
}

/// The gateway received an event of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeEventReceipt {
    pub ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// False if the event had no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handled: Option<bool>,
    /// Why the event had no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The approvals document of a gateway or a node, with the hash that a change must name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalsDocument {
    pub path: Option<String>,
    pub exists: Option<bool>,
    /// The hash that a change names as its base.
    pub hash: Option<String>,
    /// The document itself. A foreign node may write more fields into it than Interlock knows.
    pub file: Value,
    /// The ids of entries whose pattern names a single file that does not exist. Only the gateway
    /// reports them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
}
