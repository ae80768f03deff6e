//! The mark that every process of a run carries and cannot remove.
//!
//! A run is recognized by its ancestors, and a run can end its ancestors: guard, supervisor and
//! shim belong to the same user. The remaining processes then have no ancestor that shows their
//! origin. Each run therefore starts with a lowered hard limit of file locks, a number that the
//! kernel has not used for anything since Linux 2.4. Every process inherits it, through `fork`,
//! `exec`, sessions, user namespaces and set-user-id programs, and only a process with
//! `CAP_SYS_RESOURCE` on the machine itself can raise it again. A run of an ordinary user cannot
//! get rid of it. For a run of root it is only a guard rail, as every protection is.

use std::fs;
use std::io::{self, Read as _};
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit};

use crate::unsafe_limit::hard_limit_of_locks;

/// The limit that marks a run. No program sets a limit of so many file locks, and every limit that
/// a run sets itself is lower.
const MARK: u64 = 0x494e_5445_524c_4b00;

/// Start of the relevant line in `/proc/PID/limits`.
const LINE: &str = "Max file locks";

/// Whether this process began its life inside a run. A run can lower the limits of its user's other
/// processes, so only the limit that a process had when it started counts.
static BORN_IN_RUN: OnceLock<bool> = OnceLock::new();

/// Records whether this process began its life inside a run. A program calls this first.
pub fn remember_birth() {
    BORN_IN_RUN.get_or_init(own_limit_is_lowered);
}

/// Whether this process began its life inside a run.
pub fn born_in_run() -> bool {
    *BORN_IN_RUN.get_or_init(own_limit_is_lowered)
}

fn own_limit_is_lowered() -> bool {
    let limit = rustix::process::getrlimit(Resource::Locks).maximum;
    limit.is_some_and(is_mark)
}

/// Marks the calling process. This allocates nothing, because the child of a run calls it before it
/// executes its program.
pub(crate) fn mark_this_process() -> io::Result<()> {
    let earlier = rustix::process::getrlimit(Resource::Locks).maximum;
    let mark = Some(earlier.map_or(MARK, |earlier| earlier.min(MARK)));
    let limit = Rlimit {
        current: mark,
        maximum: mark,
    };
    Ok(rustix::process::setrlimit(Resource::Locks, limit)?)
}

/// Whether a process carries the mark of a run. If this process has carried it since its start, so
/// do all processes around it, and the mark proves nothing: the answer is then `false`.
pub fn is_marked(pid: i32) -> io::Result<bool> {
    if born_in_run() {
        return Ok(false);
    }
    // The system call is cheaper than a file of 1,400 characters that the kernel has to write.
    // Processes of other users are readable only through the file.
    if let Ok(limit) = hard_limit_of_locks(pid) {
        return Ok(is_mark(limit));
    }
    // The kernel returns the whole file in one read.
    let mut buffer = [0; 4096];
    let length = fs::File::open(format!("/proc/{pid}/limits"))?.read(&mut buffer)?;
    let limits = String::from_utf8_lossy(buffer.get(..length).unwrap_or_default());
    hard_limit(&limits)
        .map(is_mark)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Whether a process carries the mark, as far as the system call tells, which refuses processes of
/// other users. This is for processes that were not marked before.
pub fn got_mark(pid: i32) -> bool {
    !born_in_run() && hard_limit_of_locks(pid).is_ok_and(is_mark)
}

fn is_mark(limit: u64) -> bool {
    limit <= MARK
}

/// Parses the second number of the line, where `unlimited` is the largest number. `None` if the
/// line is missing.
fn hard_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(LINE))?;
    match line.split_ascii_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hard_limit_is_read_from_its_line() {
        let limits = |hard: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max file locks            unlimited            {hard}            locks     \n"
            )
        };
        assert_eq!(hard_limit(&limits("unlimited")), Some(u64::MAX));
        assert_eq!(hard_limit(&limits("7")), Some(7));
        assert_eq!(hard_limit(&limits("many")), None);
        assert_eq!(hard_limit("Max pending signals 1 2 signals\n"), None);
    }

    #[test]
    fn a_marked_process_and_what_it_starts_are_known() {
        let sleeper = |text: &str| {
            let mut command = std::process::Command::new("/bin/sh");
            command.args(["-c", text]).spawn().unwrap()
        };
        let mut plain = sleeper("exec sleep 60");
        // `ulimit -x` is the same limit.
        let mut marked =
            sleeper("ulimit -x 5 2> /dev/null || exec prlimit --locks=5 sleep 60; exec sleep 60");
        let pid = |child: &std::process::Child| i32::try_from(child.id()).unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_mins(1);
        while !is_marked(pid(&marked)).unwrap() {
            assert!(std::time::Instant::now() < until, "never marked");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(!is_marked(pid(&plain)).unwrap());
        for child in [&mut plain, &mut marked] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
