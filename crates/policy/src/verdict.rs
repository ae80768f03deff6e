//! The answer of the judge, with everything a reader needs to understand it.

use interlock_binding::Binding;
use interlock_command::{Argv, Span};
use serde::Serialize;

use crate::entry::{BoundContent, Entry, EntryShield};
use crate::judge::VerdictShield;
use crate::level::Fallback;
use crate::remember::Remember;

/// May it run? Only the judge makes one.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Verdict {
    #[serde(rename = "verdict")]
    pub outcome: Outcome,
    /// The rule that decided.
    pub reason: Reason,
    /// One for each command, in the order written. Empty when the text is odd.
    pub segments: Vec<JudgedCommand>,
    /// How it would be run.
    pub transport: Transport,
    /// What happens if an approver should be asked and no surface can show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackOutcome>,
    /// What an approval would pin. Where no approver is asked, odd text is not looked into for it.
    pub binding: Binding,
    /// What "always" would store.
    pub remember: Remember,
    /// Commands that would change the outcome.
    pub remedies: Vec<Remedy>,
    /// How the command could be written instead, where it is not what entries can satisfy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<&'static str>,
    /// The entries that an allow rests on. Empty where something else decided.
    #[serde(skip)]
    pub entries: Vec<UsedEntry>,
    /// An allow that rests on the allowlist, not on `full`.
    #[serde(skip)]
    pub by_allowlist: bool,
    /// Whether the run would have the shield that runs of this host have.
    #[serde(skip)]
    pub shield: VerdictShield,
}

/// An entry that satisfied a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedEntry {
    /// As [`crate::Entry::use_key`].
    pub key: String,
    /// The file that the command resolved to.
    pub resolved: Option<String>,
    /// What the entry holds on to: only this may run.
    pub held: Option<HeldContent>,
    /// What the entry says about the shield.
    pub shield: Option<EntryShield>,
}

/// The files of a command, as an entry with `paths` was judged by them. The run pins where they lead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckedFiles {
    pub paths: Vec<CheckedPath>,
    /// Variables that the program gets, so that it starts no other one.
    pub environment: Vec<(String, String)>,
}

/// A path of a command, and where it led when the command was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedPath {
    /// Absolute, as the command names it.
    pub found: String,
    pub canonical: String,
}

/// Content that an entry vouches for. The run pins it, and refuses another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldContent {
    pub binding: Binding,
    pub content: BoundContent,
}

/// The three answers. An `Allow` cannot be made outside of this crate: it is the proof that the
/// policy was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Allow(Proof),
    Ask,
    Deny,
}

/// Held by an allowing outcome; has no public constructor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof(pub(crate) ());

impl Outcome {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow(_) => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }

    pub fn is_allow(self) -> bool {
        matches!(self, Self::Allow(_))
    }

    /// From loose to strict: allow, ask, deny.
    pub fn strictness(self) -> u8 {
        match self {
            Self::Allow(_) => 0,
            Self::Ask => 1,
            Self::Deny => 2,
        }
    }
}

impl Serialize for Outcome {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Why, in a stable code, in words, and where it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    pub code: &'static str,
    pub message: String,
    /// A key path of the config or the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl Reason {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            origin: None,
        }
    }

    pub(crate) fn at(mut self, origin: impl Into<String>) -> Self {
        self.origin = Some(origin.into());
        self
    }
}

/// How a command that may run is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// By Interlock itself, from argv; no shell sees the text.
    Direct,
    /// By the shell, exactly the text that was shown.
    Shell,
}

/// One command of the line and what satisfied it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JudgedCommand {
    pub argv: Argv,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<Span>,
    /// The path as found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canonical: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wrappers: Vec<String>,
    pub cwd: String,
    /// `None`: a miss.
    pub satisfied_by: Option<SatisfiedBy>,
    pub reason: Reason,
    /// The entry that satisfied it.
    #[serde(skip)]
    pub entry: Option<UsedEntry>,
    /// What that entry was judged by, where it has `paths`.
    #[serde(skip)]
    pub files: Option<CheckedFiles>,
    /// What an entry for this command would have to admit.
    #[serde(skip)]
    pub(crate) needs: EntryNeeds,
}

/// What of a call an entry must admit beyond program and arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EntryNeeds {
    /// Variables that the harmless table does not have, with their values.
    pub(crate) env: Vec<(String, String)>,
    /// The caller can type into the program.
    pub(crate) interactive: bool,
    /// The entry whose program, arguments and directory fit, and which does not admit the rest.
    pub(crate) near: Option<Box<Entry>>,
    /// It must name the path of the program, which lies in the workspace.
    pub(crate) by_path: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SatisfiedBy {
    Builtin,
    Allowlist,
    SafeBin,
    Skill,
}

/// What the fallback says, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FallbackOutcome {
    pub ask_fallback: Fallback,
    pub allow: bool,
    pub reason: String,
}

/// A command that changes the outcome, ready to be pasted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Remedy {
    pub effect: String,
    pub command: String,
}
