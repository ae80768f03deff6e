//! Who is at the other end of a connection, and may it ask for anything?
//!
//! A run must not be able to start, read or end runs: what it may do was judged, and this door was
//! not part of that. Every process of a run descends from the supervisor, however it detaches
//! itself, because each run has a subreaper there.

use std::io;
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags};

use super::message::Refusal;
use super::unsafe_process;
use crate::engine::process_table;

/// Longer chains of parents do not occur; a walk through a changing table must end.
const MAX_ANCESTORS: usize = 4096;

/// Parents end, and their children get others: then the walk is begun anew.
const MAX_WALKS: usize = 10;

/// Lets a process of the same user through unless it descends from a run of this process, the
/// supervisor. Whatever cannot be found out is a no.
pub(super) fn check(connection: &UnixStream) -> Result<(), Refusal> {
    let unknown = |_: io::Error| refuse("it cannot be told who connects");
    let peer = unsafe_process::peer_credentials(connection).map_err(unknown)?;
    let me = rustix::process::getuid().as_raw();
    if peer.user != me && peer.user != 0 {
        return Err(refuse("it belongs to another user"));
    }
    let pid =
        Pid::from_raw(peer.pid).ok_or_else(|| refuse("the peer is in another PID namespace"))?;
    let process = unsafe_process::peer_process(connection)
        .or_else(|_| rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(Into::into))
        .map_err(unknown)?;
    descends_from_run(pid)?;
    // While the process lives its number is its own: what was read above was about this process.
    let mut ended = [PollFd::new(&process, PollFlags::IN)];
    match rustix::event::poll(&mut ended, Some(&Timespec::default())) {
        Ok(0) => Ok(()),
        _ => Err(refuse("the process that connected has ended")),
    }
}

fn descends_from_run(peer: Pid) -> Result<(), Refusal> {
    for _ in 0..MAX_WALKS {
        match walk_up(peer.as_raw_pid()) {
            Walk::Top => return Ok(()),
            Walk::Run => return Err(refuse("a run must not use the supervisor")),
            Walk::Broken => {}
        }
    }
    Err(refuse("its ancestors cannot be read"))
}

enum Walk {
    /// To the first process of this namespace, or the last one that can be seen from here.
    Top,
    /// It met the supervisor.
    Run,
    /// One of the ancestors ended meanwhile.
    Broken,
}

fn walk_up(mut pid: i32) -> Walk {
    let supervisor = rustix::process::getpid().as_raw_pid();
    let mut child_started = u64::MAX;
    for _ in 0..MAX_ANCESTORS {
        if pid == supervisor {
            return Walk::Run;
        }
        match process_table::parent_and_start(pid) {
            // Nobody is younger than their child: the number was given away again.
            Some((_, started)) if started > child_started => return Walk::Broken,
            Some((0, _)) => return Walk::Top,
            Some((parent, started)) => (pid, child_started) = (parent, started),
            None => return Walk::Broken,
        }
    }
    Walk::Broken
}

fn refuse(why: &str) -> Refusal {
    Refusal::new("PEER_REFUSED", format!("connection refused: {why}"))
}
