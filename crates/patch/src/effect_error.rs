//! Why the effect of a run was not committed. The workspace is unchanged, unless a journal says
//! otherwise.

use crate::error::ApplyError;

/// The most paths that a message names. The others are counted.
const MAX_NAMED: usize = 20;

#[derive(Debug, thiserror::Error)]
pub enum EffectError {
    #[error("the workspace changed since the run started: {}", listed(paths))]
    Drift { paths: Vec<String> },
    #[error("{what} is more than a commit takes: {limit}")]
    TooLarge { what: String, limit: String },
    #[error("`{path}` belongs to Interlock, and no run changes it")]
    Reserved { path: String },
    #[error(transparent)]
    Apply(Box<ApplyError>),
}

impl EffectError {
    /// Returns the stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Drift { .. } => "EFFECT_DRIFT",
            Self::TooLarge { .. } => "EFFECT_TOO_LARGE",
            Self::Reserved { .. } => "EFFECT_RESERVED",
            Self::Apply(error) => error.code(),
        }
    }

    /// Returns the paths that changed in the workspace meanwhile.
    pub fn conflicts(&self) -> &[String] {
        match self {
            Self::Drift { paths } => paths,
            _ => &[],
        }
    }
}

impl From<ApplyError> for EffectError {
    fn from(error: ApplyError) -> Self {
        Self::Apply(Box::new(error))
    }
}

fn listed(paths: &[String]) -> String {
    let named: Vec<&str> = paths.iter().take(MAX_NAMED).map(String::as_str).collect();
    let rest = paths.len().saturating_sub(named.len());
    let more = if rest > 0 {
        format!(" and {rest} more")
    } else {
        String::new()
    };
    format!("{}{more}", named.join(", "))
}
