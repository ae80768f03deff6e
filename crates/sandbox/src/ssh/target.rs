//! The config's name for the far side, and paths in the form that the client reads.

/// A target of the form `[USER@]HOST[:PORT]`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SshTarget {
    pub user: Option<String>,
    pub host: String,
    pub port: Option<u16>,
}

impl SshTarget {
    /// Reads a target; the error says which rule it breaks. No valid target can be read as an
    /// option, or as more than one word.
    pub fn read(text: &str) -> Result<Self, &'static str> {
        let (user, place) = match text.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, text),
        };
        let (host, port) = if let Some(inner) = place.strip_prefix('[') {
            let (host, rest) = inner.split_once(']').ok_or("a bracket is missing")?;
            let is_address = host.parse::<std::net::Ipv6Addr>().is_ok();
            if !is_address {
                return Err("brackets hold an IPv6 address");
            }
            match rest {
                "" => (host, None),
                rest => (
                    host,
                    Some(rest.strip_prefix(':').ok_or("a port follows a colon")?),
                ),
            }
        } else {
            match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            }
        };
        if !is_host(host) {
            return Err("a host has letters, digits, `.`, `-` and `_`, and begins with no `-`");
        }
        if user.is_some_and(|user| !is_plain(user, b".-_")) {
            return Err("a user has letters, digits, `.`, `-` and `_`, and begins with no `-`");
        }
        let port = match port {
            Some(port) => {
                let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
                let number = port.parse().ok().filter(|number| is_number && *number != 0);
                Some(number.ok_or("the port is a number from 1 to 65535")?)
            }
            None => None,
        };
        Ok(Self {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port,
        })
    }

    /// Whether these values could have been read from a target.
    pub fn fits(host: &str, user: Option<&str>) -> bool {
        is_host(host) && user.is_none_or(|user| is_plain(user, b".-_"))
    }
}

fn is_plain(text: &str, also: &[u8]) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || also.contains(&byte);
    !text.is_empty() && text.len() <= 253 && !text.starts_with('-') && text.bytes().all(fits)
}

fn is_host(host: &str) -> bool {
    host.parse::<std::net::Ipv6Addr>().is_ok() || is_plain(host, b".-_")
}

/// Returns a path as the value of an option, in which the client interprets quotes, `%` and `${…}`.
pub(super) fn option_path(path: &str) -> Result<String, &'static str> {
    if !path.starts_with('/') {
        return Err("it is no absolute path");
    }
    let is_odd = |one: char| one.is_control() || matches!(one, '"' | '\\' | '$');
    if path.chars().any(is_odd) {
        return Err(
            "the client cannot be given a path with quotes, `\\`, `$` or control characters",
        );
    }
    Ok(format!("\"{}\"", path.replace('%', "%%")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_never_an_option() {
        let read = |text: &str| SshTarget::read(text).map(|one| (one.user, one.host, one.port));
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(read("far"), Ok((None, "far".to_owned(), None)));
        assert_eq!(
            read("me@far.example:2222"),
            Ok((some("me"), "far.example".to_owned(), Some(2222)))
        );
        assert_eq!(
            read("me@[::1]:22"),
            Ok((some("me"), "::1".to_owned(), Some(22)))
        );
        for odd in [
            "",
            "-oProxyCommand=touch /tmp/x",
            "-x@far",
            "me@-far",
            "me@",
            "@far",
            "far:",
            "far:0",
            "far:65536",
            "far:+22",
            "far:22:22",
            "me@far\n-oX=y",
            "me far",
            "me@far;touch x",
            "me@$(touch x)",
            "me@'far'",
            "[far]",
            "[::1",
            "[::1]22",
            "ssh://far",
            "a@b@c d",
        ] {
            assert!(SshTarget::read(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_path_is_one_value_of_an_option() {
        assert_eq!(option_path("/a b/%h").unwrap(), "\"/a b/%%h\"");
        assert_eq!(option_path("/a:b'c").unwrap(), "\"/a:b'c\"");
        for odd in [
            "",
            "a",
            "~/x",
            "/a\"b",
            "/a\\b",
            "/${HOME}",
            "/a\nProxyCommand=x",
        ] {
            assert!(option_path(odd).is_err(), "{odd}");
        }
    }
}
