//! Finds out which process is at the other end of a TCP connection of this machine, and whether it
//! belongs to a run.
//!
//! `diag` asks the kernel for the socket, `holders` finds the processes that hold it. A socket can
//! have several holders, because it can be inherited and passed on. One holder in a run makes the
//! whole connection one of that run. `seen` remembers which processes belong to no run, so that a
//! look reads only the descriptors of the others.

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

/// The origin of the other end of a TCP connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TcpOrigin {
    /// The other end is on another machine.
    Remote,
    /// The other end is held by processes of this machine, none of which belongs to a run.
    Outside,
    /// The other end is held by a process of a run, which the shim of this number serves. `None` if
    /// the shim is unknown.
    Run(Option<i32>),
    /// The holder is on this machine, and it is not certain that it belongs to no run. Carries the
    /// reason.
    Unidentified(String),
    /// The same, because processes started or ended during the look. A program with several threads
    /// that starts other programs lets each of these hold all of its sockets for a moment, so
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

    /// Finds the origins of several connections with one look at the processes of the machine. It
    /// reads much of `/proc`, so the network thread must not call it.
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
        // If a socket has no holder, every process that may hide one counts.
        let processes = self.seen.holding(&wanted);
        let processes = processes.unwrap_or_else(|| Processes::holding(&wanted));
        let origin = |found: Result<Option<DiagSocket>, TcpOrigin>| match found {
            Err(origin) => origin,
            Ok(None) => TcpOrigin::Unidentified("its socket is closed".to_owned()),
            Ok(Some(socket)) => origin_of(socket, &processes, &self.place),
        };
        found.into_iter().map(origin).collect()
    }

    /// Finds out which processes belong to no run, for later looks. This is called after the answer
    /// was given.
    pub fn learn(&mut self) {
        let place = &self.place;
        self.seen
            .learn(|pid| matches!(belonging(pid, place), Belonging::Outside));
    }
}

/// Returns the socket of the other end. `Ok(None)` means that it is on this machine, and closed. An
/// error carries what is known without the socket.
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

/// Whether the other end has an address of this machine. For a packet to one of its own addresses,
/// the kernel chooses that same address as the source; nothing is sent here.
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
    // A process of a run that hides its descriptors may be another holder. A hidden process of
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

/// Handles a socket that no readable process has. Programs such as the SSH daemon hide from
/// processes of their own user. If there is such a program, and if no process of a run could have
/// hidden the socket, the socket belongs to that program.
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

/// Whether processes of runs have this user. The account that runs commands always counts.
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
