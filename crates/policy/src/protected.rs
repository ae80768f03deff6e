//! Paths that are executed or obeyed later: to change one is to run something, at another time.
//!
//! One table serves `apply_patch` and the sandbox. It is about names only; what names lead to (links, `PATH`,
//! allowlist entries) is looked up by the host.

mod table;

use std::path::{Component, Path};

pub use table::PROTECTED_PATHS;

/// A row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct ProtectedPath {
    pub class: ProtectedClass,
    /// Names that follow each other anywhere in a path; from its beginning where it starts with `/`. With a `/` at its
    /// end everything beneath is meant too. `*` stands for any characters of one name.
    pub path: &'static str,
    /// Directories directly beneath that hold ordinary files again, each with a directory of any name in it.
    pub except: &'static [&'static str],
    /// What obeys the file, and when.
    pub reason: &'static str,
}

/// Directories that a version control system has to write to, by their names.
const REPOSITORIES: [&str; 5] = [".git", ".hg", ".jj", ".bzr", ".svn"];

/// What version control systems obey in the directories that they write to: names below the directory
/// that holds them.
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

/// What a path in the directory of a repository is, for a run that may use the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepositoryPath {
    /// It is in no such directory.
    Outside,
    /// The version control system writes it: objects, references, the index.
    Ordinary,
    /// It is obeyed; the text says by what.
    Obeyed(&'static str),
}

impl RepositoryPath {
    /// Looks at the names of a path, however deep the repository lies.
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
        // Written for clients that read a repository as plain files.
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

/// What a protected path is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProtectedClass {
    /// Config and hooks of a repository.
    Repository,
    /// Settings of editors, agents and other tools that start programs.
    Settings,
    /// What a build service runs.
    Ci,
    /// Shell start-up files, login, autostart, credentials.
    Login,
}

impl ProtectedPath {
    /// The row that protects an absolute path.
    ///
    /// Letter case and what some file systems ignore in a name make no difference: a file system that minds them is
    /// asked about one file too many, the other way round one would run.
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

    /// The path of the row below a directory, where it is not absolute and stands for one name.
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
            // `.claude/worktrees/NAME/FILE`: a checkout, in which the table begins anew.
            let is_excepted = rest.len() > 2 && self.except.contains(&rest[0].as_str());
            is_here && (holds_beneath || rest.is_empty()) && !is_excepted
        })
    }
}

/// A name as the most forgiving file system compares it: without case, ignorable characters, and dots, blanks and
/// stream names at its end.
fn folded(name: &str) -> String {
    // In two steps, so that `ſ` and `ß` become what full case folding makes of them.
    let upper: String = name.chars().flat_map(char::to_uppercase).collect();
    let lower = upper.chars().flat_map(char::to_lowercase);
    let lower: String = lower.filter(|letter| !is_ignorable(*letter)).collect();
    let name = lower.split(':').next().unwrap_or_default();
    let name = name.trim_end_matches([' ', '.']);
    // The short name that some file systems give it.
    if name == "git~1" {
        return ".git".to_owned();
    }
    name.to_owned()
}

/// Characters that HFS+ leaves out when it compares names.
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
