//! `interlock status`: shows the state of the machine on one screen. It starts nothing.

use std::process::ExitCode;

use interlock_arguments::{StateArguments, StatusArguments};
use interlock_client::{GatewayClient, RemoteGateway, configured_host, known_agents, open};
use interlock_console::output::{self, line};
use interlock_console::{CommandOutcome, Failure, duration};
use interlock_gateway::running;
use interlock_host::{LocalHost, now_ms, plan_shield};
use interlock_policy::{AgentId, EVERY_AGENT, VerdictShield};
use interlock_wire::node::NodeListing;
use interlock_wire::params::{self, NodeList, NodePairList};
use interlock_wire::results::NodePairListing;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::devices::{one_line, one_line_or_empty, short_id};

/// How many of the pending approvals are shown.
const SHOWN_APPROVALS: usize = 3;

/// How many of the nodes are shown.
const SHOWN_NODES: usize = 20;

/// The `source` of entries that belong to the base.
const BASE: &str = "base";

pub fn run(state: &StateArguments, arguments: &StatusArguments) -> CommandOutcome {
    let host = open(state)?;
    let mut status = StatusFacts::default();
    if let Some(remote) = RemoteGateway::followed(state, &host)? {
        status.elsewhere(state, &host, &remote)?;
    } else {
        status.gateway(state, &host);
        status.agents(&host)?;
        status.approvals(state, &host)?;
        status.nodes(state, &host);
        status.shield(&host)?;
        status.policy(state, &host)?;
        status.finish(state);
    }
    if arguments.json {
        output::print_json(&status.json);
    } else {
        output::print(&output::table(&status.rows, ""));
    }
    Ok(ExitCode::SUCCESS)
}

/// The facts as JSON. For a remote gateway, the facts about this machine are missing.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusJson {
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_dir: Option<String>,
    gateway: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<usize>,
    agents: Vec<Value>,
    pending: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<StatusNode>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes_total: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shield: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<Vec<Value>>,
    next: Vec<String>,
}

/// The JSON form of one node.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StatusNode {
    node_id: String,
    display_name: Option<String>,
    connected: bool,
}

/// The fields of a remote gateway's pending approvals that are shown here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RemotePendingApprovals {
    total: u64,
    approvals: Vec<RemotePendingApproval>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RemotePendingApproval {
    short_id: String,
    agent: String,
    preview: String,
}

/// The facts, as text and as JSON.
#[derive(Default)]
struct StatusFacts {
    rows: Vec<Vec<String>>,
    json: StatusJson,
    next: Vec<String>,
    has_gateway: bool,
}

impl StatusFacts {
    fn row(&mut self, title: &str, text: String) {
        let is_same = |row: &&Vec<String>| row[0] == title;
        let title = match self.rows.iter().rfind(|row| !row[0].is_empty()) {
            Some(last) if is_same(&last) => "",
            _ => title,
        };
        self.rows.push(vec![title.to_owned(), text]);
    }

    fn gateway(&mut self, state: &StateArguments, host: &LocalHost) {
        let version = env!("CARGO_PKG_VERSION");
        self.json.version = version;
        self.json.state_dir = Some(host.state_dir().display().to_string());
        let Some(info) = running(host.state_dir()) else {
            self.json.gateway = json!({ "running": false });
            self.row("gateway", "does not run".to_owned());
            let run = state.in_command("interlock gateway run");
            self.next.push(format!("serve agents: {run}"));
            return;
        };
        self.has_gateway = true;
        let age = duration(now_ms().saturating_sub(info.started_at_ms));
        self.row(
            "gateway",
            format!(
                "{} (pid {}, version {}, since {age})",
                info.url(),
                info.pid,
                line(&info.version)
            ),
        );
        if info.version != version {
            let restart = state.in_command("interlock gateway restart");
            let step = format!("the gateway is not of this version ({version}): {restart}");
            self.next.push(step);
        }
        self.json.gateway = json!({
            "running": true,
            "url": info.url(),
            "pid": info.pid,
            "version": info.version,
            "startedAtMs": info.started_at_ms,
        });
    }

    /// Collects the facts that the followed gateway reports. Its shield and its policy are only
    /// visible on its machine.
    fn elsewhere(
        &mut self,
        state: &StateArguments,
        host: &LocalHost,
        remote: &RemoteGateway,
    ) -> Result<(), Failure> {
        let mut gateway = GatewayClient::connect_running(state, host)?;
        let reported = gateway.request(&params::Status::default())?;
        let url = remote.target.url();
        let age = duration(reported.uptime_ms);
        self.json.version = env!("CARGO_PKG_VERSION");
        self.json.gateway = json!({
            "running": true,
            "remote": true,
            "url": url,
            "version": reported.version,
            "startedAtMs": reported.started_at_ms,
        });
        let version = one_line_or_empty(reported.version.as_deref());
        self.row("gateway", format!("{url} (version {version}, since {age})"));
        let running = reported.runs.running;
        self.json.running = Some(running);
        self.row("runs", format!("{running} running"));
        let listed = gateway.request(&params::AgentsList::default())?;
        let agents = listed.agents.iter().map(|agent| one_line(&agent.id));
        let agents: Vec<String> = agents.collect();
        self.json.agents = agents.iter().map(|id| json!({ "id": id })).collect();
        self.row("agents", agents.join(", "));
        let waiting = gateway.request_json(&params::ExecApprovalList {
            summary: Some(true),
            limit: u64::try_from(SHOWN_APPROVALS).ok(),
            ..params::ExecApprovalList::default()
        })?;
        let waiting: RemotePendingApprovals = serde_json::from_value(waiting).unwrap_or_default();
        self.waiting(state, waiting.total);
        for one in waiting.approvals.iter().take(SHOWN_APPROVALS) {
            let (id, agent) = (one_line(&one.short_id), one_line(&one.agent));
            self.row(
                "approvals",
                format!("{id}  {agent}: {}", one_line(&one.preview)),
            );
        }
        let nodes = gateway.request(&NodeList::default())?;
        let pairing = gateway.request(&NodePairList::default())?;
        self.listed_nodes(state, nodes, &pairing);
        let here = state.in_command("interlock --local status");
        self.next.push(format!("see this machine: {here}"));
        self.tell_next();
        Ok(())
    }

    /// Adds the number of pending approvals.
    fn waiting(&mut self, state: &StateArguments, count: u64) {
        self.json.pending = count;
        match count {
            0 => self.row("approvals", "nothing waits for a decision".to_owned()),
            count => {
                self.row("approvals", format!("{count} wait for a decision"));
                let watch = state.in_command("interlock approvals watch");
                self.next.push(format!("decide what waits: {watch}"));
            }
        }
    }

    fn agents(&mut self, host: &LocalHost) -> Result<(), Failure> {
        let tokens = host.agent_tokens()?;
        let mut shown = Vec::new();
        let mut values = Vec::new();
        for name in known_agents(host)? {
            let count = tokens.iter().filter(|token| token.agent == name).count();
            shown.push(match count {
                0 => name.clone(),
                1 => format!("{name} (1 token)"),
                count => format!("{name} ({count} tokens)"),
            });
            values.push(json!({ "id": name, "tokens": count }));
        }
        self.row("agents", shown.join(", "));
        self.json.agents = values;
        Ok(())
    }

    fn approvals(&mut self, state: &StateArguments, host: &LocalHost) -> Result<(), Failure> {
        let page = host.approvals().pending(0, SHOWN_APPROVALS)?;
        self.waiting(state, page.unexpired);
        for one in &page.approvals {
            let text = format!(
                "{}  {}: {}",
                one.short_id,
                line(&one.agent),
                line(&one.preview)
            );
            self.row("approvals", text);
        }
        Ok(())
    }

    /// Adds the nodes, which only a running gateway knows.
    fn nodes(&mut self, state: &StateArguments, host: &LocalHost) {
        if !self.has_gateway {
            return;
        }
        let listed = GatewayClient::connect_running(state, host).and_then(|mut gateway| {
            let nodes = gateway.request(&NodeList::default())?;
            let pairing = gateway.request(&NodePairList::default())?;
            Ok((nodes, pairing))
        });
        let (listed, pairing) = match listed {
            Ok(listed) => listed,
            Err(failure) => {
                self.row("nodes", format!("not known: {failure}"));
                return;
            }
        };
        self.listed_nodes(state, listed, &pairing);
    }

    fn listed_nodes(
        &mut self,
        state: &StateArguments,
        listed: NodeListing,
        pairing: &NodePairListing,
    ) {
        if listed.nodes.is_empty() {
            self.row("nodes", "none".to_owned());
        }
        let mut nodes = Vec::new();
        for node in listed.nodes {
            let standing = if node.connected { "connected" } else { "away" };
            let named = format!(
                "{} ({})",
                one_line_or_empty(node.display_name.as_deref()),
                short_id(&node.node_id)
            );
            if nodes.len() < SHOWN_NODES {
                self.row("nodes", format!("{named}: {standing}"));
            }
            nodes.push(StatusNode {
                node_id: node.node_id,
                display_name: node.display_name,
                connected: node.connected,
            });
        }
        let further = listed.total.saturating_sub(SHOWN_NODES);
        if further > 0 {
            let look = state.in_command("interlock nodes list");
            self.row("nodes", format!("and {further} more: {look}"));
        }
        self.json.nodes = Some(nodes);
        self.json.nodes_total = Some(listed.total);
        if !pairing.pending.is_empty() {
            let look = state.in_command("interlock nodes status");
            self.next.push(format!("nodes wait to be let in: {look}"));
        }
    }

    fn shield(&mut self, host: &LocalHost) -> Result<(), Failure> {
        let file = host.config()?;
        let exec = file.config().exec_for(AgentId::MAIN);
        let words = match plan_shield(&exec, VerdictShield::Usual) {
            Ok(shield) => shield.words().to_owned(),
            Err(missing) => missing.to_string(),
        };
        self.json.shield = Some(words.clone());
        self.row("shield", words);
        Ok(())
    }

    fn policy(&mut self, state: &StateArguments, host: &LocalHost) -> Result<(), Failure> {
        let (document, _) = host.document()?;
        let file = host.config()?;
        let mut values = Vec::new();
        for name in known_agents(host)?
            .iter()
            .filter(|name| *name != EVERY_AGENT)
        {
            let agent = interlock_client::agent_id(name)?;
            let levels = host.levels(&agent, None)?;
            let entries = interlock_policy::entries(&document, &agent);
            let is_base = |entry: &interlock_policy::Entry| entry.source.as_deref() == Some(BASE);
            let base = entries.iter().filter(|(entry, _)| is_base(entry)).count();
            let own = entries.len() - base;
            let deny = interlock_policy::deny_rules(&document, &agent).len();
            let entries_word = if own == 1 { "entry" } else { "entries" };
            let rules_word = if deny == 1 { "deny rule" } else { "deny rules" };
            let exec_host = configured_host(host, &agent)?;
            let exec_host = exec_host.map_or("auto", interlock_config::Host::as_str);
            self.row(
                "policy",
                format!(
                    "{agent}: security {}, ask {}, askFallback {}; {own} {entries_word}, {base} of the base, {deny} {rules_word}; host {exec_host}",
                    levels.security.value(),
                    levels.ask.value(),
                    levels.ask_fallback.value(),
                ),
            );
            if let Some(overruled) = file.config().overruled_sandbox(agent.as_str()) {
                let fix = state.in_command(&overruled.remedy());
                let step = format!("{agent}: {}: {fix}", overruled.words());
                self.next.push(step);
            }
            values.push(json!({
                "agent": agent,
                "security": levels.security.value(),
                "ask": levels.ask.value(),
                "askFallback": levels.ask_fallback.value(),
                "entries": own,
                "baseEntries": base,
                "denyRules": deny,
                "host": exec_host,
            }));
        }
        self.json.policy = Some(values);
        Ok(())
    }

    fn finish(&mut self, state: &StateArguments) {
        let explain = state.in_command("interlock explain -- COMMAND");
        self.next
            .push(format!("see what a command would do: {explain}"));
        self.tell_next();
    }

    fn tell_next(&mut self) {
        for step in std::mem::take(&mut self.next) {
            self.row("next", step.clone());
            self.next.push(step);
        }
        self.json.next.clone_from(&self.next);
    }
}
