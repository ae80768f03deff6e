//! The config: what `config.*` returns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The config of the gateway. Secrets are masked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigSnapshot {
    pub path: String,
    pub exists: bool,
    /// Whether the file can be read. If it cannot, the last good config is in force.
    pub valid: bool,
    /// The text of the file; null if it cannot be read.
    pub raw: Option<String>,
    /// The values of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parsed: Option<Value>,
    /// The values in force.
    pub config: Value,
    /// The `baseHash` of a change.
    pub hash: Option<String>,
    pub issues: Vec<ConfigIssue>,
}

/// A mistake in the config.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigIssue {
    pub code: String,
    pub message: String,
    /// Absent if the file as a whole cannot be read.
    #[serde(flatten)]
    pub place: Option<ConfigIssuePlace>,
}

/// The place of a mistake in the config.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigIssuePlace {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    pub hint: Option<String>,
}

/// The config was changed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigWritten {
    pub ok: bool,
    pub path: String,
    /// The `baseHash` of the next change.
    pub hash: String,
    /// The new values. Secrets are masked.
    pub config: Value,
    /// The keys whose values changed.
    pub changed: Vec<String>,
    /// True if the change only takes effect after a restart of the gateway.
    pub restart_required: bool,
}

/// The keys that the config may have.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigKeys {
    /// A JSON schema.
    pub schema: Value,
    /// Always empty: Interlock has no hints for forms.
    pub ui_hints: Map<String, Value>,
    pub version: String,
    pub generated_at: u64,
}
