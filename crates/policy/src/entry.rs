//! Allowlist entries and deny rules, as documents write them and as the judge uses them.

use serde::{Deserialize, Serialize};

use sha2::{Digest, Sha256};

use crate::arguments::{ANY_ARGUMENTS, ArgumentError, ArgumentRule, hex, read_digest};
use crate::env::{EnvItemError, check_items};
use crate::path_rule::{self, PathRuleError};
use crate::pattern::{self, PatternError};

/// An entry of the allowlist. The fields up to `lastResolvedPath` are those of the reference;
/// Interlock adds the others. An absent field never widens what the entry satisfies.
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
    /// Milliseconds since 1970. From then on the entry no longer matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
    /// A path pattern for the working directory; `dir/**` means the directory and all beneath.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The name by which the program must be called, because some programs behave differently under
    /// each name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called_as: Option<String>,
    /// The script or program that runs, with its content. The entry matches nothing else, and
    /// nothing at all if the content has changed or cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_file: Option<BoundContent>,
    /// Environment values that the entry admits beyond the harmless table, each `NAME` (any value)
    /// or `NAME=PATTERN`. An entry stored by *always* holds them literally and requires exactly
    /// these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Whether the entry also satisfies runs that the caller can type into.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interactive: bool,
    /// If set, the entry satisfies only runs on a terminal (`true`) or only runs without one
    /// (`false`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<bool>,
    /// Path patterns, in which `${workspace}` is the workspace of the call. Every argument that can
    /// name a file must lead beneath one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paths: Option<Vec<String>>,
    /// If `"off"`, the entry also satisfies runs without the shield.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shield: Option<EntryShield>,
}

/// The shield setting of an entry. An entry without one requires the shield.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryShield {
    Off,
}

/// A file and its required content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BoundContent {
    /// The canonical path.
    pub path: String,
    /// The hash of the content, in hexadecimal.
    pub sha256: String,
    /// The canonical paths of the allowed interpreters: those of its `#!` line, or a shell. If
    /// empty, any program may run the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interpreters: Vec<String>,
    /// Further files that take part in the run and that its user could alter, such as an
    /// interpreter in a home directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<FileContent>,
}

/// A file and the hash of its content, in hexadecimal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileContent {
    /// The canonical path.
    pub path: String,
    pub sha256: String,
}

impl FileContent {
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.path == other.path && self.sha256.eq_ignore_ascii_case(&other.sha256)
    }
}

impl BoundContent {
    /// All files with the content that they must have.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let first = (self.path.as_str(), self.sha256.as_str());
        let also = self.also.iter();
        std::iter::once(first).chain(also.map(|file| (file.path.as_str(), file.sha256.as_str())))
    }
}

/// The longest id that names an entry.
const MAX_ID_BYTES: usize = 200;

/// The `source` of entries that a human's "always" stored.
pub const ALLOW_ALWAYS: &str = "allow-always";

/// The `source` of the entries that the first start writes. They satisfy no program in the
/// workspace, because agents write there.
pub const BASE: &str = "base";

/// The prefix of the `source` of entries that a template wrote. The name of the template follows.
pub const TEMPLATE_SOURCE: &str = "template:";

/// A rule that denies commands and always wins. Every field but `pattern` narrows the rule.
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

/// Why an entry or rule cannot be used. Such an entry never matches, and it is reported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    #[error("pattern: {0}")]
    Pattern(#[from] PatternError),
    #[error("argPattern: {0}")]
    Arguments(#[from] ArgumentError),
    #[error("cwd: {0}")]
    Cwd(PatternError),
    #[error("calledAs: {0}")]
    CalledAs(&'static str),
    #[error("boundFile: {0}")]
    BoundFile(&'static str),
    #[error("env: {0}")]
    Env(#[from] EnvItemError),
    #[error("paths: {0}")]
    Paths(PathRuleError),
}

impl EntryError {
    /// The field that is wrong.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Pattern(_) => "pattern",
            Self::Arguments(ArgumentError::Glob(_) | ArgumentError::Both) => "args",
            Self::Arguments(_) => "argPattern",
            Self::Cwd(_) => "cwd",
            Self::CalledAs(_) => "calledAs",
            Self::BoundFile(_) => "boundFile",
            Self::Env(_) => "env",
            Self::Paths(_) => "paths",
        }
    }

    /// The column in the field's text, if it is known.
    pub fn column(&self) -> Option<usize> {
        match self {
            Self::Arguments(ArgumentError::Regex { column, .. }) => Some(*column),
            _ => None,
        }
    }
}

/// Checks the form of a pattern, whether of a name or a path.
pub(crate) fn check_pattern(pattern: &str) -> Result<(), PatternError> {
    if pattern.is_empty() {
        return Err(PatternError::Empty);
    }
    if pattern.contains('\0') {
        return Err(PatternError::Nul);
    }
    if pattern.len() > pattern::MAX_PATTERN_BYTES {
        return Err(PatternError::TooLong(pattern.len()));
    }
    if pattern::is_path_pattern(pattern) && command_hash(pattern).is_none() {
        pattern::check_path(pattern)?;
    }
    pattern::parse(pattern).map(|_| ())
}

/// Returns the hex digits of an exact-command pattern (`=command:` or `=node-command:`).
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

    /// Returns what the entry requires of the arguments, if the entry is valid.
    pub(crate) fn arguments(&self) -> Result<ArgumentRule, EntryError> {
        check_pattern(&self.pattern)?;
        let rule = ArgumentRule::parse(self.arg_pattern.as_deref(), self.args.as_deref())?;
        if let Some(cwd) = &self.cwd {
            pattern::check_path(cwd).map_err(EntryError::Cwd)?;
            pattern::parse(cwd).map_err(EntryError::Cwd)?;
        }
        self.check_called_as().map_err(EntryError::CalledAs)?;
        self.check_bound_file().map_err(EntryError::BoundFile)?;
        check_items(&self.env)?;
        if let Some(paths) = &self.paths {
            path_rule::check(paths).map_err(EntryError::Paths)?;
            if command_hash(&self.pattern).is_some() {
                return Err(EntryError::Paths(PathRuleError::ExactCommand));
            }
        }
        Ok(rule)
    }

    /// Returns the digest of directory and arguments, if the entry is for exactly these.
    pub(crate) fn digest(&self) -> Option<String> {
        let written = self
            .arg_pattern
            .as_deref()
            .filter(|_| self.args.is_none())?;
        match read_digest(written) {
            Some(Ok(digest)) => Some(digest),
            Some(Err(_)) | None => None,
        }
    }

    fn check_called_as(&self) -> Result<(), &'static str> {
        match self.called_as.as_deref() {
            Some("") => Err("the name is empty"),
            Some(name) if name.contains('/') => Err("a name has no `/`"),
            Some(_) if command_hash(&self.pattern).is_some() => {
                Err("an exact command names no program")
            }
            _ => Ok(()),
        }
    }

    fn check_bound_file(&self) -> Result<(), &'static str> {
        let Some(BoundContent {
            path,
            sha256,
            interpreters,
            also,
        }) = &self.bound_file
        else {
            return Ok(());
        };
        if command_hash(&self.pattern).is_some() {
            return Err("an exact command holds no file");
        }
        let also_paths = also.iter().map(|file| &file.path);
        let mut paths = std::iter::once(path).chain(interpreters).chain(also_paths);
        if !paths.all(|path| path.starts_with('/')) {
            return Err("a path is not absolute");
        }
        let is_hash =
            |text: &String| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut hashes = std::iter::once(sha256).chain(also.iter().map(|file| &file.sha256));
        hashes
            .all(is_hash)
            .then_some(())
            .ok_or("`sha256` is not 64 hex digits")
    }

    /// Whether both entries allow the same commands for the same time.
    pub fn has_terms_of(&self, other: &Self) -> bool {
        self.terms() == other.terms()
    }

    /// The entry without fields that are only informative.
    fn terms(&self) -> Self {
        Self {
            pattern: self.pattern.clone(),
            arg_pattern: self.arg_pattern.clone(),
            args: self.args.clone(),
            expires_at: self.expires_at,
            cwd: self.cwd.clone(),
            called_as: self.called_as.clone(),
            bound_file: self.bound_file.clone(),
            env: self.env.clone(),
            interactive: self.interactive,
            terminal: self.terminal,
            paths: self.paths.clone(),
            // The source counts for base entries only, because they satisfy fewer programs.
            source: self.is_base().then(|| BASE.to_owned()),
            shield: self.shield,
            ..Self::default()
        }
    }

    /// Returns the name under which uses of the entry are recorded: its id, else its scope and
    /// terms. `origin` is the position of the entry, such as `agents.main.allowlist[3]`.
    pub fn use_key(&self, origin: &str) -> String {
        if let Some(id) = self
            .id
            .as_ref()
            .filter(|id| (1..=MAX_ID_BYTES).contains(&id.len()))
        {
            return id.clone();
        }
        let scope = origin.rsplit_once(".allowlist[").map_or(origin, |(s, _)| s);
        // Serializing plain data cannot fail.
        let terms = serde_json::to_string(&self.terms()).unwrap_or_default();
        format!("{scope} {}", hex(&Sha256::digest(terms.as_bytes())))
    }

    /// Whether "always" stored the entry for more than the approved call. Such an entry does not
    /// cover what the approver did not see: code in arguments, and options that start programs.
    pub(crate) fn is_widened(&self) -> bool {
        let is_open = |args: &Vec<String>| args.iter().any(|argument| argument == ANY_ARGUMENTS);
        self.is_remembered() && self.args.as_ref().is_some_and(is_open)
    }

    /// Whether "always" stored the entry. It then holds the facts of the approved call.
    pub(crate) fn is_remembered(&self) -> bool {
        self.source.as_deref() == Some(ALLOW_ALWAYS)
    }

    /// Whether the entry names a program that is looked up in PATH, and not a file. The lone `*`
    /// names no program.
    pub fn is_for_name(&self) -> bool {
        let pattern = self.pattern.as_str();
        !pattern::is_path_pattern(pattern) && pattern != "*" && !pattern.starts_with('=')
    }

    /// Whether the first start wrote the entry.
    pub fn is_base(&self) -> bool {
        self.source.as_deref() == Some(BASE)
    }

    /// Whether Interlock ships the entry, in the base or in a template. The owner chose the bundle
    /// and not this entry alone.
    pub fn is_shipped(&self) -> bool {
        let source = self.source.as_deref();
        self.is_base() || source.is_some_and(|source| source.starts_with(TEMPLATE_SOURCE))
    }

    /// Whether the entry never matches. A remembered grant without bound arguments would trust
    /// everything that the program can do, and no approver agreed to that.
    pub fn is_inert(&self) -> bool {
        self.is_remembered()
            && self.arg_pattern.is_none()
            && self.args.is_none()
            && command_hash(&self.pattern).is_none()
    }
}

impl DenyRule {
    /// Whether both rules deny the same commands. The reason is not compared.
    pub fn denies_same(&self, other: &Self) -> bool {
        self.pattern == other.pattern
            && self.arg_pattern == other.arg_pattern
            && self.args == other.args
    }

    pub fn check(&self) -> Result<(), EntryError> {
        check_pattern(&self.pattern)?;
        ArgumentRule::parse(self.arg_pattern.as_deref(), self.args.as_deref())?;
        Ok(())
    }
}
