//! A view of the file system for one run, in which approved scripts have their approved content,
//! whatever is written to the files themselves.
//!
//! The view belongs to a user namespace in which this user has no privileges, so the run has no
//! rights in it and cannot undo it.

use std::ffi::{CStr, CString, c_int, c_void};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
};
use rustix::process::DumpableBehavior;
use rustix::thread::{CapabilitySet, CapabilitySets, LinkNameSpaceType, UnshareFlags};

use super::{SignalMask, reap, start_child};
use crate::shield::RunShield;

/// Most files in a view. The number is fixed because the child that makes the view allocates
/// nothing.
pub(crate) const MOST_FILES: usize = 8;

/// Names of the files until they are in their places.
const NAMES: [&CStr; MOST_FILES] = [c"0", c"1", c"2", c"3", c"4", c"5", c"6", c"7"];

/// Where the files are made: a directory that exists everywhere, and in which nothing is looked up
/// meanwhile. Its content is covered for that time, only for the process that makes the files.
const STAGE: &CStr = c"/proc";

/// How often to try to close the files' file system to writers, and the pause between two attempts.
const WRITER_TRIES: usize = 200;
const WRITER_PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

/// A file and the content that it is to have.
#[derive(Debug)]
pub(crate) struct FileSnapshot {
    /// The path by which the run finds the file, and its path without links.
    pub found: CString,
    pub canonical: CString,
    pub device: u64,
    pub inode: u64,
    pub content: Vec<u8>,
    pub mode: u32,
    pub modified: Timespec,
}

/// The view, held by descriptors.
#[derive(Debug)]
pub(crate) struct Namespace {
    /// `None` if the view is derived from the agent's own view, and belongs to the agent's user
    /// namespace.
    user: Option<OwnedFd>,
    mounts: OwnedFd,
}

/// The values that the child which makes the view borrows, and the result that it returns.
struct NamespaceWork<'a> {
    snapshots: &'a [FileSnapshot],
    shield: Option<&'a RunShield>,
    users: CString,
    groups: CString,
    /// Written only by the child, while the parent is suspended.
    made: Mutex<io::Result<Namespace>>,
}

impl Namespace {
    /// Makes the view. ESTALE means that a file is not the one that was checked. Any other error
    /// means that this system does not support such a view.
    pub fn make(snapshots: &[FileSnapshot], shield: Option<&RunShield>) -> io::Result<Self> {
        if snapshots.len() > MOST_FILES {
            return Err(io::ErrorKind::ArgumentListTooLong.into());
        }
        let same = |id: u32| CString::new(format!("{id} {id} 1"));
        let work = NamespaceWork {
            snapshots,
            shield,
            users: same(rustix::process::geteuid().as_raw())?,
            groups: same(rustix::process::getegid().as_raw())?,
            made: Mutex::new(Err(io::ErrorKind::Interrupted.into())),
        };
        let before = SignalMask::block_all()?;
        // Descriptors are shared with the child: those that it leaves open belong to the parent.
        // SAFETY: `make` takes a pointer to the work, which lives until the child has ended.
        let child =
            unsafe { start_child(make, (&raw const work).cast_mut().cast(), libc::CLONE_FILES) };
        before.restore();
        let _ = reap(child?);
        work.made
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters the view in the child of a run. From here on, the child sees this view, and its
    /// working directory is `directory`, which must be `expected`.
    pub(super) fn enter(&self, directory: &CStr, expected: &OwnedFd) -> io::Result<()> {
        if let Some(user) = &self.user {
            let kind = Some(LinkNameSpaceType::User);
            rustix::thread::move_into_link_name_space(user.as_fd(), kind)?;
        }
        let kind = Some(LinkNameSpaceType::Mount);
        rustix::thread::move_into_link_name_space(self.mounts.as_fd(), kind)?;
        enter_directory(directory, expected)?;
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        rustix::thread::set_capabilities(None, none)?;
        Ok(())
    }

    pub(super) fn mounts(&self) -> &OwnedFd {
        &self.mounts
    }
}

/// Changes to a directory, which must be `expected`, the checked working directory. It is reached
/// by path, because the checked descriptor leads into the view of the process that opened it.
pub(super) fn enter_directory(directory: &CStr, expected: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    let (now, before) = (rustix::fs::fstat(&directory)?, rustix::fs::fstat(expected)?);
    is_same(&now, before.st_dev, before.st_ino)?;
    Ok(rustix::process::fchdir(&directory)?)
}

/// Does the same if the directory may lie under the layer of a run. The kernel gives directories of
/// an overlay their own numbers, so that they cannot be compared. Such a directory is reached by
/// its path, without following links. The run's changes there are compared with the host before
/// they are committed.
pub(super) fn enter_layered_directory(path: &CStr, expected: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory =
        rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    if rustix::fs::fstatfs(&directory)?.f_type == OVERLAY_NUMBER {
        return Ok(rustix::process::fchdir(&directory)?);
    }
    enter_directory(path, expected)
}

/// The number by which the kernel identifies an overlay file system.
const OVERLAY_NUMBER: rustix::fs::FsWord = 0x794c_7630;

/// The first and only function of the child that makes a view. It allocates nothing and cannot
/// panic, because the memory belongs to the parent.
extern "C" fn make(argument: *mut c_void) -> c_int {
    // SAFETY: `Namespace::make` passed a pointer to this value, which outlives this function.
    let work = unsafe { &*argument.cast_const().cast::<NamespaceWork<'_>>() };
    let made = view(work);
    if let Ok(mut place) = work.made.try_lock() {
        *place = made;
    }
    // SAFETY: the call ends the child at once, without running any code of the parent.
    unsafe { libc::_exit(0) }
}

fn view(work: &NamespaceWork<'_>) -> io::Result<Namespace> {
    // This is opened before anything else, because the agent's view does not show this process.
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let own = rustix::fs::open(c"/proc/self/ns", path, Mode::empty())?;
    if let Some(shield) = work.shield {
        shield.enter_mounts(shield.agent_mounts())?;
        // SAFETY: the child has its own file system information, and shares descriptors on purpose.
        // The flag does not separate memory.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)? };
    } else {
        // SAFETY: as above.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)? };
        map_own_user(&work.users, &work.groups)?;
    }
    // Later mounts outside are seen inside, but not the other way round.
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change(c"/", slave)?;

    let mut files = [const { None }; MOST_FILES];
    stage(work.snapshots, &mut files)?;
    for (snapshot, file) in work.snapshots.iter().zip(&files) {
        if let Some(file) = file {
            put(snapshot, file)?;
        }
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let open = |kind| rustix::fs::openat(&own, kind, flags, Mode::empty());
    Ok(Namespace {
        user: match work.shield {
            Some(_) => None,
            None => Some(open(c"user")?),
        },
        mounts: open(c"mnt")?,
    })
}

/// Makes the files in a file system of their own, which is read-only afterwards and mounted nowhere
/// else.
fn stage(snapshots: &[FileSnapshot], files: &mut [Option<OwnedFd>; MOST_FILES]) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(c"tmpfs", STAGE, c"tmpfs", flags, c"mode=0755")?;
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(STAGE, path, Mode::empty())?;
    for (snapshot, name) in snapshots.iter().zip(NAMES) {
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&root, name, new, Mode::RUSR)?;
        let mut rest = snapshot.content.as_slice();
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(snapshot.mode))?;
        let times = Timestamps {
            last_access: snapshot.modified,
            last_modification: snapshot.modified,
        };
        rustix::fs::futimens(&file, &times)?;
    }
    close_to_writers(flags)?;
    let tree = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    for ((_, name), file) in snapshots.iter().zip(NAMES).zip(files) {
        *file = Some(rustix::mount::open_tree(&root, name, tree)?);
    }
    rustix::mount::unmount(STAGE, UnmountFlags::DETACH)?;
    Ok(())
}

/// Makes the file system read-only. This may take several attempts, because a child that another
/// thread starts at this moment also holds our descriptors until it executes its program.
fn close_to_writers(flags: MountFlags) -> io::Result<()> {
    let mut tries = WRITER_TRIES;
    loop {
        match rustix::mount::mount_remount(STAGE, flags | MountFlags::RDONLY, c"") {
            Err(Errno::BUSY) if tries > 0 => tries -= 1,
            done => return Ok(done?),
        }
        let _ = rustix::thread::nanosleep(&WRITER_PAUSE);
    }
}

/// Mounts a file in its place, and checks that the run will find it there.
fn put(snapshot: &FileSnapshot, file: &OwnedFd) -> io::Result<()> {
    let path = OFlags::PATH | OFlags::CLOEXEC;
    let place = rustix::fs::open(&*snapshot.canonical, path | OFlags::NOFOLLOW, Mode::empty())?;
    let covered = rustix::fs::fstat(&place)?;
    is_same(&covered, snapshot.device, snapshot.inode)?;
    let whole = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(file, c"", &place, c"", whole)?;
    let found = rustix::fs::statat(CWD, &*snapshot.found, AtFlags::empty())?;
    let own = rustix::fs::fstat(file)?;
    is_same(&found, own.st_dev, own.st_ino)
}

fn is_same(stat: &Stat, device: u64, inode: u64) -> io::Result<()> {
    if (stat.st_dev, stat.st_ino) == (device, inode) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESTALE))
    }
}

/// Gives this user its own number in the new namespace.
///
/// The map files belong to root as long as this process is non-dumpable, and the child has its
/// parent's memory. The process is therefore dumpable for the time of three `open` calls: a file
/// that is opened then can be written to later.
pub(super) fn map_own_user(users: &CStr, groups: &CStr) -> io::Result<()> {
    let open =
        |path: &CStr| rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let before = rustix::process::dumpable_behavior()?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    let files = (
        open(c"/proc/self/setgroups"),
        open(c"/proc/self/uid_map"),
        open(c"/proc/self/gid_map"),
    );
    rustix::process::set_dumpable_behavior(match before {
        DumpableBehavior::Dumpable => DumpableBehavior::Dumpable,
        _ => DumpableBehavior::NotDumpable,
    })?;
    rustix::io::write(files.0?, b"deny")?;
    rustix::io::write(files.1?, users.to_bytes())?;
    rustix::io::write(files.2?, groups.to_bytes())?;
    Ok(())
}
