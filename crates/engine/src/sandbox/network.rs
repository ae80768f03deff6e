//! The network of a scope, made inside by its keeper and served outside by `interlock netd`: routes
//! that make every address local, a DNS socket, and listeners. The sockets leave the scope as
//! descriptors, so that no bridge, file or variable leads out.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};

use super::unsafe_confine::attach_filter;
use interlock_syscalls::FilterInstruction;

/// The ports on the scope's loopback where proxy-aware programs find a proxy.
pub const CONNECT_PORT: u16 = 3_128;
pub const SOCKS_PORT: u16 = 1_080;

const DNS_PORT: u16 = 53;

/// Most ports that are listened on. Each needs a descriptor.
pub const MOST_PORTS: usize = 20;

/// The first interface of every network namespace.
const LOOPBACK_INDEX: u32 = 1;

/// The sockets of a scope's network.
#[derive(Debug)]
pub struct ScopeSockets {
    pub dns: OwnedFd,
    pub dns_stream: OwnedFd,
    /// Sees the first packet of every TCP connection, so that refused connections are known too.
    pub attempts: OwnedFd,
    pub connect: OwnedFd,
    pub socks: OwnedFd,
    /// One listener per port of the rules, in their order.
    pub listeners: Vec<OwnedFd>,
}

impl ScopeSockets {
    /// Makes the sockets in the keeper, inside its network, before it gives up its capabilities.
    pub(super) fn make(ports: &[u16]) -> io::Result<Self> {
        add_local_route(AddressFamily::INET)?;
        // A machine without IPv6 has no IPv6 addresses to reach.
        let _ = add_local_route(AddressFamily::INET6);
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listeners = ports.iter().map(|port| listen_everywhere(*port));
        Ok(Self {
            dns: UdpSocket::bind(local(DNS_PORT))?.into(),
            dns_stream: TcpListener::bind(local(DNS_PORT))?.into(),
            attempts: watch_attempts()?,
            connect: TcpListener::bind(local(CONNECT_PORT))?.into(),
            socks: TcpListener::bind(local(SOCKS_PORT))?.into(),
            listeners: listeners.collect::<io::Result<_>>()?,
        })
    }

    pub fn from_descriptors(descriptors: Vec<OwnedFd>) -> io::Result<Self> {
        let mut all = descriptors.into_iter();
        let mut next = || {
            let missing = || io::Error::other("a socket of the scope is missing");
            all.next().ok_or_else(missing)
        };
        Ok(Self {
            dns: next()?,
            dns_stream: next()?,
            attempts: next()?,
            connect: next()?,
            socks: next()?,
            listeners: all.collect(),
        })
    }

    pub fn into_descriptors(self) -> Vec<OwnedFd> {
        let mut all = vec![
            self.dns,
            self.dns_stream,
            self.attempts,
            self.connect,
            self.socks,
        ];
        all.extend(self.listeners);
        all
    }
}

/// Makes a listener for connections to any address, of both families or of the only available one.
fn listen_everywhere(port: u16) -> io::Result<OwnedFd> {
    let both = TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    let listener = both.or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))?;
    Ok(listener.into())
}

/// Passes packets that request a connection, which have the TCP flag SYN but not ACK.
const ATTEMPTS: [FilterInstruction; 6] = [
    // Loads the length of the IP header, then the TCP flags behind it.
    instruction(0xb1, 0, 0, 0),
    instruction(0x50, 0, 0, 13),
    instruction(0x54, 0, 0, 0x12),
    instruction(0x15, 0, 1, 0x02),
    instruction(0x06, 0, 0, 64),
    instruction(0x06, 0, 0, 0),
];

const fn instruction(code: u16, jump_true: u8, jump_false: u8, value: u32) -> FilterInstruction {
    FilterInstruction {
        code,
        jump_true,
        jump_false,
        value,
    }
}

fn watch_attempts() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::RAW,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(ipproto::TCP),
    )?;
    attach_filter(socket.as_fd(), &ATTEMPTS)?;
    Ok(socket)
}

/// Makes every address of a family local to this network: a connection to any of them reaches a
/// listener here, or is refused at once.
fn add_local_route(family: AddressFamily) -> io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // `None` is protocol number 0, which is the protocol of routes.
        None,
    )?;
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::bind(&socket, &kernel)?;
    rustix::net::sendto(&socket, &route_request(family), SendFlags::empty(), &kernel)?;
    let mut answer = [0; 256];
    let (length, _) = rustix::net::recv(&socket, answer.as_mut_slice(), RecvFlags::empty())?;
    // The answer has a header of 16 bytes, followed by the error, where 0 is an acknowledgment.
    let error = answer.get(..length).and_then(|answer| answer.get(16..20));
    let error = error.and_then(|bytes| bytes.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Builds the kernel's form of `ip route add local 0.0.0.0/0 dev lo table local`.
fn route_request(family: AddressFamily) -> Vec<u8> {
    const NEW_ROUTE: u16 = 24;
    const REQUEST_ACK_CREATE_EXCLUSIVE: u16 = 0x1 | 0x4 | 0x200 | 0x400;
    const LENGTH: u32 = 16 + 12 + 8;
    const TABLE_LOCAL: u8 = 255;
    const PROTOCOL_BOOT: u8 = 3;
    const SCOPE_HOST: u8 = 254;
    const TYPE_LOCAL: u8 = 2;
    const OUTPUT_INTERFACE: u16 = 4;
    let mut request = Vec::with_capacity(36);
    request.extend(LENGTH.to_ne_bytes());
    request.extend(NEW_ROUTE.to_ne_bytes());
    request.extend(REQUEST_ACK_CREATE_EXCLUSIVE.to_ne_bytes());
    request.extend(1_u32.to_ne_bytes());
    request.extend(0_u32.to_ne_bytes());
    // Family; destination, source and service with no bits; table, protocol, scope, type; no flags.
    let family = u8::try_from(family.as_raw()).unwrap_or_default();
    request.extend([family, 0, 0, 0]);
    request.extend([TABLE_LOCAL, PROTOCOL_BOOT, SCOPE_HOST, TYPE_LOCAL]);
    request.extend(0_u32.to_ne_bytes());
    request.extend(8_u16.to_ne_bytes());
    request.extend(OUTPUT_INTERFACE.to_ne_bytes());
    request.extend(LOOPBACK_INDEX.to_ne_bytes());
    request
}
