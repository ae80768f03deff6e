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
    /// `main`, always.
    pub main_key: String,
    /// `per-sender`, always.
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
    /// Empty: Interlock has no profiles of tools.
    pub profiles: Vec<String>,
    pub groups: Vec<ToolGroup>,
}

/// The tools that an agent may call.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EffectiveTools {
    pub agent_id: String,
    /// `full`, always.
    pub profile: String,
    pub groups: Vec<ToolGroup>,
}

/// Tools that belong together.
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

/// What a tool returned, or why it was not called.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolInvoked {
    pub ok: bool,
    pub tool_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// True where an approver has to decide first.
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

/// What programs decide by.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolErrorDetails {
    pub code: Option<String>,
    /// The argument that is wrong.
    pub field: Option<String>,
    pub hint: Option<String>,
}
