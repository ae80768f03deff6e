//! The sandboxes of this machine: what `sandbox.*` returns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether runs of a conversation are sandboxed, and what they see.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxExplained {
    pub agent: String,
    pub session_key: String,
    pub sandboxed: bool,
    /// Why runs are not sandboxed, or why the sandbox cannot be planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Scope, backend, view and similar facts, each with its value.
    pub facts: Vec<SandboxFact>,
    /// What a run sees, in the order of the mounts.
    pub mounts: Vec<SandboxMountShown>,
    /// The whole explanation as a page shows it.
    pub html: String,
}

/// One fact about a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxFact {
    pub name: String,
    pub value: String,
}

/// One mount of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxMountShown {
    pub target: String,
    /// `ro`, `rw`, `hidden`, `memory` and similar words.
    pub access: String,
    pub reason: String,
}

/// Directories of sandboxes were removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SandboxScopesRemoved {
    pub removed: u64,
    /// The number of directories that remain because something runs in them.
    pub busy: u64,
}
