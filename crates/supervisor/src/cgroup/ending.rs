//! Ends all processes of a group by force.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

use super::{Group, GroupError, files};

/// After this time, the remaining processes are left to the next call.
const GIVE_UP: Duration = Duration::from_secs(5);

/// How long to wait until all processes are frozen. A process that cannot freeze, such as one that
/// waits for a disk, does not fork either.
const STANDSTILL: Duration = Duration::from_millis(500);

const PAUSE: Duration = Duration::from_millis(1);

/// How the processes of a group were ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KilledBy {
    /// In one step, by `cgroup.kill`: no process can escape by forking.
    Kernel,
    /// Frozen, then signaled one by one.
    SignalsWhileFrozen,
    /// Kept from forking, then signaled one by one.
    SignalsWithoutForking,
    /// Signaled one by one until none was left.
    Signals,
}

impl Group {
    /// Ends every process of the group and of groups below it by SIGKILL, except the caller, which
    /// leaves the group first. Returns `None` if nothing keeps track of the members.
    ///
    /// The kernel's own kill returns at once, before the last process is gone; [`Group::remove`]
    /// waits for that. With signals, this returns once no process is left, or reports the remaining
    /// ones.
    pub fn kill(&self) -> Result<Option<KilledBy>, GroupError> {
        let caller_left = !self.has_caller() || self.leave_self().is_ok();
        if let Some(v2) = self.v2_directory()
            && caller_left
        {
            match files::write(&v2, "cgroup.kill", "1") {
                Ok(()) => return Ok(Some(KilledBy::Kernel)),
                // The kernel is older than 5.14, or the group was already removed.
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
            if let Some(killed) = self.freeze_and_signal(&v2)? {
                return Ok(Some(killed));
            }
        }
        self.signal()
    }

    /// Whether this process is frozen by its group, or by the group below that it is in.
    pub(crate) fn has_frozen(&self, process: Pid) -> bool {
        let holds = |directory: &PathBuf| {
            files::number(directory, "cgroup.events", "frozen") == Some(1)
                && files::members(directory)
                    .is_ok_and(|members| members.contains(&process.as_raw_pid()))
        };
        self.whole().iter().any(holds)
    }

    /// Lets all processes continue.
    pub(crate) fn thaw(&self) {
        for directory in self.whole() {
            let _ = files::write(&directory, "cgroup.freeze", "0");
        }
    }

    /// The group in version 2, and all groups below it.
    fn whole(&self) -> Vec<PathBuf> {
        let own = self.v2_directory();
        let below = own.iter().flat_map(|own| files::below(own));
        below.chain(own.clone()).collect()
    }

    pub(super) fn freeze_and_signal(&self, v2: &Path) -> Result<Option<KilledBy>, GroupError> {
        let Some(_frozen) = Frozen::freeze(v2) else {
            return Ok(None);
        };
        self.signal_all()?;
        Ok(Some(KilledBy::SignalsWhileFrozen))
    }

    fn signal(&self) -> Result<Option<KilledBy>, GroupError> {
        if self.tracking().is_empty() {
            return Ok(None);
        }
        // Processes that cannot fork cannot outrun the signals.
        let cannot_fork = self
            .pids_directory()
            .is_some_and(|directory| files::write(&directory, "pids.max", "0").is_ok());
        self.signal_all()?;
        Ok(Some(if cannot_fork {
            KilledBy::SignalsWithoutForking
        } else {
            KilledBy::Signals
        }))
    }

    fn signal_all(&self) -> Result<(), GroupError> {
        let began = Instant::now();
        let caller = rustix::process::getpid().as_raw_pid();
        let others = || -> Result<Vec<i32>, GroupError> {
            let mut members = self.members()?.unwrap_or_default();
            members.retain(|pid| *pid != caller);
            Ok(members)
        };
        loop {
            let members = others()?;
            if members.is_empty() {
                return Ok(());
            }
            if began.elapsed() > GIVE_UP {
                let path = self.tracking().into_iter().next().unwrap_or_default();
                return Err(GroupError::Populated { path, members });
            }
            // Numbers are reused: a process is the intended one only if it is still a member after
            // a descriptor refers to it.
            let held: Vec<_> = members.into_iter().filter_map(hold).collect();
            let still = others()?;
            for (pid, descriptor) in held {
                if still.binary_search(&pid).is_ok() {
                    // The process ended in between, or may not be signaled; the next look shows it.
                    let _ = rustix::process::pidfd_send_signal(&descriptor, Signal::KILL);
                }
            }
            thread::sleep(PAUSE);
        }
    }
}

fn hold(pid: i32) -> Option<(i32, rustix::fd::OwnedFd)> {
    let descriptor = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    Some((pid, descriptor))
}

/// A group of version 2 that stays frozen until this is dropped. Its processes can be ended
/// meanwhile.
struct Frozen(PathBuf);

impl Frozen {
    fn freeze(directory: &Path) -> Option<Self> {
        files::write(directory, "cgroup.freeze", "1").ok()?;
        let frozen = Self(directory.to_owned());
        let began = Instant::now();
        while files::number(directory, "cgroup.events", "frozen") == Some(0)
            && began.elapsed() < STANDSTILL
        {
            thread::sleep(PAUSE);
        }
        Some(frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = files::write(&self.0, "cgroup.freeze", "0");
    }
}
