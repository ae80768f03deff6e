//! Shims that somebody stops. A run can do that to the process above it, and would then be neither
//! timed out nor reported: whoever waits for it would wait for ever.

use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitId, WaitIdOptions};

use super::Supervisor;
use crate::supervisor::unsafe_process;

/// Nobody has a reason to stop a shim. It goes on so often within a short time, since it may have
/// been a mistake; then it is ended, and its run with it.
const MOST_STOPS: u32 = 3;

/// Without a stop for so long, all is forgotten.
const SHORT_TIME: Duration = Duration::from_secs(10);

impl Supervisor {
    /// A child has stopped, gone on or ended. The ended ones are seen to when their connections
    /// close, and are not collected here.
    pub(super) fn look_after_stopped(&mut self) {
        unsafe_process::clear_signals(&self.children);
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        for shim in self.shims.values_mut() {
            let stopped = rustix::process::waitid(WaitId::Pid(shim.pid), options);
            if !matches!(stopped, Ok(Some(_))) {
                continue;
            }
            let (stops, last) = shim.stops.unwrap_or((0, Instant::now()));
            let stops = if last.elapsed() < SHORT_TIME {
                stops + 1
            } else {
                1
            };
            shim.stops = Some((stops, Instant::now()));
            let signal = if stops > MOST_STOPS {
                Signal::KILL
            } else {
                Signal::CONT
            };
            let _ = rustix::process::kill_process(shim.pid, signal);
        }
    }
}
