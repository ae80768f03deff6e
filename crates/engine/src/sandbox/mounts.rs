//! Builds the view of a sandboxed run from descriptors that were opened once and compared with the
//! plan. No path of the host is resolved twice, and no mount point is ever made on the host.

mod kernel_trees;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Component, Path};

use interlock_plan::{MountAccess, MountOwner, SandboxMount, SandboxPlan};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};

use super::caches::OpenedCache;
use super::image::ImageEntry;
use super::init::{InitFailure, InitOrder, Step as _};
use super::overlay;
use super::sockets::HostSockets;
use super::unsafe_confine::{
    ATTRIBUTE_NO_DEVICES, ATTRIBUTE_NO_EXECUTE, ATTRIBUTE_NO_SET_ID, ATTRIBUTE_READ_ONLY,
    MountReach, set_attributes,
};

/// The new root is built over this directory, which every system has, in a view that no other
/// process sees.
const STAGE: &str = "/usr";

/// An empty file that covers other files. It exists in the new root only until the root is
/// complete.
const EMPTY: &str = ".interlock-empty";

/// Where programs share memory by name. Each scope has its own.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";

/// Size of a keeper's root, which holds only a few directories.
const KEEPER_ROOT_BYTES: u64 = 64 << 10;

/// The mounts of the host that the plan names, detached and with their attributes, in the order of
/// the plan, and the sockets that are covered in them.
pub(super) struct PreparedTrees {
    trees: Vec<Option<OwnedFd>>,
    sockets: HostSockets,
    /// The layer of the run, if it has one.
    layer: Option<OwnedFd>,
}

/// The in-memory file systems that the keeper of the scope holds, detached, by the path at which a
/// run sees them.
pub(super) type SharedTrees = BTreeMap<String, OwnedFd>;

/// Makes the user namespace whose map a mount takes: files of this owner become files of the run's
/// user.
pub(super) type MapIds<'a> = &'a dyn Fn(MountOwner) -> io::Result<OwnedFd>;

impl PreparedTrees {
    /// Opens every source once, and refuses a source that is not the one that was checked.
    pub fn open(
        order: &InitOrder,
        sockets: HostSockets,
        map_ids: MapIds<'_>,
    ) -> Result<Self, InitFailure> {
        let plan = &order.sandbox;
        let layer = match order.layer.as_ref().and_then(|layer| layer.to_str()) {
            Some(layer) => Some(overlay::open_layer(layer).step(|| format!("opening {layer}"))?),
            None => None,
        };
        let mut trees = Vec::with_capacity(plan.mounts.len());
        for mount in &plan.mounts {
            let (SandboxMount::Bind {
                source,
                device,
                inode,
                owner,
                ..
            }
            | SandboxMount::Overlay {
                source,
                device,
                inode,
                owner,
                ..
            }) = mount
            else {
                trees.push(None);
                continue;
            };
            let access = match mount {
                SandboxMount::Bind { access, .. } => *access,
                // The run's writes go to its layer.
                _ => MountAccess::Ro,
            };
            let opened = open_checked(source, *device, *inode)?;
            let tree = clone_tree(&opened).step(|| format!("taking {source}"))?;
            let further = not_executed(plan, access);
            map_and_close(&tree, source, access, further, *owner, map_ids)?;
            trees.push(Some(tree));
        }
        Ok(Self {
            trees,
            sockets,
            layer,
        })
    }
}

/// Opens a path of the host, which must be the file that was checked.
pub(super) fn open_checked(source: &str, device: u64, inode: u64) -> Result<OwnedFd, InitFailure> {
    let opened = open_source(source).step(|| format!("opening {source}"))?;
    let found = rustix::fs::fstat(&opened).step(|| format!("looking at {source}"))?;
    if (found.st_dev, found.st_ino) == (device, inode) {
        Ok(opened)
    } else {
        Err(InitFailure::new(format!(
            "{source} is not the directory or file that was checked"
        )))
    }
}

/// Sets the attributes of a tree of the host, and maps the ids of its owner to those of the run.
pub(super) fn map_and_close(
    tree: &OwnedFd,
    source: &str,
    access: MountAccess,
    further: u64,
    owner: Option<MountOwner>,
    map_ids: MapIds<'_>,
) -> Result<(), InitFailure> {
    let ids = owner.map(map_ids).transpose();
    let ids = ids.step(|| format!("making the id map of {source}"))?;
    let ids = ids.as_ref().map(|ids| ids.as_fd());
    let attributes = attributes(access) | further;
    set_attributes(tree.as_fd(), MountReach::Whole, attributes, ids).map_err(|error| {
        if ids.is_some() {
            InitFailure::new(format!(
                "the file system of {source} cannot map ids ({error}), and no run is root on the host; use another file system, workspaceAccess: \"none\", or have the owner set agents.defaults.sandbox.allowHostRoot"
            ))
        } else {
            InitFailure::new(format!("setting the attributes of {source}: {error}"))
        }
    })
}

/// Builds the new root, makes it the root of the calling process, which is process 1 of its
/// namespace, and detaches everything else. Returns the plan's paths that needed nothing, because
/// they did not exist or were out of reach.
pub(super) fn build(
    plan: &SandboxPlan,
    trees: PreparedTrees,
    (shared, image): (SharedTrees, Vec<ImageEntry>),
) -> Result<Vec<String>, InitFailure> {
    let root = new_root(plan.limits.tmp_bytes)?;
    let new_file = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    drop(
        rustix::fs::openat(&root, EMPTY, new_file, Mode::from_raw_mode(0o444))
            .step(|| "making the cover of files".to_owned())?,
    );
    let stage = Stage {
        root,
        shared: RefCell::new(shared),
        image: RefCell::new(image),
        ways: RefCell::default(),
        never_executed: not_executed(plan, MountAccess::Rw),
        layer: trees.layer,
        passed_over: RefCell::default(),
    };
    for (mount, tree) in plan.mounts.iter().zip(trees.trees) {
        let failed = || format!("showing {}", mount.target());
        stage.put(mount, tree).step(failed)?;
        if let SandboxMount::Bind { source, target, .. } = mount {
            // This precedes every copying and holding of mounts, so that the socket is covered
            // there too.
            for rest in trees.sockets.below(Path::new(source)) {
                stage
                    .cover_socket(&Path::new(target).join(rest))
                    .step(failed)?;
            }
        }
    }
    rustix::fs::unlinkat(&stage.root, EMPTY, AtFlags::empty())
        .step(|| "removing the cover of files".to_owned())?;
    enter_root(&stage.root)?;
    Ok(stage.passed_over.into_inner())
}

/// Where a file system of a scope is mounted in the root of its keeper, by its number.
fn kept_path(number: usize) -> String {
    format!("/{number}")
}

/// Builds, in the keeper of a scope, an empty root that holds the file systems of the scope and
/// nothing else, starting with those in memory.
pub(super) fn build_kept(
    modes: &[u32],
    bytes: u64,
    caches: Vec<OpenedCache>,
) -> Result<(), InitFailure> {
    let root = new_root(KEEPER_ROOT_BYTES)?;
    for (number, mode) in modes.iter().enumerate() {
        let path = kept_path(number);
        let name = path.trim_start_matches('/');
        let make = || -> io::Result<()> {
            rustix::fs::mkdirat(&root, name, Mode::from_raw_mode(0o700))?;
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let place = rustix::fs::openat(&root, name, flags, Mode::empty())?;
            attach(&memory(*mode, bytes)?, &place)
        };
        make().step(|| "making a file system of the scope".to_owned())?;
    }
    let stage = Stage {
        root,
        shared: RefCell::default(),
        ways: RefCell::default(),
        never_executed: 0,
        layer: None,
        image: RefCell::default(),
        passed_over: RefCell::default(),
    };
    for (number, cache) in caches.into_iter().enumerate() {
        let path = kept_path(modes.len() + number);
        let remedy = "have the owner leave it out of home.caches";
        overlay::put(&stage, &path, (&cache.lower, &cache.layer), remedy)
            .step(|| format!("showing {}", cache.source))?;
    }
    enter_root(&stage.root)
}

/// Takes one of a keeper's file systems, to be attached elsewhere. Called in a child that has
/// entered the keeper's mounts.
pub(super) fn take_kept(number: usize) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::open(kept_path(number), flags, Mode::empty())?;
    let tree = clone_tree(&place)?;
    set_attributes(
        tree.as_fd(),
        MountReach::TopOnly,
        attributes(MountAccess::Rw),
        None,
    )?;
    Ok(tree)
}

/// Mounts an in-memory file system over [`STAGE`], which becomes the root.
fn new_root(bytes: u64) -> Result<OwnedFd, InitFailure> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let place =
        rustix::fs::open(STAGE, directory, Mode::empty()).step(|| format!("opening {STAGE}"))?;
    memory(0o755, bytes)
        .and_then(|root| attach(&root, &place))
        .step(|| "making the root".to_owned())?;
    rustix::fs::open(STAGE, directory, Mode::empty()).step(|| "opening the root".to_owned())
}

/// Makes it the root of the calling process, read-only, and detaches everything else.
fn enter_root(root: &OwnedFd) -> Result<(), InitFailure> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::process::fchdir(root).step(|| "entering the root".to_owned())?;
    // The old root is mounted over the new one for a moment, and is then detached.
    rustix::process::pivot_root(".", ".").step(|| "changing the root".to_owned())?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)
        .step(|| "leaving the host's root".to_owned())?;
    rustix::process::chdir("/").step(|| "entering the root".to_owned())?;
    let root =
        rustix::fs::open("/", directory, Mode::empty()).step(|| "opening the root".to_owned())?;
    let fixed = ATTRIBUTE_READ_ONLY | ATTRIBUTE_NO_SET_ID | ATTRIBUTE_NO_DEVICES;
    set_attributes(root.as_fd(), MountReach::TopOnly, fixed, None)
        .step(|| "closing the root".to_owned())?;
    Ok(())
}

/// The root that is being built.
pub(super) struct Stage {
    root: OwnedFd,
    shared: RefCell<SharedTrees>,
    image: RefCell<Vec<ImageEntry>>,
    /// The targets that were mounted, and the directories below them that lead to other mounts.
    ways: RefCell<BTreeSet<String>>,
    /// The attribute of writable mounts, if only listed files may be executed.
    pub(super) never_executed: u64,
    layer: Option<OwnedFd>,
    /// Paths that were to be covered or held, but did not exist.
    passed_over: RefCell<Vec<String>>,
}

/// What must exist at a path before something is mounted there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MountPoint {
    /// It exists already, or there is nothing to do.
    Existing,
    Directory,
    File,
}

impl Stage {
    fn put(&self, mount: &SandboxMount, tree: Option<OwnedFd>) -> io::Result<()> {
        match mount {
            SandboxMount::Bind { target, .. } => {
                let tree = tree.ok_or(io::ErrorKind::InvalidData)?;
                let point = match file_type(&tree)? {
                    FileType::Directory => MountPoint::Directory,
                    _ => MountPoint::File,
                };
                self.hold_way(target)?;
                attach(&tree, &self.find(target, point)?)
            }
            SandboxMount::Overlay { target, .. } => {
                let lower = tree.ok_or(io::ErrorKind::InvalidData)?;
                let layer = self.layer.as_ref().ok_or(io::ErrorKind::InvalidData)?;
                self.hold_way(target)?;
                let remedy = "have the owner set workspaceAccess to \"rw\"";
                overlay::put(self, target, (&lower, layer), remedy)
            }
            SandboxMount::Cache { target, .. } => {
                self.hold_way(target)?;
                self.put_shared(target)
            }
            SandboxMount::Copy {
                from,
                target,
                access,
                ..
            } => {
                let from = self.find(from, MountPoint::Existing)?;
                let point = match file_type(&from)? {
                    FileType::Directory => MountPoint::Directory,
                    _ => MountPoint::File,
                };
                let tree = clone_tree(&from)?;
                set_attributes(tree.as_fd(), MountReach::Whole, attributes(*access), None)?;
                self.hold_way(target)?;
                attach(&tree, &self.find(target, point)?)
            }
            SandboxMount::Hold { target, access, .. } => {
                match self.find_itself(target, MountPoint::Existing) {
                    Ok(place) => hold(&place, *access),
                    // The path has disappeared since the plan was made, so there is nothing to
                    // hold.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        self.passed_over.borrow_mut().push(target.clone());
                        Ok(())
                    }
                    Err(error) => Err(error),
                }
            }
            SandboxMount::Image { .. } => self.put_image(),
            SandboxMount::Cover { target, .. } => self.cover(target),
            SandboxMount::Memory { target, .. } => self.put_shared(target),
            SandboxMount::Link { target, to } => {
                let (parent, name) = self.parent_of(target)?;
                Ok(rustix::fs::symlinkat(to, &parent, name)?)
            }
            SandboxMount::Processes => self.processes(),
            SandboxMount::Devices => self.devices(),
        }
    }

    /// Mounts what the root of the container holds.
    fn put_image(&self) -> io::Result<()> {
        for entry in self.image.take() {
            match entry {
                ImageEntry::Tree { path, tree } => {
                    let point = match file_type(&tree)? {
                        FileType::Directory => MountPoint::Directory,
                        _ => MountPoint::File,
                    };
                    attach(&tree, &self.find(&path, point)?)?;
                }
                ImageEntry::Link { path, to } => {
                    let (parent, name) = self.parent_of(&path)?;
                    rustix::fs::symlinkat(to, &parent, name)?;
                }
            }
        }
        Ok(())
    }

    /// Mounts what the runs of the scope share at this path.
    fn put_shared(&self, target: &str) -> io::Result<()> {
        let tree = self.shared.borrow_mut().remove(target);
        let tree = tree.ok_or(io::ErrorKind::NotFound)?;
        if self.never_executed != 0 {
            set_attributes(tree.as_fd(), MountReach::Whole, self.never_executed, None)?;
        }
        attach(&tree, &self.find(target, MountPoint::Directory)?)?;
        self.ways.borrow_mut().insert(target.to_owned());
        Ok(())
    }

    /// Makes every directory of a shared file system that leads to a mount a mount too. Otherwise
    /// another run of the scope could rename the directory while this run is set up, and the paths
    /// that are to be covered or held below would not be found there. All runs of a scope have the
    /// same such directories, and no run can rename a directory that is a mount in its own view.
    fn hold_way(&self, target: &str) -> io::Result<()> {
        let ends = target.match_indices('/').skip(1).map(|(end, _)| end);
        for way in ends.filter_map(|end| target.get(..end)) {
            let parent = way.rsplit_once('/').map_or("", |(parent, _)| parent);
            let is_way = {
                let ways = self.ways.borrow();
                ways.contains(parent) && !ways.contains(way)
            };
            if is_way && !self.is_other_mount(way)? {
                hold(&self.find(way, MountPoint::Directory)?, MountAccess::Rw)?;
                self.ways.borrow_mut().insert(way.to_owned());
            }
        }
        Ok(())
    }

    /// Whether something else is already mounted at a path.
    fn is_other_mount(&self, path: &str) -> io::Result<bool> {
        let Some((parent, _)) = path.rsplit_once('/') else {
            return Ok(false);
        };
        let (parent, place) = match self.find(path, MountPoint::Existing) {
            Ok(place) => (self.find(parent, MountPoint::Existing)?, place),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let (parent, place) = (rustix::fs::fstat(&parent)?, rustix::fs::fstat(&place)?);
        Ok(parent.st_dev != place.st_dev)
    }

    /// Opens a path in the new root. No link is followed on the way, because an earlier run may
    /// have arranged what is inside.
    pub(super) fn find(&self, path: &str, point: MountPoint) -> io::Result<OwnedFd> {
        let place = self.find_itself(path, point)?;
        if file_type(&place)? == FileType::Symlink {
            return Err(Errno::LOOP.into());
        }
        Ok(place)
    }

    /// Does the same for a path that may itself be a link. A link can be held, so that it is
    /// neither renamed nor replaced: the kernel mounts a link on a link.
    fn find_itself(&self, path: &str, point: MountPoint) -> io::Result<OwnedFd> {
        let mut place = self.root.try_clone()?;
        let mut names = names(path)?.into_iter().peekable();
        while let Some(name) = names.next() {
            let is_last = names.peek().is_none();
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let flags = if is_last {
                flags
            } else {
                flags | OFlags::DIRECTORY
            };
            let open = || rustix::fs::openat(&place, name, flags, Mode::empty());
            let found = match open() {
                Err(Errno::NOENT) if point != MountPoint::Existing => {
                    if is_last && point == MountPoint::File {
                        let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                        drop(rustix::fs::openat(
                            &place,
                            name,
                            new,
                            Mode::from_raw_mode(0o444),
                        )?);
                    } else {
                        rustix::fs::mkdirat(&place, name, Mode::from_raw_mode(0o755))?;
                    }
                    open()?
                }
                found => found?,
            };
            place = found;
        }
        Ok(place)
    }

    pub(super) fn parent_of<'a>(&self, path: &'a str) -> io::Result<(OwnedFd, &'a str)> {
        let (parent, name) = path.rsplit_once('/').ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.find(parent, MountPoint::Directory)?, name))
    }

    fn cover(&self, target: &str) -> io::Result<()> {
        let place = match self.find(target, MountPoint::Existing) {
            Ok(place) => place,
            // A path needs no cover if it does not exist, or is out of reach even with the
            // capabilities that this process has and the run does not. A link leads to a path that
            // has its own row.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOENT | libc::EACCES | libc::ENOTDIR | libc::ELOOP)
                ) =>
            {
                self.passed_over.borrow_mut().push(target.to_owned());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if file_type(&place)? == FileType::Directory {
            return attach(&empty_directory()?, &place);
        }
        let empty = rustix::fs::openat(
            &self.root,
            EMPTY,
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let tree = clone_tree(&empty)?;
        let attributes = attributes(MountAccess::Ro) | ATTRIBUTE_NO_EXECUTE;
        set_attributes(tree.as_fd(), MountReach::TopOnly, attributes, None)?;
        attach(&tree, &place)
    }

    /// Covers a socket of the host, if this path shows it.
    fn cover_socket(&self, target: &Path) -> io::Result<()> {
        let Some(target) = target.to_str() else {
            return Err(io::Error::other(format!(
                "the socket {} has a name that is not text; remove it, or set network.unixSockets to \"none\"",
                target.display()
            )));
        };
        match self.find(target, MountPoint::Existing) {
            Ok(place) if file_type(&place)? == FileType::Socket => self.cover(target),
            _ => Ok(()),
        }
    }
}

/// Returns the path while the root is being built.
pub(super) fn staged(path: &str) -> String {
    format!("{STAGE}{path}")
}

/// Returns the error that makes a path unreachable in the root of the calling process, or `None` if
/// it is reachable. No link is followed.
pub(super) fn obstacle(path: &str) -> Option<Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve).err()
}

fn names(path: &str) -> io::Result<Vec<&str>> {
    let parts = Path::new(path).components().filter_map(|part| match part {
        Component::RootDir => None,
        Component::Normal(name) => Some(name.to_str().ok_or(io::ErrorKind::InvalidInput)),
        _ => Some(Err(io::ErrorKind::InvalidInput)),
    });
    Ok(parts.collect::<Result<_, _>>()?)
}

pub(super) fn open_source(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(
        CWD,
        path,
        flags,
        Mode::empty(),
        resolve,
    )?)
}

pub(super) fn clone_tree(place: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(place, c"", flags)?)
}

pub(super) fn attach(tree: &OwnedFd, place: &OwnedFd) -> io::Result<()> {
    let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(tree, c"", place, c"", whole)?)
}

fn hold(place: &OwnedFd, access: MountAccess) -> io::Result<()> {
    let tree = clone_tree(place)?;
    set_attributes(tree.as_fd(), MountReach::Whole, attributes(access), None)?;
    attach(&tree, place)
}

/// Returns the attribute that forbids execution on writable mounts if only listed files may be
/// executed: no listed file may be one that a run could have written.
fn not_executed(plan: &SandboxPlan, access: MountAccess) -> u64 {
    match (&plan.executables, access) {
        (Some(_), MountAccess::Rw) => ATTRIBUTE_NO_EXECUTE,
        _ => 0,
    }
}

pub(super) fn attributes(access: MountAccess) -> u64 {
    let always = ATTRIBUTE_NO_SET_ID | ATTRIBUTE_NO_DEVICES;
    match access {
        MountAccess::Ro => always | ATTRIBUTE_READ_ONLY,
        MountAccess::Rw => always,
    }
}

/// Makes an in-memory file system, which is not attached yet.
fn memory(mode: u32, bytes: u64) -> io::Result<OwnedFd> {
    // The limit of files allows as many as fill it with four kilobytes each, and some more for
    // directories.
    let files = (bytes / 4_096).saturating_add(1_024);
    let settings = [
        ("mode", format!("{mode:o}")),
        ("size", bytes.to_string()),
        ("nr_inodes", files.to_string()),
    ];
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    new_tmpfs(&settings, attributes)
}

/// Makes an empty directory in which nothing can be created.
fn empty_directory() -> io::Result<OwnedFd> {
    let settings = [
        ("mode", "0555".to_owned()),
        ("size", "4096".to_owned()),
        ("nr_inodes", "2".to_owned()),
    ];
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    new_tmpfs(&settings, attributes)
}

fn new_tmpfs(settings: &[(&str, String)], attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(context.as_fd(), "source", "interlock")?;
    for (key, value) in settings {
        rustix::mount::fsconfig_set_string(context.as_fd(), *key, value.as_str())?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    Ok(rustix::mount::fsmount(context.as_fd(), flags, attributes)?)
}

fn file_type(place: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(place)?.st_mode))
}
