//! The questions that text alone cannot answer: which file is that name, what does that glob
//! expand to, where is home. `plan` answers them from the file system, [`crate::VirtualHost`]
//! from a table.

use serde::Serialize;

use crate::GitRemotes;

/// Answers questions about one execution host. Implementations must be honest about what they
/// do not know: absence of an answer is never read as permission.
pub trait Resolver: Sync {
    /// The program that `name` starts: a bare name through PATH, a name with a slash against
    /// `cwd`. Only a regular file that may be executed counts as found.
    fn executable(&self, name: &str, cwd: &str) -> Lookup;

    /// A file operand such as the script of `bash FILE`: a regular file, not necessarily executable.
    fn file(&self, path: &str, cwd: &str) -> Lookup;

    /// The canonical path of a directory, or `None` if there is no such directory.
    fn directory(&self, path: &str, cwd: &str) -> Option<String>;

    /// The paths that `pattern` expands to, sorted by bytes; empty when nothing matches. What it
    /// costs is taken from the budget, which is the one of the whole line.
    fn glob(
        &self,
        pattern: &Glob,
        cwd: &str,
        budget: &mut GlobBudget,
    ) -> Result<Vec<String>, GlobError>;

    /// What stands behind `#!` in the first line of a script, without blanks around it. `None`
    /// when there is no such line or it is not known: then nothing can be said about what runs it.
    fn script_line(&self, _script: &Executable) -> Option<String> {
        None
    }

    /// SHA-256 of the content of a file that was found, in lower-case hexadecimal. `None` when it
    /// is not known, cannot be read whole or is too large: nothing may be trusted by content then.
    fn content_sha256(&self, _file: &Executable) -> Option<String> {
        None
    }

    /// The remotes of the repository that git finds from `cwd`. `None` when they are not known.
    fn git_remotes(&self, _cwd: &str) -> Option<GitRemotes> {
        None
    }

    /// The linked worktree whose `.git` file this is, an absolute path. `None` when it is none, or when file and
    /// repository do not name each other: then the file may lead anywhere.
    fn git_worktree(&self, _git_file: &str) -> Option<GitWorktree> {
        None
    }

    /// Where a path leads through every link, whether or not there is something at its end. `None`
    /// when it cannot be followed: then it counts as leading anywhere.
    fn destination(&self, _path: &str, _cwd: &str) -> Option<Destination> {
        None
    }

    /// What git obeys because a config of the repositories at and above an absolute directory, or of the user, names
    /// it. Empty when it is not known.
    fn git_obeys(&self, _directory: &str) -> Vec<ObeyedName> {
        Vec::new()
    }

    /// Whether programs are started from this canonical directory by their names alone.
    fn is_on_path(&self, _directory: &str) -> bool {
        false
    }

    /// The home directory of the user that runs commands.
    fn home(&self) -> Option<String>;
}

/// The answer of a look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    Found(Executable),
    Missing(Missing),
}

impl Lookup {
    pub fn found(&self) -> Option<&Executable> {
        match self {
            Self::Found(executable) => Some(executable),
            Self::Missing(_) => None,
        }
    }
}

/// A file on the host, with what the judge needs to know about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Executable {
    /// Absolute path as found: the PATH directory or `cwd` joined with the name, `.` and `..`
    /// left to the file system.
    pub found: String,
    /// Absolute path with every symbolic link resolved.
    pub canonical: String,
    pub kind: FileKind,
    /// Every directory and every link on the way from `/` to the file, and the file itself, is
    /// owned by root and writable by root only. Only then may the path as found be trusted.
    pub protected: bool,
    /// The user that would run it could change its content (always true for root).
    pub mutable: bool,
}

/// A linked worktree of a git repository. Its `.git` file and the repository name each other, so that neither was
/// made without the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitWorktree {
    /// The canonical path of what git keeps for the worktree: `REPOSITORY/.git/worktrees/NAME`.
    pub directory: String,
    /// The canonical path of `REPOSITORY/.git`.
    pub repository: String,
}

/// A file or directory that is obeyed because settings name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObeyedName {
    /// Canonical, where something is there.
    pub path: String,
    /// Everything beneath it is obeyed too.
    pub is_tree: bool,
    pub reason: String,
}

/// The end of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The path against the working directory, as it was asked about.
    pub found: String,
    /// Absolute, with every symbolic link resolved. Where nothing is there, the rest of the path as it
    /// is written stands behind the last directory that is.
    pub canonical: String,
    pub kind: DestinationKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DestinationKind {
    Missing,
    Directory,
    /// A file of any other type.
    File,
}

/// What the first bytes of a file say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// ELF, Mach-O or PE/COFF.
    Native,
    /// Starts with `#!`.
    Script,
    /// Anything else: a shell would read it as a script.
    Unknown,
}

/// Why a look-up found nothing that can run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    #[error("not found")]
    NotFound,
    #[error("{0} is not executable")]
    NotExecutable(String),
    #[error("{0} is not a regular file")]
    NotAFile(String),
    #[error("{path} cannot be read: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("the path is not valid UTF-8")]
    NotUtf8,
}

/// One element of a glob, after quote removal: what was quoted is a literal here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GlobToken {
    Literal(char),
    /// `*`: any run of characters within one path component.
    Star,
    /// `?`: one character, never `/`.
    Any,
    /// `[…]`: one character out of the inclusive ranges, or none of them.
    Set {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

/// A word with unquoted `*`, `?` or `[…]`. A literal `/` separates components; a leading dot in
/// a file name is matched only by a literal dot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    pub tokens: Vec<GlobToken>,
}

/// The globs of a line together give at most this many paths.
pub const MAX_GLOB_PATHS: usize = 4096;

/// The globs of a line together look at this many names. `*/*/*/x` can give one path and still
/// walk a whole disk.
pub const MAX_GLOB_NAMES: usize = 1 << 16;

/// The paths that the globs of a line lead through have this many bytes together.
pub const MAX_GLOB_BYTES: usize = 16 << 20;

/// What the globs of one line may still cost, all words and nested texts together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobBudget {
    paths: usize,
    names: usize,
    bytes: usize,
}

impl Default for GlobBudget {
    fn default() -> Self {
        Self {
            paths: MAX_GLOB_PATHS,
            names: MAX_GLOB_NAMES,
            bytes: MAX_GLOB_BYTES,
        }
    }
}

impl GlobBudget {
    /// One more path that a glob gives.
    pub fn take_path(&mut self) -> Result<(), GlobError> {
        take(&mut self.paths, 1)
    }

    /// One more name of a directory that is looked at.
    pub fn take_name(&mut self) -> Result<(), GlobError> {
        take(&mut self.names, 1)
    }

    /// So many more bytes of paths that are held.
    pub fn take_bytes(&mut self, bytes: usize) -> Result<(), GlobError> {
        take(&mut self.bytes, bytes)
    }
}

fn take(left: &mut usize, wanted: usize) -> Result<(), GlobError> {
    *left = left.checked_sub(wanted).ok_or(GlobError::TooMany)?;
    Ok(())
}

/// Why a glob could not be expanded; the line is then not plain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// The budget of the line is used up.
    #[error("the globs of the line lead to more than {MAX_GLOB_PATHS} paths")]
    TooMany,
    #[error("a file name is not valid UTF-8")]
    NotUtf8,
    #[error("{path} cannot be read: {reason}")]
    Unreadable { path: String, reason: String },
}
