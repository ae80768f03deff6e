//! Errors for the reader: a stable code, what was wrong, and what to do next.

use std::process::ExitCode;

use interlock_command::InputError;
use interlock_host::cases::CaseError;
use interlock_host::{HostError, PatchError};

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Patch(#[from] PatchError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Cases(#[from] CaseError),
    #[error("{message}")]
    Usage {
        code: &'static str,
        message: String,
        hint: Option<String>,
    },
    #[error("{message}")]
    Refused {
        code: &'static str,
        message: String,
        hint: Option<String>,
    },
}

impl Failure {
    pub fn usage(code: &'static str, message: impl Into<String>) -> Self {
        Self::Usage {
            code,
            message: message.into(),
            hint: None,
        }
    }

    pub fn refused(code: &'static str, message: impl Into<String>, hint: Option<String>) -> Self {
        Self::Refused {
            code,
            message: message.into(),
            hint,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Host(error) => error.code(),
            Self::Patch(error) => error.code(),
            Self::Input(error) => error.code(),
            Self::Cases(_) => "CASES_INVALID",
            Self::Usage { code, .. } | Self::Refused { code, .. } => code,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Host(error) => error.remedy(),
            Self::Patch(error) => error.remedy(),
            Self::Usage { hint, .. } | Self::Refused { hint, .. } => hint.clone(),
            Self::Input(_) | Self::Cases(_) => None,
        }
    }

    /// 1 for refused or failed, 2 for wrong usage.
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage { .. } | Self::Cases(_) | Self::Input(_) => ExitCode::from(2),
            Self::Host(_) | Self::Patch(_) | Self::Refused { .. } => ExitCode::from(1),
        }
    }

    /// To stderr, as text or as one JSON object.
    pub fn report(&self, json: bool) -> ExitCode {
        let (code, message, hint) = (self.code(), self.to_string(), self.hint());
        if json {
            let error =
                serde_json::json!({ "error": { "code": code, "message": message, "hint": hint } });
            eprintln!("{error}");
        } else {
            eprintln!("error[{code}]: {message}");
            if let Some(hint) = hint {
                eprintln!("hint: {hint}");
            }
        }
        self.exit_code()
    }
}
