//! Which process is at the other end of a TCP connection of this machine, and does it belong to a
//! run?
//!
//! `diag` asks the kernel whose socket it is, `holders` finds the processes that hold it. A socket
//! can have several holders: it is inherited, and passed on. One holder in a run makes the whole
//! connection one of that run. `seen` remembers which processes belong to no run, so that a look
//! goes through the descriptors of the others only.

mod diag;
mod holders;
mod seen;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use interlock_engine::{mark, process_table};
use rustix::process::Pid;

use crate::cgroup;
use crate::{PeerOrigin, SupervisorPaths, descent};
use diag::DiagSocket;
use holders::{Processes, Unreadable};
use seen::SeenProcesses;

/// Both ends of an accepted connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpEnds {
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

/// Where the other end of a TCP connection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TcpOrigin {
    /// On another machine.
    Remote,
    /// Held by processes of this machine, none of which belongs to a run.
    Outside,
    /// Held by a process of a run, which the shim of this number serves; `None` where the shim is
    /// unknown.
    Run(Option<i32>),
    /// The holder is on this machine, and it is not certain that it is no run. Carries the reason.
    Unidentified(String),
    /// As before, because processes started or ended while they were looked at. A program with
    /// several threads that starts others lets each of these hold all its sockets for a moment:
    /// another look tells more.
    Moving(String),
}

/// Looks at connections, and remembers which processes belong to no run.
#[derive(Debug)]
pub struct TcpLooks {
    place: SupervisorPaths,
    seen: SeenProcesses,
}

impl TcpLooks {
    pub fn new(place: SupervisorPaths) -> Self {
        Self {
            place,
            seen: SeenProcesses::default(),
        }
    }

    /// Finds out where several connections come from, with one look at the processes of the machine.
    /// Reads much of `/proc`: not for the thread of the network.
    pub fn origins(&mut self, connections: &[TcpEnds]) -> Vec<TcpOrigin> {
        let found: Vec<Result<Option<DiagSocket>, TcpOrigin>> =
            connections.iter().map(find_socket).collect();
        let wanted: BTreeSet<u32> = found
            .iter()
            .filter_map(|found| found.as_ref().ok()?.as_ref())
            .map(|socket| socket.inode)
            .collect();
        if wanted.is_empty() {
            let unknown = || TcpOrigin::Unidentified("its socket is closed".to_owned());
            let found = found.into_iter();
            return found
                .map(|found| found.err().unwrap_or_else(unknown))
                .collect();
        }
        // Where a socket has no holder, every process counts that may hide one.
        let processes = self.seen.holding(&wanted);
        let processes = processes.unwrap_or_else(|| Processes::holding(&wanted));
        let origin = |found: Result<Option<DiagSocket>, TcpOrigin>| match found {
            Err(origin) => origin,
            Ok(None) => TcpOrigin::Unidentified("its socket is closed".to_owned()),
            Ok(Some(socket)) => origin_of(socket, &processes, &self.place),
        };
        found.into_iter().map(origin).collect()
    }

    /// Finds out which processes belong to no run, for the looks to come. For the time after the
    /// answer.
    pub fn learn(&mut self) {
        let place = &self.place;
        self.seen
            .learn(|pid| matches!(belonging(pid, place), Belonging::Outside));
    }
}

/// The socket of the other end. `Ok(None)`: it is on this machine, and closed. An error is what is
/// known without it.
fn find_socket(ends: &TcpEnds) -> Result<Option<DiagSocket>, TcpOrigin> {
    match diag::find(ends) {
        Ok(Some(socket)) if socket.inode != 0 => Ok(Some(socket)),
        Ok(Some(_)) => Ok(None),
        Ok(None) if is_local(ends) => Ok(None),
        Ok(None) => Err(TcpOrigin::Remote),
        Err(_) if !is_local(ends) => Err(TcpOrigin::Remote),
        Err(error) => Err(TcpOrigin::Unidentified(format!(
            "socket diagnostics fail: {error}"
        ))),
    }
}

/// Whether the other end has an address of this machine. The kernel sends what goes to an address
/// of its own from that same address; nothing is sent here.
fn is_local(ends: &TcpEnds) -> bool {
    let peer = ends.peer.ip().to_canonical();
    if peer.is_loopback() || peer == ends.local.ip().to_canonical() {
        return true;
    }
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut target = ends.peer;
    target.set_ip(peer);
    let source = || -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(target)?;
        Ok(socket.local_addr()?.ip())
    };
    source().is_ok_and(|source| source == peer)
}

fn origin_of(socket: DiagSocket, processes: &Processes, place: &SupervisorPaths) -> TcpOrigin {
    let holders = processes.holders_of(socket.inode);
    let mut in_run = None;
    let mut unknown = None;
    for &pid in holders.iter().filter(|pid| !processes.is_outsider(**pid)) {
        match belonging(pid, place) {
            Belonging::Outside => {}
            Belonging::Run(shim) => in_run = in_run.or(Some(shim)).map(|known| known.or(shim)),
            Belonging::Unknown => unknown = Some(pid),
        }
    }
    if let Some(shim) = in_run {
        return TcpOrigin::Run(shim);
    }
    if let Some(pid) = unknown {
        return TcpOrigin::Moving(format!("process {pid} cannot be read"));
    }
    // A process of a run that keeps its descriptors to itself may be one more holder. One of
    // another user is a set-user-id program, which the run does not control.
    if let Some(hidden) = processes
        .unreadable_of_runs()
        .find(|process| process.has_user(socket.user))
    {
        return TcpOrigin::Moving(format!(
            "process {} ({}) of a run does not show its descriptors",
            hidden.pid, hidden.name
        ));
    }
    if !holders.is_empty() || !is_user_of_runs(socket.user, processes) {
        return TcpOrigin::Outside;
    }
    without_holder(socket, processes)
}

/// No process that can be read has the socket. Programs such as the SSH daemon close themselves to
/// processes of their own user. If there is one, and if no process of a run could have put the
/// socket where it is not seen, it is that program's.
fn without_holder(socket: DiagSocket, processes: &Processes) -> TcpOrigin {
    let is_closed_program = |process: &&Unreadable| {
        !process.is_marked
            && process.has_user(socket.user)
            && !process.name.starts_with("interlock")
    };
    if !processes
        .unreadable
        .iter()
        .any(|process| is_closed_program(&process))
    {
        return TcpOrigin::Moving("no process holds its socket".to_owned());
    }
    match processes.hides_descriptors() {
        Some(pid) => TcpOrigin::Moving(format!(
            "no process shows its socket, and process {pid} of a run has descriptors in transit"
        )),
        None => TcpOrigin::Outside,
    }
}

/// Whether processes of runs have this user. The account that commands run under always counts.
fn is_user_of_runs(user: u32, processes: &Processes) -> bool {
    user == rustix::process::geteuid().as_raw()
        || user == rustix::process::getuid().as_raw()
        || processes.users_of_runs().contains(&user)
}

enum Belonging {
    Outside,
    Run(Option<i32>),
    Unknown,
}

/// Whether a process belongs to a run, by its ancestors, its mark or its control group.
fn belonging(pid: i32, place: &SupervisorPaths) -> Belonging {
    let Some(before) = process_table::row(pid) else {
        return Belonging::Unknown;
    };
    let Some(number) = Pid::from_raw(pid) else {
        return Belonging::Unknown;
    };
    let origin = descent(number, place);
    let is_marked = mark::is_marked(pid);
    let is_in_group = matches!(cgroup::run_of(pid), Ok(Some(_)));
    let is_same = process_table::row(pid).is_some_and(|now| now.started == before.started);
    match (origin, is_marked) {
        _ if !is_same => Belonging::Unknown,
        (Ok(PeerOrigin::Run(shim)), _) => Belonging::Run(shim),
        (Ok(PeerOrigin::Outside), Ok(true)) => Belonging::Run(None),
        (Ok(PeerOrigin::Outside), Ok(false)) if is_in_group => Belonging::Run(None),
        (Ok(PeerOrigin::Outside), Ok(false)) => Belonging::Outside,
        (Err(_), _) | (_, Err(_)) => Belonging::Unknown,
    }
}

#[cfg(test)]
mod tests;
