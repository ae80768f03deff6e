//! The guards of a view: covers over paths that no run may see, and mounts that keep files which
//! other programs obey from being changed, renamed or replaced.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use interlock_plan::{MountAccess, ObeyedKind, SandboxMount, WorkspaceAccess, git_obeys};
use interlock_policy::{IN_REPOSITORY, PROTECTED_PATHS, ProtectedPath};

use super::{Builder, below, real};
use crate::hidden::{credentials_in, hidden_paths};

impl Builder<'_> {
    /// Covers hidden paths and holds protected ones, wherever a mount shows them.
    pub(super) fn guards(&mut self) {
        let mut guards: BTreeMap<String, Guard> = BTreeMap::new();
        for (path, reason) in self.hidden() {
            self.guard(&path, &Guard::Covered(reason), &mut guards);
        }
        for (path, reason) in self.protected() {
            self.guard(&path, &Guard::ReadOnly(reason), &mut guards);
        }
        for (target, guard) in guards {
            self.mounts.push(match guard {
                Guard::Held => SandboxMount::Hold {
                    target,
                    access: MountAccess::Rw,
                    reason: "holds what is protected or hidden below it".to_owned(),
                },
                Guard::ReadOnly(reason) => SandboxMount::Hold {
                    target,
                    access: MountAccess::Ro,
                    reason,
                },
                Guard::Covered(reason) => SandboxMount::Cover { target, reason },
            });
        }
    }

    /// Guards one path of the host at every place where a mount shows it.
    fn guard(&self, path: &Path, guard: &Guard, guards: &mut BTreeMap<String, Guard>) {
        let Some(path) = path.to_str() else { return };
        for (index, mount) in self.mounts.iter().enumerate() {
            let Some((source, access)) = mount.shown_source() else {
                continue;
            };
            let target = mount.target();
            let Some(rest) = below(source, path).filter(|rest| !rest.is_empty()) else {
                continue;
            };
            if matches!(guard, Guard::ReadOnly(_)) && access == MountAccess::Ro {
                continue;
            }
            let place = format!("{target}{rest}");
            if self.shown_by(&place) != Some(index) {
                continue;
            }
            put(guards, place.clone(), guard.clone());
            // Otherwise a run could rename a directory above, together with the guarded path.
            if access == MountAccess::Rw {
                let mut above = place.as_str();
                while let Some((parent, _)) = above.rsplit_once('/') {
                    if parent.len() <= target.len() {
                        break;
                    }
                    put(guards, parent.to_owned(), Guard::Held);
                    above = parent;
                }
            }
        }
    }

    /// Returns the mount that shows a path, which is the last fitting one: a later mount covers
    /// earlier ones, even those further below.
    pub(super) fn shown_by(&self, path: &str) -> Option<usize> {
        let is_fitting = |mount: &SandboxMount| below(mount.target(), path).is_some();
        self.mounts.iter().rposition(is_fitting)
    }

    pub(super) fn hidden(&self) -> Vec<(PathBuf, String)> {
        let mut hidden: Vec<(PathBuf, String)> = hidden_paths(Some(&self.home))
            .into_iter()
            .map(|(path, reason)| (path, reason.to_owned()))
            .collect();
        // A workspace may be in a hidden directory, because the owner chose it.
        hidden.retain(|(path, _)| !self.workspace.starts_with(path));
        let own = self.request.own_paths.iter().map(PathBuf::as_path);
        let roots = self.other_roots.iter().map(PathBuf::as_path);
        for path in own.chain([self.request.state_dir]).chain(roots) {
            hidden.push((real(path), "Interlock itself".to_owned()));
        }
        for mount in &self.mounts {
            if let SandboxMount::Cache { source, .. } = mount {
                let credentials = credentials_in(Path::new(source)).into_iter();
                hidden.extend(credentials.map(|path| (path, "credentials in a cache".to_owned())));
            }
        }
        // A row may be a link whose target is shown elsewhere, and the target may be mounted twice.
        let links: Vec<(PathBuf, String)> = hidden
            .iter()
            .map(|(path, reason)| (real(path), reason.clone()))
            .filter(|(real, _)| !self.workspace.starts_with(real))
            .collect();
        hidden.extend(links);
        let others: Vec<(PathBuf, String)> = hidden
            .iter()
            .filter(|(path, _)| path.exists())
            .flat_map(|(path, reason)| {
                let others = self.host_mounts.other_paths(path);
                others.into_iter().map(|other| (other, reason.clone()))
            })
            .filter(|(other, _)| !self.workspace.starts_with(other))
            .collect();
        hidden.extend(others);
        hidden
    }

    /// Returns the additional paths that the owner protects, if changes are committed or named.
    /// Each is a plain path below the workspace.
    pub(super) fn protect_on_commit(&self) -> Vec<String> {
        if !matches!(self.access, WorkspaceAccess::Cow | WorkspaceAccess::Rw) {
            return Vec::new();
        }
        let listed = self.request.settings.protect.iter().flatten();
        let mut protect: Vec<String> = listed.cloned().collect();
        protect.sort();
        protect.dedup();
        protect
    }

    /// Returns the protected paths that exist at the root of the workspace.
    pub(super) fn protected(&self) -> Vec<(PathBuf, String)> {
        if self.access != WorkspaceAccess::Rw {
            return Vec::new();
        }
        let root = &self.workspace;
        let mut found: Vec<(PathBuf, String)> = Vec::new();
        for row in PROTECTED_PATHS {
            if let Some(path) = row.below(root)
                && !is_repository(&path)
            {
                found.push((path, row.reason.to_owned()));
            }
        }
        for (path, reason) in IN_REPOSITORY {
            found.push((root.join(path), reason.to_owned()));
        }
        for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let path = root.join(&name);
            if let Some(row) = ProtectedPath::find(&Path::new("/").join(&name))
                && !is_repository(&path)
            {
                found.push((path, row.reason.to_owned()));
            }
        }
        let git = root.join(".git");
        if git.is_file() {
            found.push((git, "names the repository, whose hooks git runs".to_owned()));
        }
        for path in self.request.settings.protect.iter().flatten() {
            found.push((root.join(path), "sandbox.protect".to_owned()));
        }
        // A repository can lead elsewhere: to a git directory, or to hooks and configs that a
        // config names.
        for obeyed in git_obeys(root, Some(&self.home)) {
            if obeyed.kind == ObeyedKind::Repository {
                let rows = IN_REPOSITORY.iter();
                let below =
                    rows.filter_map(|(row, reason)| Some((row.strip_prefix(".git/")?, reason)));
                for (name, reason) in below {
                    found.push((obeyed.path.join(name), (*reason).to_owned()));
                }
            } else {
                found.push((obeyed.path, obeyed.reason));
            }
        }
        // These paths are in few directories, so plain ones are remembered.
        let mut plain = HashSet::new();
        let held = found.iter().flat_map(|(path, reason)| {
            let steps = links_and_end(path, &mut plain).into_iter();
            steps.map(|step| (step, reason.clone()))
        });
        held.collect()
    }
}

/// Most links that are followed, which is the kernel's limit too.
const MOST_LINKS: usize = 40;

/// Returns every link on the way to a path, and the path that it leads to, if that exists. Each
/// must stay in place: otherwise a run could put another link, or a directory of its own, there.
/// `plain` remembers paths that are known to be no links, so that each is examined only once.
fn links_and_end(path: &Path, plain: &mut HashSet<PathBuf>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut at = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = names_of(path);
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        if plain.contains(&next) {
            at = next;
            continue;
        }
        match std::fs::symlink_metadata(&next) {
            Err(_) => return found,
            Ok(metadata) if metadata.is_symlink() => {
                found.push(next.clone());
                let Ok(to) = std::fs::read_link(&next) else {
                    return found;
                };
                if found.len() > MOST_LINKS {
                    return found;
                }
                if to.is_absolute() {
                    at = PathBuf::from("/");
                }
                for name in names_of(&to).into_iter().rev() {
                    rest.push_front(name);
                }
            }
            Ok(_) => {
                plain.insert(next.clone());
                at = next;
            }
        }
    }
    found.push(at);
    found
}

/// Returns the components of a path, including `..`.
fn names_of(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some(OsString::from("..")),
            _ => None,
        })
        .collect()
}

/// Whether this is a directory that a version control system has to write to. The files in it that
/// it obeys are held individually.
fn is_repository(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let is_known = name.is_some_and(|name| {
        [".git", ".hg", ".jj", ".bzr", ".svn"]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known))
    });
    is_known && path.is_dir()
}

/// How a path is guarded, weakest first.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Guard {
    /// The path is a mount of its own and cannot be renamed.
    Held,
    ReadOnly(String),
    Covered(String),
}

impl Guard {
    fn strength(&self) -> u8 {
        match self {
            Self::Held => 0,
            Self::ReadOnly(_) => 1,
            Self::Covered(_) => 2,
        }
    }
}

/// Adds a guard. The strongest guard of a path counts.
fn put(guards: &mut BTreeMap<String, Guard>, place: String, guard: Guard) {
    match guards.get(&place) {
        Some(before) if before.strength() >= guard.strength() => {}
        _ => {
            guards.insert(place, guard);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn links_on_the_way_are_found_with_their_end() {
        use std::os::unix::fs::symlink;
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("store/git/hooks")).unwrap();
        symlink("store/git", root.join(".git")).unwrap();
        symlink("../../nowhere", root.join("store/dangling")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let plain = RefCell::default();
        let found = |path: &str| links_and_end(&root.join(path), &mut plain.borrow_mut());
        assert_eq!(
            found(".git/hooks"),
            [root.join(".git"), root.join("store/git/hooks")]
        );
        assert_eq!(found("store/git"), [root.join("store/git")]);
        assert_eq!(found("store/dangling"), [root.join("store/dangling")]);
        assert_eq!(found("missing/x"), Vec::<PathBuf>::new());
        assert!(found("loop").len() <= MOST_LINKS + 1);
    }
}
