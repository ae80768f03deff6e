//! Asks the kernel which socket is the other end of a connection, by `NETLINK_SOCK_DIAG`, or by the
//! text of `/proc/net/tcp` if that is not available.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr};

use rustix::net::netlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::TcpEnds;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const IPPROTO_TCP: u8 = 6;
const LISTENING: u8 = 10;
const HEADER: usize = 16;
const NOT_FOUND: i32 = 2;

/// The kernel answers during the request. This limit is for systems that only imitate it.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);

/// A socket of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiagSocket {
    /// The user who made the socket.
    pub user: u32,
    /// The inode as `/proc/PID/fd` shows it, or 0 if no process has the socket anymore.
    pub inode: u32,
}

/// Returns the socket at the other end, if it is in this network namespace.
pub(super) fn find(ends: &TcpEnds) -> io::Result<Option<DiagSocket>> {
    match ask(ends) {
        Ok(found) => Ok(found),
        Err(_) => in_table(ends),
    }
}

fn ask(ends: &TcpEnds) -> io::Result<Option<DiagSocket>> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    rustix::net::send(&socket, &request(ends), SendFlags::empty())?;
    let mut answer = [0; 4096];
    let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    read_answer(answer.get(..length).unwrap_or_default(), ends)
}

/// Builds `nlmsghdr` and `inet_diag_req_v2`. The socket's own address is the peer's here.
fn request(ends: &TcpEnds) -> Vec<u8> {
    let (family, peer) = address(ends.peer.ip());
    let (_, local) = address(ends.local.ip());
    let mut bytes = Vec::with_capacity(72);
    bytes.extend(72_u32.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, IPPROTO_TCP, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(ends.peer.port().to_be_bytes());
    bytes.extend(ends.local.port().to_be_bytes());
    bytes.extend(peer);
    bytes.extend(local);
    bytes.extend(scope(ends).to_ne_bytes());
    // Any cookie matches.
    bytes.extend([0xff; 8]);
    bytes
}

/// Returns the interface of a link-local address.
fn scope(ends: &TcpEnds) -> u32 {
    match ends.peer {
        std::net::SocketAddr::V6(address) => address.scope_id(),
        std::net::SocketAddr::V4(_) => 0,
    }
}

/// Encodes an address. An IPv6 socket that speaks IPv4 is found by its IPv4 address.
fn address(ip: IpAddr) -> (u8, [u8; 16]) {
    let mut bytes = [0; 16];
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            bytes[..4].copy_from_slice(&ip.octets());
            (2, bytes)
        }
        IpAddr::V6(ip) => (10, ip.octets()),
    }
}

/// Parses `inet_diag_msg`. If no connection has these ends, the kernel may name a listening socket.
fn read_answer(answer: &[u8], ends: &TcpEnds) -> io::Result<Option<DiagSocket>> {
    let broken = || io::Error::from(io::ErrorKind::InvalidData);
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok());
    let body = answer.get(HEADER..).unwrap_or_default();
    let number = |at: usize| {
        let bytes = body.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_ne_bytes(bytes))
    };
    match kind.map(u16::from_ne_bytes) {
        Some(SOCK_DIAG_BY_FAMILY) => {}
        Some(NLMSG_ERROR) => {
            let error = number(0).ok_or_else(broken)?.cast_signed().saturating_neg();
            return match error {
                NOT_FOUND => Ok(None),
                error => Err(io::Error::from_raw_os_error(error)),
            };
        }
        _ => return Err(broken()),
    }
    let state = body.get(1).copied().ok_or_else(broken)?;
    let ports = body.get(4..8).ok_or_else(broken)?;
    let expected = [
        ends.peer.port().to_be_bytes(),
        ends.local.port().to_be_bytes(),
    ]
    .concat();
    if state == LISTENING || ports != expected {
        return Ok(None);
    }
    Ok(Some(DiagSocket {
        user: number(64).ok_or_else(broken)?,
        inode: number(68).ok_or_else(broken)?,
    }))
}

fn in_table(ends: &TcpEnds) -> io::Result<Option<DiagSocket>> {
    let four = fs::read_to_string("/proc/net/tcp")?;
    let six = fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    let mut rows = four.lines().chain(six.lines());
    Ok(rows.find_map(|row| row_of(row, ends)))
}

/// Parses `sl local remote state queues timer retransmits uid timeout inode …`.
fn row_of(row: &str, ends: &TcpEnds) -> Option<DiagSocket> {
    let mut fields = row.split_ascii_whitespace().skip(1);
    let is = |field: Option<&str>, end: std::net::SocketAddr| {
        let (ip, port) = field.and_then(|field| field.split_once(':'))?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let same = table_address(ip)? == end.ip().to_canonical() && port == end.port();
        same.then_some(())
    };
    is(fields.next(), ends.peer)?;
    is(fields.next(), ends.local)?;
    Some(DiagSocket {
        user: fields.nth(4)?.parse().ok()?,
        inode: fields.nth(1)?.parse().ok()?,
    })
}

/// Parses hexadecimal words of 32 bits, in the byte order of this machine.
fn table_address(digits: &str) -> Option<IpAddr> {
    let mut bytes = Vec::new();
    for word in digits.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip: IpAddr = match <[u8; 4]>::try_from(bytes.as_slice()) {
        Ok(four) => four.into(),
        Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?).into(),
    };
    Some(ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt as _;

    fn ends_of(listen: &str, connect: &str) -> Option<(TcpStream, TcpStream, TcpEnds)> {
        let listener = TcpListener::bind((listen, 0)).ok()?;
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect((connect, port)).ok()?;
        let (server, peer) = listener.accept().unwrap();
        let local = server.local_addr().unwrap();
        Some((client, server, TcpEnds { local, peer }))
    }

    #[test]
    fn the_socket_of_the_other_end_is_found_in_each_family() {
        let mut tried = 0;
        let ways = [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("::", "127.0.0.1"),
            ("::", "::1"),
        ];
        for (listen, connect) in ways {
            let Some((client, _server, ends)) = ends_of(listen, connect) else {
                println!("skipped: {listen}");
                continue;
            };
            let link = std::fs::metadata(format!(
                "/proc/self/fd/{}",
                std::os::fd::AsRawFd::as_raw_fd(&client)
            ));
            let inode = u32::try_from(link.unwrap().ino()).unwrap();
            let expected = Some(DiagSocket {
                user: rustix::process::geteuid().as_raw(),
                inode,
            });
            match ask(&ends) {
                Ok(found) => assert_eq!(found, expected, "{listen} {connect}"),
                Err(error) => println!("no socket diagnostics here: {error}"),
            }
            assert_eq!(in_table(&ends).unwrap(), expected, "{listen} {connect}");
            tried += 1;
        }
        assert!(tried > 0);
    }

    #[test]
    fn a_connection_that_is_not_there_is_not_found() {
        let (client, server, mut ends) = ends_of("127.0.0.1", "127.0.0.1").unwrap();
        ends.peer.set_port(ends.peer.port() ^ 1);
        assert_eq!(find(&ends).unwrap(), None);
        drop((client, server));
    }
}
