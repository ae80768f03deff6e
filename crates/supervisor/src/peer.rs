//! Finds out which process is at the other end of a connection, and whether it may make requests.
//!
//! A run must not be able to start, read or end runs: its rights were judged, and this socket was
//! not among them. Every process of a run descends from the supervisor, however it detaches itself,
//! because each run has a subreaper there.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use interlock_engine::{mark, process_table};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

use super::message::{PEER_REFUSED, SupervisorRefusal};
use super::paths::SupervisorPaths;
use super::{SUPERVISOR_NAME, unsafe_process};

/// Longest chain of parents. Longer ones do not occur, and a walk through a changing table must
/// end.
const MAX_ANCESTORS: usize = 4096;

/// Most attempts of a walk. It restarts if a parent ends, because the parent's children then get
/// another one.
const MAX_WALKS: usize = 10;

/// The origin of the process at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerOrigin {
    Outside,
    /// It descends from a run of this state directory, which the given process serves. `None` for a
    /// run of another state directory, and for a run whose supervisor is gone.
    Run(Option<i32>),
}

/// Most processes that are remembered as coming from outside.
const MOST_KNOWN: usize = 32;

/// Processes that come from outside, by number and start time. They stay outsiders for as long as
/// they live: a process that loses its parent gets one of the parent's ancestors instead.
#[derive(Debug, Default)]
pub(super) struct Outsiders(VecDeque<(i32, u64)>);

impl Outsiders {
    /// Accepts a process of the same user, unless it descends from a run of this process, the
    /// supervisor. Anything that cannot be found out counts as a refusal.
    pub fn check(
        &mut self,
        connection: &UnixStream,
        place: &SupervisorPaths,
    ) -> Result<(), SupervisorRefusal> {
        let me = rustix::process::getpid().as_raw_pid();
        let (peer, origin) = look(connection.as_fd(), |pid| {
            let name = process_table::row(pid.as_raw_pid()).map(|row| (row.pid, row.started));
            if name.is_some_and(|name| self.0.contains(&name)) {
                return Ok(PeerOrigin::Outside);
            }
            let origin = descent_below(pid, place, Some(me))?;
            if let (PeerOrigin::Outside | PeerOrigin::Run(None), Some(name)) = (origin, name) {
                self.0.truncate(MOST_KNOWN - 1);
                self.0.push_front(name);
            }
            Ok(origin)
        })?;
        // Runs of other state directories are callers like any other. But a process that carries
        // the mark of a run and has no supervisor above it is left over from a run that ended its
        // ancestors.
        let is_left = || mark::is_marked(peer.pid).unwrap_or(true);
        if matches!(origin, PeerOrigin::Run(Some(_)))
            || (origin == PeerOrigin::Outside && is_left())
        {
            return Err(refuse("a run must not use the supervisor"));
        }
        if peer.user != rustix::process::getuid().as_raw() && peer.user != 0 {
            return Err(refuse("it belongs to another user"));
        }
        Ok(())
    }
}

/// Checks, for other sockets that carry decisions, that the peer belongs to this user and is no run
/// of this state directory. If the connection leads to a listener, the peer is the process that
/// began to listen.
pub fn check_peer(
    connection: &UnixStream,
    place: &SupervisorPaths,
) -> Result<(), SupervisorRefusal> {
    match origin(connection, place)? {
        PeerOrigin::Outside => Ok(()),
        PeerOrigin::Run(_) => Err(refuse("it descends from a run")),
    }
}

/// Returns the origin of a process of this user, for transports that give runs fewer rights. An
/// error means that the peer may not connect at all, because it belongs to another user or its
/// origin is unknown.
pub fn origin(
    connection: impl AsFd,
    place: &SupervisorPaths,
) -> Result<PeerOrigin, SupervisorRefusal> {
    let (peer, origin) = look(connection.as_fd(), |pid| descent(pid, place))?;
    if peer.user != rustix::process::getuid().as_raw() {
        return Err(refuse("it belongs to another user"));
    }
    if origin == PeerOrigin::Outside && belongs_to_run(peer.pid)? {
        return Ok(PeerOrigin::Run(None));
    }
    Ok(origin)
}

/// Returns the origin of a process that another program, such as a message bus, named by its
/// number. The process must stay alive during the check.
pub fn process_origin(pid: u32, place: &SupervisorPaths) -> Result<PeerOrigin, SupervisorRefusal> {
    let unknown = || refuse("the process is not there");
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(unknown)?;
    let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|_| unknown())?;
    let origin = match descent(pid, place)? {
        PeerOrigin::Outside if belongs_to_run(pid.as_raw_pid())? => PeerOrigin::Run(None),
        origin => origin,
    };
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    match rustix::event::poll(&mut ended, Some(&Timespec::default())) {
        Ok(0) => Ok(origin),
        _ => Err(unknown()),
    }
}

/// Whether a process without a supervisor above it nevertheless belongs to a run, by the mark that
/// no process of a run can remove, or by its control group. A run that ends its ancestors leaves
/// exactly such processes.
fn belongs_to_run(pid: i32) -> Result<bool, SupervisorRefusal> {
    match mark::is_marked(pid) {
        Ok(true) => Ok(true),
        Ok(false) => Ok(matches!(crate::cgroup::run_of(pid), Ok(Some(_)))),
        Err(_) => Err(refuse("its limits cannot be read")),
    }
}

/// Returns the peer's origin. `origin_of` is asked about a process that is alive before and after
/// the call.
fn look(
    connection: BorrowedFd<'_>,
    origin_of: impl FnOnce(Pid) -> Result<PeerOrigin, SupervisorRefusal>,
) -> Result<(unsafe_process::Credentials, PeerOrigin), SupervisorRefusal> {
    let unknown = |_: io::Error| refuse("it is unknown which process connects");
    let peer = unsafe_process::peer_credentials(connection).map_err(unknown)?;
    let pid =
        Pid::from_raw(peer.pid).ok_or_else(|| refuse("the peer is in another PID namespace"))?;
    let process = unsafe_process::peer_process(connection)
        .or_else(|_| rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(Into::into))
        .map_err(unknown)?;
    let origin = origin_of(pid)?;
    // A living process keeps its number, so everything that was read above was about this process.
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    match rustix::event::poll(&mut ended, Some(&Timespec::default())) {
        Ok(0) => Ok((peer, origin)),
        _ => Err(refuse("the process that connected has ended")),
    }
}

/// Returns the origin of a process by its ancestors. The caller ensures that the number refers to
/// the same process all the time.
pub(crate) fn descent(peer: Pid, place: &SupervisorPaths) -> Result<PeerOrigin, SupervisorRefusal> {
    descent_below(peer, place, None)
}

fn descent_below(
    peer: Pid,
    place: &SupervisorPaths,
    supervisor: Option<i32>,
) -> Result<PeerOrigin, SupervisorRefusal> {
    for _ in 0..MAX_WALKS {
        match walk_up(peer.as_raw_pid(), place, supervisor) {
            AncestorWalk::Top => return Ok(PeerOrigin::Outside),
            AncestorWalk::OtherRun => return Ok(PeerOrigin::Run(None)),
            AncestorWalk::Run(shim) => return Ok(PeerOrigin::Run(Some(shim))),
            AncestorWalk::Broken => {}
        }
    }
    Err(refuse("its ancestors cannot be read"))
}

enum AncestorWalk {
    /// The walk reached the first process of this namespace, or the last one that is visible from
    /// here.
    Top,
    /// The walk met this process: the one that serves the run, or the supervisor.
    Run(i32),
    /// The walk reached the top, past a supervisor of another state directory.
    OtherRun,
    /// One of the ancestors ended meanwhile.
    Broken,
}

fn walk_up(mut pid: i32, place: &SupervisorPaths, supervisor: Option<i32>) -> AncestorWalk {
    let mut child_started = u64::MAX;
    let mut is_other_run = false;
    for _ in 0..MAX_ANCESTORS {
        if Some(pid) == supervisor {
            return AncestorWalk::Run(pid);
        }
        let Some(row) = process_table::row(pid) else {
            return AncestorWalk::Broken;
        };
        // This is another supervisor of the same state directory, perhaps one that takes no further
        // runs.
        if row.name == SUPERVISOR_NAME {
            if serves(pid, place) {
                return AncestorWalk::Run(pid);
            }
            is_other_run = true;
        }
        // A parent is never younger than its child, so the number was reused.
        if row.started > child_started {
            return AncestorWalk::Broken;
        }
        if row.parent == 0 {
            return if is_other_run {
                AncestorWalk::OtherRun
            } else {
                AncestorWalk::Top
            };
        }
        (pid, child_started) = (row.parent, row.started);
    }
    AncestorWalk::Broken
}

/// Whether a supervisor or shim was started for this state directory, by its command line. A
/// process can change its own command line, but not that of others.
fn serves(pid: i32, place: &SupervisorPaths) -> bool {
    let called = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = called.split(|byte| *byte == 0);
    let directory = words
        .find(|word| *word == b"--state-dir")
        .and_then(|_| words.next())
        .map(|word| Path::new(OsStr::from_bytes(word)));
    directory.is_none_or(|directory| place.is_at(directory))
}

fn refuse(why: &str) -> SupervisorRefusal {
    SupervisorRefusal::new(PEER_REFUSED, format!("connection refused: {why}"))
}
