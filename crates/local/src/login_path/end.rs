//! Kills a login shell and everything that the profile started, even if it has detached itself.

use std::fs;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

/// The variable that marks the shell and all processes that it starts, with a value that is unique
/// to this shell.
pub(super) const MARK: &str = "INTERLOCK_LOGIN_PATH";

/// How long to try. Processes that cannot be killed in this time are left, so that they cannot
/// block the service.
const GIVE_UP: Duration = Duration::from_secs(1);

/// Kills all of them with SIGKILL. Returns how the shell itself ended.
pub(super) fn end(mut child: Child, value: &str) -> Option<ExitStatus> {
    // Kill the process group before the shell is reaped: until then its id cannot belong to another
    // group. If the shell has ended by itself, its own status is reported.
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    let until = Instant::now() + GIVE_UP;
    let mut pause = Duration::from_millis(1);
    let mut status = None;
    loop {
        if status.is_none() {
            status = child.try_wait().ok().flatten();
        }
        let left = end_marked(&format!("{MARK}={value}"));
        if (status.is_some() && left == 0) || Instant::now() >= until {
            return status;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Kills every process with this mark. Returns how many there were.
fn end_marked(mark: &str) -> usize {
    let Ok(processes) = fs::read_dir("/proc") else {
        return 0;
    };
    let pids = processes.filter_map(|entry| {
        let name = entry.ok()?.file_name();
        name.to_str()?.parse().ok().and_then(Pid::from_raw)
    });
    pids.filter(|pid| has_mark(*pid, mark))
        .filter(|pid| {
            // Open a pidfd, then check the mark again: the id may belong to another process by now.
            let descriptor = rustix::process::pidfd_open(*pid, PidfdFlags::empty());
            descriptor.is_ok_and(|descriptor| {
                has_mark(*pid, mark)
                    && rustix::process::pidfd_send_signal(&descriptor, Signal::KILL).is_ok()
            })
        })
        .count()
}

/// Whether a process was started with this mark in its environment. The environment of an ended
/// process is empty, and those of other users cannot be read.
fn has_mark(pid: Pid, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|entry| entry == mark.as_bytes())
}
