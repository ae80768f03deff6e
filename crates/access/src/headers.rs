//! Keeps browsers on other sites out. A name that merely resolves to this machine is not a name of
//! this machine, and a page of another origin must not act for its reader.

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};

/// Headers that proxies set. A caller behind a proxy is not on this machine.
const FORWARDED: [&str; 6] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-port",
    "x-real-ip",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    #[error("the Host header does not name this machine: gateway.remote.url may name it")]
    Host,
    #[error("origin not allowed")]
    Origin,
}

/// Accepts addresses and `localhost`. A page that a foreign name server led to this machine has
/// another name. `is_named` says whether the owner chose a name for this machine.
pub fn check_host(headers: &HeaderMap, is_named: impl Fn(&str) -> bool) -> Result<(), Foreign> {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Foreign::Host);
    };
    let host = host.to_str().map_err(|_| Foreign::Host)?;
    let name = host_name(host).ok_or(Foreign::Host)?;
    let is_own = is_address(name) || is_localhost(name) || is_named(name);
    is_own.then_some(()).ok_or(Foreign::Host)
}

/// The schemes that a page of this server may have in a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schemes {
    /// The port is plain; a proxy in front of it may use TLS.
    Both,
    /// The port only uses TLS.
    Https,
}

/// Checks the origin of a request. Programs send none; a browser must send the origin of a page of
/// this server.
pub fn check_origin(headers: &HeaderMap, schemes: Schemes) -> Result<(), Foreign> {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return Ok(());
    };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let origin = origin.to_str().ok().and_then(|origin| {
        let (scheme, rest) = origin.split_once("://")?;
        let is_plain = scheme == "http" && schemes == Schemes::Both;
        (is_plain || scheme == "https").then_some(rest)
    });
    match (origin, host) {
        (Some(origin), Some(host))
            if origin.eq_ignore_ascii_case(host) && origins.next().is_none() =>
        {
            Ok(())
        }
        _ => Err(Foreign::Origin),
    }
}

/// Whether a request came straight from this machine: by a local name, without a proxy or browser.
pub fn is_direct(headers: &HeaderMap) -> bool {
    names_this_machine(headers) && !headers.contains_key(ORIGIN) && !is_forwarded(headers)
}

/// Whether a request came from a page of this server in a browser, by a local name and without a
/// proxy.
pub fn is_own_page(headers: &HeaderMap) -> bool {
    let is_own = check_origin(headers, Schemes::Both).is_ok() && headers.contains_key(ORIGIN);
    is_own && names_this_machine(headers) && !is_forwarded(headers)
}

fn names_this_machine(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let name = host.and_then(host_name);
    name.is_some_and(|name| is_localhost(name) || is_loopback(name))
}

/// Whether a request came through a proxy. Then the peer address is the proxy's and says nothing
/// about the sender.
pub fn is_forwarded(headers: &HeaderMap) -> bool {
    FORWARDED.iter().any(|name| headers.contains_key(*name))
}

fn host_name(host: &str) -> Option<&str> {
    // The host must be an authority without a user and a path.
    let uri: Uri = format!("http://{host}/").parse().ok()?;
    let authority = uri.authority()?;
    if authority.as_str() != host || host.contains('@') {
        return None;
    }
    let end = host
        .rfind(']')
        .map_or_else(|| host.find(':'), |end| Some(end + 1));
    let (name, rest) = host.split_at(end.unwrap_or(host.len()));
    let port = rest.strip_prefix(':').unwrap_or_default();
    let is_number = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_port = port.is_empty() || is_number && port.parse::<u16>().is_ok();
    let is_whole = rest.len() == port.len() + usize::from(rest.starts_with(':'));
    (!name.is_empty() && is_port && is_whole).then_some(name)
}

fn is_address(name: &str) -> bool {
    address(name).is_some()
}

fn is_loopback(name: &str) -> bool {
    address(name).is_some_and(|address| address.to_canonical().is_loopback())
}

fn address(name: &str) -> Option<std::net::IpAddr> {
    match name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
    {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().ok().map(Into::into),
        None => name.parse::<std::net::Ipv4Addr>().ok().map(Into::into),
    }
}

fn is_localhost(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(rows: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in rows {
            let name: axum::http::HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_names_of_this_machine_are_its_names() {
        for host in [
            "127.0.0.1:18789",
            "localhost",
            "LOCALHOST:1",
            "[::1]:18789",
            "10.1.2.3",
            "a.localhost:80",
            "box.lan:1",
        ] {
            assert_eq!(
                check_host(&headers(&[("host", host)]), |name| name == "box.lan"),
                Ok(()),
                "{host}"
            );
        }
        for host in [
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "user@127.0.0.1",
            "",
            "127.0.0.1/x",
            "[::1",
            "box.lan.evil",
        ] {
            assert_eq!(
                check_host(&headers(&[("host", host)]), |name| name == "box.lan"),
                Err(Foreign::Host),
                "{host}"
            );
        }
        assert_eq!(check_host(&headers(&[]), |_| false), Err(Foreign::Host));
        assert_eq!(
            check_host(&headers(&[("host", "localhost"), ("host", "evil")]), |_| {
                true
            }),
            Err(Foreign::Host)
        );
    }

    #[test]
    fn only_pages_of_this_server_may_speak() {
        let with = |origin: &str| headers(&[("host", "127.0.0.1:18789"), ("origin", origin)]);
        assert_eq!(
            check_origin(&headers(&[("host", "x")]), Schemes::Both),
            Ok(())
        );
        assert_eq!(
            check_origin(&with("http://127.0.0.1:18789"), Schemes::Both),
            Ok(())
        );
        for origin in [
            "http://evil.example",
            "http://127.0.0.1",
            "http://localhost:18789",
            "null",
            "",
            "file://",
            "ftp://127.0.0.1:18789",
        ] {
            assert_eq!(
                check_origin(&with(origin), Schemes::Both),
                Err(Foreign::Origin),
                "{origin}"
            );
        }
    }

    #[test]
    fn where_only_tls_is_spoken_no_page_came_without_it() {
        let with = |origin: &str| headers(&[("host", "127.0.0.1:18789"), ("origin", origin)]);
        let (plain, secure) = (
            with("http://127.0.0.1:18789"),
            with("https://127.0.0.1:18789"),
        );
        assert_eq!(check_origin(&secure, Schemes::Https), Ok(()));
        assert_eq!(check_origin(&secure, Schemes::Both), Ok(()));
        assert_eq!(check_origin(&plain, Schemes::Https), Err(Foreign::Origin));
    }

    #[test]
    fn what_came_through_a_proxy_is_not_local() {
        assert!(is_direct(&headers(&[("host", "127.0.0.1:1")])));
        assert!(is_direct(&headers(&[("host", "[::1]:1")])));
        assert!(!is_direct(&headers(&[("host", "10.0.0.1:1")])));
        assert!(!is_direct(&headers(&[
            ("host", "127.0.0.1:1"),
            ("x-forwarded-for", "1.2.3.4")
        ])));
        assert!(!is_direct(&headers(&[
            ("host", "127.0.0.1:1"),
            ("origin", "http://127.0.0.1:1")
        ])));
    }

    #[test]
    fn a_port_is_a_number_and_nothing_stands_behind_it() {
        for (host, name) in [
            ("127.0.0.1:18789", Some("127.0.0.1")),
            ("127.0.0.1:", Some("127.0.0.1")),
            ("[::1]:80", Some("[::1]")),
            ("localhost", Some("localhost")),
            ("127.0.0.1:80.evil.example", None),
            ("127.0.0.1:99999", None),
            ("127.0.0.1:000080", None),
            ("[::1]evil", None),
            ("[::1]:80:80", None),
        ] {
            assert_eq!(host_name(host), name, "{host}");
        }
    }
}
