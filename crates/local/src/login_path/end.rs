//! Ends a login shell and everything that the profile started, however it detached itself.

use std::fs;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

/// In the environment of the shell and so of all that it starts, with a value of this reading
/// alone.
pub(super) const MARK: &str = "INTERLOCK_LOGIN_PATH";

/// What cannot be ended in this time is left: no process may keep the service waiting.
const GIVE_UP: Duration = Duration::from_secs(1);

/// Ends them with SIGKILL. Returns how the shell itself ended.
pub(super) fn end(mut child: Child, value: &str) -> Option<ExitStatus> {
    // If it has ended by itself, that is the status to report. Its number stays its own group's
    // until it is collected, so it is signalled before that.
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

/// Signals every process with this mark. How many there were.
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
            // The descriptor first, then the question again: the number may mean another by now.
            let descriptor = rustix::process::pidfd_open(*pid, PidfdFlags::empty());
            descriptor.is_ok_and(|descriptor| {
                has_mark(*pid, mark)
                    && rustix::process::pidfd_send_signal(&descriptor, Signal::KILL).is_ok()
            })
        })
        .count()
}

/// The environment that a process was started with. Of an ended one it is empty, and those of
/// other users cannot be read.
fn has_mark(pid: Pid, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
    environment
        .split(|byte| *byte == 0)
        .any(|entry| entry == mark.as_bytes())
}
