//! Files that no patch may touch, whatever their names. They are identified by device and inode.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags};

use crate::found::{FoundEntry, FoundKind};
use crate::tree::{Directory, DirectoryId, DirectoryTree, LinkScope};

/// The most links in a row before a path counts as endless.
const MAX_LINKS: usize = 40;
/// The most entries of reserved directories. A larger inventory is refused, not cut.
const MAX_INVENTORY: usize = 1_000_000;

/// The caller's own files, which a patch must never create, change, move or delete.
///
/// The paths need not exist yet. They are reserved under every root and scope: through links, hard
/// links, other mounts and other spellings of a name.
#[derive(Debug, Clone, Default)]
pub struct ReservedPaths {
    /// Directories, with everything beneath them.
    pub directories: Vec<PathBuf>,
    pub files: Vec<PathBuf>,
}

/// The reserved paths, resolved to files.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    trees: Vec<ReservedTree>,
    files: HashSet<DirectoryId>,
    /// Names in directories: those of the paths themselves and of every link on the way to them. A
    /// name covers a file that does not exist yet, and a link that a patch could otherwise replace.
    names: Vec<(DirectoryId, OsString)>,
    /// Directories that were checked before.
    known: RefCell<HashMap<DirectoryId, bool>>,
    inventory: OnceCell<HashSet<DirectoryId>>,
}

#[derive(Debug)]
struct ReservedTree {
    path: PathBuf,
    id: DirectoryId,
    mount: Option<u64>,
}

impl Reserved {
    pub(crate) fn new(paths: &ReservedPaths) -> io::Result<Self> {
        let mut reserved = Self::default();
        for path in &paths.directories {
            if let Some(real) = reserved.add_names(path)? {
                let metadata = fs::metadata(&real)?;
                let mount = DirectoryTree::open(&real, LinkScope::Anywhere)
                    .and_then(|mut tree| tree.directory(Path::new("")).map_err(io::Error::other))
                    .ok()
                    .and_then(|directory| mount(&directory, OsStr::new("")));
                reserved.trees.push(ReservedTree {
                    id: identity(&metadata),
                    mount,
                    path: real,
                });
            }
        }
        for path in &paths.files {
            if let Some(real) = reserved.add_names(path)? {
                reserved.files.insert(identity(&fs::metadata(&real)?));
            }
        }
        Ok(reserved)
    }

    /// Records the names on the way to `path`, and returns where it leads if anything exists there.
    fn add_names(&mut self, path: &Path) -> io::Result<Option<PathBuf>> {
        let mut rest: Vec<OsString> = components(&std::path::absolute(path)?);
        let mut current = PathBuf::from("/");
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == ".." {
                current.pop();
                continue;
            }
            let parent = identity(&fs::metadata(&current)?);
            let next = current.join(&name);
            let found = match fs::symlink_metadata(&next) {
                Ok(found) => found,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.names.push((parent, name));
                    return Ok(None);
                }
                Err(error) => return Err(error),
            };
            if found.is_symlink() {
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::other("too many links"));
                }
                self.names.push((parent, name));
                let target = fs::read_link(&next)?;
                if target.is_absolute() {
                    current = PathBuf::from("/");
                }
                rest.extend(components(&target));
                continue;
            }
            if rest.is_empty() {
                self.names.push((parent, name));
            }
            current = next;
        }
        Ok(Some(current))
    }

    /// Whether `name` in `directory` is reserved: by itself, by a directory above it, or as another
    /// name of a reserved file. `found` is what exists under the name.
    pub(crate) fn holds(
        &self,
        directory: &Directory,
        name: &OsStr,
        found: Option<&FoundEntry>,
    ) -> io::Result<bool> {
        let names_it = |(parent, reserved): &(DirectoryId, OsString)| {
            *parent == directory.id() && is_same_name(reserved, name)
        };
        if self.names.iter().any(names_it) || self.is_beneath(directory)? {
            return Ok(true);
        }
        let Some(found) = found.filter(|found| found.kind != FoundKind::Link) else {
            return Ok(false);
        };
        let id = found.id();
        if self.files.contains(&id) || self.trees.iter().any(|tree| tree.id == id) {
            return Ok(true);
        }
        let may_have_other_names = found.links > 1 || self.is_other_mount(directory, name, id);
        Ok(may_have_other_names && self.shares_device(id) && self.inventory()?.contains(&id))
    }

    /// Like [`Self::holds`], for an absolute path that is not open yet.
    pub(crate) fn holds_path(&self, path: &Path) -> io::Result<bool> {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let Some(name) = path.file_name() else {
            return Ok(false);
        };
        let parent = path.parent().unwrap_or(Path::new("/"));
        let relative = parent.strip_prefix("/").unwrap_or(parent);
        let mut tree = DirectoryTree::open(Path::new("/"), LinkScope::Anywhere)?;
        let Ok((directory, _, missing)) = tree.deepest(relative) else {
            return Ok(false);
        };
        match missing.components().next() {
            Some(first) => self.holds(&directory, first.as_os_str(), None),
            None => {
                let found = crate::found::find(&directory, name)?;
                self.holds(&directory, name, found.as_ref())
            }
        }
    }

    fn is_beneath(&self, directory: &Directory) -> io::Result<bool> {
        if self.trees.is_empty() {
            return Ok(false);
        }
        if let Some(known) = self.known.borrow().get(&directory.id()) {
            return Ok(*known);
        }
        let mut above = vec![directory.id()];
        let mut is_beneath = self.trees.iter().any(|tree| tree.id == directory.id());
        let mut current = directory.parent()?;
        while !is_beneath && above.last() != Some(&current.id()) {
            is_beneath = self.trees.iter().any(|tree| tree.id == current.id());
            above.push(current.id());
            current = current.parent()?;
        }
        // A mount of a part of a reserved directory has no parent in that directory.
        if !is_beneath
            && above.iter().any(|id| self.shares_device(*id))
            && self.is_other_mount(directory, OsStr::new(""), directory.id())
        {
            let inventory = self.inventory()?;
            is_beneath = above.iter().any(|id| inventory.contains(id));
        }
        self.known.borrow_mut().insert(directory.id(), is_beneath);
        Ok(is_beneath)
    }

    fn shares_device(&self, id: DirectoryId) -> bool {
        self.trees.iter().any(|tree| tree.id.device == id.device)
    }

    /// Whether the name is reached through another mount of a reserved directory's device. If the
    /// kernel does not say, the answer is yes.
    fn is_other_mount(&self, directory: &Directory, name: &OsStr, id: DirectoryId) -> bool {
        let mut same_device = self.trees.iter().filter(|tree| tree.id.device == id.device);
        let mount = mount(directory, name);
        same_device.any(|tree| mount.is_none() || tree.mount != mount)
    }

    /// Returns everything beneath the reserved directories. It is read only if a file may have a
    /// second name.
    fn inventory(&self) -> io::Result<&HashSet<DirectoryId>> {
        if let Some(inventory) = self.inventory.get() {
            return Ok(inventory);
        }
        let mut inventory = HashSet::new();
        let mut open: Vec<PathBuf> = self.trees.iter().map(|tree| tree.path.clone()).collect();
        while let Some(next) = open.pop() {
            // Entries that disappear meanwhile, and directories that this user cannot read, have no
            // names that this user could have added.
            let Ok(entries) = fs::read_dir(&next) else {
                continue;
            };
            for entry in entries.flatten() {
                let Ok(metadata) = entry.metadata() else {
                    continue;
                };
                inventory.insert(identity(&metadata));
                if inventory.len() > MAX_INVENTORY {
                    return Err(io::Error::other("a reserved directory has too many files"));
                }
                if metadata.is_dir() {
                    open.push(entry.path());
                }
            }
        }
        Ok(self.inventory.get_or_init(|| inventory))
    }
}

/// Returns the components in reverse order, for a stack.
fn components(path: &Path) -> Vec<OsString> {
    let parts = path.components().rev();
    let kept = parts.filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    kept.map(|part| part.as_os_str().to_owned()).collect()
}

fn identity(metadata: &fs::Metadata) -> DirectoryId {
    DirectoryId {
        device: metadata.dev(),
        inode: metadata.ino(),
    }
}

/// Whether the names are equal. Case is ignored, because a file system may ignore it.
fn is_same_name(one: &OsStr, other: &OsStr) -> bool {
    let lower = |name: &OsStr| name.to_string_lossy().to_lowercase();
    one == other || lower(one) == lower(other)
}

/// Returns the mount through which a name is reached, or the directory itself if the name is empty.
fn mount(directory: &Directory, name: &OsStr) -> Option<u64> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let stat = rustix::fs::statx(directory, name, flags, StatxFlags::MNT_ID).ok()?;
    let is_told = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    is_told.then_some(stat.stx_mnt_id)
}
