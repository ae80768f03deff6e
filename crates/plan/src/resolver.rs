//! Lookups in the real file system, as a shell and the kernel make them.

use crate::destination;
use crate::errors::{is_unreachable, reason};
use crate::identity::content_sha256;
use crate::kind::{kind, script_line};
use crate::ownership::{Ownership, visible};
use crate::walk::{PathWalk, file_type, is_same_file, walk};
use crate::{ObeyedKind, git_files, git_settings, glob, paths};
use interlock_programs::{
    Destination, Executable, GitRemotes, GitWorktree, Glob, GlobBudget, GlobError, Lookup, Missing,
    ObeyedName, Resolver,
};
use rustix::fs::{Access, AtFlags, CWD, FileType, Stat};
use rustix::io::Errno;
use std::path::Path;

/// Answers from the file system of this machine, for the effective user of this process.
///
/// The resolver has no state and no cache: each answer is as new as the question, and may be
/// outdated when it is used. Files that run must be opened and compared again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsResolver {
    path: Vec<String>,
    home: Option<String>,
}

impl FsResolver {
    /// Makes a resolver for these directories. Directories that are not absolute are ignored. So is
    /// the empty one, which means the working directory to a shell: a name never means a file that
    /// happens to be there. A home that is not absolute counts as unknown.
    pub fn new(path_directories: impl IntoIterator<Item = String>, home: Option<String>) -> Self {
        Self {
            path: path_directories
                .into_iter()
                .filter(|directory| paths::is_absolute(directory))
                .collect(),
            home: home.filter(|home| paths::is_absolute(home)),
        }
    }

    /// Makes a resolver from the value of the variable `PATH`.
    pub fn from_path_value(value: &str, home: Option<String>) -> Self {
        Self::new(value.split(':').map(str::to_owned), home)
    }

    /// The searched directories, in order.
    pub fn path(&self) -> &[String] {
        &self.path
    }

    /// The owner of the file at an absolute `path`, and why the path is not protected. `None` if it
    /// leads to nothing.
    pub fn ownership(&self, path: &str) -> Option<Ownership> {
        let walk = paths::is_absolute(path).then(|| walk(path).ok())??;
        Some(Ownership {
            owner: walk.stat.st_uid,
            mode: walk.stat.st_mode & 0o7777,
            why_unprotected: walk.weakness.map(|weakness| weakness.describe()),
        })
    }

    /// The first part of `path` that an account other than root could change, such as `/usr/local
    /// is writable by group staff`. `None` only for a protected path: a path that cannot be
    /// followed has a reason too.
    pub fn why_unprotected(&self, path: &str) -> Option<String> {
        let shown = visible(path.as_bytes());
        if !paths::is_absolute(path) {
            return Some(format!("{shown} is not an absolute path"));
        }
        match walk(path) {
            Ok(walk) => walk.weakness.map(|weakness| weakness.describe()),
            Err(error) => Some(format!("{shown} cannot be followed: {}", reason(error))),
        }
    }

    /// Searches PATH like `execvp`: skips everything that is not a regular file, may not be
    /// executed or cannot be reached.
    fn search_path(&self, name: &str) -> Lookup {
        let mut not_executable = None;
        for directory in &self.path {
            let Some(found) = paths::join(directory, name) else {
                break;
            };
            match probe(&found, Want::Executable) {
                Ok(stat) => return describe(found, &stat),
                Err(Probe::Unreachable(_) | Probe::NotAFile) => {}
                Err(Probe::NotExecutable) => {
                    not_executable.get_or_insert(Missing::NotExecutable(found));
                }
                // The name may be in this directory. Using a later one would be a guess.
                Err(Probe::Failed(error)) => return Lookup::Missing(unreadable(found, error)),
            }
        }
        Lookup::Missing(not_executable.unwrap_or(Missing::NotFound))
    }
}

impl Resolver for FsResolver {
    fn executable(&self, name: &str, cwd: &str) -> Lookup {
        if name.contains('/') {
            look_up(name, cwd, Want::Executable)
        } else {
            self.search_path(name)
        }
    }

    fn file(&self, path: &str, cwd: &str) -> Lookup {
        look_up(path, cwd, Want::File)
    }

    fn directory(&self, path: &str, cwd: &str) -> Option<String> {
        let path = paths::join(cwd, path)?;
        let stat = rustix::fs::stat(path.as_str()).ok()?;
        let walk = walk(&path).ok()?;
        let is_directory = file_type(&stat) == FileType::Directory;
        (is_directory && is_same_file(&stat, &walk.stat))
            .then(|| String::from_utf8(walk.canonical).ok())?
    }

    fn glob(
        &self,
        pattern: &Glob,
        cwd: &str,
        budget: &mut GlobBudget,
    ) -> Result<Vec<String>, GlobError> {
        glob::expand(pattern, cwd, budget)
    }

    fn script_line(&self, script: &Executable) -> Option<String> {
        // A line that cannot be read names no interpreter, so nothing can be bound to it.
        Some(script_line(script.canonical.as_bytes()).unwrap_or_default())
    }

    fn content_sha256(&self, file: &Executable) -> Option<String> {
        content_sha256(&file.canonical)
    }

    fn git_remotes(&self, cwd: &str) -> Option<GitRemotes> {
        let home = self.home.as_deref().map(Path::new);
        git_files::remotes(Path::new(cwd), home)
    }

    fn git_worktree(&self, git_file: &str) -> Option<GitWorktree> {
        git_files::worktree(Path::new(git_file))
    }

    fn destination(&self, path: &str, cwd: &str) -> Option<Destination> {
        destination::destination(path, cwd)
    }

    fn git_obeys(&self, directory: &str) -> Vec<ObeyedName> {
        let home = self.home.as_deref().map(Path::new);
        let above = Path::new(directory).ancestors();
        let obeyed = above.chain(home.filter(|home| !Path::new(directory).starts_with(home)));
        let obeyed = obeyed.flat_map(|place| git_settings::git_obeys(place, home));
        let named = obeyed.filter_map(|obeyed| {
            Some(ObeyedName {
                path: obeyed.path.to_str()?.to_owned(),
                is_tree: obeyed.kind != ObeyedKind::File,
                reason: obeyed.reason,
            })
        });
        named.collect()
    }

    fn is_on_path(&self, directory: &str) -> bool {
        let mut directories = self.path.iter();
        directories
            .any(|one| one == directory || self.directory(one, "/").as_deref() == Some(directory))
    }

    fn home(&self) -> Option<String> {
        self.home.clone()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    /// A regular file that the effective user may execute.
    Executable,
    /// A regular file.
    File,
}

/// Why a path is not the requested kind of file.
enum Probe {
    Unreachable(Errno),
    NotAFile,
    NotExecutable,
    Failed(Errno),
}

fn look_up(path: &str, cwd: &str, want: Want) -> Lookup {
    let Some(found) = paths::join(cwd, path) else {
        return Lookup::Missing(Missing::NotFound);
    };
    match probe(&found, want) {
        Ok(stat) => describe(found, &stat),
        Err(Probe::Unreachable(Errno::NOENT | Errno::NOTDIR)) => Lookup::Missing(Missing::NotFound),
        Err(Probe::NotAFile) => Lookup::Missing(Missing::NotAFile(found)),
        Err(Probe::NotExecutable) => Lookup::Missing(Missing::NotExecutable(found)),
        Err(Probe::Unreachable(error) | Probe::Failed(error)) => {
            Lookup::Missing(unreadable(found, error))
        }
    }
}

/// Asks the kernel, which knows capabilities, access control lists and `noexec` mounts. Root may
/// execute a file with any execute bit.
fn probe(found: &str, want: Want) -> Result<Stat, Probe> {
    let stat = rustix::fs::stat(found).map_err(|error| {
        if is_unreachable(error) {
            Probe::Unreachable(error)
        } else {
            Probe::Failed(error)
        }
    })?;
    if file_type(&stat) != FileType::RegularFile {
        return Err(Probe::NotAFile);
    }
    if want == Want::Executable {
        rustix::fs::accessat(CWD, found, Access::EXEC_OK, AtFlags::EACCESS).map_err(|error| {
            match error {
                Errno::ACCESS => Probe::NotExecutable,
                other => Probe::Failed(other),
            }
        })?;
    }
    Ok(stat)
}

/// Describes a found file. `stat` is the kernel's answer for `found`, and this crate's own walk
/// must end at the same file. It does not for the links of `/proc` whose text differs from their
/// target; such a file has no path that could be shown or bound.
fn describe(found: String, stat: &Stat) -> Lookup {
    let PathWalk {
        canonical,
        stat: walked,
        weakness,
        mutable,
        ..
    } = match walk(&found) {
        Ok(walk) => walk,
        Err(error) => return Lookup::Missing(unreadable(found, error)),
    };
    if !is_same_file(stat, &walked) {
        return Lookup::Missing(Missing::Unreadable {
            path: found,
            reason: "its links do not lead to the file that the system opens".to_owned(),
        });
    }
    let kind = kind(&canonical, stat);
    match String::from_utf8(canonical) {
        Ok(canonical) => Lookup::Found(Executable {
            found,
            canonical,
            kind,
            protected: weakness.is_none(),
            mutable,
        }),
        Err(_) => Lookup::Missing(Missing::NotUtf8),
    }
}

fn unreadable(path: String, error: Errno) -> Missing {
    Missing::Unreadable {
        path,
        reason: reason(error),
    }
}
