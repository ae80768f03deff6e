//! Finds the run that made a connection inside the network of a sandbox. Runs of one scope share a
//! network, so neither an address nor a user distinguishes them, but the process that holds the
//! socket does.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use interlock_engine::process_table;
use interlock_transcript::SessionRecord;

use crate::paths::SupervisorPaths;
use crate::retention::{ListedSession, SessionState, list, served_by};

/// How often to look, and the pause in between: a run is not recorded in its first moments, and a
/// process may hand its socket to a child meanwhile.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// Longest chain of parents. Longer ones do not occur, and a walk through a changing table must
/// end.
const MAX_ANCESTORS: usize = 4096;

/// A connection inside the network, as the program that made it sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InnerConnection {
    /// The inode of the network namespace.
    pub namespace: u64,
    pub from: SocketAddr,
    pub to: SocketAddr,
}

/// Returns the run that made the connection, or `None` if no single run holds it. A decision for
/// one run must then not allow it.
pub fn run_of_connection(
    place: &SupervisorPaths,
    connection: &InnerConnection,
) -> Option<SessionRecord> {
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(PAUSE);
        }
        match shims_that_hold(place, connection).as_slice() {
            [] => {}
            [shim] => {
                if let Some(session) = served_by(place, *shim) {
                    return Some(session);
                }
            }
            _ => return None,
        }
    }
    None
}

/// Returns the processes that serve the runs which hold the socket.
fn shims_that_hold(place: &SupervisorPaths, connection: &InnerConnection) -> Vec<i32> {
    let shims = shims(place);
    let inside = processes_in(connection.namespace);
    let Some(inode) = inside.iter().find_map(|pid| socket_inode(*pid, connection)) else {
        return Vec::new();
    };
    let holders = inside.into_iter().filter(|pid| holds_socket(*pid, inode));
    let owners: BTreeSet<i32> = holders
        .map(|pid| ancestor_among(pid, &shims).unwrap_or_default())
        .collect();
    owners.into_iter().collect()
}

/// Returns the shims of running runs. A run in its first moments is not among them yet.
fn shims(place: &SupervisorPaths) -> BTreeSet<i32> {
    let running = |one: &ListedSession| one.state != SessionState::Ended;
    let all = list(place, &[]).into_iter().filter(running);
    all.filter_map(|one| one.session.shim).collect()
}

/// Returns the processes in a network namespace.
fn processes_in(namespace: u64) -> Vec<i32> {
    let wanted = format!("net:[{namespace}]");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let is_inside = |pid: &i32| {
        let link = fs::read_link(format!("/proc/{pid}/ns/net"));
        link.is_ok_and(|link| link.to_str() == Some(wanted.as_str()))
    };
    pids.filter(is_inside).collect()
}

/// Returns the number of the socket at the program's end of the connection.
fn socket_inode(pid: i32, connection: &InnerConnection) -> Option<u64> {
    ["tcp", "tcp6"].into_iter().find_map(|table| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok()?;
        text.lines().skip(1).find_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let (from, to) = (read_end(fields.get(1)?)?, read_end(fields.get(2)?)?);
            let is_it = same(from, connection.from) && same(to, connection.to);
            let inode: u64 = fields.get(9)?.parse().ok()?;
            (is_it && inode != 0).then_some(inode)
        })
    })
}

fn same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}

/// Parses `0100007F:01BB`, or 32 digits for IPv6: words in the byte order of this machine.
fn read_end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let digits = address.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let address = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(words).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

/// Whether a process holds the socket. Threads usually share their descriptors, but need not.
fn holds_socket(pid: i32, inode: u64) -> bool {
    let wanted = PathBuf::from(format!("socket:[{inode}]"));
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    threads.into_iter().flatten().flatten().any(|thread| {
        let descriptors = fs::read_dir(thread.path().join("fd")).into_iter();
        let mut descriptors = descriptors.flatten().flatten();
        descriptors.any(|entry| fs::read_link(entry.path()).is_ok_and(|link| link == wanted))
    })
}

/// Returns the nearest of these processes that is an ancestor of `pid`.
fn ancestor_among(pid: i32, wanted: &BTreeSet<i32>) -> Option<i32> {
    let mut next = pid;
    for _ in 0..MAX_ANCESTORS {
        if wanted.contains(&next) {
            return Some(next);
        }
        next = process_table::row(next)?.parent;
        if next == 0 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn the_ends_of_a_connection_are_read_as_the_kernel_prints_them() {
        let four = read_end("0100007F:01BB").unwrap();
        assert_eq!(four, "127.0.0.1:443".parse().unwrap());
        let mapped = read_end("0000000000000000FFFF00000100007F:0050").unwrap();
        assert!(same(mapped, "127.0.0.1:80".parse().unwrap()));
        for wrong in ["", ":", "0100007F", "0100007F:", "01:50", "0100007F:1BBBB"] {
            assert_eq!(read_end(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_holder_of_a_socket_is_found_by_its_two_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let namespace = fs::metadata("/proc/self/ns/net").unwrap().ino();
        let connection = InnerConnection {
            namespace,
            from: client.local_addr().unwrap(),
            to: client.peer_addr().unwrap(),
        };
        let me = rustix::process::getpid().as_raw_pid();
        assert!(processes_in(namespace).contains(&me));
        let inode = socket_inode(me, &connection).unwrap();
        assert!(holds_socket(me, inode));
        assert!(!holds_socket(me, inode + 1_000_000));
        let other = InnerConnection {
            from: connection.to,
            ..connection
        };
        assert_eq!(socket_inode(me, &other), None);
        drop(client);
        assert!(!holds_socket(me, inode));
    }
}
