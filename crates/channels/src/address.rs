//! Checks which addresses may be called: `https` only, and none of this machine or its network
//! unless the owner allows it. A name is resolved once, and only the checked addresses are dialed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hyper::Uri;
use interlock_tls::Trust;
use tokio::net::TcpStream;

/// The address of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAddress {
    /// The host and the port, as in the `Host` header.
    authority: String,
    host: String,
    port: u16,
    /// The prefix of every path, without a slash at its end.
    base: String,
    allows_private: bool,
}

/// Why an address is not called.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressRefusal {
    #[error("it is no address")]
    NotOne,
    #[error("it is not https")]
    NotHttps,
    #[error("it names no plain host")]
    NoHost,
    #[error("the service named a socket of another service")]
    Foreign,
    #[error("its name leads into this network: allowPrivateNetwork lets it")]
    Private,
    #[error("no address for its name: {0}")]
    Unresolved(String),
    #[error("cannot connect: {0}")]
    Unreachable(String),
}

/// A connection to a service.
pub trait ServiceStream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {}
impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send> ServiceStream for S {}

impl ServiceAddress {
    /// Parses an address. A numeric address of this network is refused here, before anything is
    /// resolved.
    pub fn check(text: &str, allows_private: bool) -> Result<Self, AddressRefusal> {
        let uri: Uri = text.parse().map_err(|_| AddressRefusal::NotOne)?;
        if uri.scheme_str() != Some("https") {
            return Err(AddressRefusal::NotHttps);
        }
        let authority = uri.authority().ok_or(AddressRefusal::NoHost)?;
        let host = authority.host().trim_matches(['[', ']']);
        if host.is_empty() || authority.as_str().contains('@') || uri.query().is_some() {
            return Err(AddressRefusal::NoHost);
        }
        if let Ok(number) = host.parse::<IpAddr>()
            && !allows_private
            && is_private_address(number)
        {
            return Err(AddressRefusal::Private);
        }
        Ok(Self {
            authority: authority.as_str().to_owned(),
            host: host.to_ascii_lowercase(),
            port: authority.port_u16().unwrap_or(443),
            base: uri.path().trim_end_matches('/').to_owned(),
            allows_private,
        })
    }

    /// Returns the address of a socket that this service named, and the path below it. The host
    /// must be the service's own or a name below `domain`, so that no answer can lead elsewhere.
    pub(crate) fn socket(
        &self,
        text: &str,
        domain: &str,
    ) -> Result<(Self, String), AddressRefusal> {
        let uri: Uri = text.parse().map_err(|_| AddressRefusal::NotOne)?;
        let rest = text
            .strip_prefix("wss://")
            .ok_or(AddressRefusal::NotHttps)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let address = Self::check(&format!("https://{}", &rest[..end]), self.allows_private)?;
        let is_below = address
            .host
            .strip_suffix(domain)
            .is_some_and(|front| front.ends_with('.'));
        if address.host != self.host && !is_below {
            return Err(AddressRefusal::Foreign);
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok((address, path.to_owned()))
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Connects to the addresses that were checked, and to no others.
    pub(crate) async fn connect(&self) -> Result<Box<dyn ServiceStream>, AddressRefusal> {
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let found: Vec<SocketAddr> = found
            .map_err(|error| AddressRefusal::Unresolved(error.to_string()))?
            .collect();
        if !self.allows_private && found.iter().any(|one| is_private_address(one.ip())) {
            return Err(AddressRefusal::Private);
        }
        let unreachable = |why: String| AddressRefusal::Unreachable(why);
        if found.is_empty() {
            return Err(AddressRefusal::Unresolved("none".to_owned()));
        }
        // The checked addresses are tried one after the other, and no others.
        let stream = TcpStream::connect(found.as_slice()).await;
        let stream = stream.map_err(|error| unreachable(error.to_string()))?;
        let _ = stream.set_nodelay(true);
        let stream = interlock_tls::connect(stream, &self.host, Trust::Machine).await;
        Ok(Box::new(
            stream.map_err(|error| unreachable(error.to_string()))?,
        ))
    }
}

/// Whether only this machine or its network has an address.
pub fn is_private_address(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_broadcast()
        || first == 0
        || (first == 100 && (64..128).contains(&second))
        || first >= 240
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let first = segments[0];
    address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || first & 0xfe00 == 0xfc00
        || matches!(first & 0xffc0, 0xfe80 | 0xfec0)
        // Addresses that a network translates by rules of its own.
        || segments[..3] == [0x64, 0xff9b, 1]
        || ipv4_within(segments).is_some_and(is_private_v4)
}

/// Returns the IPv4 address to which an IPv6 address leads through a translator or a tunnel.
fn ipv4_within(segments: [u16; 8]) -> Option<Ipv4Addr> {
    let ([0, 0, 0, 0, 0, 0, high, low]
    | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
    | [0x2002, high, low, ..]) = segments
    else {
        return None;
    };
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Some(Ipv4Addr::new(a, b, c, d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_addresses_of_plain_hosts_are_called() {
        for good in ["https://matrix.example.org", "https://h.example:8448/base/"] {
            assert!(ServiceAddress::check(good, false).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("http://matrix.example.org", AddressRefusal::NotHttps),
            ("ftp://matrix.example.org", AddressRefusal::NotHttps),
            ("https://user:pw@matrix.example.org", AddressRefusal::NoHost),
            ("https://127.0.0.1:8448", AddressRefusal::Private),
            ("https://[::1]/", AddressRefusal::Private),
            ("https://169.254.169.254/latest", AddressRefusal::Private),
            ("https://10.0.0.1", AddressRefusal::Private),
            ("https://[::ffff:10.0.0.1]/", AddressRefusal::Private),
            ("not an address", AddressRefusal::NotOne),
        ] {
            assert_eq!(ServiceAddress::check(bad, false), Err(why), "{bad}");
        }
        assert!(ServiceAddress::check("https://127.0.0.1:8448", true).is_ok());
        assert!(ServiceAddress::check("http://127.0.0.1:8448", true).is_err());
    }

    #[test]
    fn a_socket_is_of_the_service_that_named_it() {
        let slack = ServiceAddress::check("https://slack.com/api", false).unwrap();
        let socket = |text: &str| slack.socket(text, slack.host()).map(|(_, path)| path);
        let named = "wss://wss-primary.slack.com/link/?ticket=1&app_id=2";
        assert_eq!(socket(named).unwrap(), "/link/?ticket=1&app_id=2");
        assert_eq!(socket("wss://slack.com").unwrap(), "/");
        for (bad, why) in [
            ("ws://wss-primary.slack.com/", AddressRefusal::NotHttps),
            ("https://wss-primary.slack.com/", AddressRefusal::NotHttps),
            ("wss://slack.com.evil.example/", AddressRefusal::Foreign),
            ("wss://evilslack.com/", AddressRefusal::Foreign),
            ("wss://evil.example/?slack.com", AddressRefusal::Foreign),
            ("wss://slack.com@evil.example/", AddressRefusal::NoHost),
            ("wss://127.0.0.1:1/", AddressRefusal::Private),
            ("wss://[::1]/", AddressRefusal::Private),
            ("", AddressRefusal::NotOne),
        ] {
            assert_eq!(socket(bad), Err(why), "{bad}");
        }
    }

    #[test]
    fn addresses_of_this_network_are_recognized() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::808:808",
            "2002:7f00:1::1",
            "2002:a9fe:a9fe::",
            "::7f00:1",
            "fec0::1",
        ] {
            assert!(is_private_address(private.parse().unwrap()), "{private}");
        }
        // The last address is a public one behind a translator, the only kind that a network
        // without IPv4 has.
        for public in [
            "1.1.1.1",
            "142.250.1.1",
            "2606:4700::1111",
            "64:ff9b::808:808",
        ] {
            assert!(!is_private_address(public.parse().unwrap()), "{public}");
        }
    }
}
