//! Chooses the node of an `exec` call.

use std::fmt;
use std::sync::Arc;

use interlock_config::types::GatewayNodes;
use interlock_policy::quote;
use interlock_store::StoreError;
use interlock_wire::node::SYSTEM_RUN;

use super::directory::{KnownNode, NodeDirectory, NodeFilter, NotNamed};
use super::known::with_directory;
use super::registry::Node;
use crate::dispatcher::Dispatcher;

/// How many nodes an error names. No reader needs more.
const MOST_NAMED: usize = 20;

/// Nodes as an error names them.
#[derive(Debug)]
pub struct NodeNames {
    names: Vec<String>,
    /// The number of nodes that are not named.
    further: usize,
}

impl NodeNames {
    fn of<'a>(nodes: impl IntoIterator<Item = &'a KnownNode>, count: usize) -> Self {
        let nodes = nodes.into_iter().take(MOST_NAMED);
        let names: Vec<String> = nodes.map(KnownNode::shown).collect();
        Self {
            further: count.saturating_sub(names.len()),
            names,
        }
    }

    fn listed(directory: &NodeDirectory, which: NodeFilter) -> Self {
        Self::of(directory.list(which, None), directory.count(which))
    }

    fn one(node: &KnownNode) -> Self {
        Self::of([node], 1)
    }
}

impl fmt::Display for NodeNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(", "))?;
        match self.further {
            0 => Ok(()),
            further => write!(f, " and {further} more"),
        }
    }
}

/// Why there is no node for a call.
#[derive(Debug, thiserror::Error)]
pub enum NoNode {
    #[error("exec host=node requires a paired node (none available)")]
    None,
    #[error("unknown node: {asked} (known: {known})")]
    Unknown { asked: String, known: NodeNames },
    #[error("node `{asked}` is ambiguous (candidates: {candidates})")]
    Ambiguous {
        asked: String,
        candidates: NodeNames,
    },
    #[error("exec host=node requires a connected node ({0} not connected)")]
    NotConnected(NodeNames),
    #[error(
        "exec host=node requires a node that supports system.run ({0} does not, or it is not approved or denied by gateway.nodes.denyCommands)"
    )]
    CannotRun(NodeNames),
    #[error(
        "exec host=node requires a node id when multiple nodes are available (set tools.exec.node or exec.node). Candidates: {0}"
    )]
    Several(NodeNames),
    #[error("node not allowed (requested {asked}; the agent is bound to {bound})")]
    Bound { asked: String, bound: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl NoNode {
    pub fn code(&self) -> &'static str {
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

    pub fn remedy(&self) -> Option<String> {
        let remedy = match self {
            Self::None => "connect one: interlock node run --host GATEWAY",
            Self::Unknown { .. } | Self::Ambiguous { .. } | Self::Several(_) => {
                "name one of them: its id, its name, its address or the beginning of its id"
            }
            Self::NotConnected(_) => "start it there: interlock node run --host GATEWAY",
            Self::CannotRun(names) => {
                let node = names.names.first().map_or("NODE", String::as_str);
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

/// The sources of a node's name, in order of precedence.
#[derive(Debug, Clone, Default)]
pub struct Wishes {
    pub call: Option<String>,
    pub session: Option<String>,
    /// The node that the agent is bound to.
    pub bound: Option<String>,
    /// The node in the config of all agents.
    pub usual: Option<String>,
}

impl Wishes {
    /// The first node that call, session or config name. A call or session must not leave the node
    /// that its agent is bound to. Waits for the disk.
    pub fn choose(
        &self,
        dispatcher: &Dispatcher,
        rules: &GatewayNodes,
    ) -> Result<Arc<Node>, NoNode> {
        let given = |wish: &Option<String>| {
            let wish = wish.as_deref().map(str::trim);
            wish.filter(|wish| !wish.is_empty()).map(str::to_owned)
        };
        let asked = given(&self.call).or_else(|| given(&self.session));
        let bound = given(&self.bound);
        let usual = given(&self.usual);
        let named = with_directory(dispatcher, |directory| {
            if let (Some(asked), Some(bound)) = (&asked, &bound) {
                let bound_to = find(directory, bound)?;
                let is_it = find(directory, asked).is_ok_and(|found| found.id == bound_to.id);
                if !is_it {
                    return Err(NoNode::Bound {
                        asked: asked.clone(),
                        bound: bound_to.shown(),
                    });
                }
            }
            let named = bound.as_ref().or(asked.as_ref()).or(usual.as_ref());
            let named = named.map(|named| find(directory, named));
            Ok(named.transpose()?.cloned())
        })??;
        match named {
            Some(found) => named_node(dispatcher, rules, &found),
            None => only(dispatcher, rules),
        }
    }
}

fn named_node(
    dispatcher: &Dispatcher,
    rules: &GatewayNodes,
    found: &KnownNode,
) -> Result<Arc<Node>, NoNode> {
    let Some(node) = dispatcher.nodes.get(&found.id) else {
        return Err(NoNode::NotConnected(NodeNames::one(found)));
    };
    if can_run(&node, rules) {
        Ok(node)
    } else {
        Err(NoNode::CannotRun(NodeNames::one(found)))
    }
}

fn can_run(node: &Node, rules: &GatewayNodes) -> bool {
    node.check(SYSTEM_RUN, rules).is_ok()
}

/// The only connected node that can run commands.
fn only(dispatcher: &Dispatcher, rules: &GatewayNodes) -> Result<Arc<Node>, NoNode> {
    let connected = dispatcher.nodes.connected().into_iter();
    let mut able: Vec<Arc<Node>> = connected.filter(|node| can_run(node, rules)).collect();
    if able.len() == 1 {
        return Ok(able.remove(0));
    }
    let why = with_directory(dispatcher, |directory| match able.len() {
        0 if directory.count(NodeFilter::All) == 0 => NoNode::None,
        0 if directory.count(NodeFilter::Connected) == 0 => {
            NoNode::NotConnected(NodeNames::listed(directory, NodeFilter::All))
        }
        0 => NoNode::CannotRun(NodeNames::listed(directory, NodeFilter::Connected)),
        count => {
            let is_able = |known: &&KnownNode| able.iter().any(|node| *node.id == *known.id);
            let known = directory.list(NodeFilter::Connected, None).filter(is_able);
            NoNode::Several(NodeNames::of(known, count))
        }
    });
    Err(why?)
}

/// Whether this name means that node. Waits for the disk.
pub fn is_node(dispatcher: &Dispatcher, name: &str, node_id: &str) -> bool {
    let is_it = with_directory(dispatcher, |directory| {
        find(directory, name).is_ok_and(|found| *found.id == *node_id)
    });
    is_it.unwrap_or(false)
}

fn find<'a>(directory: &'a NodeDirectory, asked: &str) -> Result<&'a KnownNode, NoNode> {
    directory.find(asked).map_err(|error| match error {
        NotNamed::Ambiguous(several) => NoNode::Ambiguous {
            asked: asked.to_owned(),
            candidates: NodeNames::of(several.iter().copied(), several.len()),
        },
        NotNamed::Unknown if directory.count(NodeFilter::All) == 0 => NoNode::None,
        NotNamed::Unknown => NoNode::Unknown {
            asked: asked.to_owned(),
            known: NodeNames::listed(directory, NodeFilter::All),
        },
    })
}
