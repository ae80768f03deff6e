//! How full the file systems are that a sandboxed run writes to: the private in-memory ones, whose
//! size is a limit, and those of the host, which no run may fill.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use interlock_plan::{MountAccess, SandboxPlan};
use rustix::fs::{Mode, OFlags};

/// An in-memory file system with less room than this counts as full, because no usual write fits.
const FULL_BYTES: u64 = 16 * 1024;

/// Number of files that can always still be created on a file system of the host, or half of the
/// number when the run began if that is less. A run creates some 100,000 files per second, and the
/// host's own programs fail if none can be created.
const KEEP_FILES: u64 = 100_000;

/// The file systems of one run.
#[derive(Debug)]
pub struct RunSpace {
    /// The in-memory file systems, each by one of its directories.
    memory: Vec<OwnedFd>,
    /// The size of each of them.
    tmp_bytes: u64,
    was_full: bool,
    disks: Vec<HostDisk>,
}

/// A file system of the host.
#[derive(Debug)]
struct HostDisk {
    place: OwnedFd,
    /// Bytes that must stay free.
    keep_free: u64,
    /// Number of files that must remain possible, or 0 if the file system does not count them.
    keep_files: u64,
}

/// The state of the file systems at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceLook {
    /// Bytes used in the fullest in-memory file system.
    pub tmp_used: u64,
    pub is_tmp_full: bool,
    /// The bound and the free bytes of the host's file system that is nearest to its bound.
    pub disk: Option<(u64, u64)>,
}

impl RunSpace {
    /// Called at the start of a run. A directory that cannot be opened is not watched, because the
    /// run cannot write to it either.
    pub(super) fn new(plan: &SandboxPlan, memory: Vec<OwnedFd>) -> Self {
        let mut space = Self {
            memory,
            tmp_bytes: plan.limits.tmp_bytes,
            was_full: false,
            disks: Vec::new(),
        };
        if let Some(keep_free) = plan.limits.disk_free_bytes {
            space.disks = host_disks(plan, keep_free);
        }
        space.was_full = space.look().is_tmp_full;
        space
    }

    pub fn tmp_bytes(&self) -> u64 {
        self.tmp_bytes
    }

    /// Whether an earlier run of the scope left an in-memory file system full.
    pub fn was_full(&self) -> bool {
        self.was_full
    }

    pub fn look(&self) -> SpaceLook {
        let mut look = SpaceLook {
            tmp_used: 0,
            is_tmp_full: false,
            disk: None,
        };
        for one in &self.memory {
            let Ok(found) = rustix::fs::fstatvfs(one) else {
                continue;
            };
            let used = found.f_blocks.saturating_sub(found.f_bfree);
            look.tmp_used = look.tmp_used.max(used.saturating_mul(found.f_frsize));
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            let has_files = found.f_files == 0 || found.f_ffree > 0;
            look.is_tmp_full |= free < FULL_BYTES || !has_files;
        }
        let disks = self.disks.iter().filter_map(|disk| {
            let (free, files) = free_room(&disk.place)?;
            // If no files can be created, there is no room either.
            let free = if files < disk.keep_files { 0 } else { free };
            Some((disk.keep_free, free))
        });
        look.disk = disks.min_by_key(|(keep, free)| i128::from(*free) - i128::from(*keep));
        look
    }
}

/// Returns the free bytes, and the number of files that can be created.
fn free_room(place: &OwnedFd) -> Option<(u64, u64)> {
    let found = rustix::fs::fstatvfs(place).ok()?;
    let bytes = found.f_bavail.saturating_mul(found.f_frsize);
    Some((bytes, found.f_favail))
}

/// Returns the host's file systems that a run can write to. On a small file system, less stays free
/// than the owner requires: a run may use half of the free space at its beginning.
fn host_disks(plan: &SandboxPlan, keep_free: u64) -> Vec<HostDisk> {
    let scope = PathBuf::from(&plan.scope_directory);
    let written = plan.mounts.iter().filter_map(|mount| {
        let (source, access) = mount.shown_source()?;
        (access == MountAccess::Rw).then(|| PathBuf::from(source))
    });
    let (mut devices, mut disks) = (BTreeSet::new(), Vec::new());
    for path in std::iter::once(scope).chain(written) {
        let Some((device, place)) = open(&path) else {
            continue;
        };
        let Some((free, files)) = free_room(&place).filter(|_| devices.insert(device)) else {
            continue;
        };
        disks.push(HostDisk {
            place,
            keep_free: keep_free.min(free / 2),
            keep_files: KEEP_FILES.min(files / 2),
        });
    }
    disks
}

fn open(path: &Path) -> Option<(u64, OwnedFd)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    let place = crate::streams::above_standard(place).ok()?;
    let device = rustix::fs::fstat(&place).ok()?.st_dev;
    Some((device, place))
}
