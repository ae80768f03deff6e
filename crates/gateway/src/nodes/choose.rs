//! Which node a call of `exec` means.

use std::sync::Arc;

use interlock_config::types::GatewayNodes;
use interlock_policy::quote;
use interlock_store::StoreError;
use interlock_wire::node::{NodeEntry, NotNamed, SYSTEM_RUN, find_node};

use super::list::entries;
use super::registry::Node;
use crate::gateway::Gateway;

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
    #[error("exec host=node requires a node that supports system.run ({} does not, or it is not approved or denied by gateway.nodes.denyCommands)", .0.join(", "))]
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

    pub(crate) fn remedy(&self) -> Option<String> {
        let remedy = match self {
            Self::None => "connect one: interlock node run --host GATEWAY",
            Self::Unknown { .. } | Self::Ambiguous { .. } | Self::Several(_) => {
                "name one of them: its id, its name, its address or the beginning of its id"
            }
            Self::NotConnected(_) => "start it there: interlock node run --host GATEWAY",
            Self::CannotRun(names) => {
                let node = names.first().map_or("NODE", String::as_str);
                return Some(format!(
                    "have the owner approve it: interlock nodes approve {}",
                    quote(node)
                ));
            }
            Self::Bound { .. } => {
                "leave out `node`, or have the owner change agents.list[].tools.exec.node"
            }
            Self::Store(_) => return None,
        };
        Some(remedy.to_owned())
    }
}

/// Who wants which node, in the order in which they are asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes {
    pub(crate) call: Option<String>,
    pub(crate) session: Option<String>,
    /// The agent's own: it is bound to that one.
    pub(crate) bound: Option<String>,
    /// The config of all agents.
    pub(crate) usual: Option<String>,
}

impl Wishes {
    /// The first node that call, session or config names; but no call and no session leaves the
    /// node that its agent is bound to. Waits for the disk.
    pub(crate) fn choose(
        &self,
        gateway: &Gateway,
        rules: &GatewayNodes,
    ) -> Result<Arc<Node>, NoNode> {
        let given = |wish: &Option<String>| {
            let wish = wish.as_deref().map(str::trim);
            wish.filter(|wish| !wish.is_empty()).map(str::to_owned)
        };
        let known = entries(gateway)?;
        let asked = given(&self.call).or_else(|| given(&self.session));
        let bound = given(&self.bound);
        if let (Some(asked), Some(bound)) = (&asked, &bound) {
            let bound_to = find(&known, bound)?;
            let is_it = find(&known, asked).is_ok_and(|found| found.node_id == bound_to.node_id);
            if !is_it {
                return Err(NoNode::Bound {
                    asked: asked.clone(),
                    bound: shown(bound_to),
                });
            }
        }
        match bound.or(asked).or_else(|| given(&self.usual)) {
            Some(named) => named_node(gateway, rules, &known, &named),
            None => only(gateway, rules, &known),
        }
    }
}

fn named_node(
    gateway: &Gateway,
    rules: &GatewayNodes,
    known: &[NodeEntry],
    asked: &str,
) -> Result<Arc<Node>, NoNode> {
    let found = find(known, asked)?;
    let name = shown(found);
    let Some(node) = gateway.nodes.get(&found.node_id) else {
        return Err(NoNode::NotConnected(vec![name]));
    };
    if can_run(&node, rules) {
        Ok(node)
    } else {
        Err(NoNode::CannotRun(vec![name]))
    }
}

fn can_run(node: &Node, rules: &GatewayNodes) -> bool {
    node.check(SYSTEM_RUN, rules).is_ok()
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

/// The only one that is connected and can run commands.
fn only(gateway: &Gateway, rules: &GatewayNodes, known: &[NodeEntry]) -> Result<Arc<Node>, NoNode> {
    let connected = gateway.nodes.connected().into_iter();
    let mut able: Vec<Arc<Node>> = connected.filter(|node| can_run(node, rules)).collect();
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

/// Whether this name means that node. Waits for the disk.
pub(crate) fn is_node(gateway: &Gateway, name: &str, node_id: &str) -> bool {
    let known = entries(gateway).unwrap_or_default();
    find(&known, name).is_ok_and(|found| found.node_id == node_id)
}

fn find<'a>(known: &'a [NodeEntry], asked: &str) -> Result<&'a NodeEntry, NoNode> {
    find_node(known, asked).map_err(|error| match error {
        NotNamed::Ambiguous(several) => NoNode::Ambiguous {
            asked: asked.to_owned(),
            candidates: several.into_iter().map(shown).collect(),
        },
        NotNamed::Unknown if known.is_empty() => NoNode::None,
        NotNamed::Unknown => NoNode::Unknown {
            asked: asked.to_owned(),
            known: known.iter().map(shown).collect(),
        },
    })
}
