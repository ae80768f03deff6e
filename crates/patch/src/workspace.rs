//! The workspace of a patch: the caller's options, checked.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::ApplyError;
use crate::paths;
use crate::reserved::{Reserved, ReservedPaths};
use crate::tree::{DirectoryTree, LinkScope};

/// How a patch is applied.
#[derive(Debug, Clone)]
pub struct ApplyOptions {
    /// The workspace, where relative paths of the patch start. It is trusted and may be reached
    /// through links.
    pub root: PathBuf,
    /// Whether the patch may only reach files beneath `root`. `false` lifts the limit.
    pub workspace_only: bool,
    /// A directory for journals and locks, created if it is missing. It may be on another file
    /// system, but only the running user may be able to write it, because a journal says which
    /// files are restored.
    pub journal_dir: PathBuf,
    /// Files and directories that no patch touches, besides the journal directory.
    pub reserved: ReservedPaths,
}

#[derive(Debug)]
pub(crate) struct Workspace {
    /// The real path of the root.
    pub(crate) root: PathBuf,
    /// The root as the caller wrote it, if it is the same directory.
    written: Option<PathBuf>,
    scope: LinkScope,
    reserved: Reserved,
}

impl Workspace {
    pub(crate) fn new(options: &ApplyOptions) -> Result<Self, ApplyError> {
        let shown = options.root.display().to_string();
        let fail = |error| ApplyError::io(shown.clone(), "open the workspace", error);
        let root = fs::canonicalize(&options.root).map_err(fail)?;
        if !root.is_dir() {
            return Err(ApplyError::NotAFile {
                path: shown,
                reason: "the workspace must be a directory",
            });
        }
        let written = std::path::absolute(&options.root)
            .map(|path| paths::absolute(&path, ""))
            .ok();
        let written = written.filter(|path| fs::canonicalize(path).is_ok_and(|real| real == root));
        let mut reserved = options.reserved.clone();
        reserved.directories.push(options.journal_dir.clone());
        let reserved = Reserved::new(&reserved)
            .map_err(|error| ApplyError::io(shown.clone(), "find the reserved files for", error))?;
        Ok(Self {
            root,
            written,
            scope: if options.workspace_only {
                LinkScope::Beneath
            } else {
                LinkScope::Anywhere
            },
            reserved,
        })
    }

    /// Returns the directory that paths in a plan are relative to.
    pub(crate) fn base(&self) -> &Path {
        match self.scope {
            LinkScope::Beneath | LinkScope::WithoutLinks => &self.root,
            LinkScope::Anywhere => Path::new("/"),
        }
    }

    pub(crate) fn scope(&self) -> LinkScope {
        self.scope
    }

    pub(crate) fn tree(&self) -> Result<DirectoryTree, ApplyError> {
        DirectoryTree::open(self.base(), self.scope).map_err(|error| {
            ApplyError::io(self.root.display().to_string(), "open the workspace", error)
        })
    }

    pub(crate) fn reserved(&self) -> &Reserved {
        &self.reserved
    }

    /// Whether a name of the patch means a reserved file, even if it leads out of the workspace.
    pub(crate) fn is_reserved(&self, name: &str) -> bool {
        let path = paths::absolute(&self.root, name);
        self.reserved.holds_path(&path).unwrap_or(true)
    }

    /// Returns a path of the patch relative to the base.
    pub(crate) fn relative(&self, name: &str) -> Result<PathBuf, ApplyError> {
        let roots = [self.written.as_deref(), Some(&*self.root)]
            .into_iter()
            .flatten();
        if self.scope == LinkScope::Anywhere {
            let path = paths::absolute(&self.root, name);
            return Ok(path.strip_prefix("/").unwrap_or(&path).to_owned());
        }
        for root in roots {
            if let Ok(relative) = paths::absolute(root, name).strip_prefix(root) {
                return Ok(relative.to_owned());
            }
        }
        Err(ApplyError::OutsideWorkspace {
            path: name.to_owned(),
            reason: "the path leads out",
        })
    }

    /// Formats a path that is relative to the base: relative to the root if it is inside.
    pub(crate) fn shown(&self, relative: &Path) -> String {
        let absolute = self.base().join(relative);
        absolute
            .strip_prefix(&self.root)
            .unwrap_or(&absolute)
            .display()
            .to_string()
    }
}
