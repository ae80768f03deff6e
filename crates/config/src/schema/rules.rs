//! Rules for strings. Every rule also refuses control characters.

use interlock_plan::{HostEntry, HostEntryList};

/// The format of a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextRule {
    /// Not empty.
    Any,
    AgentId,
    /// A path that is absolute or begins with the home directory (`~`).
    Path,
    /// A file name without directories.
    ProgramName,
    /// A flag such as `-x` or `--long`.
    Flag,
    /// A URL with `http://` or `https://`.
    HttpUrl,
    /// A URL with `ws://` or `wss://`.
    WebSocketUrl,
    /// An IP address with a prefix length.
    Cidr,
    /// An entry of `network.allow`: a host and a port.
    AllowedHost,
    /// An entry of `network.deny`.
    DeniedHost,
    /// A number of bytes, optionally followed by `k`, `m` or `g`.
    ByteSize,
    /// The SHA-256 of a certificate, with or without colons and the prefix `sha256:`.
    Fingerprint,
    /// A URL with `https://`.
    HttpsUrl,
    /// The name of an environment variable.
    VariableName,
    /// The path below which the gateway serves its pages. It must not contain another path of the
    /// gateway.
    BasePath,
}

impl TextRule {
    /// The expected format, if the text does not have it.
    pub(super) fn problem(self, text: &str) -> Option<&'static str> {
        if text.chars().any(char::is_control) {
            return Some("must not contain control characters");
        }
        (!self.accepts(text)).then(|| self.says())
    }

    fn accepts(self, text: &str) -> bool {
        let mut bytes = text.bytes();
        match self {
            Self::Any => !text.trim().is_empty(),
            Self::AgentId => {
                let word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
                (1..=64).contains(&text.len()) && bytes.all(word)
            }
            Self::Path => {
                let drive = matches!(text.as_bytes(), [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic());
                text == "~" || text.starts_with("~/") || text.starts_with('/') || drive
            }
            Self::ProgramName => {
                !text.is_empty()
                    && !matches!(text, "." | "..")
                    && !bytes.any(|byte| matches!(byte, b'/' | b'\\' | b' '))
            }
            Self::Flag => {
                text.len() > 1
                    && text.starts_with('-')
                    && !bytes.any(|byte| matches!(byte, b'=' | b' '))
            }
            Self::HttpUrl => has_scheme(text, &["http://", "https://"]),
            Self::HttpsUrl => has_scheme(text, &["https://"]),
            Self::VariableName => {
                let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
                !text.is_empty() && !text.as_bytes()[0].is_ascii_digit() && bytes.all(word)
            }
            Self::WebSocketUrl => has_scheme(text, &["ws://", "wss://"]),
            Self::Cidr => text.split_once('/').is_some_and(|(address, bits)| {
                let most = match address.parse() {
                    Ok(std::net::IpAddr::V4(_)) => 32,
                    Ok(std::net::IpAddr::V6(_)) => 128,
                    Err(_) => return false,
                };
                bits.parse::<u8>().is_ok_and(|bits| bits <= most)
            }),
            Self::AllowedHost => HostEntry::read(text, HostEntryList::Allow).is_ok(),
            Self::DeniedHost => HostEntry::read(text, HostEntryList::Deny).is_ok(),
            Self::ByteSize => byte_size(text).is_some(),
            Self::Fingerprint => {
                let digits = match text.get(..7) {
                    Some(prefix) if prefix.eq_ignore_ascii_case("sha256:") => &text[7..],
                    _ => text,
                };
                let digits: Vec<u8> = digits.bytes().filter(|byte| *byte != b':').collect();
                digits.len() == 64 && digits.iter().all(u8::is_ascii_hexdigit)
            }
            Self::BasePath => is_base_path(text),
        }
    }

    fn says(self) -> &'static str {
        match self {
            Self::Any => "must not be empty",
            Self::AgentId => "must be an agent id: 1 to 64 letters, digits, `_` or `-`",
            Self::Path => "must be an absolute path, or one that begins with `~/`",
            Self::ProgramName => "must be the plain name of a program, without directories",
            Self::Flag => "must be a flag such as `-n` or `--lines`, without a value",
            Self::HttpUrl => "must be an address that begins with `http://` or `https://`",
            Self::HttpsUrl => "must be an address that begins with `https://`",
            Self::VariableName => "must be the name of an environment variable",
            Self::WebSocketUrl => "must be an address that begins with `ws://` or `wss://`",
            Self::Cidr => "must be an address range such as `10.0.0.0/8`",
            Self::AllowedHost => {
                "must be HOST:PORT, *.HOST:PORT or ADDRESS:PORT, such as `crates.io:443`, with ` private` behind a name that may lead to a private address"
            }
            Self::DeniedHost => {
                "must be HOST:PORT, *.HOST:PORT or ADDRESS:PORT, with `*` for every port"
            }
            Self::ByteSize => "must be a number of bytes such as `512m` or `2g`",
            Self::Fingerprint => "must be the SHA-256 of a certificate: 64 hexadecimal digits",
            Self::BasePath => {
                "must be a path such as `/interlock`: letters, digits, `-`, `_` and `.` between slashes, none at the end, and not a path of the gateway itself"
            }
        }
    }

    /// The pattern for the JSON schema. It must accept everything that `accepts` does.
    pub(super) fn pattern(self) -> Option<&'static str> {
        match self {
            Self::Any => None,
            Self::AgentId => Some("^[A-Za-z0-9_-]{1,64}$"),
            Self::Path => Some(r"^(~$|~/|/|[A-Za-z]:[\\/])"),
            Self::ProgramName => Some(r"^[^/\\ ]+$"),
            Self::Flag => Some("^-[^= ]+$"),
            Self::HttpUrl => Some("^https?://."),
            Self::HttpsUrl => Some("^https://."),
            Self::VariableName => Some("^[A-Za-z_][A-Za-z0-9_]*$"),
            Self::WebSocketUrl => Some("^wss?://."),
            Self::Cidr => Some("^[0-9A-Fa-f.:]+/[0-9]{1,3}$"),
            Self::AllowedHost => Some("^[^ ]+:[0-9]{1,5}( private)?$"),
            Self::DeniedHost => Some(r"^[^ ]+:([0-9]{1,5}|\*)$"),
            Self::ByteSize => Some("^[0-9]+[kmgKMG]?$"),
            Self::Fingerprint => Some("^([sS][hH][aA]256:)?[0-9A-Fa-f:]{64,}$"),
            Self::BasePath => Some("^(/[A-Za-z0-9._-]+)+$"),
        }
    }

    /// The name of the format on the reference page.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Any => "string",
            Self::AgentId => "agent id",
            Self::Path => "path",
            Self::ProgramName => "program name",
            Self::Flag => "flag",
            Self::HttpUrl | Self::HttpsUrl | Self::WebSocketUrl => "URL",
            Self::VariableName => "variable name",
            Self::Cidr => "address range",
            Self::AllowedHost | Self::DeniedHost => "host and port",
            Self::ByteSize => "size",
            Self::Fingerprint => "SHA-256",
            Self::BasePath => "URL path",
        }
    }
}

/// First segments of paths that the gateway serves besides its pages.
const OWN_PATHS: &[&str] = &[
    "ca.crt", "healthz", "hooks", "mcp", "metrics", "push", "readyz", "tools", "ui",
];

/// Whether pages can be served below this path.
fn is_base_path(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('/').filter(|_| text.len() <= 100) else {
        return false;
    };
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_part =
        |part: &str| !part.is_empty() && !matches!(part, "." | "..") && part.bytes().all(is_word);
    let first = rest.split('/').next().unwrap_or_default();
    rest.split('/').all(is_part) && !OWN_PATHS.contains(&first)
}

/// The number of bytes of a [`TextRule::ByteSize`]. Zero and numbers that overflow are refused.
pub fn byte_size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes() {
        [.., b'k' | b'K'] => (&text[..text.len() - 1], 1 << 10),
        [.., b'm' | b'M'] => (&text[..text.len() - 1], 1 << 20),
        [.., b'g' | b'G'] => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| digits.parse::<u64>().ok()).flatten()?;
    number.checked_mul(unit).filter(|bytes| *bytes > 0)
}

fn has_scheme(text: &str, schemes: &[&str]) -> bool {
    let rest = schemes.iter().find_map(|scheme| text.strip_prefix(scheme));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(' '))
}
