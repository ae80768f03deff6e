//! Judges what a caller may set: the overrides of a call, and assignments before a command.

use std::collections::{BTreeMap, BTreeSet};

use super::rejection::{EnvRejection, EnvSource, shown};
use super::table::{EnvClass, classify};

/// How a variable that a caller may set reaches the run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum OverrideAction {
    /// The variable is set as given.
    Keep,
    /// The variable is set to this value instead.
    Replace(String),
}

/// Why a caller may not set a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EnvRefusal {
    #[error("blocked ({}): {}", .0.name, .0.reason)]
    Blocked(&'static EnvClass),
    #[error(
        "the name is not portable: it must be a letter or underscore followed by letters, digits, underscores or parentheses"
    )]
    NotPortable,
    #[error("the value contains a NUL character, which no program can receive")]
    NulInValue,
}

/// Judges one variable that a caller sets for a run on a host.
pub fn check_override(key: &str, value: &str) -> Result<OverrideAction, EnvRefusal> {
    if !is_portable(key) {
        return Err(EnvRefusal::NotPortable);
    }
    if value.contains('\0') {
        return Err(EnvRefusal::NulInValue);
    }
    if turns_pager_off(key, value) {
        return Ok(OverrideAction::Replace(String::new()));
    }
    check_name(key)?;
    Ok(OverrideAction::Keep)
}

/// Judges the name of a variable, whatever its value: the name must be portable and not blocked.
pub(super) fn check_name(key: &str) -> Result<(), EnvRefusal> {
    if !is_portable(key) {
        return Err(EnvRefusal::NotPortable);
    }
    match classify(key) {
        Some(class) => Err(EnvRefusal::Blocked(class)),
        None => Ok(()),
    }
}

/// Judges all overrides of a call. One bad key refuses the whole call, because a run without a
/// variable that the caller expects is not the run that was requested.
pub fn check_overrides(
    overrides: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, EnvRejection> {
    let pairs = overrides.iter().map(|(key, value)| (key.as_str(), value));
    let (accepted, rejection) = sort_out(EnvSource::Override, pairs);
    rejection.map_or(Ok(accepted), Err)
}

/// Judges the assignments before a command, in order. A later assignment of the same name wins.
pub fn check_assignments(
    assignments: &[(String, String)],
) -> Result<BTreeMap<String, String>, EnvRejection> {
    let pairs = assignments.iter().map(|(key, value)| (key.as_str(), value));
    let (accepted, rejection) = sort_out(EnvSource::Assignment, pairs);
    rejection.map_or(Ok(accepted), Err)
}

/// Returns the overrides that reach a run of shell text: only terminal and locale, because a shell
/// and everything it starts give meaning to names that no table lists. The overrides must already
/// be accepted; this function judges none of them.
#[must_use]
pub fn for_shell_wrapper(overrides: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    overrides
        .iter()
        .filter(|(key, _)| {
            let upper = key.to_ascii_uppercase();
            is_portable(key)
                && (SHELL_WRAPPER_KEYS.contains(&upper.as_str()) || upper.starts_with("LC_"))
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Variables of terminal and locale, which change how output looks and never what runs.
const SHELL_WRAPPER_KEYS: &[&str] = &[
    "TERM",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LC_MESSAGES",
    "COLORTERM",
    "NO_COLOR",
    "FORCE_COLOR",
];

/// Splits variables into accepted and refused ones, for every source.
pub(super) fn sort_out<'a>(
    source: EnvSource,
    pairs: impl Iterator<Item = (&'a str, &'a String)>,
) -> (BTreeMap<String, String>, Option<EnvRejection>) {
    let mut accepted = BTreeMap::new();
    let mut blocked = BTreeSet::new();
    let mut invalid = BTreeSet::new();
    for (key, value) in pairs {
        match check_override(key, value) {
            Ok(OverrideAction::Keep) => {
                accepted.insert(key.to_owned(), value.clone());
            }
            Ok(OverrideAction::Replace(value)) => {
                accepted.insert(key.to_owned(), value);
            }
            Err(EnvRefusal::Blocked(_)) => {
                blocked.insert(key.to_ascii_uppercase());
            }
            Err(EnvRefusal::NotPortable | EnvRefusal::NulInValue) => {
                invalid.insert(shown(key));
            }
        }
    }
    (accepted, EnvRejection::new(source, blocked, invalid))
}

/// Whether the name is portable. Parentheses occur in Windows names such as `ProgramFiles(x86)`.
fn is_portable(key: &str) -> bool {
    let mut bytes = key.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'(' | b')'))
}

/// Whether the value turns a pager off, as agents do so that output is not held back. The run gets
/// an empty value, which has this effect and starts no program, not even `cat`.
fn turns_pager_off(key: &str, value: &str) -> bool {
    (key.eq_ignore_ascii_case("PAGER") || key.eq_ignore_ascii_case("GIT_PAGER"))
        && matches!(value, "" | "cat")
}
