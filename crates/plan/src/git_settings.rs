//! What git obeys besides `.git` itself: repositories elsewhere, and files that a config names.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// A path that is obeyed because another path refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObeyedPath {
    pub path: PathBuf,
    pub kind: ObeyedKind,
    pub reason: String,
}

/// Which part of an obeyed path is obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObeyedKind {
    File,
    /// Everything beneath the path.
    Tree,
    /// Everything beneath the path, by a tool that also stores its data there. A run that may use
    /// the repository can write to it, except to the obeyed files.
    Repository,
}

impl ObeyedPath {
    pub fn holds(&self, path: &Path) -> bool {
        path == self.path || (self.kind != ObeyedKind::File && path.starts_with(&self.path))
    }
}

/// Neither people nor git write longer configs.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;
/// The depth of files that include each other.
const MAX_INCLUDES: usize = 10;
/// How many directories are searched for repositories.
const MAX_DIRECTORIES: usize = 1000;
/// Directories that tools fill, which are not worth a search.
pub const FILLED_BY_TOOLS: [&str; 6] = ["node_modules", "target", ".cache", "proc", "sys", "dev"];

/// The paths that git obeys because of a directory: the repository in it, or the directory itself
/// if it is one. For the home directory, also the configs for all repositories.
pub fn git_obeys(directory: &Path, home: Option<&Path>) -> Vec<ObeyedPath> {
    let mut found = FoundSettings {
        home,
        all: Vec::new(),
    };
    if is_git_directory(directory) {
        found.repository(
            directory,
            "it is a git repository, and git obeys its config and hooks",
        );
        found.git_directory(directory, directory);
    }
    if let Some(git) = git_directory_of(directory) {
        found.repository(
            &git,
            &format!("{} leads to it", directory.join(".git").display()),
        );
        found.git_directory(&git, directory);
    }
    if home == Some(directory) {
        for name in [".gitconfig", ".config/git/config"] {
            found.config(&directory.join(name), directory, 0);
        }
    }
    found.all
}

/// The directories that contain a repository: `root` and those below it, nearest first. In a large
/// tree only the nearest directories are searched. A repository above a file is found in another
/// way.
pub fn repositories_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([root.to_owned()]);
    let mut seen = 0;
    while let Some(directory) = waiting.pop_front() {
        seen += 1;
        if seen > MAX_DIRECTORIES {
            break;
        }
        let Ok(entries) = std::fs::read_dir(&directory) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if name.eq_ignore_ascii_case(".git") {
                found.push(directory.clone());
            } else if is_directory
                && waiting.len() < MAX_DIRECTORIES
                && !FILLED_BY_TOOLS.iter().any(|other| name == *other)
            {
                waiting.push_back(entry.path());
            }
        }
    }
    found
}

/// The real path of the directory that `.git` is or names.
fn git_directory_of(directory: &Path) -> Option<PathBuf> {
    let git = directory.join(".git");
    let metadata = std::fs::metadata(&git).ok()?;
    if metadata.is_dir() {
        return std::fs::canonicalize(git).ok();
    }
    let text = read(&git)?;
    let named = text.strip_prefix("gitdir:")?.trim();
    std::fs::canonicalize(directory.join(named)).ok()
}

/// The target of a path, even if nothing exists there: a file that appears there is obeyed.
fn real_path(path: &Path) -> PathBuf {
    if let Ok(real) = std::fs::canonicalize(path) {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => real_path(parent).join(name),
        _ => path.to_owned(),
    }
}

/// Recognizes a git directory as git itself does.
fn is_git_directory(directory: &Path) -> bool {
    let holds = |name: &str| directory.join(name).exists();
    holds("HEAD") && (holds("commondir") || (holds("objects") && holds("refs")))
}

struct FoundSettings<'a> {
    home: Option<&'a Path>,
    all: Vec<ObeyedPath>,
}

impl FoundSettings<'_> {
    fn repository(&mut self, path: &Path, reason: &str) {
        self.push(path, ObeyedKind::Repository, reason.to_owned());
    }

    fn push(&mut self, path: &Path, kind: ObeyedKind, reason: String) {
        let path = real_path(path);
        self.all.push(ObeyedPath { path, kind, reason });
    }

    fn git_directory(&mut self, git: &Path, work_tree: &Path) {
        let common = read(&git.join("commondir")).map(|text| git.join(text.trim_end()));
        if let Some(common) = &common {
            self.repository(
                common,
                &format!("the repository of {} leads to it", work_tree.display()),
            );
        }
        for directory in common.iter().map(PathBuf::as_path).chain([git]) {
            self.led_to(directory);
            for name in ["config", "config.worktree"] {
                self.config(&directory.join(name), work_tree, 0);
            }
        }
    }

    /// Adds targets outside of the git directory to which its links lead.
    fn led_to(&mut self, git: &Path) {
        let links = [
            ("hooks", ObeyedKind::Tree),
            ("info", ObeyedKind::Tree),
            ("config", ObeyedKind::File),
            ("config.worktree", ObeyedKind::File),
        ];
        for (name, kind) in links {
            let link = git.join(name);
            let real = std::fs::canonicalize(&link).ok();
            if let Some(real) = real.filter(|real| !real.starts_with(git)) {
                let reason = format!("{} leads to it, and git obeys it", link.display());
                self.push(&real, kind, reason);
            }
        }
    }

    /// Adds the files that a config names: included configs, the directory of hooks, programs.
    fn config(&mut self, path: &Path, work_tree: &Path, depth: usize) {
        let Some(text) = read(path).filter(|_| depth < MAX_INCLUDES) else {
            return;
        };
        let reason = format!("the git config {} names it", path.display());
        for setting in settings(&text) {
            match (setting.section.as_str(), setting.key.as_str()) {
                ("include" | "includeif", "path") => {
                    let beside = path.parent().unwrap_or(Path::new("/"));
                    let included = self.resolve(&setting.value, beside);
                    self.push(&included, ObeyedKind::File, reason.clone());
                    self.config(&included, work_tree, depth + 1);
                }
                ("core", "hookspath") => {
                    let hooks = self.resolve(&setting.value, work_tree);
                    self.push(&hooks, ObeyedKind::Tree, reason.clone());
                }
                _ => {
                    let words = setting.value.trim_start_matches('!').split_whitespace();
                    for word in words.filter(|word| word.contains('/')) {
                        let named = self.resolve(word, work_tree);
                        if named.is_file() {
                            self.push(&named, ObeyedKind::File, reason.clone());
                        }
                    }
                }
            }
        }
    }

    fn resolve(&self, value: &str, base: &Path) -> PathBuf {
        match (value.strip_prefix("~/"), self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => base.join(value),
        }
    }
}

struct Setting {
    section: String,
    key: String,
    value: String,
}

/// The settings of a config, with names in lower case. Quotes are removed. Malformed settings yield
/// paths that lead nowhere.
fn settings(text: &str) -> Vec<Setting> {
    let mut found = Vec::new();
    let mut section = String::new();
    for line in text.replace("\\\n", "").lines() {
        let mut line = line.trim();
        if let Some((name, rest)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            let name = name.split([' ', '\t', '"', '.']).next();
            section = name.unwrap_or_default().to_lowercase();
            line = rest.trim();
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let value = value.trim();
        let value = match value.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().unwrap_or_default(),
            None => value
                .split([';', '#'])
                .next()
                .unwrap_or_default()
                .trim_end(),
        };
        found.push(Setting {
            section: section.clone(),
            key: key.trim().to_lowercase(),
            value: value.to_owned(),
        });
    }
    found
}

fn read(path: &Path) -> Option<String> {
    // The named file may be a pipe that a run left there: opening it must not wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_CONFIG_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_git_writes_them() {
        let text = "[core]\n\thooksPath = \"my hooks\" ; x\n[include \"x\"] path = ../a\n\
                    [includeIf \"gitdir:~/w/\"]\n path = b # c\n[alias]\n\tx = !tools/x.sh \\\n y\n";
        let found: Vec<(String, String, String)> = settings(text)
            .into_iter()
            .map(|one| (one.section, one.key, one.value))
            .collect();
        let expected = [
            ("core", "hookspath", "my hooks"),
            ("include", "path", "../a"),
            ("includeif", "path", "b"),
            ("alias", "x", "!tools/x.sh  y"),
        ];
        let expected: Vec<(String, String, String)> = expected
            .iter()
            .map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned()))
            .collect();
        assert_eq!(found, expected);
    }
}
