//! The sandbox of a run in one line, for prompts, answers and audit records.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    SandboxBackend, SandboxEffects, SandboxPlan, SandboxTree, SandboxView, WorkspaceAccess,
};

/// The summary's text for a sandbox that only has a loopback.
const NO_NETWORK: &str = "none";

/// Where a run is confined, for its approvers and for the audit. It is made only from the plan, so
/// that the shown sandbox is the one that confines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxSummary {
    pub backend: SandboxBackend,
    /// The sharers of the sandbox, in words. It can contain the key of a conversation, which a
    /// caller chose.
    pub scope: String,
    pub view: SandboxView,
    pub workspace_access: WorkspaceAccess,
    /// The hosts that a run reaches, as the config lists them, or `none`.
    pub network: String,
    /// Which programs may be started, if that is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SandboxTree>,
    /// Whether an approver decides about the run's changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effects: Option<SandboxEffects>,
}

impl SandboxPlan {
    pub fn summary(&self) -> SandboxSummary {
        SandboxSummary {
            backend: self.backend,
            scope: self.scope.clone(),
            view: self.view,
            workspace_access: self.workspace_access,
            network: match &self.network {
                Some(rules) if !rules.reaches_none() => rules.to_string(),
                _ => NO_NETWORK.to_owned(),
            },
            tree: match (&self.executables, &self.program_log) {
                (Some(_), _) => Some(SandboxTree::Enforce),
                (None, Some(_)) => Some(SandboxTree::Log),
                (None, None) => None,
            },
            effects: (self.effects == SandboxEffects::Preview).then_some(self.effects),
        }
    }
}

/// The default view is not mentioned.
impl fmt::Display for SandboxSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}; ", self.backend, self.scope)?;
        match self.view {
            SandboxView::Minimal => {}
            SandboxView::Host => f.write_str("view host, ")?,
        }
        write!(f, "workspace {}, ", self.workspace_access)?;
        match self.network.as_str() {
            NO_NETWORK => f.write_str("no network")?,
            hosts => write!(f, "network {hosts}")?,
        }
        match self.tree {
            None | Some(SandboxTree::Off) => {}
            Some(SandboxTree::Log) => f.write_str(", programs logged")?,
            Some(SandboxTree::Enforce) => f.write_str(", listed programs only")?,
        }
        match self.effects {
            None | Some(SandboxEffects::Direct) => Ok(()),
            Some(SandboxEffects::Preview) => f.write_str(", changes only by approval"),
        }
    }
}
