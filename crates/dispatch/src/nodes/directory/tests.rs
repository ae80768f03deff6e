use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;

fn node(id: &str, name: &str, is_approved: bool, is_connected: bool) -> KnownNode {
    KnownNode {
        id: Arc::from(id),
        name: Some(Arc::from(name)),
        address: None,
        is_approved,
        is_connected,
    }
}

fn at(address: &str, node: KnownNode) -> KnownNode {
    let address: IpAddr = address.parse().unwrap();
    KnownNode {
        address: Some(address.to_canonical()),
        ..node
    }
}

fn directory(nodes: &[KnownNode]) -> NodeDirectory {
    let mut directory = NodeDirectory::default();
    nodes.iter().cloned().for_each(|node| directory.put(node));
    directory
}

/// The id of the node that is meant, or the number of candidates.
fn found(directory: &NodeDirectory, asked: &str) -> Result<String, usize> {
    match directory.find(asked) {
        Ok(node) => Ok(node.id.as_ref().to_owned()),
        Err(NotNamed::Unknown) => Err(0),
        Err(NotNamed::Ambiguous(several)) => Err(several.len()),
    }
}

#[test]
fn a_node_is_found_by_id_address_prefix_of_its_id_and_name() {
    let known = directory(&[
        node("aaaa1111", "build", true, true),
        at("10.0.0.7", node("aaaa2222", "Lab", true, true)),
        node("build", "odd", true, true),
    ]);
    for (asked, id) in [
        ("build", "build"),
        (" build ", "build"),
        ("lab", "aaaa2222"),
        ("::ffff:10.0.0.7", "aaaa2222"),
        ("AAAA1", "aaaa1111"),
    ] {
        assert_eq!(found(&known, asked), Ok(id.to_owned()), "{asked}");
    }
    assert_eq!(found(&known, "aaaa"), Err(2));
    for asked in ["aaa", "zz", "", "10.0.0.8"] {
        assert_eq!(found(&known, asked), Err(0), "{asked}");
    }
    // Two nodes are on the gateway's own machine.
    assert_eq!(found(&known, "127.0.0.1"), Err(2));
}

#[test]
fn a_node_without_approval_takes_no_name_and_no_prefix_of_an_id() {
    let known = directory(&[
        node("aaaa1111", "lab", true, false),
        node("bbbb1111", "lab", false, true),
        node("bbbb2222", "aaaa1", false, true),
        node("aaaa1222", "x", false, true),
        node("cccc1111", "new", false, true),
    ]);
    for asked in ["lab", "aaaa1", "aaaa1111"] {
        assert_eq!(found(&known, asked), Ok("aaaa1111".to_owned()), "{asked}");
    }
    // A node is found if it takes no other node's place, so that it can be inspected.
    assert_eq!(found(&known, "new"), Ok("cccc1111".to_owned()));
}

#[test]
fn a_name_never_wins_over_an_address_or_the_prefix_of_an_id() {
    let known = directory(&[
        at("10.0.0.7", node("aaaa1111", "one", true, false)),
        node("bbbb1111", "aaaa", true, true),
        node("cccc1111", "10.0.0.7", true, true),
    ]);
    for asked in ["aaaa", "10.0.0.7"] {
        assert_eq!(found(&known, asked), Ok("aaaa1111".to_owned()), "{asked}");
    }
}

#[test]
fn a_machine_that_was_set_up_anew_is_not_hidden_by_what_it_was() {
    let mut known = directory(&[
        node("aaaa1111", "lab", true, false),
        node("bbbb1111", "lab", true, true),
    ]);
    assert_eq!(found(&known, "lab"), Ok("bbbb1111".to_owned()));
    known.put(node("bbbb1111", "lab", true, false));
    assert_eq!(found(&known, "lab"), Err(2));
}

#[test]
fn what_a_node_was_called_before_means_it_no_more() {
    let mut known = directory(&[at("10.0.0.7", node("aaaa1111", "lab", true, true))]);
    known.put(at("10.0.0.8", node("aaaa1111", "shed", false, false)));
    for asked in ["lab", "10.0.0.7", "127.0.0.1"] {
        assert_eq!(found(&known, asked), Err(0), "{asked}");
    }
    assert_eq!(found(&known, "shed"), Ok("aaaa1111".to_owned()));
    known.remove("aaaa1111");
    for asked in ["shed", "10.0.0.8", "aaaa1111", "aaaa"] {
        assert_eq!(found(&known, asked), Err(0), "{asked}");
    }
    assert_eq!(known.count(NodeFilter::All), 0);
}

#[test]
fn one_approved_node_has_a_prefix_or_none_has() {
    let known = directory(&[
        node("aaaa1111", "one", true, true),
        node("aaaa1222", "two", true, true),
        node("aaaa1113", "three", false, true),
    ]);
    let by_prefix = |prefix: &str| {
        let found = known.approved_by_prefix(prefix);
        found.map(|node| node.id.as_ref().to_owned())
    };
    assert_eq!(by_prefix("aaaa111"), Some("aaaa1111".to_owned()));
    assert_eq!(by_prefix("aaaa1"), None);
    assert_eq!(by_prefix("AAAA111"), None);
    assert_eq!(by_prefix("bbbb"), None);
}

#[test]
fn a_list_goes_on_behind_a_node_that_has_gone_meanwhile() {
    let mut known = directory(&[
        node("cccc", "a", true, true),
        node("aaaa", "b", true, false),
        node("bbbb", "b", true, true),
    ]);
    let ids = |known: &NodeDirectory, which, after: Option<&ListKey>| -> Vec<String> {
        let listed = known.list(which, after);
        listed.map(|node| node.id.as_ref().to_owned()).collect()
    };
    assert_eq!(ids(&known, NodeFilter::All, None), ["cccc", "aaaa", "bbbb"]);
    assert_eq!(ids(&known, NodeFilter::Connected, None), ["cccc", "bbbb"]);
    let last = ListKey {
        name: Some(Arc::from("b")),
        id: Arc::from("aaaa"),
    };
    known.remove("aaaa");
    assert_eq!(ids(&known, NodeFilter::All, Some(&last)), ["bbbb"]);
    assert_eq!(known.count(NodeFilter::All), 2);
    assert_eq!(known.count(NodeFilter::Connected), 2);
}

/// Whether a node is meant, and whether connected nodes take precedence.
type NamingWay<'a> = (&'a dyn Fn(&KnownNode) -> bool, bool);

/// The rule without an index: inspects every node.
fn found_by_looking_at_all(nodes: &[KnownNode], asked: &str) -> Result<String, usize> {
    let asked = asked.trim();
    let address: Option<IpAddr> = asked.parse().ok();
    let has_address = |node: &KnownNode| {
        address.is_some_and(|asked| match node.address {
            Some(own) => own == asked.to_canonical(),
            None => node.is_connected && asked.to_canonical().is_loopback(),
        })
    };
    let begins = |node: &KnownNode| {
        asked.len() >= MIN_PREFIX && node.id.starts_with(&asked.to_ascii_lowercase())
    };
    let is_named = |node: &KnownNode| {
        let name = node.name.as_deref();
        name.is_some_and(|name| name.eq_ignore_ascii_case(asked))
    };
    let ways: [NamingWay<'_>; 4] = [
        (&|node| *node.id == *asked, false),
        (&has_address, true),
        (&begins, false),
        (&is_named, true),
    ];
    for is_approved in [true, false] {
        for (way, prefers_connected) in ways {
            let among = nodes.iter().filter(|node| node.is_approved == is_approved);
            let mut found: Vec<&KnownNode> = among.filter(|node| way(node)).collect();
            if prefers_connected && found.iter().any(|node| node.is_connected) {
                found.retain(|node| node.is_connected);
            }
            match found.as_slice() {
                [] => {}
                [one] => return Ok(one.id.as_ref().to_owned()),
                several => return Err(several.len()),
            }
        }
    }
    Err(0)
}

fn any_node() -> impl Strategy<Value = KnownNode> {
    let id = prop::sample::select(vec!["aaaa1", "aaaa2", "aaab1", "bbbb1", "lab", "10.0.0.7"]);
    let name = prop::option::of(prop::sample::select(vec![
        "lab", "LAB", "aaaa", "aaaa1", "10.0.0.7", "one",
    ]));
    let address = prop::option::of(prop::sample::select(vec![
        "10.0.0.7",
        "10.0.0.8",
        "127.0.0.1",
        "::1",
    ]));
    (id, name, address, any::<bool>(), any::<bool>()).prop_map(
        |(id, name, address, is_approved, is_connected)| KnownNode {
            id: Arc::from(id),
            name: name.map(Arc::from),
            address: address.map(|address| address.parse().unwrap()),
            is_approved,
            is_connected,
        },
    )
}

proptest! {
    /// Nodes appear, change and disappear in any order; the indexes find the same as an inspection
    /// of all nodes.
    #[test]
    fn the_indexes_agree_with_a_look_at_all_nodes(
        changes in prop::collection::vec((any_node(), prop::bool::weighted(0.2)), 0..40),
    ) {
        let mut known = NodeDirectory::default();
        let mut all: Vec<KnownNode> = Vec::new();
        for (node, goes) in changes {
            all.retain(|other| other.id != node.id);
            if goes {
                known.remove(&node.id);
            } else {
                all.push(node.clone());
                known.put(node);
            }
        }
        for asked in [
            "aaaa1", "aaaa", "AAAA", "aaa", "aaab", "bbbb1", "lab", "Lab", "one", "10.0.0.7",
            "::ffff:10.0.0.7", "10.0.0.8", "127.0.0.1", "127.0.0.2", "::1", "",
        ] {
            prop_assert_eq!(
                found(&known, asked),
                found_by_looking_at_all(&all, asked),
                "{}",
                asked
            );
        }
        let mut keys: Vec<ListKey> = all.iter().map(KnownNode::list_key).collect();
        keys.sort();
        let listed: Vec<ListKey> = known.list(NodeFilter::All, None).map(KnownNode::list_key).collect();
        prop_assert_eq!(listed, keys);
        let connected = all.iter().filter(|node| node.is_connected).count();
        prop_assert_eq!(known.count(NodeFilter::Connected), connected);
    }
}
