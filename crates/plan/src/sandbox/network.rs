//! The hosts that the runs of a sandbox reach: entries as the owner writes them, and the only judge
//! of a connection. Nothing here resolves a name or opens a socket.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The name by which entries mean the loopback of the host itself.
pub const HOST_INTERNAL: &str = "host.internal";

/// The addresses that stand for names in a sandbox: 198.18.0.0/15, a block that the internet does
/// not use.
const OWN_BLOCK: (Ipv4Addr, u32) = (Ipv4Addr::new(198, 18, 0, 0), 15);

/// The longest host name.
const MOST_NAME: usize = 253;

/// With `ask`, runs can ask for names on these ports, besides the ports of `allow`.
const ASK_PORTS: [u16; 2] = [80, 443];

/// The rules of a sandbox with a network. A sandbox without rules only has a loopback.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SandboxNetworkRules {
    pub allow: Vec<HostEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<HostEntry>,
    /// Whether an approver is asked about unlisted names. Otherwise these names do not exist.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ask: bool,
}

/// The verdict about one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostVerdict {
    Allowed(AddressReach),
    /// A matching entry of `deny`.
    Denied,
    /// No entry matches, and an approver may be asked. An approver only allows addresses of the
    /// internet: [`AddressReach::Public`].
    Askable,
    /// No entry matches.
    Unlisted,
}

/// The addresses that an allowed name may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressReach {
    /// Only addresses of the internet: a name must not lead into the owner's own network.
    Public,
    /// Any address: the entry is marked `private`, or is the address itself.
    Any,
    /// The loopback of the host.
    HostLoopback,
}

impl SandboxNetworkRules {
    /// Whether these rules reach no host: requests are only recorded.
    pub fn reaches_none(&self) -> bool {
        *self == Self::default()
    }

    /// Judges a connection. An entry of `deny` wins over all entries of `allow`.
    pub fn judge(&self, host: &TargetHost, port: u16) -> HostVerdict {
        if self.deny.iter().any(|entry| entry.is_about(host, port)) {
            return HostVerdict::Denied;
        }
        let mut about = self.allow.iter().filter(|entry| entry.is_about(host, port));
        let Some(first) = about.next() else {
            return if self.may_ask_for(host, port) {
                HostVerdict::Askable
            } else {
                HostVerdict::Unlisted
            };
        };
        let reach = match host {
            TargetHost::Address(_) => AddressReach::Any,
            TargetHost::Name(name) if name.0 == HOST_INTERNAL => AddressReach::HostLoopback,
            TargetHost::Name(_) if first.private || about.any(|entry| entry.private) => {
                AddressReach::Any
            }
            TargetHost::Name(_) => AddressReach::Public,
        };
        HostVerdict::Allowed(reach)
    }

    /// Whether an approver may be asked about a host. Approvers are asked about names of the
    /// internet, never about addresses, which mean nothing to them, nor about names of this machine
    /// or its neighbors.
    fn may_ask_for(&self, host: &TargetHost, port: u16) -> bool {
        let TargetHost::Name(name) = host else {
            return false;
        };
        self.ask && name.is_of_internet() && self.ports().contains(&port)
    }

    /// Whether a connection to this name may be allowed on some port. Only such a name gets an
    /// address.
    pub fn may_reach(&self, name: &HostName) -> bool {
        let host = TargetHost::Name(name.clone());
        self.ports().into_iter().any(|port| {
            let verdict = self.judge(&host, port);
            matches!(verdict, HostVerdict::Allowed(_) | HostVerdict::Askable)
        })
    }

    /// The ports of possible connections: those in entries of `allow`, and those that an approver
    /// may be asked about, in order.
    pub fn ports(&self) -> Vec<u16> {
        let mut ports: Vec<u16> = self.allow.iter().filter_map(|entry| entry.port).collect();
        if self.ask {
            ports.extend(ASK_PORTS);
        }
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

/// The rules in the words of the config.
impl fmt::Display for SandboxNetworkRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |entries: &[HostEntry]| -> String {
            let words: Vec<String> = entries.iter().map(ToString::to_string).collect();
            words.join(", ")
        };
        match (self.allow.is_empty(), self.ask) {
            (true, _) => f.write_str("every name asks")?,
            (false, false) => f.write_str(&words(&self.allow))?,
            (false, true) => write!(f, "{}, other names ask", words(&self.allow))?,
        }
        if !self.deny.is_empty() {
            write!(f, ", never {}", words(&self.deny))?;
        }
        Ok(())
    }
}

/// One entry: `HOST:PORT`, `*.HOST:PORT` or `ADDRESS:PORT`, followed by ` private` if the name may
/// lead to an address that is not public.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostEntry {
    host: EntryHost,
    /// `None` means every port, which is only possible in `deny`.
    port: Option<u16>,
    private: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum EntryHost {
    Name(HostName),
    /// Every name below this one, but not this name itself.
    Below(HostName),
    Address(IpAddr),
}

/// The list that contains an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostEntryList {
    Allow,
    Deny,
}

impl HostEntry {
    /// Reads an entry. The error says which rule it breaks.
    pub fn read(text: &str, list: HostEntryList) -> Result<Self, String> {
        let (place, private) = match text.split_once(' ') {
            Some((place, "private")) if list == HostEntryList::Allow => (place, true),
            Some(_) => return Err("only the word `private` may follow, in `allow`".to_owned()),
            None => (text, false),
        };
        let (host, port) = place
            .rsplit_once(':')
            .ok_or("an entry is HOST:PORT, such as `crates.io:443`")?;
        let port = match port {
            "*" if list == HostEntryList::Deny => None,
            text => Some(read_port(text).ok_or("the port must be a number from 1 to 65535")?),
        };
        let host = if let Some(inner) = host.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or("a bracket is missing")?;
            let address = inner.parse().map_err(|_| "not an IPv6 address")?;
            EntryHost::Address(IpAddr::V6(address))
        } else if let Ok(address) = host.parse::<Ipv4Addr>() {
            EntryHost::Address(IpAddr::V4(address))
        } else if let Some(below) = host.strip_prefix("*.") {
            let below: HostName = below.parse()?;
            if !below.0.contains('.') {
                return Err("`*.` must be followed by a name of two parts or more".to_owned());
            }
            EntryHost::Below(below)
        } else {
            EntryHost::Name(host.parse()?)
        };
        if let EntryHost::Address(address) = host
            && (is_own_block(address) || address.is_loopback() || address.is_unspecified())
        {
            return Err(format!(
                "{address} is an address of the sandbox itself; `{HOST_INTERNAL}:PORT` is the loopback of the host"
            ));
        }
        if private && !matches!(&host, EntryHost::Name(_) | EntryHost::Below(_)) {
            return Err("an address is what it is: remove `private`".to_owned());
        }
        Ok(Self {
            host,
            port,
            private,
        })
    }

    fn is_about(&self, host: &TargetHost, port: u16) -> bool {
        if self.port.is_some_and(|own| own != port) {
            return false;
        }
        match (&self.host, host) {
            (EntryHost::Name(own), TargetHost::Name(name)) => own == name,
            (EntryHost::Below(own), TargetHost::Name(name)) => name
                .0
                .strip_suffix(own.0.as_str())
                .is_some_and(|front| front.len() > 1 && front.ends_with('.')),
            (EntryHost::Address(own), TargetHost::Address(address)) => own == address,
            _ => false,
        }
    }
}

impl fmt::Display for HostEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            EntryHost::Name(name) => write!(f, "{name}")?,
            EntryHost::Below(name) => write!(f, "*.{name}")?,
            EntryHost::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            EntryHost::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}")?,
            None => f.write_str(":*")?,
        }
        f.write_str(if self.private { " private" } else { "" })
    }
}

/// The written form of an entry. An entry of a plan was checked before, so every form is accepted
/// here.
impl Serialize for HostEntry {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostEntry {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::read(&text, HostEntryList::Allow)
            .or_else(|_| Self::read(&text, HostEntryList::Deny))
            .map_err(serde::de::Error::custom)
    }
}

fn read_port(text: &str) -> Option<u16> {
    let is_plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// The target of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetHost {
    Name(HostName),
    Address(IpAddr),
}

impl TargetHost {
    /// Reads a host as requests name it: a name, an IPv4 address, or an IPv6 address in brackets.
    pub fn read(text: &str) -> Result<Self, String> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or("a bracket is missing")?;
            let address = inner.parse().map_err(|_| "not an IPv6 address")?;
            return Ok(Self::Address(plain_address(IpAddr::V6(address))));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(IpAddr::V4(address)));
        }
        Ok(Self::Name(text.parse()?))
    }

    /// Reads `HOST:PORT`, or `HOST` if there is a default port.
    pub fn read_with_port(text: &str, usual: Option<u16>) -> Result<(Self, u16), String> {
        let has_port = match text.rsplit_once(':') {
            Some((front, _)) if text.starts_with('[') => front.ends_with(']'),
            Some(_) => true,
            None => false,
        };
        let (host, port) = match (has_port, text.rsplit_once(':')) {
            (true, Some((host, port))) => (host, read_port(port)),
            _ => (text, usual),
        };
        Ok((Self::read(host)?, port.ok_or("no usable port")?))
    }
}

/// Converts an IPv4 address in IPv6 form to the IPv4 address.
pub fn plain_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Whether an address stands for a name inside a sandbox, or belongs to Interlock there.
pub fn is_own_block(address: IpAddr) -> bool {
    let (first, bits) = OWN_BLOCK;
    let mask = u32::MAX << (32 - bits);
    match plain_address(address) {
        IpAddr::V4(four) => u32::from(four) & mask == u32::from(first),
        IpAddr::V6(_) => false,
    }
}

impl fmt::Display for TargetHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name}"),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// A host name in the only form that is compared: lower case, without a final dot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostName(String);

impl HostName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this can be the name of a host of the internet. Names of this machine, its neighbors
    /// and Interlock have one part or a reserved ending.
    fn is_of_internet(&self) -> bool {
        const RESERVED: [&str; 6] = [
            ".internal",
            ".local",
            ".localhost",
            ".localdomain",
            ".home.arpa",
            ".lan",
        ];
        self.0.contains('.') && !RESERVED.iter().any(|end| self.0.ends_with(end))
    }

    /// Whether the name contains letters of other scripts, which can look like those of another
    /// name.
    pub fn has_other_letters(&self) -> bool {
        self.0.split('.').any(|label| label.starts_with("xn--"))
    }
}

impl FromStr for HostName {
    type Err = String;

    /// Accepts only names that cannot be mistaken for an address: resolvers read `127.1`, `0x7f.1`
    /// and `2130706433` as addresses.
    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if !name.is_ascii() {
            return Err("write a name with other letters in its `xn--` form".to_owned());
        }
        if name.is_empty() || name.len() > MOST_NAME {
            return Err("a name has 1 to 253 characters".to_owned());
        }
        let is_label = |label: &str| {
            let is_plain = |byte: u8| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte)
            };
            (1..=63).contains(&label.len())
                && label.bytes().all(is_plain)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if !name.split('.').all(is_label) {
            return Err(
                "the parts of a name have 1 to 63 letters, digits and hyphens each".to_owned(),
            );
        }
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
        let is_hexadecimal = last.strip_prefix("0x").is_some_and(|digits| {
            digits.is_empty() || digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        if is_number || is_hexadecimal {
            return Err("a name does not end in a number".to_owned());
        }
        Ok(Self(name))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
