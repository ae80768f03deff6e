//! How full the file systems are that a sandboxed run writes to: the private ones in memory, whose size is a
//! limit, and those of the host, which no run may fill.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use interlock_plan::{MountAccess, SandboxPlan};
use rustix::fs::{Mode, OFlags};

/// A file system in memory with less room than this is full: no usual write fits.
const FULL_BYTES: u64 = 16 * 1024;

/// So many more files can always be made on a host's file system, or half of what could be when the run began:
/// a run makes some 100,000 of them in a second, and without any the host's own programs fail.
const KEEP_FILES: u64 = 100_000;

/// The file systems of one run.
#[derive(Debug)]
pub struct RunSpace {
    /// Those in memory, each by a directory of it.
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
    /// So much stays free.
    keep_free: u64,
    /// So many more files can be made; 0 where the file system does not count them.
    keep_files: u64,
}

/// One look at them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceLook {
    /// Of the fullest one in memory.
    pub tmp_used: u64,
    pub is_tmp_full: bool,
    /// Of the host's file system that is nearest to its bound: the bound, and how much is free.
    pub disk: Option<(u64, u64)>,
}

impl RunSpace {
    /// At the start of a run. What cannot be opened is not watched: it could not be written to either.
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

    /// Whether an earlier run of the scope had left a file system in memory full.
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
            // Without files that can be made there is no room either.
            let free = if files < disk.keep_files { 0 } else { free };
            Some((disk.keep_free, free))
        });
        look.disk = disks.min_by_key(|(keep, free)| i128::from(*free) - i128::from(*keep));
        look
    }
}

/// The bytes that are free, and how many files can be made.
fn free_room(place: &OwnedFd) -> Option<(u64, u64)> {
    let found = rustix::fs::fstatvfs(place).ok()?;
    let bytes = found.f_bavail.saturating_mul(found.f_frsize);
    Some((bytes, found.f_favail))
}

/// The file systems of the host that a run can write to. On a small one less stays free than the owner says:
/// a run may use half of what is free when it begins.
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
