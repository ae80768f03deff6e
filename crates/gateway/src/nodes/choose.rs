//! Which node a call of `exec` means.

use std::net::IpAddr;
use std::sync::Arc;

use interlock_store::StoreError;
use interlock_wire::node::{NodeEntry, SYSTEM_RUN};

use super::list::entries;
use super::registry::Node;
use crate::gateway::Gateway;

/// A beginning of an id that is shorter than this names nothing.
const MIN_PREFIX: usize = 4;

/// Why there is no node for a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoNode {
    #[error("exec host=node requires a paired node (none available)")]
    None,
    #[error("unknown node: {asked} (known: {})", .known.join(", "))]
    Unknown { asked: String, known: Vec<String> },
    #[error("node `{asked}` is ambiguous (candidates: {})", .candidates.join(", "))]
    Ambiguous {
        asked: String,
        candidates: Vec<String>,
    },
    #[error("exec host=node requires a connected node ({} not connected)", .0.join(", "))]
    NotConnected(Vec<String>),
    #[error("exec host=node requires a node that supports system.run ({} does not, or nobody has approved it)", .0.join(", "))]
    CannotRun(Vec<String>),
    #[error("exec host=node requires a node id when multiple nodes are available (set tools.exec.node or exec.node). Candidates: {}", .0.join(", "))]
    Several(Vec<String>),
    #[error("node not allowed (requested {asked}; the agent is bound to {bound})")]
    Bound { asked: String, bound: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl NoNode {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::None => "NODE_UNAVAILABLE",
            Self::Unknown { .. } => "NODE_UNKNOWN",
            Self::Ambiguous { .. } | Self::Several(_) => "NODE_AMBIGUOUS",
            Self::NotConnected(_) => "NODE_NOT_CONNECTED",
            Self::CannotRun(_) => "NODE_CANNOT_RUN",
            Self::Bound { .. } => "NODE_NOT_ALLOWED",
            Self::Store(_) => "STATE_UNUSABLE",
        }
    }

    pub(crate) fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::None => Some("connect one: interlock node run --host GATEWAY"),
            Self::Unknown { .. } | Self::Ambiguous { .. } | Self::Several(_) => {
                Some("name one of them: its id, its name, its address or the beginning of its id")
            }
            Self::NotConnected(_) => Some("start it there: interlock node run --host GATEWAY"),
            Self::CannotRun(_) => Some("have the owner approve it: interlock nodes approve"),
            Self::Bound { .. } => {
                Some("leave out `node`, or have the owner change agents.list[].tools.exec.node")
            }
            Self::Store(_) => None,
        }
    }
}

/// Who wants which node, in the order in which they are asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes {
    pub(crate) call: Option<String>,
    pub(crate) session: Option<String>,
    /// The agent's own: it is bound to that one.
    pub(crate) bound: Option<String>,
    /// Of all agents.
    pub(crate) usual: Option<String>,
}

impl Wishes {
    /// The first that somebody wants; but no call and no session leaves the node that its agent is
    /// bound to. Waits for the disk.
    pub(crate) fn choose(&self, gateway: &Gateway) -> Result<Arc<Node>, NoNode> {
        let given = |wish: &Option<String>| {
            let wish = wish.as_deref().map(str::trim);
            wish.filter(|wish| !wish.is_empty()).map(str::to_owned)
        };
        let asked = given(&self.call).or_else(|| given(&self.session));
        let bound = given(&self.bound);
        if let (Some(asked), Some(bound)) = (&asked, &bound) {
            let known = entries(gateway)?;
            let address = address_in(gateway);
            let bound_to = find(&known, bound, &address)?;
            let is_it =
                find(&known, asked, &address).is_ok_and(|found| found.node_id == bound_to.node_id);
            if !is_it {
                return Err(NoNode::Bound {
                    asked: asked.clone(),
                    bound: shown(bound_to),
                });
            }
        }
        let named = bound.or(asked).or_else(|| given(&self.usual));
        choose(gateway, named.as_deref())
    }
}

/// The node that is named, else the only one that is connected and can run commands. Waits for the
/// disk.
fn choose(gateway: &Gateway, asked: Option<&str>) -> Result<Arc<Node>, NoNode> {
    let known = entries(gateway)?;
    let asked = asked.map(str::trim).filter(|asked| !asked.is_empty());
    let Some(asked) = asked else {
        return only(gateway, &known);
    };
    let found = find(&known, asked, address_in(gateway))?;
    let name = shown(found);
    let Some(node) = gateway.nodes.get(&found.node_id) else {
        return Err(NoNode::NotConnected(vec![name]));
    };
    if can_run(&node) {
        Ok(node)
    } else {
        Err(NoNode::CannotRun(vec![name]))
    }
}

fn address_in(gateway: &Gateway) -> impl Fn(&NodeEntry) -> Option<IpAddr> + '_ {
    |entry| {
        let node = gateway.nodes.get(&entry.node_id)?;
        node.client.address.map(|address| address.to_canonical())
    }
}

fn can_run(node: &Node) -> bool {
    node.commands().iter().any(|command| command == SYSTEM_RUN)
}

fn shown(entry: &NodeEntry) -> String {
    match &entry.display_name {
        Some(name) if *name != entry.node_id => {
            let id = entry.node_id.get(..12).unwrap_or(&entry.node_id);
            format!("{name} ({id})")
        }
        _ => entry.node_id.clone(),
    }
}

fn only(gateway: &Gateway, known: &[NodeEntry]) -> Result<Arc<Node>, NoNode> {
    let connected = gateway.nodes.connected();
    let mut able: Vec<Arc<Node>> = connected.into_iter().filter(|node| can_run(node)).collect();
    let names = |wanted: &dyn Fn(&&NodeEntry) -> bool| -> Vec<String> {
        known.iter().filter(wanted).map(shown).collect()
    };
    match able.len() {
        1 => Ok(able.remove(0)),
        0 if known.is_empty() => Err(NoNode::None),
        0 if known.iter().any(|entry| entry.connected) => {
            Err(NoNode::CannotRun(names(&|entry| entry.connected)))
        }
        0 => Err(NoNode::NotConnected(names(&|_| true))),
        _ => Err(NoNode::Several(names(&|entry| {
            able.iter().any(|node| node.id == entry.node_id)
        }))),
    }
}

/// In this order: the whole id, a name, an address, the beginning of an id.
fn find<'a>(
    known: &'a [NodeEntry],
    asked: &str,
    address: impl Fn(&NodeEntry) -> Option<IpAddr>,
) -> Result<&'a NodeEntry, NoNode> {
    let ip: Option<IpAddr> = asked.parse().ok();
    let is_named = |entry: &NodeEntry| {
        let name = entry.display_name.as_deref();
        name.is_some_and(|name| name.eq_ignore_ascii_case(asked))
    };
    let has_address = |entry: &NodeEntry| {
        let asked = ip.map(|ip| ip.to_canonical());
        asked.is_some() && address(entry) == asked
    };
    let begins = |entry: &NodeEntry| {
        asked.len() >= MIN_PREFIX && entry.node_id.starts_with(&asked.to_ascii_lowercase())
    };
    let ways: [&dyn Fn(&NodeEntry) -> bool; 4] = [
        &|entry| entry.node_id == asked,
        &is_named,
        &has_address,
        &begins,
    ];
    for way in ways {
        let found: Vec<&NodeEntry> = known.iter().filter(|entry| way(entry)).collect();
        match found.as_slice() {
            [] => {}
            [one] => return Ok(one),
            several => {
                return Err(NoNode::Ambiguous {
                    asked: asked.to_owned(),
                    candidates: several.iter().map(|entry| shown(entry)).collect(),
                });
            }
        }
    }
    if known.is_empty() {
        return Err(NoNode::None);
    }
    Err(NoNode::Unknown {
        asked: asked.to_owned(),
        known: known.iter().map(shown).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, name: &str) -> NodeEntry {
        NodeEntry {
            node_id: id.to_owned(),
            display_name: Some(name.to_owned()),
            ..NodeEntry::default()
        }
    }

    #[test]
    fn a_node_is_found_by_id_name_address_and_the_beginning_of_its_id() {
        let known = [
            entry("aaaa1111", "build"),
            entry("aaaa2222", "Lab"),
            entry("build", "odd"),
        ];
        let address =
            |entry: &NodeEntry| (entry.node_id == "aaaa2222").then(|| "10.0.0.7".parse().unwrap());
        let found = |asked: &str| {
            find(&known, asked, address)
                .map(|entry| entry.node_id.clone())
                .map_err(|error| error.code())
        };
        // The whole id goes before a name.
        assert_eq!(found("build"), Ok("build".to_owned()));
        assert_eq!(found("lab"), Ok("aaaa2222".to_owned()));
        assert_eq!(found("::ffff:10.0.0.7"), Ok("aaaa2222".to_owned()));
        assert_eq!(found("aaaa1"), Ok("aaaa1111".to_owned()));
        assert_eq!(found("aaaa"), Err("NODE_AMBIGUOUS"));
        assert_eq!(found("aaa"), Err("NODE_UNKNOWN"));
        assert_eq!(found("zz"), Err("NODE_UNKNOWN"));
    }
}
