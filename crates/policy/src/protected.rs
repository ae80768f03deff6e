//! Paths that programs execute or obey later, so that changing one amounts to running a program at
//! another time.
//!
//! One table serves `apply_patch` and the sandbox. The table knows only names. The host looks up
//! what names lead to (links, `PATH`, allowlist entries).

mod table;

use std::path::{Component, Path};

pub use table::PROTECTED_PATHS;

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct ProtectedPath {
    pub class: ProtectedClass,
    /// Names that follow each other anywhere in a path, or at its beginning if this starts with
    /// `/`. A final `/` includes everything beneath. `*` stands for any characters of one name.
    pub path: &'static str,
    /// Directories directly beneath that contain ordinary files again, each in a subdirectory of
    /// any name.
    pub except: &'static [&'static str],
    /// What obeys the file and when.
    pub reason: &'static str,
}

/// Directories that a version control system must write to.
const REPOSITORIES: [&str; 5] = [".git", ".hg", ".jj", ".bzr", ".svn"];

/// Files that version control systems obey in the directories that they write to. The paths are
/// relative to the directory above.
pub const IN_REPOSITORY: [(&str, &str); 11] = [
    (".git/hooks", "git runs these hooks"),
    (".git/config", "git obeys it, and it names programs"),
    (
        ".git/config.worktree",
        "git obeys it, and it names programs",
    ),
    (".git/info", "git obeys the attributes in it"),
    (
        ".git/modules",
        "repositories whose config and hooks git obeys",
    ),
    (
        ".git/worktrees",
        "further work trees, whose config git obeys",
    ),
    (
        ".git/commondir",
        "leads git to the config and hooks of another repository",
    ),
    (
        ".git/objects/info/alternates",
        "leads git to the objects of another repository",
    ),
    (".hg/hgrc", "Mercurial runs the hooks it names"),
    (".jj/repo/config.toml", "jj obeys it, and it names programs"),
    (".bzr/branch/branch.conf", "Bazaar obeys it"),
];

/// The kind of a path in the directory of a repository, for a run that may use the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepositoryPath {
    /// The path is in no such directory.
    Outside,
    /// The version control system writes the path: objects, references, the index.
    Ordinary,
    /// A program obeys the path; the text says which one.
    Obeyed(&'static str),
}

impl RepositoryPath {
    /// Classifies a path by its names, however deep the repository lies.
    pub fn of(path: &Path) -> Self {
        let names: Vec<String> = path
            .components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(folded(&name.to_string_lossy())),
                _ => None,
            })
            .collect();
        let Some(first) = names
            .iter()
            .position(|name| REPOSITORIES.contains(&name.as_str()))
        else {
            return Self::Outside;
        };
        let below = &names[first..];
        if below.len() == 1 {
            return Self::Obeyed(
                "it makes a directory a repository, whose config and hooks are obeyed",
            );
        }
        // Git writes this file for clients that read a repository as plain files.
        if below[1..] == ["info", "refs"] {
            return Self::Ordinary;
        }
        for (row, reason) in IN_REPOSITORY {
            let row: Vec<&str> = row.split('/').collect();
            let is_row = below.len() >= row.len() && row.iter().zip(below).all(|(a, b)| a == b);
            if is_row {
                return Self::Obeyed(reason);
            }
        }
        Self::Ordinary
    }
}

/// Groups of protected paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProtectedClass {
    /// Config and hooks of a repository.
    Repository,
    /// Settings of editors, agents and other tools that start programs.
    Settings,
    /// Files that a build service runs.
    Ci,
    /// Shell startup files, login, autostart, credentials.
    Login,
}

impl ProtectedPath {
    /// Returns the row that protects an absolute path.
    ///
    /// Letter case, and characters that some file systems ignore in names, make no difference. On a
    /// file system that distinguishes them, this asks about one file too many; comparing exactly
    /// would let a protected file through on the others.
    pub fn find(path: &Path) -> Option<&'static Self> {
        let names: Vec<String> = path
            .components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(folded(&name.to_string_lossy())),
                _ => None,
            })
            .collect();
        PROTECTED_PATHS.iter().find(|row| row.protects(&names))
    }

    /// Returns the path of the row below a directory, if the row is relative and has no wildcard.
    pub fn below(&self, directory: &Path) -> Option<std::path::PathBuf> {
        let path = self.path.trim_end_matches('/');
        let is_plain = !path.starts_with('/') && !path.contains('*');
        is_plain.then(|| directory.join(path))
    }

    fn protects(&self, names: &[String]) -> bool {
        let holds_beneath = self.path.ends_with('/');
        let wanted: Vec<String> = self
            .path
            .split('/')
            .filter(|name| !name.is_empty())
            .map(folded)
            .collect();
        let starts = match (self.path.starts_with('/'), holds_beneath) {
            (true, _) => 0..1,
            (false, true) => 0..names.len(),
            (false, false) => names.len().saturating_sub(wanted.len())..names.len(),
        };
        starts.into_iter().any(|start| {
            let Some(found) = names.get(start..start + wanted.len()) else {
                return false;
            };
            let rest = &names[start + wanted.len()..];
            let is_here = wanted
                .iter()
                .zip(found)
                .all(|(wanted, name)| is_match(wanted, name));
            // `.claude/worktrees/NAME/FILE` is in a checkout, where the table applies anew.
            let is_excepted = rest.len() > 2 && self.except.contains(&rest[0].as_str());
            is_here && (holds_beneath || rest.is_empty()) && !is_excepted
        })
    }
}

/// Normalizes a name as the most tolerant file system compares it: without case, ignorable
/// characters, and trailing dots, blanks and stream names.
fn folded(name: &str) -> String {
    // Upper case first, so that `ſ` and `ß` become the same as under full case folding.
    let upper: String = name.chars().flat_map(char::to_uppercase).collect();
    let lower = upper.chars().flat_map(char::to_lowercase);
    let lower: String = lower.filter(|letter| !is_ignorable(*letter)).collect();
    let name = lower.split(':').next().unwrap_or_default();
    let name = name.trim_end_matches([' ', '.']);
    // The short name of `.git` on some file systems.
    if name == "git~1" {
        return ".git".to_owned();
    }
    name.to_owned()
}

/// Characters that HFS+ ignores when it compares names.
fn is_ignorable(letter: char) -> bool {
    matches!(letter, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

fn is_match(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => {
            name.len() >= head.len() + tail.len() && name.starts_with(head) && name.ends_with(tail)
        }
    }
}

#[cfg(test)]
mod tests;
