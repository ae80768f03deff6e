//! The refusal of a whole request because of its environment variables.

use std::collections::BTreeSet;
use std::fmt;

use super::table::{EnvClass, classify};

/// Where the variables were set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvSource {
    /// The `env` of a call.
    Override,
    /// `NAME=value` before a command.
    Assignment,
}

/// The keys that made a request fail, at least one. The text of this error is part of the wire
/// format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvRejection {
    source: EnvSource,
    blocked: BTreeSet<String>,
    invalid: BTreeSet<String>,
}

impl EnvRejection {
    /// Returns `None` if there is nothing to refuse.
    pub(super) fn new(
        source: EnvSource,
        blocked: BTreeSet<String>,
        invalid: BTreeSet<String>,
    ) -> Option<Self> {
        if blocked.is_empty() && invalid.is_empty() {
            return None;
        }
        Some(Self {
            source,
            blocked,
            invalid,
        })
    }

    pub fn source(&self) -> EnvSource {
        self.source
    }

    /// The blocked keys, in upper case and sorted.
    pub fn blocked_keys(&self) -> impl Iterator<Item = &str> {
        self.blocked.iter().map(String::as_str)
    }

    /// The keys whose name or value is invalid, as given but with control characters escaped,
    /// sorted.
    pub fn invalid_keys(&self) -> impl Iterator<Item = &str> {
        self.invalid.iter().map(String::as_str)
    }

    /// Each blocked key with its class, which says why.
    pub fn reasons(&self) -> impl Iterator<Item = (&str, &'static EnvClass)> {
        self.blocked_keys()
            .filter_map(|key| classify(key).map(|class| (key, class)))
    }
}

impl fmt::Display for EnvRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, keys) = match self.source {
            EnvSource::Override => ("environment override", "override"),
            EnvSource::Assignment => ("command env assignment", "env assignment"),
        };
        write!(f, "SYSTEM_RUN_DENIED: {what} rejected (")?;
        let mut separator = "";
        for (kind, list) in [
            ("blocked", &self.blocked),
            ("invalid non-portable", &self.invalid),
        ] {
            if !list.is_empty() {
                write!(f, "{separator}{kind} {keys} keys: ")?;
                write_list(f, list)?;
                separator = "; ";
            }
        }
        f.write_str(")")
    }
}

impl std::error::Error for EnvRejection {}

fn write_list(f: &mut fmt::Formatter<'_>, list: &BTreeSet<String>) -> fmt::Result {
    for (position, key) in list.iter().enumerate() {
        if position > 0 {
            f.write_str(", ")?;
        }
        f.write_str(key)?;
    }
    Ok(())
}

/// Escapes a key for printing, so that no control character of a caller reaches a terminal.
pub(super) fn shown(key: &str) -> String {
    if key.is_empty() {
        return "(empty)".to_owned();
    }
    key.escape_debug().collect()
}
