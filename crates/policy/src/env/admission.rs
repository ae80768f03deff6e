//! Admits environment values beyond the harmless table by an entry's `env` list.

use std::collections::BTreeMap;

use super::harmless::{has_harmless_values, is_harmless};
use super::overrides::{EnvRefusal, check_name};
use crate::arguments::{argument_matches, compile_argument};
use crate::entry::Entry;
use crate::pattern::has_wildcard;

/// Why an item of an entry's `env` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvItemError {
    /// An entry may not name a blocked variable, because each run with it needs its own approval.
    #[error("`{name}` cannot be named by an entry: {refusal}")]
    Refused { name: String, refusal: EnvRefusal },
    #[error("`{item}`: {problem}")]
    Pattern { item: String, problem: String },
    #[error("`{0}` holds a NUL character, which no value can have")]
    Nul(String),
    #[error("there are more than {MAX_ITEMS} names")]
    TooMany,
}

/// The most items in one entry; a single program needs no more.
const MAX_ITEMS: usize = 256;

/// Checks the `env` list of an entry: `NAME` or `NAME=PATTERN`, never a blocked name.
pub(crate) fn check_items(items: &[String]) -> Result<(), EnvItemError> {
    if items.len() > MAX_ITEMS {
        return Err(EnvItemError::TooMany);
    }
    for item in items {
        let (name, pattern) = split(item);
        // Harmless values may be named, because *always* stores them together with the other values
        // of a call.
        if pattern.is_some_and(|pattern| is_harmless(name, pattern)) {
            continue;
        }
        check_name(name).map_err(|refusal| EnvItemError::Refused {
            name: name.escape_debug().collect(),
            refusal,
        })?;
        let pattern = pattern.unwrap_or_default();
        if pattern.contains('\0') {
            return Err(EnvItemError::Nul(name.to_owned()));
        }
        if has_wildcard(pattern) {
            compile_argument(pattern).map_err(|problem| EnvItemError::Pattern {
                item: item.clone(),
                problem,
            })?;
        }
    }
    Ok(())
}

fn split(item: &str) -> (&str, Option<&str>) {
    match item.split_once('=') {
        Some((name, pattern)) => (name, Some(pattern)),
        None => (item, None),
    }
}

/// The environment values that a caller sets for one command: the overrides of the call, then the
/// assignments before the command and those of `env`. Each value must be harmless or admitted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallerEnv<'a> {
    overrides: &'a BTreeMap<String, String>,
    assignments: &'a [(String, String)],
}

impl<'a> CallerEnv<'a> {
    pub(crate) fn new(
        overrides: &'a BTreeMap<String, String>,
        assignments: &'a [(String, String)],
    ) -> Self {
        Self {
            overrides,
            assignments,
        }
    }

    /// Every value in the order of setting, including values that a later one replaces.
    fn pairs(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let overrides = self.overrides.iter();
        let assignments = self.assignments.iter().map(|(name, value)| (name, value));
        let pairs = overrides.chain(assignments);
        pairs.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the first value that is neither harmless nor admitted by the entry. Without an
    /// entry, only harmless values pass.
    pub(crate) fn unadmitted(self, entry: Option<&Entry>) -> Option<Unadmitted> {
        let items = entry.map_or(&[][..], |entry| entry.env.as_slice());
        let is_admitted = |name: &str, value: &str| {
            items.iter().any(|item| match split(item) {
                (admitted, None) => admitted == name,
                (admitted, Some(pattern)) => admitted == name && argument_matches(pattern, value),
            })
        };
        let (name, value) = (self.pairs())
            .find(|(name, value)| !is_harmless(name, value) && !is_admitted(name, value))?;
        Some(Unadmitted::new(name, value))
    }

    /// Returns the values that an entry must name.
    pub(crate) fn unlisted(self) -> Vec<(&'a str, &'a str)> {
        let mut unlisted = Vec::new();
        for pair in self
            .pairs()
            .filter(|(name, value)| !is_harmless(name, value))
        {
            if !unlisted.contains(&pair) {
                unlisted.push(pair);
            }
        }
        unlisted
    }

    /// Returns the values in the form that *always* stores: the final `NAME=VALUE` of each name,
    /// sorted by name.
    pub(crate) fn held(self) -> Vec<String> {
        let last: BTreeMap<&str, &str> = self.pairs().collect();
        let pairs = last.into_iter();
        pairs
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }
}

/// A value that no entry admits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unadmitted {
    pub name: String,
    /// Whether the harmless table has the name, but with other values.
    pub is_other_value: bool,
}

impl Unadmitted {
    fn new(name: &str, _value: &str) -> Self {
        Self {
            name: name.to_owned(),
            is_other_value: has_harmless_values(name),
        }
    }
}
