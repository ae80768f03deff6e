//! The outcome of a run's changes, in the form for results, records and commands.

use interlock_approvals::{EffectDiff, PreviewFacts, ProtectedFile};
use interlock_patch::{EffectChange, EffectError, RunEffect};
use interlock_sandbox::RunLayerState;
use serde::Serialize;

use interlock_local::HostError;

/// Most names in one list of a report. The counts are complete.
pub(crate) const MAX_LISTED: usize = 50;

/// The outcome of one run's changes, for results and records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectReport {
    pub run_id: String,
    pub state: EffectState,
    /// Whether the run was a preview, about whose changes an approver decides.
    #[serde(rename = "preview", skip_serializing_if = "std::ops::Not::not")]
    pub is_preview: bool,
    pub created: usize,
    pub changed: usize,
    pub deleted: usize,
    /// Changed paths that are executed or obeyed later.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protected: Vec<String>,
    /// Paths that changed in the workspace since the run started.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<String>,
    /// Pipes, sockets and devices, which are never committed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EffectState {
    /// All changes are in the workspace.
    Committed,
    /// No change is in the workspace until an approver allows it.
    ApprovalPending,
    /// No change is in the workspace, and the layer is kept.
    Kept,
    /// No change is in the workspace, and the layer was removed.
    Discarded,
}

impl EffectReport {
    pub(crate) fn new(run_id: &str, state: EffectState) -> Self {
        Self {
            run_id: run_id.to_owned(),
            state,
            is_preview: false,
            created: 0,
            changed: 0,
            deleted: 0,
            protected: Vec::new(),
            conflicts: Vec::new(),
            skipped: Vec::new(),
            approval_id: None,
            short_id: None,
            code: None,
            message: None,
        }
    }

    pub(crate) fn of_effect(run_id: &str, state: EffectState, effect: &RunEffect) -> Self {
        Self {
            created: effect.count(EffectChange::Created),
            changed: effect.count(EffectChange::Changed) + effect.count(EffectChange::Mode),
            deleted: effect.count(EffectChange::Deleted),
            skipped: effect.skipped.iter().take(MAX_LISTED).cloned().collect(),
            ..Self::new(run_id, state)
        }
    }

    pub(crate) fn with_protected(mut self, protected: &[ProtectedFile]) -> Self {
        let paths = protected.iter().take(MAX_LISTED);
        self.protected = paths.map(|file| file.path.clone()).collect();
        self
    }

    /// Whether the report is worth showing, which it is not if the run changed nothing.
    pub fn is_noteworthy(&self) -> bool {
        self.state != EffectState::Committed
            || self.created + self.changed + self.deleted > 0
            || !self.skipped.is_empty()
    }

    /// Returns the report on one line, for results.
    pub fn words(&self) -> String {
        let counts = format!(
            "{} created, {} changed, {} deleted",
            self.created, self.changed, self.deleted
        );
        let id = &self.run_id;
        let mut words = match self.state {
            EffectState::Committed => format!("committed to the workspace: {counts}"),
            EffectState::ApprovalPending if self.is_preview => format!(
                "this was a preview, and nothing was committed yet: {counts} need approval {}: interlock approvals approve {}; to run it for real instead, send it with effects \"direct\", which asks an approver about the command",
                self.short_id.as_deref().unwrap_or_default(),
                self.short_id.as_deref().unwrap_or_default(),
            ),
            EffectState::ApprovalPending => format!(
                "nothing was committed yet: {counts}, and protected paths among them ({}) need approval {}: interlock approvals approve {}",
                self.protected.join(", "),
                self.short_id.as_deref().unwrap_or_default(),
                self.short_id.as_deref().unwrap_or_default(),
            ),
            EffectState::Kept => format!(
                "nothing was committed: {}: {}; the changes are kept: interlock sandbox diff|commit|discard {id}",
                self.code.unwrap_or_default(),
                self.message.as_deref().unwrap_or_default(),
            ),
            EffectState::Discarded => {
                "nothing was committed: the changes were discarded".to_owned()
            }
        };
        if !self.skipped.is_empty() {
            words += &format!(
                "; left out, since they are not files: {}",
                self.skipped.join(", ")
            );
        }
        words
    }
}

/// A description of a layer for its owner.
#[derive(Debug)]
pub struct LayerDescription {
    pub layer: RunLayerState,
    /// The facts of a preview.
    pub facts: Option<PreviewFacts>,
    pub report: EffectReport,
    pub diff: EffectDiff,
}

/// Why a command about a layer is refused.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    #[error("there is no run with kept changes whose id begins with `{0}`, or there are several")]
    Unknown(String),
    #[error("the run `{0}` has not ended, or another process has its changes")]
    Busy(String),
    #[error(transparent)]
    Effect(#[from] EffectError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{what}: {source}")]
    File {
        what: &'static str,
        source: std::io::Error,
    },
}

impl LayerError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown(_) => "LAYER_UNKNOWN",
            Self::Busy(_) => "LAYER_BUSY",
            Self::Effect(error) => error.code(),
            Self::Host(error) => error.code(),
            Self::File { .. } => "LAYER_UNUSABLE",
        }
    }

    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Unknown(_) => Some("list them: interlock sandbox list".to_owned()),
            Self::Busy(_) => Some("end the run, or try again".to_owned()),
            Self::Effect(_) => Some(
                "look at the changes: interlock sandbox diff ID; copy what you need, then discard them: interlock sandbox discard ID"
                    .to_owned(),
            ),
            Self::Host(error) => error.remedy(),
            Self::File { .. } => None,
        }
    }
}
