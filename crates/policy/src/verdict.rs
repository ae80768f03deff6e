//! The verdict of the judge, with everything that a reader needs to understand it.

use interlock_binding::Binding;
use interlock_command::{Argv, Span};
use serde::Serialize;

use crate::entry::{BoundContent, Entry, EntryShield};
use crate::judge::VerdictShield;
use crate::level::Fallback;
use crate::remember::Remember;

/// Whether a request may run. Only the judge creates a verdict.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Verdict {
    #[serde(rename = "verdict")]
    pub outcome: Outcome,
    /// The rule that decided.
    pub reason: Reason,
    /// One item for each command, in the order written. Empty if the text is odd.
    pub segments: Vec<JudgedCommand>,
    /// How the request would be started.
    pub transport: Transport,
    /// What happens if an approver should be asked and no surface can show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackOutcome>,
    /// What an approval would pin. If no approver is asked, odd text is not parsed for this.
    pub binding: Binding,
    /// What "always" would store.
    pub remember: Remember,
    /// Commands that would change the outcome.
    pub remedies: Vec<Remedy>,
    /// How the command could be written instead, if entries cannot satisfy it as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<&'static str>,
    /// The entries that an allow rests on. Empty if something else decided.
    #[serde(skip)]
    pub entries: Vec<UsedEntry>,
    /// Whether an allow rests on the allowlist, not on `full`.
    #[serde(skip)]
    pub by_allowlist: bool,
    /// Whether the run would have the usual shield of this host.
    #[serde(skip)]
    pub shield: VerdictShield,
}

/// An entry that satisfied a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedEntry {
    /// The key of the entry, as [`crate::Entry::use_key`] returns it.
    pub key: String,
    /// The file that the command resolved to.
    pub resolved: Option<String>,
    /// The content that the entry binds: only this content may run.
    pub held: Option<HeldContent>,
    /// The shield setting of the entry.
    pub shield: Option<EntryShield>,
}

/// The files by which a command was judged against an entry with `paths`. The run pins their
/// destinations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckedFiles {
    pub paths: Vec<CheckedPath>,
    /// Variables that the run sets so that the program starts no other program.
    pub environment: Vec<(String, String)>,
}

/// A path of a command, with its destination at the time of the verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedPath {
    /// An absolute path, as the command names it.
    pub found: String,
    pub canonical: String,
}

/// Content that an entry vouches for. The run pins this content and refuses any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldContent {
    pub binding: Binding,
    pub content: BoundContent,
}

/// The three outcomes. An `Allow` cannot be created outside this crate, so it proves that the
/// policy was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Allow(Proof),
    Ask,
    Deny,
}

/// A part of every allowing outcome. It has no public constructor.
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

    /// Orders outcomes from loose to strict: allow, ask, deny.
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

/// Why a verdict is as it is: a stable code, a message, and the origin of the rule.
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
    /// Interlock starts the program from argv. No shell sees the text.
    Direct,
    /// The shell runs exactly the text that was shown.
    Shell,
}

/// One command of the line and what satisfied it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JudgedCommand {
    pub argv: Argv,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<Span>,
    /// The path where the program was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canonical: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wrappers: Vec<String>,
    pub cwd: String,
    /// `None` means a miss.
    pub satisfied_by: Option<SatisfiedBy>,
    pub reason: Reason,
    /// The entry that satisfied the command.
    #[serde(skip)]
    pub entry: Option<UsedEntry>,
    /// The files that the entry was judged by, if it has `paths`.
    #[serde(skip)]
    pub files: Option<CheckedFiles>,
    /// What an entry for this command must admit.
    #[serde(skip)]
    pub(crate) needs: EntryNeeds,
}

/// The facts of a call that an entry must admit, beyond program and arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct EntryNeeds {
    /// Variables with their values that the harmless table does not admit.
    pub(crate) env: Vec<(String, String)>,
    /// Whether the caller can type into the program.
    pub(crate) interactive: bool,
    /// The entry whose program, arguments and directory match, but which does not admit the rest.
    pub(crate) near: Option<Box<Entry>>,
    /// Whether the entry must name the path of the program, because the program lies in the
    /// workspace.
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

/// The outcome of the fallback, and its reason.
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
