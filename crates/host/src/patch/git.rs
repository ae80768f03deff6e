//! What git obeys besides `.git` itself: repositories that lie elsewhere, and files that a config names.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::guard::Obeyed;

/// Longer configs are not written by people or git.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;
/// Files that include each other.
const MAX_INCLUDES: usize = 10;
/// Directories that are looked at for repositories.
const MAX_DIRECTORIES: usize = 1000;
/// What tools fill: not worth the search.
const OTHERS: [&str; 6] = ["node_modules", "target", ".cache", "proc", "sys", "dev"];

/// What git obeys because of the names in a directory: a repository in it, or the directory being one; in the home
/// directory, the configs for all repositories.
pub(super) fn obeyed_in(directory: &Path, home: Option<&Path>) -> Vec<Obeyed> {
    let mut found = FoundSettings {
        home,
        all: Vec::new(),
    };
    if is_git_directory(directory) {
        found.tree(
            directory,
            "it is a git repository, and git obeys its config and hooks",
        );
        found.git_directory(directory, directory);
    }
    if let Some(git) = git_directory_of(directory) {
        found.tree(
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

/// Directories that hold a repository: the root and those below it, nearest first. In a large tree only the nearest
/// directories are looked at; a repository above a file is found without this.
pub(super) fn repositories_below(root: &Path) -> Vec<PathBuf> {
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
                && !OTHERS.iter().any(|other| name == *other)
            {
                waiting.push_back(entry.path());
            }
        }
    }
    found
}

/// The real path of what `.git` in a directory is or names.
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

/// As git itself recognizes one.
fn is_git_directory(directory: &Path) -> bool {
    let holds = |name: &str| directory.join(name).exists();
    holds("HEAD") && (holds("commondir") || (holds("objects") && holds("refs")))
}

struct FoundSettings<'a> {
    home: Option<&'a Path>,
    all: Vec<Obeyed>,
}

impl FoundSettings<'_> {
    fn tree(&mut self, path: &Path, reason: &str) {
        self.push(path, true, reason.to_owned());
    }

    fn push(&mut self, path: &Path, is_tree: bool, reason: String) {
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        self.all.push(Obeyed {
            path,
            is_tree,
            reason,
        });
    }

    fn git_directory(&mut self, git: &Path, work_tree: &Path) {
        let common = read(&git.join("commondir")).map(|text| git.join(text.trim_end()));
        if let Some(common) = &common {
            self.tree(
                common,
                &format!("the repository of {} leads to it", work_tree.display()),
            );
        }
        for directory in common.iter().map(PathBuf::as_path).chain([git]) {
            for name in ["config", "config.worktree"] {
                self.config(&directory.join(name), work_tree, 0);
            }
        }
    }

    /// Files that a config names: included configs, the directory of hooks, programs.
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
                    self.push(&included, false, reason.clone());
                    self.config(&included, work_tree, depth + 1);
                }
                ("core", "hookspath") => {
                    let hooks = self.resolve(&setting.value, work_tree);
                    self.push(&hooks, true, reason.clone());
                }
                _ => {
                    let words = setting.value.trim_start_matches('!').split_whitespace();
                    for word in words.filter(|word| word.contains('/')) {
                        let named = self.resolve(word, work_tree);
                        if named.is_file() {
                            self.push(&named, false, reason.clone());
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

/// The settings of a config, names in lower case. Quotes are taken away; what is odd gives odd paths, which lead nowhere.
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
    let metadata = std::fs::metadata(path).ok()?;
    if !metadata.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
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
