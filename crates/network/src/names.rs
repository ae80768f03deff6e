//! The addresses that stand for names inside one scope. The address of a connection thus determines
//! its host, whatever the name leads to outside.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use interlock_plan::{HostName, TargetHost, is_own_block, plain_address};

/// The first address that stands for a name.
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 0);

/// Most names that can have an address. A scope that asks for more has no use for them.
const MOST_NAMES: u32 = 32_768;

#[derive(Debug, Default)]
pub(crate) struct NamePool {
    addresses: HashMap<HostName, Ipv4Addr>,
    names: HashMap<Ipv4Addr, HostName>,
}

impl NamePool {
    /// Returns the address of a name, which is always the same. `None` if there is no space for
    /// another name.
    pub fn address_of(&mut self, name: &HostName) -> Option<Ipv4Addr> {
        if let Some(address) = self.addresses.get(name) {
            return Some(*address);
        }
        let number = u32::try_from(self.names.len()).ok()?;
        if number >= MOST_NAMES {
            return None;
        }
        let address = Ipv4Addr::from(u32::from(FIRST) + number);
        self.addresses.insert(name.clone(), address);
        self.names.insert(address, name.clone());
        Some(address)
    }

    /// Returns the target of a connection to an address. `None` for one of Interlock's own
    /// addresses that stands for no name.
    pub fn target_of(&self, address: IpAddr) -> Option<TargetHost> {
        let address = plain_address(address);
        match address {
            IpAddr::V4(four) if is_own_block(address) => {
                self.names.get(&four).cloned().map(TargetHost::Name)
            }
            other => Some(TargetHost::Address(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stands_for_one_name() {
        let mut pool = NamePool::default();
        let name = |text: &str| text.parse::<HostName>().unwrap();
        let first = pool.address_of(&name("a.test")).unwrap();
        let second = pool.address_of(&name("b.test")).unwrap();
        assert_ne!(first, second);
        assert_eq!(pool.address_of(&name("A.test.")), Some(first));
        let target = pool.target_of(IpAddr::V4(second));
        assert_eq!(target, Some(TargetHost::Name(name("b.test"))));
        let mapped = second.to_ipv6_mapped().into();
        assert_eq!(
            pool.target_of(mapped),
            Some(TargetHost::Name(name("b.test")))
        );
        assert_eq!(pool.target_of("198.19.0.1".parse().unwrap()), None);
        let other = "9.9.9.9".parse().unwrap();
        assert_eq!(pool.target_of(other), Some(TargetHost::Address(other)));
    }

    #[test]
    fn names_without_end_take_room_that_ends() {
        let mut pool = NamePool::default();
        let made = (0..40_000).filter(|number| {
            let name = format!("n{number}.x.test").parse().unwrap();
            pool.address_of(&name).is_some()
        });
        assert_eq!(made.count(), 32_768);
    }
}
