//! Shims that somebody stops. A run can do that to the process above it, and would then be neither
//! timed out nor reported: whoever waits for it would wait for ever.

use rustix::process::{Signal, WaitId, WaitIdOptions};

use super::Supervisor;
use crate::supervisor::unsafe_process;

/// Nobody has a reason to stop a shim. It goes on so often, since it may have been a mistake;
/// then it is ended, and its run with it.
const MOST_STOPS: u32 = 3;

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
            shim.stops += 1;
            let signal = if shim.stops > MOST_STOPS {
                Signal::KILL
            } else {
                Signal::CONT
            };
            let _ = rustix::process::kill_process(shim.pid, signal);
        }
    }
}
