//! Reads the parameters of the tools: from the JSON of a call to typed values.
//!
//! Every wrong parameter is reported with the name of its field, before anything else happens. A
//! parameter that is `null` counts as absent.

mod exec;
mod fields;
mod patch;

pub use exec::{ExecParameters, InputMode};
pub use fields::{Fields, listed};
pub use patch::PatchParameters;

/// Why the parameters of a call are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ParameterError {
    code: &'static str,
    field: String,
    message: String,
    hint: Option<String>,
}

impl ParameterError {
    /// `problem` continues the sentence that starts with the name of the field.
    pub fn new(
        code: &'static str,
        field: impl Into<String>,
        problem: impl std::fmt::Display,
    ) -> Self {
        let field = field.into();
        Self {
            code,
            message: format!("`{}` {problem}", field.escape_debug()),
            field,
            hint: None,
        }
    }

    #[must_use]
    pub fn with_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }

    /// A stable code for programs.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// The parameter, such as `env.PATH` or `keys[2]`.
    pub fn field(&self) -> &str {
        &self.field
    }

    pub fn hint(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// The tool or its action has no such parameter.
pub const UNKNOWN: &str = "PARAMETER_UNKNOWN";
/// The tool or its action needs this parameter.
pub const MISSING: &str = "PARAMETER_MISSING";
const TYPE: &str = "PARAMETER_TYPE";
/// The type is right, but the value has no meaning.
pub const VALUE: &str = "PARAMETER_VALUE";
const RANGE: &str = "PARAMETER_RANGE";
/// Two parameters contradict each other.
const CONFLICT: &str = "PARAMETER_CONFLICT";
const WORKDIR: &str = "WORKDIR_UNUSABLE";
