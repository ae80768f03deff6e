//! The parts of the kernel that a run sees: its own list of processes, and the devices that every
//! program may use.

use std::io;
use std::os::fd::AsFd as _;

use interlock_plan::MountAccess;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::mount::MountFlags;

use super::{MountPoint, SHARED_MEMORY, Stage, attach, clone_tree, file_type, hold, staged};
use crate::sandbox::unsafe_confine::{
    ATTRIBUTE_NO_DEVICES, ATTRIBUTE_NO_EXECUTE, ATTRIBUTE_NO_SET_ID, ATTRIBUTE_READ_ONLY,
    MountReach, set_attributes,
};

/// Devices that every program may use.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Paths below `/proc` that are made read-only, because programs read from them.
const READ_ONLY_BELOW_PROC: [&str; 5] = ["sys", "bus", "irq", "fs", "sysrq-trigger"];

/// Paths below `/proc` that are covered, because they show or affect the machine.
const COVERED_BELOW_PROC: [&str; 10] = [
    "acpi",
    "asound",
    "kcore",
    "keys",
    "key-users",
    "kallsyms",
    "latency_stats",
    "sched_debug",
    "scsi",
    "timer_list",
];

impl Stage {
    /// Mounts a list of processes that shows only the sandbox. Nothing of the host's list is ever
    /// shown.
    pub(super) fn processes(&self) -> io::Result<()> {
        drop(self.find("/proc", MountPoint::Directory)?);
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount("proc", staged("/proc"), "proc", flags, None)?;
        // The limit is set before the file system becomes read-only: no user namespace can be made
        // below this one.
        let limit = self.find("/proc/sys/user/max_user_namespaces", MountPoint::Existing);
        if limit.is_ok() {
            std::fs::write(staged("/proc/sys/user/max_user_namespaces"), "0")?;
        }
        self.leave_watches_to_the_owner()?;
        for name in READ_ONLY_BELOW_PROC {
            match self.find(&format!("/proc/{name}"), MountPoint::Existing) {
                Ok(place) => hold(&place, MountAccess::Ro)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        for name in COVERED_BELOW_PROC {
            self.cover(&format!("/proc/{name}"))?;
        }
        Ok(())
    }

    /// Limits file watches. The kernel counts them per user, and a run has the number of its user:
    /// half of them is left to the owner's own programs.
    fn leave_watches_to_the_owner(&self) -> io::Result<()> {
        for (inside, of_host) in [
            ("max_inotify_instances", "max_user_instances"),
            ("max_inotify_watches", "max_user_watches"),
        ] {
            let place = format!("/proc/sys/user/{inside}");
            let all = std::fs::read_to_string(format!("/proc/sys/fs/inotify/{of_host}"));
            let all = all.ok().and_then(|all| all.trim().parse::<u64>().ok());
            if let Some(all) = all
                && self.find(&place, MountPoint::Existing).is_ok()
            {
                std::fs::write(staged(&place), (all / 2).to_string())?;
            }
        }
        Ok(())
    }

    pub(super) fn devices(&self) -> io::Result<()> {
        drop(self.find("/dev", MountPoint::Directory)?);
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        rustix::mount::mount(
            "interlock",
            staged("/dev"),
            "tmpfs",
            flags,
            c"mode=0755,size=64k",
        )?;
        for name in DEVICES {
            let source = rustix::fs::open(
                format!("/dev/{name}"),
                OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            if file_type(&source)? != FileType::CharacterDevice {
                return Err(io::Error::other(format!("/dev/{name} is not a device")));
            }
            let tree = clone_tree(&source)?;
            let attributes = ATTRIBUTE_NO_SET_ID | ATTRIBUTE_NO_EXECUTE;
            set_attributes(tree.as_fd(), MountReach::TopOnly, attributes, None)?;
            attach(
                &tree,
                &self.find(&format!("/dev/{name}"), MountPoint::File)?,
            )?;
        }
        drop(self.find("/dev/pts", MountPoint::Directory)?);
        let options = c"newinstance,ptmxmode=0666,mode=0620";
        let terminals = MountFlags::NOSUID | MountFlags::NOEXEC;
        rustix::mount::mount("devpts", staged("/dev/pts"), "devpts", terminals, options)?;
        self.put_shared(SHARED_MEMORY)?;
        for (name, to) in [
            ("ptmx", "pts/ptmx"),
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ] {
            let (parent, name) = (self.find("/dev", MountPoint::Existing)?, name);
            rustix::fs::symlinkat(to, &parent, name)?;
        }
        let directory = self.find("/dev", MountPoint::Existing)?;
        let fixed = ATTRIBUTE_READ_ONLY | ATTRIBUTE_NO_SET_ID | ATTRIBUTE_NO_DEVICES;
        set_attributes(directory.as_fd(), MountReach::TopOnly, fixed, None)
    }
}
