//! Ranges of addresses.

use std::net::IpAddr;

/// Whether an address is in a range such as `10.0.0.0/8`. An invalid range contains no address.
pub fn contains(range: &str, address: IpAddr) -> bool {
    let (network, bits) = match range.split_once('/') {
        Some((network, bits)) => (network, bits.parse::<u32>().ok()),
        None => (range, Some(128)),
    };
    let (Ok(network), Some(bits)) = (network.trim().parse::<IpAddr>(), bits) else {
        return false;
    };
    let same = |left: u128, right: u128, width: u32| {
        let bits = bits.min(width);
        bits == 0 || (left ^ right) >> (width - bits) == 0
    };
    match (network, address.to_canonical()) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            same(u32::from(network).into(), u32::from(address).into(), 32)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => same(network.into(), address.into(), 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_what_they_say() {
        let holds = |range: &str, address: &str| contains(range, address.parse().unwrap());
        assert!(holds("10.0.0.0/8", "10.200.3.4"));
        assert!(!holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("192.168.1.7", "192.168.1.7"));
        assert!(!holds("192.168.1.7", "192.168.1.8"));
        assert!(holds("0.0.0.0/0", "1.2.3.4"));
        assert!(!holds("0.0.0.0/0", "::1"));
        assert!(holds("fd00::/8", "fd12::1"));
        assert!(holds("10.0.0.0/8", "::ffff:10.1.1.1"));
        assert!(!holds("rubbish", "10.0.0.1"));
        assert!(!holds("10.0.0.0/x", "10.0.0.1"));
    }
}
