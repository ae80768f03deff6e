//! `interlock status`: one screen that answers what a person asks first. It starts nothing.

use std::process::ExitCode;

use interlock_gateway::running;
use interlock_host::{LocalHost, now_ms, plan_shield};
use interlock_policy::{AgentId, EVERY_AGENT, VerdictShield};
use serde_json::{Value, json};

use super::approvals::duration;
use super::devices::{rows_of, short, text};
use super::{CommandOutcome, configured_host, known_agents, open};
use crate::args::{StateArguments, StatusArguments};
use crate::failure::Failure;
use crate::gateway_client::GatewayClient;
use crate::output::{self, line};
use crate::remote_gateway::RemoteGateway;

/// How many of the pending approvals are shown.
const SHOWN_APPROVALS: usize = 3;

/// Of the nodes, so many are shown.
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
        status.policy(&host)?;
        status.finish(state);
    }
    if arguments.json {
        output::print_json(&status.value);
    } else {
        output::print(&output::table(&status.rows, ""));
    }
    Ok(ExitCode::SUCCESS)
}

/// The same facts for people and for programs.
#[derive(Default)]
struct StatusFacts {
    rows: Vec<Vec<String>>,
    value: Value,
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
        self.value["version"] = version.into();
        self.value["stateDir"] = host.state_dir().display().to_string().into();
        let Some(info) = running(host.state_dir()) else {
            self.value["gateway"] = json!({ "running": false });
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
        self.value["gateway"] = json!({
            "running": true,
            "url": info.url(),
            "pid": info.pid,
            "version": info.version,
            "startedAtMs": info.started_at_ms,
        });
    }

    /// What the followed gateway says of itself. Its shield and its policy are looked at on its machine.
    fn elsewhere(
        &mut self,
        state: &StateArguments,
        host: &LocalHost,
        remote: &RemoteGateway,
    ) -> Result<(), Failure> {
        let mut gateway = GatewayClient::connect_running(state, host)?;
        let told = gateway.call("status", &json!({}))?;
        let url = remote.target.url();
        let age = duration(told["uptimeMs"].as_u64().unwrap_or_default());
        self.value["version"] = env!("CARGO_PKG_VERSION").into();
        self.value["gateway"] = json!({
            "running": true,
            "remote": true,
            "url": url,
            "version": told["version"],
            "startedAtMs": told["startedAtMs"],
        });
        let version = text(&told["version"]);
        self.row("gateway", format!("{url} (version {version}, since {age})"));
        let running = told["runs"]["running"].as_u64().unwrap_or_default();
        self.value["running"] = running.into();
        self.row("runs", format!("{running} running"));
        let listed = gateway.call("agents.list", &json!({}))?;
        let agents = rows_of(&listed["agents"]).iter();
        let agents: Vec<String> = agents.map(|agent| text(&agent["id"])).collect();
        self.value["agents"] = agents.iter().map(|id| json!({ "id": id })).collect();
        self.row("agents", agents.join(", "));
        let waiting = gateway.call("exec.approval.list", &json!({ "summary": true }))?;
        let total = waiting["total"].as_u64().unwrap_or_default();
        self.waiting(state, total);
        for one in rows_of(&waiting["approvals"]).iter().take(SHOWN_APPROVALS) {
            let (id, agent) = (text(&one["shortId"]), text(&one["agent"]));
            self.row(
                "approvals",
                format!("{id}  {agent}: {}", text(&one["preview"])),
            );
        }
        let nodes = gateway.call("node.list", &json!({}))?;
        let pairing = gateway.call("node.pair.list", &json!({}))?;
        self.listed_nodes(state, &nodes, &pairing);
        let here = state.in_command("interlock --local status");
        self.next.push(format!("see this machine: {here}"));
        self.tell_next();
        Ok(())
    }

    /// How many approvals wait.
    fn waiting(&mut self, state: &StateArguments, count: u64) {
        self.value["pending"] = count.into();
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
        self.value["agents"] = values.into();
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

    /// Only a gateway that runs knows them.
    fn nodes(&mut self, state: &StateArguments, host: &LocalHost) {
        if !self.has_gateway {
            return;
        }
        let listed = GatewayClient::connect_running(state, host).and_then(|mut gateway| {
            let nodes = gateway.call("node.list", &json!({}))?;
            let pairing = gateway.call("node.pair.list", &json!({}))?;
            Ok((nodes, pairing))
        });
        let (listed, pairing) = match listed {
            Ok(listed) => listed,
            Err(failure) => {
                self.row("nodes", format!("not known: {failure}"));
                return;
            }
        };
        self.listed_nodes(state, &listed, &pairing);
    }

    fn listed_nodes(&mut self, state: &StateArguments, listed: &Value, pairing: &Value) {
        let nodes = rows_of(&listed["nodes"]);
        if nodes.is_empty() {
            self.row("nodes", "none".to_owned());
        }
        let mut values = Vec::new();
        for node in nodes {
            let is_connected = node["connected"] == true;
            let standing = if is_connected { "connected" } else { "away" };
            let named = format!(
                "{} ({})",
                text(&node["displayName"]),
                short(&node["nodeId"])
            );
            if values.len() < SHOWN_NODES {
                self.row("nodes", format!("{named}: {standing}"));
            }
            values.push(json!({
                "nodeId": node["nodeId"],
                "displayName": node["displayName"],
                "connected": is_connected,
            }));
        }
        let total = listed["total"].as_u64().unwrap_or_default();
        let further = total.saturating_sub(SHOWN_NODES as u64);
        if further > 0 {
            let look = state.in_command("interlock nodes list");
            self.row("nodes", format!("and {further} more: {look}"));
        }
        self.value["nodes"] = values.into();
        self.value["nodesTotal"] = listed["total"].clone();
        if !rows_of(&pairing["pending"]).is_empty() {
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
        self.value["shield"] = words.clone().into();
        self.row("shield", words);
        Ok(())
    }

    fn policy(&mut self, host: &LocalHost) -> Result<(), Failure> {
        let (document, _) = host.document()?;
        let mut values = Vec::new();
        for name in known_agents(host)?
            .iter()
            .filter(|name| *name != EVERY_AGENT)
        {
            let agent = super::agent_id(name)?;
            let levels = host.levels(&agent, None)?;
            let entries = interlock_policy::entries(&document, &agent);
            let is_base = |entry: &interlock_policy::Entry| entry.source.as_deref() == Some(BASE);
            let base = entries.iter().filter(|(entry, _)| is_base(entry)).count();
            let own = entries.len() - base;
            let deny = interlock_policy::deny_rules(&document, &agent).len();
            let exec_host = configured_host(host, &agent)?;
            let exec_host = exec_host.map_or("auto", interlock_config::Host::as_str);
            self.row(
                "policy",
                format!(
                    "{agent}: security {}, ask {}, askFallback {}; {own} entries, {base} of the base, {deny} deny rules; host {exec_host}",
                    levels.security.value(),
                    levels.ask.value(),
                    levels.ask_fallback.value(),
                ),
            );
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
        self.value["policy"] = values.into();
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
        self.value["next"] = self.next.clone().into();
    }
}
