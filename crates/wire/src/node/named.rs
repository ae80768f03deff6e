//! Which node people mean by a word.

use std::net::IpAddr;

use super::NodeEntry;

/// A beginning of an id that is shorter than this names nothing.
const MIN_PREFIX: usize = 4;

/// Whether a node is meant, and whether one that is connected is meant rather than one that is not.
type Way<'a> = (&'a dyn Fn(&NodeEntry) -> bool, bool);

/// Why a word names no node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotNamed<'a> {
    Unknown,
    /// It may mean any of these.
    Ambiguous(Vec<&'a NodeEntry>),
}

/// Finds a node by id, address, prefix of an id, or name, in this order. A node chooses its own
/// name and must not impersonate another node by it. For the same reason approved nodes go before
/// all others. Of several nodes with one address or one name, the connected ones are meant: a
/// machine that was set up again returns under its old name with another id.
pub fn find_node<'a>(known: &'a [NodeEntry], asked: &str) -> Result<&'a NodeEntry, NotNamed<'a>> {
    let asked = asked.trim();
    let ip: Option<IpAddr> = asked.parse().ok();
    let ip = ip.map(|ip| ip.to_canonical());
    let prefix = asked.to_ascii_lowercase();
    let begins =
        |entry: &NodeEntry| asked.len() >= MIN_PREFIX && entry.node_id.starts_with(&prefix);
    let has_address = |entry: &NodeEntry| ip.is_some_and(|ip| is_at(entry, ip));
    let is_named = |entry: &NodeEntry| {
        let name = entry.display_name.as_deref();
        name.is_some_and(|name| name.eq_ignore_ascii_case(asked))
    };
    let ways: [Way<'_>; 4] = [
        (&|entry| entry.node_id == asked, false),
        (&has_address, true),
        (&begins, false),
        (&is_named, true),
    ];
    for is_approved in [true, false] {
        for (way, prefers_connected) in ways {
            let among = known.iter().filter(|entry| entry.paired == is_approved);
            let mut found: Vec<&NodeEntry> = among.filter(|entry| way(entry)).collect();
            if prefers_connected && found.iter().any(|entry| entry.connected) {
                found.retain(|entry| entry.connected);
            }
            match found.as_slice() {
                [] => {}
                [one] => return Ok(one),
                _ => return Err(NotNamed::Ambiguous(found)),
            }
        }
    }
    Err(NotNamed::Unknown)
}

/// A connected node without an address in the list is on the gateway's own machine.
fn is_at(entry: &NodeEntry, ip: IpAddr) -> bool {
    match &entry.remote_ip {
        Some(own) => own
            .parse::<IpAddr>()
            .is_ok_and(|own| own.to_canonical() == ip),
        None => entry.connected && ip.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, name: &str, paired: bool, connected: bool) -> NodeEntry {
        NodeEntry {
            node_id: id.to_owned(),
            display_name: Some(name.to_owned()),
            paired,
            connected,
            ..NodeEntry::default()
        }
    }

    fn found(known: &[NodeEntry], asked: &str) -> Result<String, usize> {
        find_node(known, asked)
            .map(|entry| entry.node_id.clone())
            .map_err(|error| match error {
                NotNamed::Unknown => 0,
                NotNamed::Ambiguous(several) => several.len(),
            })
    }

    #[test]
    fn a_node_is_found_by_id_address_the_beginning_of_its_id_and_name() {
        let mut known = [
            entry("aaaa1111", "build", true, true),
            entry("aaaa2222", "Lab", true, true),
            entry("build", "odd", true, true),
        ];
        known[1].remote_ip = Some("10.0.0.7".to_owned());
        for (asked, id) in [
            ("build", "build"),
            ("lab", "aaaa2222"),
            ("::ffff:10.0.0.7", "aaaa2222"),
            ("AAAA1", "aaaa1111"),
        ] {
            assert_eq!(found(&known, asked), Ok(id.to_owned()), "{asked}");
        }
        assert_eq!(found(&known, "aaaa"), Err(2));
        assert_eq!(found(&known, "aaa"), Err(0));
        assert_eq!(found(&known, "zz"), Err(0));
        assert_eq!(found(&known, ""), Err(0));
        // Two are on the gateway's own machine.
        assert_eq!(found(&known, "127.0.0.1"), Err(2));
    }

    #[test]
    fn an_unapproved_node_takes_no_name_and_no_prefix_of_an_id() {
        let known = [
            entry("aaaa1111", "lab", true, false),
            entry("bbbb1111", "lab", false, true),
            entry("bbbb2222", "aaaa1", false, true),
            entry("aaaa1222", "x", false, true),
            entry("cccc1111", "new", false, true),
        ];
        for asked in ["lab", "aaaa1", "aaaa1111"] {
            assert_eq!(found(&known, asked), Ok("aaaa1111".to_owned()), "{asked}");
        }
        // A node whose name is unique is found even before its approval, so that an operator can
        // inspect it.
        assert_eq!(found(&known, "new"), Ok("cccc1111".to_owned()));
    }

    #[test]
    fn a_name_never_wins_over_an_address_or_the_beginning_of_an_id() {
        let mut known = [
            entry("aaaa1111", "one", true, false),
            entry("bbbb1111", "aaaa", true, true),
            entry("cccc1111", "10.0.0.7", true, true),
        ];
        known[0].remote_ip = Some("10.0.0.7".to_owned());
        for asked in ["aaaa", "10.0.0.7"] {
            assert_eq!(found(&known, asked), Ok("aaaa1111".to_owned()), "{asked}");
        }
    }

    #[test]
    fn a_machine_that_was_set_up_anew_is_not_hidden_by_what_it_was() {
        let known = [
            entry("aaaa1111", "lab", true, false),
            entry("bbbb1111", "lab", true, true),
        ];
        assert_eq!(found(&known, "lab"), Ok("bbbb1111".to_owned()));
        let away = known.map(|entry| NodeEntry {
            connected: false,
            ..entry
        });
        assert_eq!(found(&away, "lab"), Err(2));
    }
}
