//! Reads and replaces the approvals document of a node or of a remote gateway.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::process::ExitCode;

use interlock_arguments::{ApprovalsGetArguments, ApprovalsSetArguments, StateArguments};
use interlock_client::{GatewayClient, read_relayed};
use interlock_config::{Config, Json5Text};
use interlock_console::output::{self, Paint, line};
use interlock_console::{CommandOutcome, Failure, level_row};
use interlock_host::LocalHost;
use interlock_policy::{AgentId, Document, Joined, Levels, PolicySource, Strictness as _};
use interlock_wire::node::extension::INTERLOCK;
use interlock_wire::params::{self, ConfigGet, ExecApprovalsNodeGet, NodeDescribe};
use interlock_wire::results::NodeDescription;
use serde_json::{Map, Value, json};

use super::remote::{DocumentAsked, Remote};
use super::{NamedNode, only, resolve_named};
use crate::commands::approvals;

/// A node's current document, with its hash.
struct Read {
    node: NamedNode,
    file: Value,
    hash: String,
    path: String,
    /// The version that the node reports.
    version: Option<String>,
    document: Document,
    defaults: Defaults,
    /// The levels that the node itself reports, by agent.
    reported: BTreeMap<String, Levels>,
}

/// Whose defaults apply where the document sets nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defaults {
    /// An Interlock node has the defaults of this program.
    Known,
    /// A foreign node has its own defaults.
    OfTheNode,
}

impl Defaults {
    /// Decides by the capabilities that the node reports.
    fn of(described: &NodeDescription) -> Self {
        if described.node.caps.iter().any(|cap| cap == INTERLOCK) {
            Self::Known
        } else {
            Self::OfTheNode
        }
    }
}

impl Read {
    /// The policy that the node reports, or else the one that its document alone gives.
    fn effective(&self, agent: &AgentId) -> Levels {
        match self.reported.get(agent.as_str()) {
            Some(levels) => levels.clone(),
            None => interlock_rules::levels(&Config::default(), &self.document, agent, None),
        }
    }
}

/// Reads the document, and the policy of `agent` and of the agents that the document names.
fn read(
    mut gateway: GatewayClient,
    node: Option<&str>,
    agent: Option<&str>,
) -> Result<Read, Failure> {
    let node = match node {
        Some(node) => resolve_named(&mut gateway, node)?,
        None => only(&mut gateway)?,
    };
    let node_id = node.id.clone();
    let stored = gateway.request(&ExecApprovalsNodeGet {
        node_id: node_id.clone(),
    })?;
    let stored = read_relayed::<ExecApprovalsNodeGet, _>(&stored)?;
    let described = gateway.request(&NodeDescribe {
        node_id: node_id.clone(),
    })?;
    let document = known(&stored.file)?;
    let named = document.agents.keys().map(String::as_str);
    let mut reported = BTreeMap::new();
    for agent in named.chain([AgentId::MAIN]).chain(agent) {
        let params = params::NodePolicy {
            node_id: node_id.clone(),
            agent_id: Some(agent.to_owned()),
        };
        // Foreign nodes do not report levels.
        let Ok(report) = gateway.request(&params) else {
            break;
        };
        if let Ok(levels) = serde_json::from_value(report.policy) {
            reported.insert(agent.to_owned(), levels);
        }
    }
    Ok(Read {
        reported,
        hash: stored.hash.unwrap_or_default(),
        path: stored.path.unwrap_or_default(),
        file: stored.file,
        defaults: Defaults::of(&described),
        version: described.node.version,
        node,
        document,
    })
}

/// Parses the document. Unknown parts are left out, because the node may be foreign.
pub(super) fn known(file: &Value) -> Result<Document, Failure> {
    let (document, _) = Document::import(file).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failure::refused("DOCUMENT_INVALID", problems.join("; "))
    })?;
    Ok(document)
}

/// `approvals get` at a remote gateway: shows its document, and the policy that the document and
/// the gateway's config give.
pub fn get_of_gateway(
    state: &StateArguments,
    host: &LocalHost,
    arguments: &ApprovalsGetArguments,
) -> CommandOutcome {
    let mut remote = Remote::read(state, host, DocumentAsked::Gateway)?;
    let answer = remote.gateway.request(&ConfigGet::default())?;
    let unreadable = |problem: String| {
        let message = format!("the config of {}: {problem}", remote.owner.shown());
        Failure::refused("GATEWAY_REFUSED", message)
    };
    let config = answer.config.to_string();
    let config = Json5Text::parse("config", &config)
        .map_err(|problem| unreadable(problem.to_string()))
        .and_then(|text| Config::from_text(&text).map_err(|error| unreadable(error.to_string())))?;
    let document = known(&remote.file)?;
    let names = document.agents.keys().cloned();
    let agents = approvals::agents(arguments.agent.as_deref(), names)?;
    let levels: Vec<(AgentId, Levels)> = agents
        .into_iter()
        .map(|agent| {
            let levels = interlock_rules::levels(&config, &document, &agent, None);
            (agent, levels)
        })
        .collect();
    let hash = remote.hash.as_deref().unwrap_or_default();
    if arguments.json {
        let effective: Map<String, Value> = levels
            .iter()
            .map(|(agent, levels)| (agent.to_string(), json!(levels)))
            .collect();
        let mut result = json!({
            "document": remote.file,
            "hash": hash,
            "effective": effective,
        });
        remote.owner.add_to(&mut result);
        output::print_json(&result);
        return Ok(ExitCode::SUCCESS);
    }
    let paint = Paint::stdout();
    let mut out = format!(
        "approvals document of {} {}\n",
        remote.owner.shown(),
        paint.dim(&line(hash))
    );
    for (agent, levels) in &levels {
        out += &format!("\n{}\n", paint.strong(&format!("agent {agent}")));
        out += &output::table(&rows(levels, Defaults::Known), "  ");
        out += &approvals::entries(&document, agent);
    }
    output::print(&out);
    Ok(ExitCode::SUCCESS)
}

/// `approvals get --node`.
pub fn get(
    state: &StateArguments,
    host: &LocalHost,
    node: &str,
    arguments: &ApprovalsGetArguments,
) -> CommandOutcome {
    let gateway = GatewayClient::connect(state, host)?;
    let read = read(gateway, Some(node), arguments.agent.as_deref())?;
    let names = read.document.agents.keys().cloned();
    let agents = approvals::agents(arguments.agent.as_deref(), names)?;
    if arguments.json {
        let effective: Map<String, Value> = agents
            .iter()
            .map(|agent| (agent.to_string(), json!(read.effective(agent))))
            .collect();
        output::print_json(&json!({
            "nodeId": read.node.id,
            "node": read.node.name,
            "version": read.version,
            "document": read.file,
            "hash": read.hash,
            "path": read.path,
            "effective": effective,
            "defaultsKnown": read.defaults == Defaults::Known,
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let paint = Paint::stdout();
    let version = read.version.as_deref().unwrap_or("unknown");
    let mut out = format!(
        "approvals document of the node {} (version {}) {}\n",
        read.node.shown(),
        line(version),
        paint.dim(&line(&read.hash))
    );
    for agent in &agents {
        out += &format!("\n{}\n", paint.strong(&format!("agent {agent}")));
        out += &output::table(&rows(&read.effective(agent), read.defaults), "  ");
        out += &approvals::entries(&read.document, agent);
    }
    output::print(&out);
    Ok(ExitCode::SUCCESS)
}

fn rows(levels: &Levels, defaults: Defaults) -> Vec<Vec<String>> {
    vec![
        row("security", &levels.security, defaults),
        row("ask", &levels.ask, defaults),
        row("askFallback", &levels.ask_fallback, defaults),
    ]
}

fn row<T: Copy + Display>(name: &str, joined: &Joined<T>, defaults: Defaults) -> Vec<String> {
    if defaults == Defaults::OfTheNode && joined.effective.source == PolicySource::Default {
        let unset = ["not set", "the node's own default"].map(str::to_owned);
        return std::iter::once(name.to_owned()).chain(unset).collect();
    }
    level_row(name, joined)
}

/// The policy of a gateway and that of its node, together.
#[derive(Debug)]
pub struct JoinedPolicy {
    security: String,
    ask: String,
    /// Whether the node may be stricter than this: it does not report its defaults.
    is_at_least: bool,
    /// Whether the node joins both policies itself, as an Interlock node does. A foreign node knows
    /// only its own policy; the gateway asks or refuses if that policy is not strict enough.
    is_joined_by_node: bool,
}

impl JoinedPolicy {
    pub fn shown(&self) -> String {
        let least = if self.is_at_least { "at least " } else { "" };
        let by = if self.is_joined_by_node {
            "the node joins both"
        } else {
            "the node knows its own only; this gateway asks or refuses where that is looser"
        };
        format!(
            "together {least}security {}, ask {} ({by})",
            self.security, self.ask
        )
    }

    pub fn to_json(&self) -> Value {
        json!({
            "security": self.security,
            "ask": self.ask,
            "atLeast": self.is_at_least,
            "joinedBy": if self.is_joined_by_node { "node" } else { "gateway" },
        })
    }
}

/// The policy that a node has for an agent.
#[derive(Debug)]
pub struct NodePolicy {
    pub node: NamedNode,
    pub version: Option<String>,
    hash: String,
    levels: Levels,
    defaults: Defaults,
}

impl NodePolicy {
    /// Reads the policy from the node. No gateway is started, because a new gateway would have no
    /// nodes yet.
    pub fn read(
        state: &StateArguments,
        host: &LocalHost,
        node: Option<&str>,
        agent: &AgentId,
    ) -> Result<Self, Failure> {
        let gateway = GatewayClient::connect_running(state, host)?;
        let read = read(gateway, node, Some(agent.as_str()))?;
        Ok(Self {
            levels: read.effective(agent),
            defaults: read.defaults,
            node: read.node,
            version: read.version,
            hash: read.hash,
        })
    }

    pub fn rows(&self) -> Vec<Vec<String>> {
        rows(&self.levels, self.defaults)
    }

    /// The policy for runs on the node: the strictest of the gateway's and the node's own.
    pub fn joined(&self, gateway: &Levels) -> JoinedPolicy {
        let is_unset = |source: PolicySource| {
            self.defaults == Defaults::OfTheNode && source == PolicySource::Default
        };
        JoinedPolicy {
            security: gateway
                .security
                .value()
                .join(self.levels.security.value())
                .to_string(),
            ask: gateway
                .ask
                .value()
                .join(self.levels.ask.value())
                .to_string(),
            is_at_least: is_unset(self.levels.security.effective.source)
                || is_unset(self.levels.ask.effective.source),
            is_joined_by_node: self.defaults == Defaults::Known,
        }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "nodeId": self.node.id,
            "node": self.node.name,
            "version": self.version,
            "hash": self.hash,
            "policy": self.levels,
            "defaultsKnown": self.defaults == Defaults::Known,
        })
    }
}

/// `approvals set` for a node or a remote gateway. Replaces only the document that was read, not
/// one that was changed meanwhile.
pub fn set(
    state: &StateArguments,
    host: &LocalHost,
    asked: DocumentAsked<'_>,
    (name, text): (&str, &[u8]),
    arguments: &ApprovalsSetArguments,
) -> CommandOutcome {
    let file = Json5Text::parse_bytes(name, text)
        .map_err(|problem| Failure::refused("DOCUMENT_INVALID", problem.to_string()))?
        .value();
    let mut remote = Remote::read(state, host, asked)?;
    if let Some(hash) = &arguments.base_hash {
        remote.hash = Some(hash.clone());
    }
    remote.file = file;
    let answer = remote.replace()?;
    if arguments.json {
        let mut result = json!({ "hash": answer.hash });
        remote.owner.add_to(&mut result);
        output::print_json(&result);
    } else {
        let hash = answer.hash.as_deref().map(line).unwrap_or_default();
        output::print(&format!(
            "approvals document of {} set, hash {hash}\n",
            remote.owner.shown()
        ));
    }
    Ok(ExitCode::SUCCESS)
}
