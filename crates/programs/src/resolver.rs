//! The questions that text alone cannot answer: which file a name means, what a glob expands to,
//! where the home directory is. `plan` answers them from the file system, [`crate::VirtualHost`]
//! from a table.

use serde::Serialize;

use crate::GitRemotes;

/// Answers questions about one execution host. Implementations must report what they do not know. A
/// missing answer never counts as permission.
pub trait Resolver: Sync {
    /// Looks up the program that `name` starts: a bare name in PATH, a name with a slash relative
    /// to `cwd`. Only an executable regular file counts as found.
    fn executable(&self, name: &str, cwd: &str) -> Lookup;

    /// Looks up a file operand such as the script of `bash FILE`: a regular file, not necessarily
    /// executable.
    fn file(&self, path: &str, cwd: &str) -> Lookup;

    /// Returns the canonical path of a directory, or `None` if there is no such directory.
    fn directory(&self, path: &str, cwd: &str) -> Option<String>;

    /// Returns the paths that `pattern` expands to, sorted by bytes, or none if nothing matches.
    /// The cost is charged to the budget of the whole line.
    fn glob(
        &self,
        pattern: &Glob,
        cwd: &str,
        budget: &mut GlobBudget,
    ) -> Result<Vec<String>, GlobError>;

    /// Returns the text after `#!` in the first line of a script, without surrounding blanks.
    /// Returns `None` if there is no such line or it is unknown; then the interpreter is unknown
    /// too.
    fn script_line(&self, _script: &Executable) -> Option<String> {
        None
    }

    /// Returns the SHA-256 of a found file's content, in lower-case hexadecimal. Returns `None` if
    /// the content is unknown, cannot be read completely or is too large; then nothing may be
    /// trusted by content.
    fn content_sha256(&self, _file: &Executable) -> Option<String> {
        None
    }

    /// Returns the remotes of the repository that git finds from `cwd`, or `None` if they are
    /// unknown.
    fn git_remotes(&self, _cwd: &str) -> Option<GitRemotes> {
        None
    }

    /// Returns the linked worktree whose `.git` file has this absolute path. Returns `None` if
    /// there is none, or if file and repository do not name each other; then the file may lead
    /// anywhere.
    fn git_worktree(&self, _git_file: &str) -> Option<GitWorktree> {
        None
    }

    /// Returns where a path leads through every link, whether or not its end exists. Returns `None`
    /// if the path cannot be followed; then it counts as leading anywhere.
    fn destination(&self, _path: &str, _cwd: &str) -> Option<Destination> {
        None
    }

    /// Returns what git obeys because a config names it: a config of the repositories at and above
    /// an absolute directory, or of the user. Empty if unknown.
    fn git_obeys(&self, _directory: &str) -> Vec<ObeyedName> {
        Vec::new()
    }

    /// Whether programs in this canonical directory can be started by their names alone.
    fn is_on_path(&self, _directory: &str) -> bool {
        false
    }

    /// Returns the home directory of the user that runs commands.
    fn home(&self) -> Option<String>;
}

/// The result of a lookup.
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
    /// The absolute path as found: the PATH directory or `cwd` joined with the name. The file
    /// system resolves `.` and `..`.
    pub found: String,
    /// The absolute path with every symbolic link resolved.
    pub canonical: String,
    pub kind: FileKind,
    /// Whether root owns, and only root can write, every directory and link on the way from `/` to
    /// the file, and the file itself. Only then may the path as found be trusted.
    pub protected: bool,
    /// Whether the user that would run the file could change its content (always true for root).
    pub mutable: bool,
}

/// A linked worktree of a git repository. Its `.git` file and the repository name each other, so
/// that neither was created without the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitWorktree {
    /// The canonical path of git's data for the worktree: `REPOSITORY/.git/worktrees/NAME`.
    pub directory: String,
    /// The canonical path of `REPOSITORY/.git`.
    pub repository: String,
}

/// A file or directory that git obeys because settings name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObeyedName {
    /// The path, which is canonical if it exists.
    pub path: String,
    /// Whether git also obeys everything beneath it.
    pub is_tree: bool,
    pub reason: String,
}

/// The end of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The path joined with the working directory, as requested.
    pub found: String,
    /// The absolute path with every symbolic link resolved. If the end does not exist, the rest of
    /// the path follows the last existing directory as written.
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

/// The kind of a file by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// ELF, Mach-O or PE/COFF.
    Native,
    /// The file starts with `#!`.
    Script,
    /// Anything else; a shell would read it as a script.
    Unknown,
}

/// Why a lookup found nothing that can run.
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

/// One element of a glob after quote removal. Quoted characters are literals here.
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

/// A word with unquoted `*`, `?` or `[…]`. A literal `/` separates components. Only a literal dot
/// matches a leading dot in a file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    pub tokens: Vec<GlobToken>,
}

/// The most paths that the globs of a line may produce together.
pub const MAX_GLOB_PATHS: usize = 4096;

/// The most names that the globs of a line may examine together. `*/*/*/x` can produce one path and
/// still walk a whole disk.
pub const MAX_GLOB_NAMES: usize = 1 << 16;

/// The most bytes of the paths that the globs of a line lead through together.
pub const MAX_GLOB_BYTES: usize = 16 << 20;

/// The remaining budget for the globs of one line, including all words and nested texts.
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
    /// Charges one more path that a glob produces.
    pub fn take_path(&mut self) -> Result<(), GlobError> {
        take(&mut self.paths, 1)
    }

    /// Charges one more name of a directory that is examined.
    pub fn take_name(&mut self) -> Result<(), GlobError> {
        take(&mut self.names, 1)
    }

    /// Charges this many more bytes of paths in memory.
    pub fn take_bytes(&mut self, bytes: usize) -> Result<(), GlobError> {
        take(&mut self.bytes, bytes)
    }
}

fn take(left: &mut usize, wanted: usize) -> Result<(), GlobError> {
    *left = left.checked_sub(wanted).ok_or(GlobError::TooMany)?;
    Ok(())
}

/// Why a glob could not be expanded. The line is then not plain.
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
