//! Agents and their tools: what `agents.list` and `tools.*` return.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Relayed, or_default};

/// The agents that the config names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentListing {
    pub default_id: String,
    /// Always `main`.
    pub main_key: String,
    /// Always `per-sender`.
    pub scope: String,
    pub agents: Vec<AgentEntry>,
}

/// One agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AgentEntry {
    pub id: String,
    pub name: Option<String>,
}

/// All tools.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolCatalog {
    pub agent_id: String,
    /// Always empty: Interlock has no profiles of tools.
    pub profiles: Vec<String>,
    pub groups: Vec<ToolGroup>,
}

/// The tools that an agent may call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EffectiveTools {
    pub agent_id: String,
    /// Always `full`.
    pub profile: String,
    pub groups: Vec<ToolGroup>,
}

/// A group of tools.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolGroup {
    pub id: String,
    pub label: String,
    pub source: String,
    pub tools: Vec<ToolEntry>,
}

/// One tool.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolEntry {
    pub id: String,
    pub label: String,
    pub description: String,
    pub source: String,
    pub default_profiles: Vec<String>,
    /// The JSON schema of the arguments.
    pub input_schema: Value,
    /// The JSON schema of the result.
    pub output_schema: Value,
    pub destructive: bool,
}

/// The result of a tool, or why it was not called.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolInvoked {
    pub ok: bool,
    pub tool_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// True if an approver has to decide first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requires_approval: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// The result of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolError>,
}

impl ToolInvoked {
    /// The details that the tool returned, for programs.
    pub fn into_details<T>(self) -> Relayed<T> {
        let details = self.output.and_then(|mut output| {
            let details = output.get_mut("details")?;
            Some(details.take())
        });
        Relayed::new(details.unwrap_or_default())
    }
}

/// Why a tool was not called, or failed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolError {
    pub code: Option<String>,
    pub message: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub details: ToolErrorDetails,
}

/// The details that programs decide by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolErrorDetails {
    pub code: Option<String>,
    /// The wrong argument.
    pub field: Option<String>,
    pub hint: Option<String>,
}
