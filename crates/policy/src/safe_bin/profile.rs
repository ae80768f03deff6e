//! Profiles, which say what arguments a safe bin may have: the built-in ones and those of the
//! config.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::operand::SafeBinOperandKind;
use super::table::{BUILT_IN, BuiltIn};

/// The arguments that one program may have. Everything else is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub(super) min_positional: usize,
    pub(super) max_positional: usize,
    pub(super) positional: SafeBinOperandKind,
    pub(super) value_flags: BTreeMap<String, ValueFlag>,
    pub(super) flags: BTreeSet<String>,
    /// Denied flags with their reasons. They win over the two lists above.
    pub(super) denied: BTreeMap<String, String>,
    pub(super) number_flag: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ValueFlag {
    pub kind: SafeBinOperandKind,
    pub arity: Arity,
}

/// How a flag takes its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arity {
    /// The value is attached, or else the next word.
    Required,
    /// The value is attached or absent. The next word is never the value.
    AttachedOnly,
}

/// A profile as written in the config, under `safeBinProfiles.NAME`.
///
/// Absent fields allow nothing: without `maxPositional` there are no operands, and only listed
/// flags are known. Values and operands must not look like files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SafeBinProfile {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_positional: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_positional: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_value_flags: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_flags: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied_flags: Vec<String>,
}

/// All profiles in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profiles {
    by_name: BTreeMap<String, Profile>,
    problems: Vec<ProfileProblem>,
}

impl Default for Profiles {
    fn default() -> Self {
        Self::built_in()
    }
}

impl Profiles {
    pub fn built_in() -> Self {
        let by_name = BUILT_IN
            .iter()
            .map(|row| (row.name.to_owned(), Profile::from(row)))
            .collect();
        Self {
            by_name,
            problems: Vec::new(),
        }
    }

    /// Returns the built-in profiles together with those of the config. A custom profile replaces
    /// the built-in profile of the same name, but flags denied there stay denied. If a custom
    /// profile has a mistake, its bin has no profile at all, and [`Profiles::problems`] reports the
    /// mistake.
    pub fn with_custom(custom: &BTreeMap<String, SafeBinProfile>) -> Self {
        let mut profiles = Self::built_in();
        for (bin, written) in custom {
            let built_in = profiles.by_name.remove(bin);
            match Profile::from_config(bin, written) {
                Ok(mut profile) => {
                    if let Some(built_in) = built_in {
                        profile.denied.extend(built_in.denied);
                    }
                    profiles.by_name.insert(bin.clone(), profile);
                }
                Err(kind) => profiles.problems.push(ProfileProblem {
                    bin: bin.clone(),
                    kind,
                }),
            }
        }
        profiles
    }

    pub fn get(&self, name: &str) -> Option<&Profile> {
        self.by_name.get(name)
    }

    /// Mistakes in custom profiles, for `doctor`.
    pub fn problems(&self) -> &[ProfileProblem] {
        &self.problems
    }
}

/// A mistake in one custom profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("safeBinProfiles.{bin}: {kind}; the profile is not used")]
pub struct ProfileProblem {
    pub bin: String,
    pub kind: ProfileProblemKind,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileProblemKind {
    #[error("the name must be that of a program, without a directory")]
    Name,
    #[error("`{0}` is not a flag: write `-x` or `--name`, without a value")]
    Flag(String),
    #[error("`{0}` is in both allowedFlags and allowedValueFlags")]
    WithAndWithoutValue(String),
    #[error("minPositional {fewest} is more than maxPositional {most}")]
    Positional { fewest: usize, most: usize },
}

impl Profile {
    fn from_config(bin: &str, written: &SafeBinProfile) -> Result<Self, ProfileProblemKind> {
        let plain = |text: &str| !text.contains(|c: char| c.is_whitespace() || c.is_control());
        if bin.is_empty() || bin.contains(['/', '\\']) || !plain(bin) {
            return Err(ProfileProblemKind::Name);
        }
        let (fewest, most) = (
            written.min_positional.unwrap_or(0),
            written.max_positional.unwrap_or(0),
        );
        if fewest > most {
            return Err(ProfileProblemKind::Positional { fewest, most });
        }
        let lists = [
            &written.allowed_value_flags,
            &written.allowed_flags,
            &written.denied_flags,
        ];
        for flag in lists.into_iter().flatten() {
            let letters = flag.trim_start_matches('-');
            let dashes = flag.len() - letters.len();
            if !matches!(dashes, 1 | 2) || letters.is_empty() || !plain(flag) || flag.contains('=')
            {
                return Err(ProfileProblemKind::Flag(flag.clone()));
            }
        }
        let flags: BTreeSet<String> = written.allowed_flags.iter().cloned().collect();
        let both = written
            .allowed_value_flags
            .iter()
            .find(|flag| flags.contains(*flag));
        if let Some(flag) = both {
            return Err(ProfileProblemKind::WithAndWithoutValue(flag.clone()));
        }
        let value_flag = ValueFlag {
            kind: SafeBinOperandKind::Text,
            arity: Arity::Required,
        };
        let why = format!("safeBinProfiles.{bin} denies it");
        Ok(Self {
            min_positional: fewest,
            max_positional: most,
            positional: SafeBinOperandKind::Text,
            value_flags: written
                .allowed_value_flags
                .iter()
                .map(|flag| (flag.clone(), value_flag))
                .collect(),
            flags,
            denied: written
                .denied_flags
                .iter()
                .map(|flag| (flag.clone(), why.clone()))
                .collect(),
            number_flag: false,
        })
    }
}

impl From<&BuiltIn> for Profile {
    fn from(row: &BuiltIn) -> Self {
        let (min_positional, max_positional, positional) = row.positional;
        Self {
            min_positional,
            max_positional,
            positional,
            value_flags: row
                .value_flags
                .iter()
                .flat_map(|(spellings, kind, arity)| {
                    let flag = ValueFlag {
                        kind: *kind,
                        arity: *arity,
                    };
                    spellings.iter().map(move |name| ((*name).to_owned(), flag))
                })
                .collect(),
            flags: row.flags.iter().map(|flag| (*flag).to_owned()).collect(),
            denied: row
                .denied
                .iter()
                .flat_map(|(spellings, why)| {
                    spellings
                        .iter()
                        .map(|name| ((*name).to_owned(), (*why).to_owned()))
                })
                .collect(),
            number_flag: row.number_flag,
        }
    }
}
