//! The directories that a patch may reach, held by descriptors.
//!
//! Every file operation is relative to a descriptor that was resolved beneath the base. If a
//! directory is swapped for a link meanwhile, nothing changes: the descriptor still refers to the
//! directory that was checked.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Whether links may lead out of the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum LinkScope {
    /// Nothing outside of the base is reached, whatever links say.
    Beneath,
    /// The base is `/`, and links are followed.
    Anywhere,
    /// No link is followed, and no other file system is entered.
    WithoutLinks,
}

/// How paths are resolved beneath the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BeneathResolver {
    /// `openat2(RESOLVE_BENEATH)`: links that stay inside are followed.
    Kernel,
    /// One component after the other and without links, for kernels that lack `openat2`.
    Steps,
}

/// A directory tree below a base directory. Its methods take relative paths without `.` and `..`.
#[derive(Debug)]
pub(crate) struct DirectoryTree {
    base: OwnedFd,
    scope: LinkScope,
    resolver: BeneathResolver,
    open: HashMap<PathBuf, Rc<Directory>>,
    /// The identity of each path when it was first opened. It must stay the same.
    known: HashMap<PathBuf, DirectoryId>,
}

/// An open directory.
#[derive(Debug)]
pub(crate) struct Directory {
    descriptor: OwnedFd,
    id: DirectoryId,
}

/// The identity of a directory or file, independent of its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct DirectoryId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ResolveError {
    #[error("no such directory")]
    Missing,
    #[error("a link leads out of it")]
    Outside,
    #[error("a part of the path is not a directory")]
    NotADirectory,
    #[error("a directory was replaced meanwhile")]
    Replaced,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The most descriptors that stay open, well below the usual limit of a process.
const MAX_OPEN: usize = 256;
/// How often resolution is retried if the kernel reports that a rename raced with it.
const MAX_TRIES: usize = 64;

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl DirectoryTree {
    /// Opens the tree below `base`, which is trusted and may be reached through links.
    pub(crate) fn open(base: &Path, scope: LinkScope) -> io::Result<Self> {
        let base = rustix::fs::openat(CWD, base, DIRECTORY, Mode::empty())?;
        Ok(Self {
            base,
            scope,
            resolver: BeneathResolver::Kernel,
            open: HashMap::new(),
            known: HashMap::new(),
        })
    }

    #[cfg(test)]
    pub(crate) fn without_openat2(mut self) -> Self {
        self.resolver = BeneathResolver::Steps;
        self
    }

    pub(crate) fn scope(&self) -> LinkScope {
        self.scope
    }

    /// Returns the directory at `path`, or the base itself for an empty path.
    pub(crate) fn directory(&mut self, path: &Path) -> Result<Rc<Directory>, ResolveError> {
        if let Some(directory) = self.open.get(path) {
            return Ok(Rc::clone(directory));
        }
        let directory = Rc::new(Directory::new(self.resolve(path)?)?);
        let known = *self.known.entry(path.to_owned()).or_insert(directory.id);
        if known != directory.id {
            return Err(ResolveError::Replaced);
        }
        self.keep(path, Rc::clone(&directory));
        Ok(directory)
    }

    /// Creates the directory `path` in its parent and keeps it open, so that later uses do not look
    /// the path up again.
    pub(crate) fn make_directory(&mut self, path: &Path) -> Result<(), ResolveError> {
        let parent = self.directory(path.parent().unwrap_or(Path::new("")))?;
        let name = path.file_name().unwrap_or_default();
        match rustix::fs::mkdirat(&*parent, name, Mode::from_raw_mode(0o777)) {
            // Another process created the directory meanwhile. A link in its place is not followed.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let made = rustix::fs::openat(&*parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        let made = Rc::new(Directory::new(made)?);
        self.known.insert(path.to_owned(), made.id);
        self.keep(path, made);
        Ok(())
    }

    fn keep(&mut self, path: &Path, directory: Rc<Directory>) {
        if self.open.len() >= MAX_OPEN {
            self.open.clear();
        }
        self.open.insert(path.to_owned(), directory);
    }

    /// Returns the deepest existing directory on the way to `path`, and the missing components.
    pub(crate) fn deepest(
        &mut self,
        path: &Path,
    ) -> Result<(Rc<Directory>, PathBuf, PathBuf), ResolveError> {
        let mut existing = path;
        loop {
            match self.directory(existing) {
                Ok(directory) => {
                    let missing = path.strip_prefix(existing).unwrap_or(path).to_owned();
                    if let Some(Component::Normal(first)) = missing.components().next()
                        && directory.stat(first)?.is_some()
                    {
                        // The name exists but leads nowhere: it is a link without a target.
                        return Err(ResolveError::Outside);
                    }
                    return Ok((directory, existing.to_owned(), missing));
                }
                Err(ResolveError::Missing) => {
                    existing = existing.parent().ok_or(ResolveError::Missing)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the link at `path` stays beneath the base.
    pub(crate) fn link_stays_inside(&self, path: &Path) -> bool {
        self.scope == LinkScope::Anywhere
            || self
                .openat2(path, OFlags::PATH | OFlags::CLOEXEC)
                .is_ok_and(|opened| opened.is_some())
    }

    fn resolve(&mut self, path: &Path) -> Result<OwnedFd, ResolveError> {
        if path.as_os_str().is_empty() {
            return Ok(self.base.try_clone()?);
        }
        if self.scope == LinkScope::Anywhere {
            return rustix::fs::openat(&self.base, path, DIRECTORY, Mode::empty())
                .map_err(ResolveError::from);
        }
        if self.resolver == BeneathResolver::Kernel {
            if let Some(descriptor) = self.openat2(path, DIRECTORY)? {
                return Ok(descriptor);
            }
            self.resolver = BeneathResolver::Steps;
        }
        self.resolve_in_steps(path)
    }

    /// Returns `None` if the kernel (or a filter around this process) has no `openat2`.
    fn openat2(&self, path: &Path, flags: OFlags) -> Result<Option<OwnedFd>, ResolveError> {
        let mut how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        if self.scope == LinkScope::WithoutLinks {
            how |= ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        }
        for _ in 0..MAX_TRIES {
            match rustix::fs::openat2(&self.base, path, flags, Mode::empty(), how) {
                Ok(descriptor) => return Ok(Some(descriptor)),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::NOSYS | Errno::PERM) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Err(ResolveError::Replaced)
    }

    fn resolve_in_steps(&self, path: &Path) -> Result<OwnedFd, ResolveError> {
        let mut current = self.base.try_clone()?;
        let device = rustix::fs::fstat(&current)?.st_dev;
        for component in path.components() {
            let name = component.as_os_str();
            match rustix::fs::openat(&current, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
                Ok(next) => {
                    let is_other = rustix::fs::fstat(&next)?.st_dev != device;
                    if self.scope == LinkScope::WithoutLinks && is_other {
                        return Err(ResolveError::Outside);
                    }
                    current = next;
                }
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    let found = rustix::fs::statat(&current, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    return Err(
                        if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
                            ResolveError::Outside
                        } else {
                            ResolveError::NotADirectory
                        },
                    );
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(current)
    }
}

impl Directory {
    fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&descriptor)?;
        Ok(Self {
            descriptor,
            id: DirectoryId {
                device: stat.st_dev,
                inode: stat.st_ino,
            },
        })
    }

    pub(crate) fn id(&self) -> DirectoryId {
        self.id
    }

    /// Returns what exists under `name`, without following a link, or `None` if nothing does.
    pub(crate) fn stat(&self, name: &OsStr) -> io::Result<Option<rustix::fs::Stat>> {
        match rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the directory above. The parent of `/` is `/` itself.
    pub(crate) fn parent(&self) -> io::Result<Self> {
        let above = rustix::fs::openat(&self.descriptor, "..", DIRECTORY, Mode::empty())?;
        Self::new(above)
    }

    /// Returns where the directory lies, without links, or `None` if it was moved or removed
    /// meanwhile.
    pub(crate) fn real_path(&self) -> io::Result<Option<PathBuf>> {
        let link = format!("/proc/self/fd/{}", self.descriptor.as_raw_fd());
        let path = std::fs::read_link(link)?;
        let is_here = directory_id(&path).is_ok_and(|id| id == self.id);
        Ok(is_here.then_some(path))
    }

    /// Syncs the directory itself.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.sync_with(rustix::fs::fsync)
    }

    /// Syncs the whole file system of the directory.
    pub(crate) fn sync_file_system(&self) -> io::Result<()> {
        self.sync_with(rustix::fs::syncfs)
    }

    pub(crate) fn device(&self) -> u64 {
        self.id.device
    }

    /// Opens the directory again and syncs it, because descriptors that are only for resolution
    /// cannot be synced. If the user may write but not list the directory, everything is synced.
    fn sync_with(&self, sync: fn(OwnedFd) -> rustix::io::Result<()>) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.descriptor, ".", flags, Mode::empty()) {
            Ok(readable) => Ok(sync(readable)?),
            Err(Errno::ACCESS) => {
                rustix::fs::sync();
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Returns the identity of a directory given by its own path, to compare it with others.
pub(crate) fn directory_id(path: &Path) -> io::Result<DirectoryId> {
    Ok(Directory::new(rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?)?.id)
}

impl From<Errno> for ResolveError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT => Self::Missing,
            Errno::XDEV | Errno::LOOP => Self::Outside,
            Errno::NOTDIR => Self::NotADirectory,
            other => Self::Io(other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn outcome(tree: &mut DirectoryTree, path: &str) -> &'static str {
        match tree.directory(Path::new(path)) {
            Ok(_) => "open",
            Err(ResolveError::Missing) => "missing",
            Err(ResolveError::Outside) => "outside",
            Err(ResolveError::NotADirectory) => "not a directory",
            Err(ResolveError::Replaced) => "replaced",
            Err(ResolveError::Io(_)) => "io",
        }
    }

    #[test]
    fn links_never_lead_out_of_the_base() {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().join("w");
        fs::create_dir_all(base.join("real/deep")).unwrap();
        fs::create_dir(temp.path().join("out")).unwrap();
        fs::write(base.join("file"), "").unwrap();
        symlink("real", base.join("inside")).unwrap();
        symlink("../out", base.join("up")).unwrap();
        symlink(temp.path().join("out"), base.join("absolute")).unwrap();
        symlink("nowhere", base.join("dangling")).unwrap();
        symlink("/proc/self/root", base.join("magic")).unwrap();
        // path, with openat2, step by step
        let cases = [
            ("", "open", "open"),
            ("real/deep", "open", "open"),
            ("inside/deep", "open", "outside"),
            ("up", "outside", "outside"),
            ("absolute", "outside", "outside"),
            ("magic", "outside", "outside"),
            ("dangling", "missing", "outside"),
            ("file/x", "not a directory", "not a directory"),
            ("none", "missing", "missing"),
        ];
        let mut kernel = DirectoryTree::open(&base, LinkScope::Beneath).unwrap();
        let mut steps = DirectoryTree::open(&base, LinkScope::Beneath)
            .unwrap()
            .without_openat2();
        for (path, by_kernel, by_steps) in cases {
            if kernel.resolver == BeneathResolver::Kernel {
                assert_eq!(
                    outcome(&mut kernel, path),
                    by_kernel,
                    "{path} by the kernel"
                );
            }
            assert_eq!(outcome(&mut steps, path), by_steps, "{path} step by step");
        }
        assert!(matches!(
            kernel.deepest(Path::new("dangling/x")),
            Err(ResolveError::Outside)
        ));
        let (_, existing, missing) = kernel.deepest(Path::new("real/new/newer")).unwrap();
        assert_eq!(
            (existing.as_path(), missing.as_path()),
            (Path::new("real"), Path::new("new/newer"))
        );
    }

    #[test]
    fn a_replaced_directory_is_noticed_when_it_is_opened_again() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("a")).unwrap();
        let mut tree = DirectoryTree::open(temp.path(), LinkScope::Beneath).unwrap();
        assert_eq!(outcome(&mut tree, "a"), "open");
        fs::rename(temp.path().join("a"), temp.path().join("b")).unwrap();
        fs::create_dir(temp.path().join("a")).unwrap();
        assert_eq!(
            outcome(&mut tree, "a"),
            "open",
            "the descriptor is still held"
        );
        tree.open.clear();
        assert_eq!(outcome(&mut tree, "a"), "replaced");
    }
}
