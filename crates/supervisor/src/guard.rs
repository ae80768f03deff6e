//! The guard: the supervisor's parent, which ends and collects every process when the supervisor
//! dies.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use interlock_engine::tree;
use rustix::fs::FlockOperation;
use rustix::process::{Pid, WaitOptions};
use uuid::Uuid;

use super::paths::{SupervisorPaths, aside, is_aside};
use super::supervisor::{self, Setup};
use super::unsafe_fork::{fork_copy, fork_guard};
use super::unsafe_process::{self, Forked};
use super::{client, retention};
use crate::cgroup;

/// How long an earlier guard of the same version may take to clean up.
const TURN: Duration = Duration::from_secs(10);

/// Time between SIGTERM and SIGKILL for processes that a dead supervisor leaves behind.
const GRACE: Duration = Duration::from_millis(300);

/// Becomes the guard of a new supervisor for this state directory, in the background. The calling
/// process only waits until the guard is ready. The first message on `ready` is `ready`, or the
/// reason of a failure. Fails if this process has more than one thread.
pub fn guard(
    place: &SupervisorPaths,
    version: &str,
    idle_time: Option<Duration>,
    ready: File,
) -> io::Result<()> {
    place.create()?;
    // The starter must not be the parent, because it may be gone, or may not collect its children.
    fork_guard(place, version, idle_time, ready)
}

/// Takes `ready` once there is nothing more to report on it.
pub(super) fn stand_guard(
    place: &SupervisorPaths,
    version: &str,
    idle_time: Option<Duration>,
    ready: &mut Option<File>,
) -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::chdir("/")?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let Some(lock) = take_lock(place, version)? else {
        // Another guard was faster, and its supervisor works.
        say_ready(ready);
        return Ok(());
    };
    // The guard leaves the starter's group if that is allowed, so that the end of the starter's
    // service does not end this process and runs can have groups with limits. Otherwise runs have
    // neither.
    if let Err(reason) = cgroup::leave_service_group() {
        let _ = log(
            place,
            &format!("guard: stays in its starter's group: {reason}"),
        );
    }
    let _ = cgroup::lead_own_group();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let listener = place.listen(version)?;
    let instance = Uuid::new_v4().to_string();
    let (of_guard, of_supervisor) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match fork_copy()? {
        Forked::Child => {
            drop(of_supervisor);
            let setup = Setup {
                place: place.clone(),
                version: version.to_owned(),
                instance,
                listener,
                guard: of_guard,
                lock,
                idle_time: idle_time.unwrap_or(supervisor::IDLE_TIME),
            };
            let others = client::about_all(place, Some(version));
            retention::mark_lost(place, |instance| {
                others.iter().any(|other| other.instance == instance)
            });
            retention::remove_reserved(place, RESERVED_FOR);
            remove_dead_doors(place, version);
            // By this name, the process is recognized as an ancestor of runs. It takes the name
            // only after it has asked other supervisors itself.
            rustix::thread::set_name(c"interlock-super")?;
            say_ready(ready);
            detach(place)?;
            let outcome = supervisor::run(setup);
            if let Err(error) = &outcome {
                eprintln!("supervisor: {error}");
            }
            unsafe_process::exit(i32::from(outcome.is_err()))
        }
        Forked::Parent(supervisor) => {
            drop((listener, of_guard, ready.take()));
            rustix::thread::set_name(c"interlock-guard")?;
            detach(place)?;
            unsafe_process::trim_memory();
            // A supervisor that ended normally has handled its runs, and remaining processes may
            // stay.
            if !watch(supervisor) {
                for left in tree::end_descendants(GRACE) {
                    eprintln!("guard: could not end {} (pid {})", left.command, left.pid);
                }
            }
            retention::mark_lost(place, |other| other != instance);
            place.remove_socket(&aside(version, supervisor.as_raw_pid()));
            // The lock is free or still held by this process, unless another supervisor serves this
            // socket.
            if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
                place.remove_socket(version);
            }
            drop(of_supervisor);
            Ok(())
        }
    }
}

/// A starter that no longer listens is no reason to end, because other clients may have found this
/// supervisor.
fn say_ready(ready: &mut Option<File>) {
    if let Some(mut ready) = ready.take() {
        let _ = writeln!(ready, "ready");
    }
}

/// A directory that was reserved for a session is unused after this time.
const RESERVED_FOR: Duration = Duration::from_hours(24);

/// Takes the lock, which is held as long as the guard or the supervisor lives. `None` if another
/// supervisor serves.
fn take_lock(place: &SupervisorPaths, version: &str) -> io::Result<Option<OwnedFd>> {
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(place.lock(version))?;
    let until = Instant::now() + TURN;
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(lock.into())),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error.into()),
        }
        if client::is_serving(place, version) {
            return Ok(None);
        }
        if Instant::now() >= until {
            return Err(io::Error::other(
                "an earlier supervisor of this version has not finished yet",
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Removes the sockets of other supervisors that were killed together with their guards.
fn remove_dead_doors(place: &SupervisorPaths, own: &str) {
    let is_dead = |version: &str| {
        let connected = place.connect(version);
        connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    for version in place.versions() {
        if version == own || !is_dead(&version) {
            continue;
        }
        // No supervisor returns to a socket that was set aside. Any other socket is served only by
        // the holder of its lock.
        if is_aside(&version) {
            place.remove_socket(&version);
        } else if let Ok(lock) = OpenOptions::new().write(true).open(place.lock(&version))
            && rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
            && is_dead(&version)
        {
            place.remove_socket(&version);
        }
    }
}

/// Detaches this process from its starter's terminal and pipes.
fn detach(place: &SupervisorPaths) -> io::Result<()> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(place.log());
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    match log {
        Ok(log) => rustix::stdio::dup2_stderr(log.as_fd())?,
        Err(_) => rustix::stdio::dup2_stderr(&null)?,
    }
    Ok(())
}

/// Appends a line to the log, before standard error leads there.
fn log(place: &SupervisorPaths, line: &str) -> io::Result<()> {
    let mut log = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(place.log())?;
    writeln!(log, "{line}")
}

/// Waits until the supervisor has ended, and returns whether it ended normally. Any other process
/// that becomes a child of this one is collected. Nothing has a reason to stop the supervisor, so a
/// stopped supervisor is continued.
fn watch(supervisor: Pid) -> bool {
    loop {
        match rustix::process::wait(WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) if pid == supervisor && status.stopped() => {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
            }
            Ok(Some((pid, status))) if pid == supervisor => return status.exit_status() == Some(0),
            Err(rustix::io::Errno::CHILD) => return false,
            _ => {}
        }
    }
}
