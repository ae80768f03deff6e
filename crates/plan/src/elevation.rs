//! How far a run leaves the sandbox of its conversation. The plan contains the elevation, so that a
//! run has the one that its approver was shown.

use serde::{Deserialize, Serialize};

/// How far runs leave their sandbox.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Elevation {
    /// Stays in the sandbox.
    #[default]
    Off,
    /// Runs on the host, by the policy and the approvals of the host.
    #[serde(alias = "ask")]
    On,
    /// Runs on the host without the prompts that the config asks for. The host's document still
    /// applies.
    Full,
}

impl Elevation {
    /// Every word. `ask` is a synonym for `on`.
    pub const WORDS: &'static [&'static str] = &["off", "on", "ask", "full"];

    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "off" => Some(Self::Off),
            "on" | "ask" => Some(Self::On),
            "full" => Some(Self::Full),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Full => "full",
        }
    }

    /// Whether the run leaves its sandbox.
    pub fn leaves(self) -> bool {
        self != Self::Off
    }

    /// Whether the run stays in its sandbox, in the form that serde needs.
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }

    /// The description of the elevation in prompts and results.
    pub fn words(self) -> &'static str {
        match self {
            Self::Off => "not elevated",
            Self::On => "elevated: the run leaves the sandbox of its conversation",
            Self::Full => {
                "elevated (full): the run leaves the sandbox of its conversation, without the config's prompts"
            }
        }
    }
}

/// Why a run is repeated outside of its sandbox, as its approver reads it. The plan contains it, so
/// that another run or another reason has another digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PlanRetry {
    /// The run to which the sandbox denied something.
    pub run: String,
    /// The caller's words, which are hostile text.
    pub justification: String,
    /// What the sandbox denied.
    pub denied: Vec<String>,
    /// Binds that would let the run stay inside, as `PATH:ro` or `PATH:rw`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binds: Vec<String>,
}

impl std::fmt::Display for Elevation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
