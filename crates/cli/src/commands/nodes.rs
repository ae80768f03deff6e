//! `interlock nodes`: machines that run commands for the gateway.

mod allowlist;
pub(super) mod deny;
mod document;
mod remote;

use std::process::ExitCode;

use interlock_host::{LocalHost, TokenRole};
use interlock_wire::node::NodeListing;
use serde_json::{Value, json};

use super::devices::{done, pick, rows_of, short, text};
use super::role_tokens::RoleTokens;
use super::{CommandOutcome, open, outside_runs};
use crate::args::{
    NodesApproveArguments, NodesCommand, NodesEnrollArguments, NodesInvokeArguments,
    NodesListArguments, StateArguments,
};
use crate::failure::Failure;
use crate::gateway_client::GatewayClient;
use crate::output::{self, line};

pub(super) use allowlist::{add_entry, remove_entry};
pub(super) use document::{NodePolicy, get as document_get, get_of_gateway, set as document_set};
pub(super) use remote::{DocumentAsked, DocumentOwner};

/// Nodes that an error names: more would not be read.
const MOST_NAMED: usize = 20;

/// A gateway that has more pages is not read to the end.
const MOST_PAGES: usize = 1_000;

pub fn run(state: &StateArguments, command: &NodesCommand) -> CommandOutcome {
    if let NodesCommand::Invoke(arguments) = command {
        check_invoke(&arguments.command)?;
    }
    let host = open(state)?;
    if let NodesCommand::Enroll(arguments) = command {
        return enroll(state, &host, arguments);
    }
    if !matches!(
        command,
        NodesCommand::List(_) | NodesCommand::Status(_) | NodesCommand::Describe(_)
    ) {
        outside_runs(host.state_dir())?;
    }
    let mut gateway = GatewayClient::connect(state, &host)?;
    match command {
        NodesCommand::List(arguments) => list(state, &mut gateway, arguments)?,
        NodesCommand::Status(arguments) => status(state, &mut gateway, arguments)?,
        NodesCommand::Describe(arguments) => {
            let id = resolve(&mut gateway, &arguments.node)?;
            let node = gateway.call("node.describe", &json!({ "nodeId": id }))?;
            describe(&node, arguments.json);
        }
        NodesCommand::Rename(arguments) => {
            let id = resolve(&mut gateway, &arguments.node)?;
            let params = json!({ "nodeId": id, "displayName": arguments.name });
            let answer = gateway.call("node.rename", &params)?;
            let name = text(&answer["displayName"]);
            done(
                arguments.json,
                &answer,
                &format!("the node is called {name} now"),
            );
        }
        NodesCommand::Remove(arguments) => {
            let id = resolve(&mut gateway, &arguments.node)?;
            let answer = gateway.call("node.pair.remove", &json!({ "nodeId": id }))?;
            let said = "nothing of the node is approved any more";
            done(arguments.json, &answer, said);
        }
        NodesCommand::Approve(arguments) => approve(&mut gateway, arguments)?,
        NodesCommand::Reject(arguments) => {
            let request = waiting(&mut gateway, &arguments.id)?;
            let params = json!({ "requestId": request["requestId"] });
            let answer = gateway.call("node.pair.reject", &params)?;
            done(arguments.json, &answer, "its commands stay unused");
        }
        NodesCommand::Invoke(arguments) => invoke(&mut gateway, arguments)?,
        // It needs no gateway.
        NodesCommand::Enroll(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Tokens with which nodes join. They are in the store, whether a gateway runs or not.
fn enroll(
    state: &StateArguments,
    host: &LocalHost,
    arguments: &NodesEnrollArguments,
) -> CommandOutcome {
    let of_nodes = RoleTokens {
        role: TokenRole::Node,
        list: "interlock nodes enroll --list",
    };
    if let Some(id) = &arguments.revoke {
        return of_nodes.revoke(state, host, id, arguments.json);
    }
    if arguments.list {
        let mint = state.in_command("interlock nodes enroll");
        return of_nodes.list(host, arguments.json, &format!("mint one: {mint}"));
    }
    let minted = of_nodes.mint(host)?;
    let hint = "on the node: INTERLOCK_GATEWAY_TOKEN=TOKEN interlock node run --host HOST";
    of_nodes.tell(state, &minted, arguments.json, Some(hint));
    Ok(ExitCode::SUCCESS)
}

/// Runs go through `exec`: it asks the policy, and people where they are to be asked.
fn check_invoke(command: &str) -> Result<(), Failure> {
    let command = command.trim();
    if command == "system.run" || command.starts_with("system.run.") {
        return Err(
            Failure::usage("INVOKE_NO_RUN", "`nodes invoke` runs no programs on nodes")
                .with_hint("use exec: interlock exec --node NODE -- COMMAND"),
        );
    }
    Ok(())
}

/// A node, and what people call it.
#[derive(Debug, Clone)]
pub(super) struct NamedNode {
    pub id: String,
    pub name: Option<String>,
}

impl NamedNode {
    /// For people: the name alone could be another node's.
    pub fn shown(&self) -> String {
        match &self.name {
            Some(name) => format!("{} ({})", line(name), line(&self.id)),
            None => line(&self.id),
        }
    }
}

/// The id of the node that is meant: by the same rule as a call's.
pub(super) fn resolve(gateway: &mut GatewayClient, asked: &str) -> Result<String, Failure> {
    Ok(resolve_named(gateway, asked)?.id)
}

/// The same with its name.
pub(super) fn resolve_named(
    gateway: &mut GatewayClient,
    asked: &str,
) -> Result<NamedNode, Failure> {
    let listed = gateway.call("node.list", &json!({ "named": asked }))?;
    let listed: NodeListing = serde_json::from_value(listed).map_err(|error| {
        Failure::refused(
            "GATEWAY_REFUSED",
            format!("its nodes cannot be read: {error}"),
        )
    })?;
    match listed.nodes.as_slice() {
        [node] => Ok(NamedNode {
            id: node.node_id.clone(),
            name: node.display_name.clone(),
        }),
        [] => {
            let message = format!("there is no node `{}`", line(asked));
            Err(Failure::refused("NOT_FOUND", message)
                .with_hint("list them: interlock nodes status"))
        }
        several => {
            let ids = several.iter().take(MOST_NAMED);
            let mut ids = ids.map(|node| line(&node.node_id)).collect::<Vec<_>>();
            if several.len() > MOST_NAMED {
                ids.push("…".to_owned());
            }
            let message = format!("`{}` is more than one node ({})", line(asked), listed.total);
            Err(Failure::refused("AMBIGUOUS", message)
                .with_hint(format!("name one of them: {}", ids.join(", "))))
        }
    }
}

/// The node that runs commands when none is named: the only one that is connected and can.
pub(super) fn only(gateway: &mut GatewayClient) -> Result<NamedNode, Failure> {
    let can_run = |node: &Value| {
        let mut commands = rows_of(&node["commands"]).iter();
        commands.any(|command| command == "system.run")
    };
    let mut able = connected(gateway)?;
    able.retain(can_run);
    match able.as_slice() {
        [one] => Ok(NamedNode {
            id: one["nodeId"].as_str().unwrap_or_default().to_owned(),
            name: one["displayName"].as_str().map(str::to_owned),
        }),
        [] => Err(Failure::refused(
            "NODE_NOT_CONNECTED",
            "no node that can run commands is connected",
        )),
        _ => Err(
            Failure::refused("NODE_AMBIGUOUS", "several nodes are connected")
                .with_hint("name one: interlock config set tools.exec.node NODE"),
        ),
    }
}

/// All nodes that are connected, page by page.
pub(in crate::commands) fn connected(gateway: &mut GatewayClient) -> Result<Vec<Value>, Failure> {
    let mut nodes = Vec::new();
    let mut params = json!({ "connected": true });
    for _ in 0..MOST_PAGES {
        let mut listed = gateway.call("node.list", &params)?;
        if let Value::Array(page) = listed["nodes"].take() {
            nodes.extend(page);
        }
        match listed["nextCursor"].take() {
            Value::Null => break,
            cursor => params["cursor"] = cursor,
        }
    }
    Ok(nodes)
}

fn page(gateway: &mut GatewayClient, arguments: &NodesListArguments) -> Result<Value, Failure> {
    let mut params = json!({ "limit": arguments.limit });
    if let Some(cursor) = &arguments.cursor {
        params["cursor"] = cursor.as_str().into();
    }
    if arguments.connected {
        params["connected"] = true.into();
    }
    Ok(gateway.call("node.list", &params)?)
}

/// Says how to go on where this was not all.
fn note_rest(
    state: &StateArguments,
    command: &str,
    listed: &Value,
    arguments: &NodesListArguments,
) {
    let Some(cursor) = listed["nextCursor"].as_str() else {
        return;
    };
    let connected = if arguments.connected {
        " --connected"
    } else {
        ""
    };
    let go_on = format!(
        "{command}{connected} --limit {} --cursor {}",
        arguments.limit,
        line(cursor)
    );
    output::note(&format!(
        "{} of {} nodes; go on: {}",
        rows_of(&listed["nodes"]).len(),
        listed["total"],
        state.in_command(&go_on)
    ));
}

fn list(
    state: &StateArguments,
    gateway: &mut GatewayClient,
    arguments: &NodesListArguments,
) -> Result<(), Failure> {
    let listed = page(gateway, arguments)?;
    if arguments.json {
        output::print_json(&listed);
        return Ok(());
    }
    output::print(&table(&listed));
    note_rest(state, "interlock nodes list", &listed, arguments);
    Ok(())
}

fn table(listed: &Value) -> String {
    let rows: Vec<Vec<String>> = rows_of(&listed["nodes"]).iter().map(row).collect();
    if rows.is_empty() {
        return "no nodes\n".to_owned();
    }
    output::table(&rows, "")
}

fn row(node: &Value) -> Vec<String> {
    let standing = match (node["connected"] == true, node["paired"] == true) {
        (true, true) => "connected",
        (true, false) => "connected, not approved",
        (false, true) => "away",
        (false, false) => "away, not approved",
    };
    let commands: Vec<String> = rows_of(&node["commands"]).iter().map(text).collect();
    vec![
        short(&node["nodeId"]),
        text(&node["displayName"]),
        text(&node["platform"]),
        standing.to_owned(),
        commands.join(" "),
    ]
}

fn status(
    state: &StateArguments,
    gateway: &mut GatewayClient,
    arguments: &NodesListArguments,
) -> Result<(), Failure> {
    let listed = page(gateway, arguments)?;
    let pairing = gateway.call("node.pair.list", &json!({}))?;
    if arguments.json {
        let mut known = json!({
            "nodes": listed["nodes"],
            "total": listed["total"],
            "pending": pairing["pending"],
        });
        if let Some(cursor) = listed.get("nextCursor") {
            known["nextCursor"] = cursor.clone();
        }
        output::print_json(&known);
        return Ok(());
    }
    let mut out = table(&listed);
    for request in rows_of(&pairing["pending"]) {
        let id = short(&request["requestId"]);
        let commands: Vec<String> = rows_of(&request["commands"]).iter().map(text).collect();
        out += &format!(
            "{} waits for approval of: {}\n  {}\n",
            text(&request["displayName"]),
            commands.join(" "),
            state.in_command(&format!("interlock nodes approve {id}"))
        );
    }
    output::print(&out);
    note_rest(state, "interlock nodes status", &listed, arguments);
    Ok(())
}

fn describe(node: &Value, json: bool) {
    if json {
        output::print_json(node);
        return;
    }
    let mut rows = Vec::new();
    for (name, value) in node.as_object().into_iter().flatten() {
        let shown = match value {
            Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(" "),
            Value::String(_) => text(value),
            other => other.to_string(),
        };
        rows.push(vec![name.clone(), shown]);
    }
    output::print(&output::table(&rows, ""));
}

fn waiting(gateway: &mut GatewayClient, asked: &str) -> Result<Value, Failure> {
    let pairing = gateway.call("node.pair.list", &json!({}))?;
    pick(
        &pairing["pending"],
        asked,
        &["requestId", "nodeId"],
        "request",
    )
    .cloned()
}

fn approve(gateway: &mut GatewayClient, arguments: &NodesApproveArguments) -> Result<(), Failure> {
    let request = waiting(gateway, &arguments.id)?;
    let params = json!({ "requestId": request["requestId"] });
    let mut answer = gateway.call("node.pair.approve", &params)?;
    // For older programs; here it would only be another secret on the screen.
    if let Some(node) = answer["node"].as_object_mut() {
        node.remove("token");
    }
    let node = &answer["node"];
    let commands: Vec<String> = rows_of(&node["commands"]).iter().map(text).collect();
    let said = format!(
        "approved {} ({}): {}",
        text(&node["displayName"]),
        short(&node["nodeId"]),
        commands.join(" ")
    );
    done(arguments.json, &answer, &said);
    Ok(())
}

fn invoke(gateway: &mut GatewayClient, arguments: &NodesInvokeArguments) -> Result<(), Failure> {
    let params = match &arguments.params {
        None => None,
        Some(text) => Some(serde_json::from_str::<Value>(text).map_err(|error| {
            Failure::usage("PARAMS_INVALID", format!("--params is not JSON: {error}"))
        })?),
    };
    let id = resolve(gateway, &arguments.node)?;
    let key = format!("cli-{}-{}", std::process::id(), interlock_host::now_ms());
    let mut call = json!({
        "nodeId": id,
        "command": arguments.command,
        "idempotencyKey": key,
    });
    if let Some(params) = params {
        call["params"] = params;
    }
    if let Some(timeout) = arguments.timeout_ms {
        call["timeoutMs"] = timeout.into();
    }
    let answer = gateway.call("node.invoke", &call)?;
    output::print_json(if arguments.json {
        &answer
    } else {
        &answer["payload"]
    });
    Ok(())
}
