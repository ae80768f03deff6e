//! Determines which files of a patch are executed or obeyed later. The policy's table decides by
//! file names; this module looks up what names lead to: links, directories on `PATH`, repositories,
//! allowlist entries, grants.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use interlock_patch::FileChange;
use interlock_plan::{ObeyedKind, ObeyedPath, git_obeys, repositories_below};
use interlock_policy::{AgentId, PROTECTED_PATHS, ProtectedPath};

use crate::named::{NamedFiles, is_executable};
use interlock_local::CallerContext;
use interlock_local::{HostError, LocalState};

/// Everything that protects files from the patches of one agent in one workspace.
#[derive(Debug)]
pub struct PatchGuard {
    home: Option<PathBuf>,
    root: PathBuf,
    /// The real paths of the directories on `PATH`.
    path_directories: Vec<PathBuf>,
    named: NamedFiles,
    /// The targets of links in `PATH` directories. They are read when a program is changed.
    linked_programs: OnceCell<HashSet<PathBuf>>,
    /// Directories below the root that contain a repository, whose config may name files elsewhere.
    repositories: OnceCell<Vec<PathBuf>>,
    /// For each directory, the paths that are obeyed because of names in it.
    obeyed: RefCell<HashMap<PathBuf, Rc<Vec<ObeyedPath>>>>,
}

/// The agent whose changes are judged, and where.
#[derive(Debug, Clone, Copy)]
pub struct GuardedPlace<'a> {
    pub agent: &'a AgentId,
    pub caller: &'a CallerContext,
    pub root: &'a Path,
}

impl PatchGuard {
    pub fn load(local: &LocalState, place: GuardedPlace<'_>) -> Result<Self, HostError> {
        let root = place.root;
        let path = local.scope(place.agent)?.path(place.caller);
        let directories = path.split(':').map(|directory| root.join(directory));
        let mut path_directories: Vec<PathBuf> = directories
            .flat_map(|directory| [fs::canonicalize(&directory).ok(), Some(directory)])
            .flatten()
            .collect();
        path_directories.dedup();
        Ok(Self {
            home: local.home().map(PathBuf::from),
            root: fs::canonicalize(root).unwrap_or_else(|_| root.to_owned()),
            path_directories,
            named: NamedFiles::load(local)?,
            linked_programs: OnceCell::new(),
            repositories: OnceCell::new(),
            obeyed: RefCell::default(),
        })
    }

    /// Returns why a change of this file needs an approver, if it does.
    pub fn reason(&self, change: &FileChange) -> Option<String> {
        let path = &change.path;
        if let Some(row) = ProtectedPath::find(path) {
            return Some(row.reason.to_owned());
        }
        let parent = path.parent().unwrap_or(Path::new("/"));
        if self
            .path_directories
            .iter()
            .any(|directory| directory == parent)
        {
            return Some(format!(
                "{} is on PATH, and programs are started from it",
                parent.display()
            ));
        }
        if is_executable(change) && self.linked_programs().contains(path) {
            return Some("a link on PATH leads to it".to_owned());
        }
        let home = self.home.as_deref().and_then(Path::to_str);
        if let Some(reason) = self.named.reason(change, &self.root, home) {
            return Some(reason);
        }
        let repositories = self
            .repositories
            .get_or_init(|| repositories_below(&self.root));
        let own = [Some(&*self.root), self.home.as_deref()];
        let beside = repositories.iter().map(PathBuf::as_path);
        let beside = beside.chain(own.into_iter().flatten());
        path.ancestors()
            .skip(1)
            .chain(beside)
            .find_map(|directory| {
                let obeyed = self.obeyed_in(directory);
                let found = obeyed.iter().find(|obeyed| obeyed.holds(path));
                found.map(|obeyed| obeyed.reason.clone())
            })
    }

    /// Returns the paths elsewhere that are obeyed because of the names in a directory.
    fn obeyed_in(&self, directory: &Path) -> Rc<Vec<ObeyedPath>> {
        if let Some(known) = self.obeyed.borrow().get(directory) {
            return Rc::clone(known);
        }
        let mut obeyed = git_obeys(directory, self.home.as_deref());
        for row in PROTECTED_PATHS {
            let Some(named) = row.below(directory) else {
                continue;
            };
            let first = named.strip_prefix(directory).ok();
            let first = first.and_then(|rest| rest.components().next());
            let is_there =
                first.is_some_and(|first| directory.join(first).symlink_metadata().is_ok());
            if !is_there {
                continue;
            }
            match fs::canonicalize(&named) {
                Ok(real) if real != named => obeyed.push(ObeyedPath {
                    path: real,
                    kind: if row.path.ends_with('/') {
                        ObeyedKind::Tree
                    } else {
                        ObeyedKind::File
                    },
                    reason: format!("{} leads to it: {}", named.display(), row.reason),
                }),
                _ => {}
            }
        }
        let obeyed = Rc::new(obeyed);
        let known = Rc::clone(&obeyed);
        self.obeyed.borrow_mut().insert(directory.to_owned(), known);
        obeyed
    }

    fn linked_programs(&self) -> &HashSet<PathBuf> {
        self.linked_programs.get_or_init(|| {
            let directories = self.path_directories.iter();
            let entries = directories.filter_map(|directory| fs::read_dir(directory).ok());
            let links = entries.flatten().flatten().filter(|entry| {
                let kind = entry.file_type();
                kind.is_ok_and(|kind| kind.is_symlink())
            });
            links
                .filter_map(|link| fs::canonicalize(link.path()).ok())
                .collect()
        })
    }
}
