//! Finds the node that a word means: indexes of all known nodes by id, id prefix, name and address.
//!
//! A lookup costs the same with one node and with ten thousand. `known` keeps the indexes up to
//! date with the store and the connections; nothing here waits.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

/// A shorter text does not count as an id prefix, because it would match by chance.
const MIN_PREFIX: usize = 4;

/// The facts about a node in the directory. Everything else is read where it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownNode {
    pub id: Arc<str>,
    pub name: Option<Arc<str>>,
    /// `None` for a node on the gateway's own machine, or if the address is unknown.
    pub address: Option<IpAddr>,
    /// Whether an operator approved its commands.
    pub is_approved: bool,
    pub is_connected: bool,
}

impl KnownNode {
    /// The name with enough of the id to identify the node, because another node can have the same
    /// name.
    pub fn shown(&self) -> String {
        match &self.name {
            Some(name) if *name != self.id => {
                let id = self.id.get(..12).unwrap_or(&self.id);
                format!("{name} ({id})")
            }
            _ => self.id.as_ref().to_owned(),
        }
    }

    pub(super) fn list_key(&self) -> ListKey {
        ListKey {
            name: self.name.clone(),
            id: Arc::clone(&self.id),
        }
    }
}

/// The position of a node in a list: by name, then by id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListKey {
    pub name: Option<Arc<str>>,
    pub id: Arc<str>,
}

/// Which nodes a list contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeFilter {
    All,
    Connected,
}

/// Why a word means no node.
#[derive(Debug, PartialEq, Eq)]
pub enum NotNamed<'a> {
    Unknown,
    /// All nodes that the word could mean, in the order of lists.
    Ambiguous(Vec<&'a KnownNode>),
}

/// All known nodes: paired, connected, or both.
#[derive(Debug, Default)]
pub struct NodeDirectory {
    nodes: HashMap<Arc<str>, KnownNode>,
    listed: BTreeSet<ListKey>,
    connected: BTreeSet<ListKey>,
    approved: NodeIndex,
    unapproved: NodeIndex,
}

/// The nodes under one key, connected ones first.
type SameKey = BTreeSet<(IsAway, Arc<str>)>;
type IsAway = bool;

/// The index of the approved nodes, or of the others. The two never compete.
#[derive(Debug, Default)]
struct NodeIndex {
    ids: BTreeSet<Arc<str>>,
    addresses: HashMap<IpAddr, SameKey>,
    /// Connected nodes on the gateway's own machine. Each of its addresses means them.
    on_this_machine: SameKey,
    /// By the name in lower case.
    names: HashMap<String, SameKey>,
}

impl NodeDirectory {
    /// Adds a node, and replaces the earlier facts about it.
    pub fn put(&mut self, node: KnownNode) {
        self.remove(&node.id);
        self.index(&node).insert(&node);
        self.listed.insert(node.list_key());
        if node.is_connected {
            self.connected.insert(node.list_key());
        }
        self.nodes.insert(Arc::clone(&node.id), node);
    }

    pub fn remove(&mut self, id: &str) {
        let Some(node) = self.nodes.remove(id) else {
            return;
        };
        self.index(&node).remove(&node);
        let key = node.list_key();
        self.listed.remove(&key);
        self.connected.remove(&key);
    }

    fn index(&mut self, node: &KnownNode) -> &mut NodeIndex {
        if node.is_approved {
            &mut self.approved
        } else {
            &mut self.unapproved
        }
    }

    pub fn count(&self, which: NodeFilter) -> usize {
        self.keys(which).len()
    }

    fn keys(&self, which: NodeFilter) -> &BTreeSet<ListKey> {
        match which {
            NodeFilter::All => &self.listed,
            NodeFilter::Connected => &self.connected,
        }
    }

    /// Nodes by name, starting after `after`.
    pub fn list(
        &self,
        which: NodeFilter,
        after: Option<&ListKey>,
    ) -> impl Iterator<Item = &KnownNode> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let keys = self.keys(which).range((from, Bound::Unbounded));
        keys.filter_map(|key| self.nodes.get(&key.id))
    }

    /// The node with this id, address, id prefix, or name. The order matters, since a node chooses
    /// its name and must not take another node's place by it. For the same reason, approved nodes
    /// precede all others. Among several nodes with one address or name, the connected ones are
    /// meant: a machine that was set up again returns under its old name with another id.
    pub fn find(&self, asked: &str) -> Result<&KnownNode, NotNamed<'_>> {
        let asked = asked.trim();
        for index in [&self.approved, &self.unapproved] {
            let mut found: Vec<&KnownNode> = index
                .find(asked)
                .into_iter()
                .filter_map(|id| self.nodes.get(id))
                .collect();
            match found.as_slice() {
                [] => {}
                [one] => return Ok(one),
                _ => {
                    found.sort_by_cached_key(|node| node.list_key());
                    return Err(NotNamed::Ambiguous(found));
                }
            }
        }
        Err(NotNamed::Unknown)
    }

    /// The only approved node whose id has this prefix; `None` if several do.
    pub fn approved_by_prefix(&self, prefix: &str) -> Option<&KnownNode> {
        let mut found = self.approved.with_prefix(prefix);
        let (one, other) = (found.next()?, found.next());
        other.is_none().then(|| self.nodes.get(one)).flatten()
    }
}

impl NodeIndex {
    fn insert(&mut self, node: &KnownNode) {
        let key = || (!node.is_connected, Arc::clone(&node.id));
        self.ids.insert(Arc::clone(&node.id));
        match node.address {
            Some(address) => {
                self.addresses.entry(address).or_default().insert(key());
            }
            None if node.is_connected => {
                self.on_this_machine.insert(key());
            }
            None => {}
        }
        if let Some(name) = &node.name {
            let name = name.to_ascii_lowercase();
            self.names.entry(name).or_default().insert(key());
        }
    }

    fn remove(&mut self, node: &KnownNode) {
        let key = (!node.is_connected, Arc::clone(&node.id));
        self.ids.remove(&node.id);
        if let Some(address) = &node.address {
            take_from(&mut self.addresses, address, &key);
        }
        self.on_this_machine.remove(&key);
        if let Some(name) = &node.name {
            take_from(&mut self.names, &name.to_ascii_lowercase(), &key);
        }
    }

    /// The ids that the first successful way of naming a node finds.
    fn find(&self, asked: &str) -> Vec<&str> {
        if let Some(id) = self.ids.get(asked) {
            return vec![id];
        }
        let address: Option<IpAddr> = asked.parse().ok();
        if let Some(address) = address.map(|address| address.to_canonical()) {
            let here = address.is_loopback().then_some(&self.on_this_machine);
            let there = preferred(self.addresses.get(&address).into_iter().chain(here));
            if !there.is_empty() {
                return there;
            }
        }
        if asked.len() >= MIN_PREFIX {
            let begin: Vec<&str> = self.with_prefix(&asked.to_ascii_lowercase()).collect();
            if !begin.is_empty() {
                return begin;
            }
        }
        preferred(self.names.get(&asked.to_ascii_lowercase()).into_iter())
    }

    fn with_prefix<'a>(&'a self, prefix: &str) -> impl Iterator<Item = &'a str> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let ids = self.ids.range::<str, _>(from);
        let prefix = prefix.to_owned();
        ids.map(AsRef::as_ref)
            .take_while(move |id: &&str| id.starts_with(&prefix))
    }
}

/// The connected nodes, if there are any; otherwise all.
fn preferred<'a>(nodes: impl Iterator<Item = &'a SameKey> + Clone) -> Vec<&'a str> {
    let mut first = nodes.clone().filter_map(BTreeSet::first);
    let is_any_connected = first.any(|(is_away, _)| !is_away);
    let is_meant = |(is_away, _): &&(IsAway, Arc<str>)| !(is_any_connected && *is_away);
    nodes
        .flat_map(|same| same.iter().take_while(is_meant))
        .map(|(_, id)| id.as_ref())
        .collect()
}

fn take_from<K: std::hash::Hash + Eq>(
    index: &mut HashMap<K, SameKey>,
    key: &K,
    node: &(IsAway, Arc<str>),
) {
    if let Some(nodes) = index.get_mut(key) {
        nodes.remove(node);
        if nodes.is_empty() {
            index.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
