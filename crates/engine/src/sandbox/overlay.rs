//! The layer of a run under `cow`. It is made before the sandbox, mounted over the workspace inside
//! it, and marked when everything inside is gone. The host decides what happens to the layer then.

use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use interlock_plan::{LayerRecord, MountAccess, RunPlan, SandboxMount, SandboxPlan};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags};
use rustix::time::ClockId;

use super::mounts::{MountPoint, Stage, attach, clone_tree, open_source, staged};
use super::unsafe_confine::{MountReach, set_attributes};
use crate::streams::above_standard;

/// Where the parts of an overlay are mounted until the overlay itself holds them.
const LOWER: &str = "/.interlock-lower";
const LAYER: &str = "/.interlock-layer";

/// The layer of one run, as the run's process holds it.
#[derive(Debug)]
pub(super) struct RunLayer {
    directory: PathBuf,
    started_ns: i64,
    /// Taken before another process uses the layer. It becomes free once everything inside is gone.
    _lock: OwnedFd,
}

impl RunLayer {
    /// Makes the layer of a run that is about to start. `None` if the plan has no layer.
    pub fn make(plan: &RunPlan, run_id: Option<&str>) -> io::Result<Option<Self>> {
        let Some(sandbox) = plan.sandbox.as_ref().filter(|own| own.overlay().is_some()) else {
            return Ok(None);
        };
        let run_id = run_id.ok_or_else(|| io::Error::other("the run has no name"))?;
        let started_ns = nanoseconds(ClockId::Realtime);
        let ahead = nanoseconds(ClockId::Realtime) - nanoseconds(ClockId::Boottime);
        let record = LayerRecord::new(plan, run_id, started_ns, ahead);
        let record = record
            .map(|record| serde_json::to_vec(&record))
            .transpose()?;
        Self::make_in(sandbox, run_id, started_ns, record.as_deref()).map(Some)
    }

    /// Makes a layer that is never committed, to test whether one can be made.
    pub fn make_for_trial(sandbox: &SandboxPlan) -> io::Result<Option<Self>> {
        if sandbox.overlay().is_none() {
            return Ok(None);
        }
        let name = format!("trial-{}", rustix::process::getpid().as_raw_pid());
        Self::make_in(sandbox, &name, 0, None).map(Some)
    }

    fn make_in(
        sandbox: &SandboxPlan,
        name: &str,
        started_ns: i64,
        record: Option<&[u8]>,
    ) -> io::Result<Self> {
        let directory = sandbox.layer_of(name);
        let directory = directory.ok_or(io::ErrorKind::InvalidInput)?;
        let mut private = DirBuilder::new();
        private.mode(0o700);
        if let Some(layers) = directory.parent() {
            match private.create(layers) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        private.create(&directory)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = above_standard(rustix::fs::open(&directory, flags, Mode::empty())?)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        for part in [LayerRecord::OVERLAY, LayerRecord::UPPER, LayerRecord::WORK] {
            let path = directory.join(part);
            private.create(&path)?;
            std::os::unix::fs::lchown(
                &path,
                Some(sandbox.user.host_uid),
                Some(sandbox.user.host_gid),
            )?;
        }
        if let Some(SandboxMount::Overlay { source, .. }) = sandbox.overlay() {
            // The top directory of an overlay has the mode of its layer's directory.
            let mode = std::fs::symlink_metadata(source)?.mode() & 0o777;
            let upper = directory.join(LayerRecord::UPPER);
            rustix::fs::chmod(upper, Mode::from_raw_mode(mode))?;
        }
        if let Some(record) = record {
            let mut file = std::fs::OpenOptions::new()
                .create_new(true)
                .write(true)
                .mode(0o600)
                .open(directory.join(LayerRecord::FILE))?;
            file.write_all(record)?;
        }
        Ok(Self {
            directory,
            started_ns,
            _lock: lock,
        })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns once a change to a file would get a later time than the start of the run. The kernel
    /// takes file times either from a clock that stands still for some milliseconds, or from the
    /// exact one.
    pub fn wait_for_later_file_times(&self) {
        while nanoseconds(ClockId::RealtimeCoarse) <= self.started_ns {
            std::thread::sleep(std::time::Duration::from_micros(500));
        }
    }

    /// Marks that everything inside is gone: what the layer holds now is what the run did.
    pub fn mark_ended(&self) {
        // Without the mark, nothing is committed automatically; the layer stays for its owner.
        let _ = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(self.directory.join(LayerRecord::ENDED));
    }
}

fn nanoseconds(clock: ClockId) -> i64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
}

/// Opens the layer, detached, with the rights of the process that owns it, because no path leads to
/// it inside.
pub(super) fn open_layer(directory: &str) -> io::Result<OwnedFd> {
    let opened = open_source(&format!("{directory}/{}", LayerRecord::OVERLAY))?;
    clone_tree(&opened)
}

/// Mounts a directory under a layer. A directory that exists in both cannot be renamed (`EXDEV`),
/// because the kernel makes no redirections with the option `userxattr`.
pub(super) fn put(
    stage: &Stage,
    target: &str,
    (lower, layer): (&OwnedFd, &OwnedFd),
    remedy: &str,
) -> io::Result<()> {
    attach(lower, &stage.find(LOWER, MountPoint::Directory)?)?;
    attach(layer, &stage.find(LAYER, MountPoint::Directory)?)?;
    let made = overlay();
    // The overlay has its own mounts of both.
    for path in [LAYER, LOWER] {
        rustix::mount::unmount(staged(path), UnmountFlags::DETACH)?;
        let (parent, name) = stage.parent_of(path)?;
        rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?;
    }
    let made = made.map_err(|error| {
        io::Error::other(format!(
            "its file system and that of the state directory cannot be put over each other ({error}); nothing may be mounted in it, and both must keep user attributes (ext4, xfs, btrfs, tmpfs); or {remedy}"
        ))
    })?;
    let attributes = super::mounts::attributes(MountAccess::Rw) | stage.never_executed;
    set_attributes(made.as_fd(), MountReach::TopOnly, attributes, None)?;
    attach(&made, &stage.find(target, MountPoint::Directory)?)
}

fn overlay() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let layer = staged(LAYER);
    for (key, value) in [
        ("source", "interlock".to_owned()),
        ("lowerdir", staged(LOWER)),
        ("upperdir", format!("{layer}/upper")),
        ("workdir", format!("{layer}/work")),
        ("index", "off".to_owned()),
        ("metacopy", "off".to_owned()),
    ] {
        rustix::mount::fsconfig_set_string(context.as_fd(), key, value.as_str())?;
    }
    rustix::mount::fsconfig_set_flag(context.as_fd(), "userxattr")?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(
        context.as_fd(),
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}
