//! Determines which addresses are public. Everything else is reachable only through an explicit
//! entry: a name that an attacker controls must not lead into the owner's own network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use interlock_plan::plain_address;

/// IPv4 blocks that are not public: first address, bits, reason.
const NOT_PUBLIC_V4: &[(Ipv4Addr, u32, &str)] = &[
    (Ipv4Addr::UNSPECIFIED, 8, "this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "behind a provider's NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (
        Ipv4Addr::new(169, 254, 0, 0),
        16,
        "link-local, metadata of clouds",
    ),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "6to4 relays"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "names inside sandboxes"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved, broadcast"),
];

/// The block that contains all public IPv6 addresses: first address, bits.
const PUBLIC_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Blocks within it that are not public: first address, bits, reason.
const NOT_PUBLIC_V6: &[(Ipv6Addr, u32, &str)] = &[
    (
        Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0),
        23,
        "protocols, Teredo among them, which hold an IPv4 address",
    ),
    (
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0),
        32,
        "documentation",
    ),
    (
        Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0),
        16,
        "6to4, which holds an IPv4 address",
    ),
    (
        Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0),
        20,
        "documentation",
    ),
];

/// Whether an address is public. Mapped addresses count as the address that they contain; NAT64
/// (`64:ff9b::`) and unique local addresses are outside the public block.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match plain_address(address) {
        IpAddr::V4(four) => !NOT_PUBLIC_V4.iter().any(|(first, bits, _)| {
            is_in(u32::from(four).into(), u32::from(*first).into(), *bits, 32)
        }),
        IpAddr::V6(six) => {
            let six = u128::from(six);
            let (first, bits) = PUBLIC_V6;
            is_in(six, first.into(), bits, 128)
                && !NOT_PUBLIC_V6
                    .iter()
                    .any(|(first, bits, _)| is_in(six, u128::from(*first), *bits, 128))
        }
    }
}

fn is_in(address: u128, first: u128, bits: u32, width: u32) -> bool {
    let rest = width - bits;
    address >> rest == first >> rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for public in [
            "1.1.1.1",
            "93.184.216.34",
            "192.0.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for other in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "239.1.1.1",
            "255.255.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "203.0.113.9",
            "240.0.0.1",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001:0:7f00:1::",
            "2001:db8::1",
            "fec0::1",
            "100::1",
            "5f00::1",
        ] {
            assert!(!is_public(other.parse().unwrap()), "{other}");
        }
    }
}
