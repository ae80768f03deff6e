//! Names of agents.

use serde::Serialize;

/// A named caller. The name has at most 64 letters, digits, `_`, `-` and `.`, and is compared in
/// lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct AgentId(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an agent id: use letters, digits, `_`, `-` and `.`, at most 64")]
pub struct AgentIdError(String);

impl AgentId {
    /// The agent of a call that names none.
    pub const MAIN: &str = "main";

    pub fn new(text: &str) -> Result<Self, AgentIdError> {
        let fits = !text.is_empty()
            && text.len() <= 64
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
        if !fits {
            return Err(AgentIdError(text.to_owned()));
        }
        let id = text.to_ascii_lowercase();
        // Older documents call the main agent `default`.
        Ok(Self(if id == "default" {
            Self::MAIN.to_owned()
        } else {
            id
        }))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for AgentId {
    fn default() -> Self {
        Self(Self::MAIN.to_owned())
    }
}

impl std::fmt::Display for AgentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0)
    }
}

impl std::str::FromStr for AgentId {
    type Err = AgentIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}
