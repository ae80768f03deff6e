//! The errors of commands: a stable code, a message, a hint and an exit code.

use std::process::ExitCode;

use interlock_approvals::ApprovalRefusal;
use interlock_approvals::companion::ListenerError;
use interlock_arguments::StateArguments;
use interlock_checks::cases::CaseError;
use interlock_command::InputError;
use interlock_host::{ExecError, HostError, PatchError};
use interlock_rules::RulesError;
use interlock_sessions::ProcessError;
use serde::Serialize;

use crate::output::{self, DataLost};

/// How a command ends: with an exit code, or with a failure that is printed.
pub type CommandOutcome = Result<ExitCode, Failure>;

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{error}")]
    Exec {
        error: Box<ExecError>,
        hint: Option<String>,
    },
    #[error("{error}")]
    Process {
        error: Box<ProcessError>,
        hint: Option<String>,
    },
    #[error(transparent)]
    Patch(#[from] PatchError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Cases(#[from] CaseError),
    #[error(transparent)]
    Output(#[from] DataLost),
    /// A failure that the gateway reported.
    #[error("{message}")]
    Reported {
        code: String,
        message: String,
        hint: Option<String>,
        denial: Option<String>,
    },
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
    /// A command or patch did not start because it is not allowed, or not yet.
    #[error("{message}")]
    NotAllowed {
        code: &'static str,
        message: String,
        hint: Option<String>,
    },
}

/// The JSON form of a failure.
#[derive(Debug, Serialize)]
struct FailureReport<'a> {
    code: &'a str,
    message: String,
    hint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    denial: Option<&'a str>,
}

impl Failure {
    pub fn usage(code: &'static str, message: impl Into<String>) -> Self {
        Self::Usage {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// Adds a hint that says what to do next.
    #[must_use]
    pub fn with_hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Usage { hint, .. }
        | Self::Refused { hint, .. }
        | Self::NotAllowed { hint, .. } = &mut self
        {
            *hint = Some(text.into());
        }
        self
    }

    pub fn refused(code: &'static str, message: impl Into<String>) -> Self {
        Self::Refused {
            code,
            message: message.into(),
            hint: None,
        }
    }

    /// The failure for a pending approval: its command or patch has not started.
    pub fn pending(message: impl Into<String>) -> Self {
        Self::NotAllowed {
            code: "APPROVAL_PENDING",
            message: message.into(),
            hint: None,
        }
    }

    pub fn code(&self) -> &str {
        match self {
            Self::Host(error) => error.code(),
            Self::Exec { error, .. } => error.code(),
            Self::Process { error, .. } => error.code(),
            Self::Patch(error) => error.code(),
            Self::Input(error) => error.code(),
            Self::Cases(_) => "CASES_INVALID",
            Self::Output(_) => "OUTPUT_LOST",
            Self::Reported { code, .. } => code,
            Self::Usage { code, .. }
            | Self::Refused { code, .. }
            | Self::NotAllowed { code, .. } => code,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Host(error) => error.remedy(),
            Self::Patch(error) => error.remedy(),
            Self::Exec { hint, .. }
            | Self::Process { hint, .. }
            | Self::Reported { hint, .. }
            | Self::Usage { hint, .. }
            | Self::Refused { hint, .. }
            | Self::NotAllowed { hint, .. } => hint.clone(),
            Self::Input(error) => input_hint(error),
            Self::Cases(_) | Self::Output(_) => None,
        }
    }

    /// The text for an agent whose command an approver did not allow.
    fn denial(&self) -> Option<&str> {
        match self {
            Self::Exec { error, .. } => error.denial_text(),
            Self::Reported { denial, .. } => denial.as_deref(),
            _ => None,
        }
    }

    /// The exit code: 1 for refused or failed, 2 for wrong usage, 3 for not allowed.
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Exec { .. }
            | Self::Patch(_)
            | Self::Process { .. }
            | Self::Reported { .. }
            | Self::NotAllowed { .. }
                if is_not_allowed(self.code()) =>
            {
                ExitCode::from(NOT_ALLOWED)
            }
            Self::Usage { .. } | Self::Cases(_) | Self::Input(_) => ExitCode::from(2),
            Self::Exec { error, .. } if matches!(**error, ExecError::Input(_)) => ExitCode::from(2),
            Self::Host(HostError::Rules(error)) if USAGE_CODES.contains(&error.code()) => {
                ExitCode::from(2)
            }
            Self::Process { error, .. } if matches!(**error, ProcessError::SignalUnknown(_)) => {
                ExitCode::from(2)
            }
            Self::Host(_)
            | Self::Exec { .. }
            | Self::Process { .. }
            | Self::Patch(_)
            | Self::Reported { .. }
            | Self::NotAllowed { .. }
            | Self::Refused { .. }
            | Self::Output(_) => ExitCode::from(1),
        }
    }

    /// Prints the failure to stderr, as text or as one JSON object. Commands in the hint get the
    /// flags that select this state.
    pub fn report_at(&self, state: &StateArguments, json: bool) -> ExitCode {
        self.print(self.hint().map(|hint| state.in_hint(&hint)), json)
    }

    /// Prints the failure like [`Self::report_at`], without flags of a state in the hint.
    pub fn report(&self, json: bool) -> ExitCode {
        self.print(self.hint(), json)
    }

    fn print(&self, hint: Option<String>, json: bool) -> ExitCode {
        let (code, message) = (self.code(), without_error_numbers(&self.to_string()));
        let denial = self.denial();
        if json {
            let error = FailureReport {
                code,
                message,
                hint,
                denial,
            };
            output::note(&serde_json::json!({ "error": error }).to_string());
        } else {
            output::note(&format!("error[{code}]: {message}"));
            if let Some(denial) = denial.filter(|denial| hint.as_deref() != Some(*denial)) {
                output::note(&format!("note: {denial}"));
            }
            if let Some(hint) = hint {
                output::note(&format!("hint: {hint}"));
            }
        }
        self.exit_code()
    }
}

impl From<RulesError> for Failure {
    fn from(error: RulesError) -> Self {
        Self::Host(error.into())
    }
}

impl From<ApprovalRefusal> for Failure {
    fn from(error: ApprovalRefusal) -> Self {
        match error {
            ApprovalRefusal::State(error) => Self::Host(error.into()),
            error => Self::Refused {
                code: error.code(),
                message: error.to_string(),
                hint: error.remedy(),
            },
        }
    }
}

impl From<ListenerError> for Failure {
    fn from(error: ListenerError) -> Self {
        match error {
            ListenerError::State(error) => Self::Host(error.into()),
            error @ ListenerError::Busy { .. } => {
                Self::refused(error.code(), error.to_string()).with_hint(
                    "end it first, or leave the socket to it: interlock approvals watch --no-listen",
                )
            }
            error => Self::refused(error.code(), error.to_string()),
        }
    }
}

/// Removes the ` (os error N)` that Rust appends to messages of the system.
fn without_error_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(" (os error ") {
        out.push_str(before);
        match after.split_once(')') {
            Some((number, tail)) if number.bytes().all(|byte| byte.is_ascii_digit()) => rest = tail,
            _ => {
                out.push_str(" (os error ");
                rest = after;
            }
        }
    }
    out + rest
}

/// The exit code of a command or patch that was not allowed: a script can tell it from a command
/// that ran and failed.
pub const NOT_ALLOWED: u8 = 3;

/// The codes that mean "not allowed", grouped by who refused.
const NOT_ALLOWED_CODES: &[&str] = &[
    // The policy.
    "EXEC_DENIED",
    "ENV_REJECTED",
    "PATCH_DENIED",
    "PATCH_MODEL_UNNAMED",
    "PATCH_PROTECTED",
    "SHIELD_SETUID",
    "SYSTEM_RUN_DENIED",
    "TOOL_DENIED",
    // No approver may allow it.
    "APPROVAL_UNBOUND",
    // No approver allowed it, or none did in time.
    "APPROVAL_DENIED",
    "APPROVAL_ENDED",
    "APPROVAL_EXPIRED",
    "APPROVAL_FALLBACK_DENIED",
    "APPROVAL_PENDING",
    // What would run differs from what was allowed.
    "APPROVAL_DRIFT",
];

/// Whether a code means that the command is not allowed.
pub fn is_not_allowed(code: &str) -> bool {
    NOT_ALLOWED_CODES.contains(&code)
}

/// Codes for errors in the caller's arguments, not in the state of the host.
const USAGE_CODES: &[&str] = &["AGENT_INVALID", "ENTRY_INVALID", "RULE_INVALID"];

pub fn input_hint(error: &InputError) -> Option<String> {
    let hint = match error {
        InputError::Empty => "write a command after --, such as: interlock exec -- 'ls -l'",
        InputError::TooLong(_) => "put the text into a script and run that",
        InputError::Nul(_) | InputError::RelativeCwd(_) => return None,
    };
    Some(hint.to_owned())
}
