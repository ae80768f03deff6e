//! The error of reading or changing rules.

use interlock_config::{ConfigError, Diagnostics};
use interlock_policy::PolicyError;
use interlock_store::StoreError;

/// Why rules cannot be read or changed. Each error has a stable code and a remedy.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Document(Diagnostics),
    #[error("{0}")]
    Policy(#[from] PolicyError),
    #[error("{message}")]
    Edit {
        code: &'static str,
        message: String,
        remedy: String,
    },
}

impl RulesError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Config(error) => error.code(),
            Self::Store(error) => error.code(),
            Self::Document(_) => "DOCUMENT_INVALID",
            Self::Policy(_) => "POLICY_INVALID",
            Self::Edit { code, .. } => code,
        }
    }

    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Config(error) => error.remedy(),
            Self::Store(error) => Some(error.remedy()),
            Self::Document(_) | Self::Policy(_) => None,
            Self::Edit { remedy, .. } => Some(remedy.clone()),
        }
    }
}
