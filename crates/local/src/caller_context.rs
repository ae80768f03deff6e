//! The context of a calling program: its workspace and its PATH. The owner started that program, so
//! both come from the owner's environment. No argument of a call may set them.

use std::path::{Path, PathBuf};

use interlock_approvals::StoredCaller;
use serde::{Deserialize, Serialize};

use crate::workspace::is_too_wide;

/// How many directories a caller may name. Further ones are ignored.
const MAX_DIRECTORIES: usize = 16;

/// The longest PATH that is accepted.
const MAX_PATH_BYTES: usize = 64 * 1024;

/// The context of a calling program. If it is empty, the service's PATH and the agent's configured
/// workspace are used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CallerContext {
    /// The PATH of the calling program, in its order.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The directories of the workspace, as canonical paths. Calls start in the first one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    workspace: Vec<PathBuf>,
}

/// The context of a caller that sends none.
pub static NO_CALLER_CONTEXT: CallerContext = CallerContext {
    path: None,
    workspace: Vec::new(),
};

impl CallerContext {
    /// The context of a program that the owner started on this machine. `/` and directories that
    /// contain the home directory must not be a workspace: everything of the owner would be the
    /// agent's.
    pub fn of_program(path: Option<String>, directories: &[PathBuf], home: Option<&Path>) -> Self {
        let workspace = directories
            .iter()
            .filter_map(|directory| std::fs::canonicalize(directory).ok())
            .filter(|directory| directory.is_dir() && !is_too_wide(directory, home))
            .take(MAX_DIRECTORIES)
            .collect();
        let path = path.filter(|path| path.len() <= MAX_PATH_BYTES && !path.contains('\0'));
        Self { path, workspace }
    }

    /// The context of a remote program, or of a program that the owner did not start. It may only
    /// choose directories beneath the configured workspace.
    pub fn within(workspace: &Path, directories: &[PathBuf]) -> Self {
        let Ok(workspace) = std::fs::canonicalize(workspace) else {
            return Self::default();
        };
        let chosen = directories
            .iter()
            .filter_map(|directory| std::fs::canonicalize(directory).ok())
            .filter(|directory| directory.is_dir() && directory.starts_with(&workspace))
            .take(MAX_DIRECTORIES)
            .collect();
        Self {
            path: None,
            workspace: chosen,
        }
    }

    /// The form that an approval stores, for a run that starts after its caller has ended.
    pub fn to_stored(&self) -> StoredCaller {
        StoredCaller {
            path: self.path.clone(),
            workspace: self.workspace.clone(),
        }
    }

    /// The PATH of the calling program.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// The directories of the workspace. If there are none, the agent's configured workspace is
    /// used.
    pub fn workspace(&self) -> &[PathBuf] {
        &self.workspace
    }
}

impl From<StoredCaller> for CallerContext {
    fn from(stored: StoredCaller) -> Self {
        Self {
            path: stored.path,
            workspace: stored.workspace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_is_a_directory_that_holds_no_home() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let (home, project) = (root.join("home/ada"), root.join("home/ada/project"));
        std::fs::create_dir_all(&project).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink(&home, root.join("link")).unwrap();
        let named = [
            PathBuf::from("/"),
            root.clone(),
            root.join("home"),
            home.clone(),
            root.join("link"),
            root.join("file"),
            root.join("missing"),
            root.join("link/project"),
        ];
        let context = CallerContext::of_program(None, &named, Some(&home));
        assert_eq!(context.workspace(), [project]);
    }

    #[test]
    fn a_caller_from_elsewhere_stays_within_the_configured_workspace() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let workspace = root.join("w");
        std::fs::create_dir_all(workspace.join("inner")).unwrap();
        std::fs::create_dir_all(root.join("outside")).unwrap();
        std::os::unix::fs::symlink(root.join("outside"), workspace.join("link")).unwrap();
        let named = [
            PathBuf::from("/"),
            root.clone(),
            root.join("outside"),
            workspace.join("link"),
            workspace.join("inner/../../outside"),
            workspace.join("inner"),
        ];
        let context = CallerContext::within(&workspace, &named);
        assert_eq!(context.workspace(), [workspace.join("inner")]);
        assert_eq!(context.path(), None);
    }
}
