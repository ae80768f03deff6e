//! Finds protected paths that a run created or changed in a workspace that it may write to. A mount
//! protects those that exist at the root; new ones, and those of repositories below, cannot be
//! prevented. The result and the audit name them.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use interlock_plan::{FILLED_BY_TOOLS, SandboxPlan, WorkspaceAccess};
use interlock_policy::{IN_REPOSITORY, ProtectedPath, RepositoryPath};

/// The kernel takes file times from a clock that stands still for some milliseconds.
const CLOCK_STEP: Duration = Duration::from_millis(10);

/// Limits of the search, which visits the nearest directories first, so that a large workspace
/// delays no result.
const MOST_DIRECTORIES: usize = 1_000;
const MOST_TIME: Duration = Duration::from_millis(100);

/// Most paths that are named.
const MOST_NAMED: usize = 50;

/// The workspace of a run that writes to it directly.
#[derive(Debug)]
pub(super) struct WrittenWorkspace {
    root: PathBuf,
    /// Additional paths that the owner protects, relative to the workspace.
    protect: Vec<PathBuf>,
    began: SystemTime,
}

impl WrittenWorkspace {
    /// Makes the value right before the run starts. `None` for a run that cannot write to its
    /// workspace, or changes a layer.
    pub fn of(sandbox: Option<&SandboxPlan>) -> Option<Self> {
        let sandbox = sandbox.filter(|own| own.workspace_access == WorkspaceAccess::Rw)?;
        Some(Self {
            root: PathBuf::from(&sandbox.workspace),
            protect: sandbox.protect.iter().map(PathBuf::from).collect(),
            began: SystemTime::now(),
        })
    }

    /// Returns the protected paths that were created or changed since, relative to the workspace
    /// and sorted. The last entry may say that there are more, or that the search was incomplete.
    pub fn changed(&self) -> Vec<String> {
        let since = self.began.checked_sub(CLOCK_STEP).unwrap_or(self.began);
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut search = ChangeSearch {
            workspace: self,
            since: (
                i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                i64::from(since.subsec_nanos()),
            ),
            until: Instant::now() + MOST_TIME,
            directories: 0,
            found: Vec::new(),
            left_out: 0,
            is_partial: false,
        };
        search.look();
        let mut named = search.found;
        named.sort();
        if search.left_out > 0 {
            named.push(format!("(and {} more)", search.left_out));
        }
        // An incomplete search is not worth reporting if it found nothing.
        if search.is_partial && !named.is_empty() {
            named.push("(the workspace is too large to be looked at whole)".to_owned());
        }
        named
    }
}

struct ChangeSearch<'a> {
    workspace: &'a WrittenWorkspace,
    /// The start time, in seconds and nanoseconds.
    since: (i64, i64),
    until: Instant,
    directories: usize,
    found: Vec<String>,
    left_out: usize,
    is_partial: bool,
}

impl ChangeSearch<'_> {
    fn look(&mut self) {
        let mut waiting = VecDeque::from([PathBuf::new()]);
        while let Some(directory) = waiting.pop_front() {
            if !self.may_go_on() {
                return;
            }
            let Ok(entries) = std::fs::read_dir(self.workspace.root.join(&directory)) else {
                continue;
            };
            for entry in entries.flatten() {
                let path = directory.join(entry.file_name());
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if self.workspace.protect.contains(&path) {
                    self.name_if_changed(&path);
                } else if is_directory && RepositoryPath::of(&path) != RepositoryPath::Outside {
                    self.repository(&directory, &path);
                } else if ProtectedPath::find(&Path::new("/").join(&path)).is_some() {
                    self.name_if_changed(&path);
                } else if is_directory
                    && !FILLED_BY_TOOLS
                        .iter()
                        .any(|name| entry.file_name() == *name)
                {
                    waiting.push_back(path);
                }
            }
        }
    }

    /// Checks, in a directory that a version control system writes to, the files that it obeys.
    fn repository(&mut self, directory: &Path, repository: &Path) {
        for (row, _) in IN_REPOSITORY {
            let path = directory.join(row);
            if path.starts_with(repository) {
                self.name_if_changed(&path);
            }
        }
    }

    fn name_if_changed(&mut self, path: &Path) {
        if !self.is_changed(&self.workspace.root.join(path)) {
            return;
        }
        if self.found.len() < MOST_NAMED {
            self.found.push(path.display().to_string());
        } else {
            self.left_out += 1;
        }
    }

    /// Whether the path, or anything in it, has changed. No link is followed.
    fn is_changed(&mut self, path: &Path) -> bool {
        let mut waiting = vec![path.to_owned()];
        while let Some(next) = waiting.pop() {
            let Ok(found) = std::fs::symlink_metadata(&next) else {
                continue;
            };
            // A program that keeps plain files for old servers writes this file.
            let is_ordinary = RepositoryPath::of(&next) == RepositoryPath::Ordinary;
            if !is_ordinary && !found.is_dir() && (found.ctime(), found.ctime_nsec()) >= self.since
            {
                return true;
            }
            if found.is_dir() {
                if !self.may_go_on() {
                    return false;
                }
                let entries = std::fs::read_dir(&next).into_iter().flatten().flatten();
                waiting.extend(entries.map(|entry| entry.path()));
            }
        }
        false
    }

    fn may_go_on(&mut self) -> bool {
        self.directories += 1;
        let may = self.directories <= MOST_DIRECTORIES && Instant::now() < self.until;
        self.is_partial |= !may;
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_protected_paths_that_are_new_are_named() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        };
        write("old/.vscode/tasks.json");
        write("old/.git/config");
        std::thread::sleep(Duration::from_millis(50));
        let workspace = WrittenWorkspace {
            root: root.path().to_owned(),
            protect: vec![PathBuf::from("infra/deploy")],
            began: SystemTime::now(),
        };
        assert!(workspace.changed().is_empty(), "{:?}", workspace.changed());
        write("plain.txt");
        write("old/.git/index");
        write("old/.git/objects/aa/bb");
        assert!(workspace.changed().is_empty(), "{:?}", workspace.changed());
        write("a/b/.envrc");
        write("new/.vscode/settings.json");
        write("old/.git/hooks/pre-commit");
        write("infra/deploy/run.sh");
        std::os::unix::fs::symlink("/etc", root.path().join(".claude")).unwrap();
        let named = workspace.changed();
        assert_eq!(
            named,
            [
                ".claude",
                "a/b/.envrc",
                "infra/deploy",
                "new/.vscode",
                "old/.git/hooks"
            ]
        );
        // An old file that is written over.
        write("old/.vscode/tasks.json");
        let named = workspace.changed();
        assert!(named.contains(&"old/.vscode".to_owned()), "{named:?}");
        for number in 0..60 {
            write(&format!("m{number}/.envrc"));
        }
        let named = workspace.changed();
        assert_eq!(named.len(), MOST_NAMED + 1);
        assert!(named.last().unwrap().starts_with("(and "), "{named:?}");
    }
}
