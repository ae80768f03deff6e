//! The part of SOCKS5 that connects: no authentication, no binding, no UDP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use interlock_plan::{TargetHost, plain_address};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const NO_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;

/// The reply to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocksReply {
    Connected = 0,
    NotAllowed = 2,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

/// Reads the target that a client asks for. On an error, the client has already got a reply.
pub(crate) async fn read_request(
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> io::Result<(TargetHost, u16)> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    if client.read_u8().await? != VERSION {
        return Err(invalid());
    }
    let count = usize::from(client.read_u8().await?);
    let mut methods = vec![0; count];
    client.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        client.write_all(&[VERSION, NO_METHOD]).await?;
        return Err(invalid());
    }
    client.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let [VERSION, command, _, kind] = head else {
        return Err(invalid());
    };
    let host = match kind {
        1 => {
            let mut address = [0; 4];
            client.read_exact(&mut address).await?;
            Some(TargetHost::Address(IpAddr::V4(Ipv4Addr::from(address))))
        }
        4 => {
            let mut address = [0; 16];
            client.read_exact(&mut address).await?;
            let address = IpAddr::V6(Ipv6Addr::from(address));
            Some(TargetHost::Address(plain_address(address)))
        }
        3 => {
            let length = usize::from(client.read_u8().await?);
            let mut name = vec![0; length];
            client.read_exact(&mut name).await?;
            let name = String::from_utf8(name).ok();
            name.and_then(|name| TargetHost::read(&name).ok())
        }
        _ => None,
    };
    let port = client.read_u16().await?;
    match host {
        _ if command != CONNECT => {
            reply(client, SocksReply::CommandNotSupported).await?;
            Err(invalid())
        }
        Some(host) if port != 0 => Ok((host, port)),
        _ => {
            reply(client, SocksReply::AddressNotSupported).await?;
            Err(invalid())
        }
    }
}

pub(crate) async fn reply(
    client: &mut (impl AsyncWrite + Unpin),
    reply: SocksReply,
) -> io::Result<()> {
    // The reply contains no useful bound address.
    client
        .write_all(&[VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0])
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(bytes: &[u8]) -> (Option<(String, u16)>, Vec<u8>) {
        let (mut client, mut server) = tokio::io::duplex(4096);
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let asked = read_request(&mut server).await.ok();
        drop(server);
        let mut told = Vec::new();
        client.read_to_end(&mut told).await.unwrap();
        (asked.map(|(host, port)| (host.to_string(), port)), told)
    }

    #[tokio::test(flavor = "current_thread")]
    async fn names_and_addresses_are_read_and_the_rest_is_refused() {
        let named = [&[5, 1, 0, 5, 1, 0, 3, 7][..], b"OK.test", &[1, 187]].concat();
        assert_eq!(ask(&named).await.0, Some(("ok.test".to_owned(), 443)));
        let four = [5, 2, 2, 0, 5, 1, 0, 1, 203, 0, 113, 7, 0, 80];
        assert_eq!(ask(&four).await.0, Some(("203.0.113.7".to_owned(), 80)));
        let mut mapped = vec![5, 1, 0, 5, 1, 0, 4];
        mapped.extend(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped().octets());
        mapped.extend([0, 80]);
        assert_eq!(ask(&mapped).await.0, Some(("10.0.0.1".to_owned(), 80)));
        // Only with a password; UDP; a name that is none; no port; another version; cut short.
        assert_eq!(ask(&[5, 1, 2]).await, (None, vec![5, 0xff]));
        let udp = [5, 1, 0, 5, 3, 0, 1, 203, 0, 113, 7, 0, 80];
        assert_eq!(ask(&udp).await.1[3], 7);
        let zero = [&[5, 1, 0, 5, 1, 0, 3, 4][..], b"a\0.b", &[1, 187]].concat();
        assert_eq!(ask(&zero).await.1[3], 8);
        assert!(ask(&[4, 1, 0, 80, 127, 0, 0, 1, 0]).await.0.is_none());
        for end in 0..named.len() {
            assert!(ask(&named[..end]).await.0.is_none());
        }
    }
}
