//! Protected paths that appeared in a workspace while a run could write to it. Under `rw` no mount can stop
//! what does not exist yet, so that result and audit name it.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use interlock_plan::{SandboxPlan, WorkspaceAccess};
use interlock_policy::{ProtectedPath, RepositoryPath};

/// The look at the end of a run takes no longer, and sees no more; what is near the root is seen first.
const MOST_TIME: Duration = Duration::from_millis(200);
const MOST_ENTRIES: usize = 50_000;

/// So many are named.
const MOST_NAMED: usize = 20;

/// The clock of file times goes in steps.
const STEP_NS: i128 = 10_000_000;

/// The workspace of a run that writes to it directly.
#[derive(Debug)]
pub(super) struct WrittenWorkspace {
    root: PathBuf,
    /// What the owner protects besides, relative to it.
    protect: Vec<PathBuf>,
    since_ns: i128,
}

impl WrittenWorkspace {
    /// Right before the run starts. `None` of one that cannot write to its workspace, or changes a layer.
    pub fn of(sandbox: Option<&SandboxPlan>) -> Option<Self> {
        let sandbox = sandbox.filter(|own| own.workspace_access == WorkspaceAccess::Rw)?;
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .ok()?;
        Some(Self {
            root: PathBuf::from(&sandbox.workspace),
            protect: sandbox.protect.iter().map(PathBuf::from).collect(),
            since_ns: i128::try_from(now.as_nanos()).ok()? - STEP_NS,
        })
    }

    /// The protected paths that were made or changed since, relative to the workspace, sorted. A last one
    /// says that more are there, or that not all was looked at.
    pub fn changed(&self) -> Vec<String> {
        let (begun, mut entries) = (Instant::now(), 0);
        let mut named: Vec<String> = Vec::new();
        let mut left_out = 0_usize;
        let mut is_whole = true;
        let mut open = VecDeque::from([PathBuf::new()]);
        'walk: while let Some(directory) = open.pop_front() {
            let read = std::fs::read_dir(self.root.join(&directory));
            for entry in read.into_iter().flatten().flatten() {
                entries += 1;
                if entries > MOST_ENTRIES || begun.elapsed() > MOST_TIME {
                    is_whole = false;
                    break 'walk;
                }
                let path = directory.join(entry.file_name());
                // Links are not followed.
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if self.is_protected(&path, is_directory) && self.is_new(&path) {
                    if named.len() < MOST_NAMED {
                        named.push(path.display().to_string());
                    } else {
                        left_out += 1;
                    }
                    // All below it is what it is.
                    continue;
                }
                if is_directory && !is_store_of_objects(&path) {
                    open.push_back(path);
                }
            }
        }
        named.sort();
        if left_out > 0 {
            named.push(format!("(and {left_out} more)"));
        }
        if !is_whole {
            named.push("(the workspace is too large to be looked at whole)".to_owned());
        }
        named
    }

    fn is_protected(&self, path: &Path, is_directory: bool) -> bool {
        if self.protect.iter().any(|own| path.starts_with(own)) {
            return true;
        }
        match RepositoryPath::of(path) {
            // What makes a directory a repository is looked into; a file in its place leads elsewhere.
            RepositoryPath::Obeyed(_) if is_repository(path) => !is_directory,
            RepositoryPath::Obeyed(_) => true,
            RepositoryPath::Ordinary => false,
            RepositoryPath::Outside => ProtectedPath::find(&Path::new("/").join(path)).is_some(),
        }
    }

    fn is_new(&self, path: &Path) -> bool {
        let found = std::fs::symlink_metadata(self.root.join(path));
        found.is_ok_and(|found| {
            let changed =
                i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec());
            changed >= self.since_ns
        })
    }
}

fn is_repository(path: &Path) -> bool {
    let parent = path.parent().unwrap_or(Path::new(""));
    matches!(RepositoryPath::of(parent), RepositoryPath::Outside)
}

/// Large, and obeyed by nothing.
fn is_store_of_objects(path: &Path) -> bool {
    path.ends_with(".git/objects") || path.ends_with(".git/lfs")
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
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let workspace = WrittenWorkspace {
            root: root.path().to_owned(),
            protect: vec![PathBuf::from("infra/deploy")],
            since_ns: i128::try_from(now.unwrap().as_nanos()).unwrap() - STEP_NS,
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
        assert!(
            named.contains(&"old/.vscode/tasks.json".to_owned()),
            "{named:?}"
        );
        for number in 0..30 {
            write(&format!("m{number}/.envrc"));
        }
        let named = workspace.changed();
        assert_eq!(named.len(), MOST_NAMED + 1);
        assert!(named.last().unwrap().starts_with("(and "), "{named:?}");
    }
}
