//! Handles shims that another process stops or freezes. A run can do that to the process above it.
//! The run would then be neither timed out nor reported, and its caller would wait forever.

use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitId, WaitIdOptions};

use super::Supervisor;
use crate::cgroup::Group;
use crate::pool::Shim;
use crate::unsafe_process;

/// Nothing has a reason to stop a shim. A stopped shim is continued this often within a short time,
/// because the stop may have been a mistake. After that it is ended, and its run with it.
const MOST_STOPS: u32 = 3;

/// After this long without a stop, earlier stops are forgotten.
const SHORT_TIME: Duration = Duration::from_secs(10);

/// How often the supervisor checks for frozen groups while there are runs, because the kernel does
/// not report freezing.
const LOOK_EVERY: Duration = Duration::from_secs(2);

impl Supervisor {
    /// Handles a child that has stopped, continued or ended. Ended children are handled when their
    /// connections close, and are not collected here.
    pub(super) fn look_after_stopped(&mut self) {
        unsafe_process::clear_signals(&self.children);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        for shim in self.shims.values_mut() {
            let stopped = rustix::process::waitid(WaitId::Pid(shim.pid), options);
            if !matches!(stopped, Ok(Some(_))) {
                continue;
            }
            let signal = if shim.may_go_on() {
                Signal::CONT
            } else {
                Signal::KILL
            };
            let _ = rustix::process::kill_process(shim.pid, signal);
        }
    }

    /// Returns the time until groups of runs are checked, or `None` if there are no runs.
    pub(super) fn until_look(&self) -> Option<Duration> {
        let has_runs = self.shims.len() > self.idle.len();
        has_runs.then(|| LOOK_EVERY.saturating_sub(self.last_look.elapsed()))
    }

    /// Thaws frozen groups. A run may freeze the group that it is in, together with its shim.
    pub(super) fn look_after_frozen(&mut self) {
        if !self.until_look().is_some_and(|left| left.is_zero()) {
            return;
        }
        self.last_look = Instant::now();
        for (token, shim) in &mut self.shims {
            if self.idle.contains(token) {
                continue;
            }
            let group = Group::open(&self.parent.hierarchies, &shim.group);
            let Some(group) = group.ok().filter(|group| group.has_frozen(shim.pid)) else {
                continue;
            };
            if !shim.may_go_on() {
                let _ = rustix::process::kill_process(shim.pid, Signal::KILL);
            }
            group.thaw();
        }
    }
}

impl Shim {
    /// Whether a shim that was stopped just now may continue.
    fn may_go_on(&mut self) -> bool {
        let (stops, last) = self.stops.unwrap_or((0, Instant::now()));
        let stops = if last.elapsed() < SHORT_TIME {
            stops + 1
        } else {
            1
        };
        self.stops = Some((stops, Instant::now()));
        stops <= MOST_STOPS
    }
}
