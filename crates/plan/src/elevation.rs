//! How far a run leaves the sandbox of its conversation. The plan holds it, so that what an approver was
//! shown is what runs.

use serde::{Deserialize, Serialize};

/// How far runs leave their sandbox.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Elevation {
    /// Not at all.
    #[default]
    Off,
    /// To the host, by the policy and the approvals of the host.
    #[serde(alias = "ask")]
    On,
    /// The same without the prompts that the config asks for; the host document still applies.
    Full,
}

impl Elevation {
    /// Every word; `ask` is another one for `on`.
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

    /// The same as serde wants it.
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }

    /// What prompts and results say of a run that leaves.
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

impl std::fmt::Display for Elevation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}
