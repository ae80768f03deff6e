//! Allowlist entries and deny rules, as documents write them and as the judge uses them.

use serde::{Deserialize, Serialize};

use crate::arguments::{ArgumentError, ArgumentRule};
use crate::pattern::{self, PatternError};

/// One line of trust. Fields are those of the reference, then ours (`args`, `note`, `expiresAt`,
/// `cwd`); whatever is absent does not widen anything but itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub pattern: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arg_pattern: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_resolved_path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Milliseconds since 1970; from then on the entry no longer matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// A path pattern for the working directory; `dir/**` means the directory and all beneath.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

/// The `source` of entries that a human's "always" made.
pub const ALLOW_ALWAYS: &str = "allow-always";

/// What always wins. Every field but `pattern` narrows the rule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DenyRule {
    pub pattern: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arg_pattern: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Why an entry or rule cannot be used. It never matches then, and is reported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("pattern: {0}")]
    Pattern(#[from] PatternError),
    #[error("argPattern: {0}")]
    Arguments(#[from] ArgumentError),
    #[error("cwd: {0}")]
    Cwd(PatternError),
}

impl EntryError {
    /// The field that is wrong.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Pattern(_) => "pattern",
            Self::Arguments(ArgumentError::Glob(_) | ArgumentError::Both) => "args",
            Self::Arguments(_) => "argPattern",
            Self::Cwd(_) => "cwd",
        }
    }

    /// The column inside the field's text, where it is known.
    pub fn column(&self) -> Option<usize> {
        match self {
            Self::Arguments(ArgumentError::Regex { column, .. }) => Some(*column),
            _ => None,
        }
    }
}

/// Checks the form of a pattern of either kind.
pub(crate) fn check_pattern(pattern: &str) -> Result<(), PatternError> {
    if pattern.is_empty() {
        return Err(PatternError::Empty);
    }
    if pattern.contains('\0') {
        return Err(PatternError::Nul);
    }
    if pattern::is_path_pattern(pattern) && command_hash(pattern).is_none() {
        pattern::check_path(pattern)?;
    }
    pattern::parse(pattern).map(|_| ())
}

/// The hex digits of an exact-command pattern (`=command:` or `=node-command:`).
pub(crate) fn command_hash(pattern: &str) -> Option<&str> {
    pattern
        .strip_prefix("=command:")
        .or_else(|| pattern.strip_prefix("=node-command:"))
}

impl Entry {
    pub fn for_pattern(pattern: impl Into<String>) -> Self {
        Self {
            pattern: pattern.into(),
            ..Self::default()
        }
    }

    /// Checks everything that can be checked without a host.
    pub fn check(&self) -> Result<(), EntryError> {
        self.arguments().map(|_| ())
    }

    /// What it wants of the arguments, if nothing is wrong with the entry.
    pub(crate) fn arguments(&self) -> Result<ArgumentRule, EntryError> {
        check_pattern(&self.pattern)?;
        let rule = ArgumentRule::parse(self.arg_pattern.as_deref(), self.args.as_deref())?;
        if let Some(cwd) = &self.cwd {
            pattern::check_path(cwd).map_err(EntryError::Cwd)?;
            pattern::parse(cwd).map_err(EntryError::Cwd)?;
        }
        Ok(rule)
    }

    /// A remembered grant that binds no arguments would trust a program for everything it can do,
    /// which nobody agreed to: it never matches.
    pub fn is_inert(&self) -> bool {
        self.source.as_deref() == Some(ALLOW_ALWAYS)
            && self.arg_pattern.is_none()
            && self.args.is_none()
            && command_hash(&self.pattern).is_none()
    }
}

impl DenyRule {
    pub fn check(&self) -> Result<(), EntryError> {
        check_pattern(&self.pattern)?;
        ArgumentRule::parse(self.arg_pattern.as_deref(), self.args.as_deref())?;
        Ok(())
    }
}
