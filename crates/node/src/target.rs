//! The gateway of a node, and whether plain text to it is permitted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use interlock_tls::{Fingerprint, NotAFingerprint};

/// A gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayTarget {
    pub host: String,
    pub port: u16,
    /// The certificate that the gateway must show; `None` means plain text.
    pub tls: Option<Fingerprint>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("`{0}` is not the name or address of a host")]
    Host(String),
    #[error("plain text to {0} could be read and changed on the way")]
    Plaintext(String),
    #[error("{host} leads to {address}: plain text to it could be read and changed on the way")]
    LeadsAway { host: String, address: IpAddr },
    #[error(transparent)]
    Fingerprint(#[from] NotAFingerprint),
}

impl TargetError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Host(_) => "GATEWAY_HOST_INVALID",
            Self::Plaintext(_) | Self::LeadsAway { .. } => "PLAINTEXT_REFUSED",
            Self::Fingerprint(_) => "FINGERPRINT_INVALID",
        }
    }

    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Host(_) => "name it alone, without scheme or port: --host gateway.example",
            Self::Plaintext(_) | Self::LeadsAway { .. } => {
                "use --tls --tls-fingerprint SHA256 with the fingerprint of the gateway's certificate, or reach it through a tunnel or a tailnet"
            }
            Self::Fingerprint(_) => {
                "on the gateway's machine, `interlock gateway status` prints it; for a certificate in a file, openssl x509 -in FILE -noout -fingerprint -sha256 does"
            }
        }
    }
}

impl GatewayTarget {
    /// Makes a target. Plain text is only permitted to this machine, to private networks, and to
    /// tailnets, which are encrypted themselves.
    pub fn new(host: &str, port: u16, tls: Option<Fingerprint>) -> Result<Self, TargetError> {
        let host = host.trim();
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_address = host.parse::<IpAddr>().is_ok();
        if host.is_empty() || !is_address && !host.chars().all(is_name) {
            return Err(TargetError::Host(host.to_owned()));
        }
        if tls.is_none() && !is_near(host) {
            return Err(TargetError::Plaintext(host.to_owned()));
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            tls,
        })
    }

    /// Checks the address that a name led to, because a resolver can return any address. Must be
    /// called before anything is sent.
    pub(crate) fn check_reached(&self, address: IpAddr) -> Result<(), TargetError> {
        if self.tls.is_some() || is_near_address(address) {
            return Ok(());
        }
        Err(TargetError::LeadsAway {
            host: self.host.clone(),
            address,
        })
    }

    /// The key of the stored secrets of this gateway: its certificate, or its address.
    pub(crate) fn key(&self) -> String {
        match self.tls {
            Some(fingerprint) => format!("sha256:{fingerprint}"),
            None => format!("{}:{}", self.host.to_ascii_lowercase(), self.port),
        }
    }

    /// The WebSocket address.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "wss" } else { "ws" };
        format!("{scheme}://{}/", self.authority())
    }

    /// Host and port, as requests name them.
    pub fn authority(&self) -> String {
        let host = match self.host.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]"),
            Err(_) => self.host.clone(),
        };
        format!("{host}:{}", self.port)
    }
}

/// Names that can only lead to this machine, the local network or a tailnet.
const NEAR_NAMES: &[&str] = &["localhost", "local", "ts.net"];

fn is_near(host: &str) -> bool {
    if let Ok(address) = host.parse::<IpAddr>() {
        return is_near_address(address);
    }
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let is_under = |name: &str| {
        let rest = host.strip_suffix(name);
        rest.is_some_and(|rest| rest.is_empty() && name == "localhost" || rest.ends_with('.'))
    };
    NEAR_NAMES.iter().any(|name| is_under(name))
}

fn is_near_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_near_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => is_near_v4(address),
            None => {
                address.is_loopback()
                    || address.is_unique_local()
                    || address.is_unicast_link_local()
            }
        },
    }
}

fn is_near_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        // Tailnets assign addresses of this range.
        || first == 100 && second & 0xc0 == 64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn plain_text_goes_only_where_no_other_machine_listens() {
        for near in [
            "127.0.0.1",
            "127.8.8.8",
            "::1",
            "[::1]",
            "localhost",
            "a.localhost",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.1.1",
            "100.64.0.1",
            "100.127.255.254",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
            "gateway.local",
            "box.tail1234.ts.net",
            "Box.Tail.TS.net.",
        ] {
            assert!(GatewayTarget::new(near, 1, None).is_ok(), "{near}");
        }
        for far in [
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "2001:db8::1",
            "::ffff:8.8.8.8",
            "example.org",
            "local",
            "ts.net",
            "evil-ts.net",
            "localhost.example.org",
            "mylocal",
        ] {
            let refused = GatewayTarget::new(far, 1, None).unwrap_err();
            assert_eq!(refused, TargetError::Plaintext(far.to_owned()));
            let pinned = GatewayTarget::new(far, 1, Some(Fingerprint::of(b"any")));
            assert!(pinned.unwrap().url().starts_with("wss://"), "{far}");
        }
    }

    #[test]
    fn a_name_that_leads_away_gets_no_plain_text() {
        let near = GatewayTarget::new("gateway.local", 1, None).unwrap();
        let pinned = GatewayTarget::new("gateway.local", 1, Some(Fingerprint::of(b"any"))).unwrap();
        for address in ["192.168.1.1", "100.64.0.1", "::1", "fe80::1"] {
            let address = address.parse().unwrap();
            assert_eq!(near.check_reached(address), Ok(()));
        }
        for address in ["203.0.113.7", "2001:db8::1", "::ffff:8.8.8.8"] {
            let address = address.parse().unwrap();
            let refused = near.check_reached(address).unwrap_err();
            assert_eq!(refused.code(), "PLAINTEXT_REFUSED");
            assert_eq!(pinned.check_reached(address), Ok(()));
        }
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_nothing_else() {
        for odd in ["", "a/b", "ws://a", "a:1", "a b", "user@a", "a?x", "a#x"] {
            let refused = GatewayTarget::new(odd, 1, None).unwrap_err();
            assert_eq!(refused.code(), "GATEWAY_HOST_INVALID", "{odd}");
        }
        let target = GatewayTarget::new("::1", 7, None).unwrap();
        assert_eq!(target.url(), "ws://[::1]:7/");
    }
}
