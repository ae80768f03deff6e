//! Protected paths that a run made or changed in a workspace that it may write to. A mount keeps those that
//! exist at the root as they are; new ones, and those of repositories below, cannot be stopped. They are
//! named to the caller and in the audit.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use interlock_plan::{FILLED_BY_TOOLS, SandboxPlan, WorkspaceAccess};
use interlock_policy::{IN_REPOSITORY, ProtectedPath, RepositoryPath};

/// The kernel takes the times of files from a clock that stands still for some milliseconds.
const CLOCK_STEP: Duration = Duration::from_millis(10);

/// The search ends here, nearest directories first, so that a large workspace delays no result.
const MOST_DIRECTORIES: usize = 1_000;
const MOST_TIME: Duration = Duration::from_millis(100);

/// As many paths are named.
const MOST_NAMED: usize = 50;

/// Protected paths with a change since a moment, relative to the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtectedChanges {
    pub paths: Vec<String>,
    /// The workspace was larger than the search, or there are more paths than are named.
    pub is_partial: bool,
}

/// Looks for them after a run. Empty where the run could not write to the workspace itself.
pub fn protected_changes(plan: &SandboxPlan, began: SystemTime) -> ProtectedChanges {
    if plan.workspace_access != WorkspaceAccess::Rw {
        return ProtectedChanges::default();
    }
    let since = began.checked_sub(CLOCK_STEP).unwrap_or(began);
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut search = ChangeSearch {
        root: PathBuf::from(&plan.workspace),
        since: (
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            i64::from(since.subsec_nanos()),
        ),
        until: Instant::now() + MOST_TIME,
        directories: 0,
        found: ProtectedChanges::default(),
    };
    search.look();
    search.found.paths.sort();
    search.found
}

struct ChangeSearch {
    root: PathBuf,
    /// Seconds and nanoseconds.
    since: (i64, i64),
    until: Instant,
    directories: usize,
    found: ProtectedChanges,
}

impl ChangeSearch {
    fn look(&mut self) {
        let mut waiting = VecDeque::from([PathBuf::new()]);
        while let Some(directory) = waiting.pop_front() {
            if !self.may_go_on() {
                return;
            }
            let Ok(entries) = std::fs::read_dir(self.root.join(&directory)) else {
                continue;
            };
            for entry in entries.flatten() {
                let path = directory.join(entry.file_name());
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_directory && RepositoryPath::of(&path) != RepositoryPath::Outside {
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

    /// Of a directory that a version control system writes to, what is obeyed.
    fn repository(&mut self, directory: &Path, repository: &Path) {
        for (row, _) in IN_REPOSITORY {
            let path = directory.join(row);
            if path.starts_with(repository) {
                self.name_if_changed(&path);
            }
        }
    }

    fn name_if_changed(&mut self, path: &Path) {
        if !self.is_changed(&self.root.join(path)) {
            return;
        }
        if self.found.paths.len() < MOST_NAMED {
            self.found.paths.push(path.display().to_string());
        } else {
            self.found.is_partial = true;
        }
    }

    /// Whether it, or something in it, has changed. No link is followed.
    fn is_changed(&mut self, path: &Path) -> bool {
        let mut waiting = vec![path.to_owned()];
        while let Some(next) = waiting.pop() {
            let Ok(found) = std::fs::symlink_metadata(&next) else {
                continue;
            };
            // A reader that keeps plain files for old servers writes this one.
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
        self.found.is_partial |= !may;
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(root: &Path, since: (i64, i64)) -> ProtectedChanges {
        let mut search = ChangeSearch {
            root: root.to_owned(),
            since,
            until: Instant::now() + Duration::from_mins(1),
            directories: 0,
            found: ProtectedChanges::default(),
        };
        search.look();
        search.found.paths.sort();
        search.found
    }

    #[test]
    fn changes_since_a_moment_are_named_up_to_a_bound() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for path in [
            ".vscode/tasks.json",
            "a/.git/hooks/pre-commit",
            "a/.git/info/refs",
            "a/.git/objects/x",
            "node_modules/x/.envrc",
            "plain",
        ] {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let found = search(root, (0, 0));
        assert_eq!(found.paths, [".vscode", "a/.git/hooks"]);
        assert!(!found.is_partial);
        assert_eq!(search(root, (i64::MAX, 0)).paths, Vec::<String>::new());
        for number in 0..MOST_DIRECTORIES {
            std::fs::create_dir(root.join(format!("d{number}"))).unwrap();
        }
        assert!(search(root, (i64::MAX, 0)).is_partial);
    }
}
