//! `interlock nodes`: the machines that run commands for the gateway.

mod allowlist;
pub(super) mod deny;
mod document;
mod remote;

use std::process::ExitCode;

use interlock_arguments::{
    NodesApproveArguments, NodesCommand, NodesEnrollArguments, NodesInvokeArguments,
    NodesListArguments, StateArguments,
};
use interlock_client::{GatewayClient, open, outside_runs, read_result};
use interlock_console::output::{self, line};
use interlock_console::{CommandOutcome, Failure};
use interlock_host::{LocalHost, TokenRole};
use interlock_services::role_tokens::RoleTokens;
use interlock_wire::node::{NodeEntry, NodeListing, SYSTEM_RUN};
use interlock_wire::params::{
    NodeDescribe, NodeInvoke, NodeList, NodePairApprove, NodePairList, NodePairReject,
    NodePairRemove, NodeRename,
};
use serde_json::{Map, Value};

use super::devices::{one_line, one_line_or_empty, perform, pick, short_id};

pub(super) use allowlist::{add_entry, remove_entry};
pub(super) use document::{NodePolicy, get as document_get, get_of_gateway, set as document_set};
pub(super) use remote::{DocumentAsked, DocumentOwner};

/// How many nodes an error message names.
const MOST_NAMED: usize = 20;

/// How many pages of a list are read at most, even if the gateway offers more.
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
            let node = gateway.request_json(&NodeDescribe { node_id: id })?;
            describe(&node, arguments.json);
        }
        NodesCommand::Rename(arguments) => {
            let id = resolve(&mut gateway, &arguments.node)?;
            let params = NodeRename {
                node_id: id,
                display_name: arguments.name.clone(),
            };
            perform(&mut gateway, &params, arguments.json, |answer| {
                let name = one_line_or_empty(answer.display_name.as_deref());
                format!("the node is called {name} now")
            })?;
        }
        NodesCommand::Remove(arguments) => {
            let node_id = resolve(&mut gateway, &arguments.node)?;
            let params = NodePairRemove { node_id };
            perform(&mut gateway, &params, arguments.json, |_| {
                "nothing of the node is approved any more".to_owned()
            })?;
        }
        NodesCommand::Approve(arguments) => approve(&mut gateway, arguments)?,
        NodesCommand::Reject(arguments) => {
            let request_id = waiting(&mut gateway, &arguments.id)?;
            let params = NodePairReject { request_id };
            perform(&mut gateway, &params, arguments.json, |_| {
                "its commands stay unused".to_owned()
            })?;
        }
        NodesCommand::Invoke(arguments) => invoke(&mut gateway, arguments)?,
        // `enroll` needs no gateway and was handled above.
        NodesCommand::Enroll(_) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Handles the tokens with which nodes join. They are in the store, so no gateway has to run.
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

/// Refuses `system.run`. Commands must go through `exec`, which applies the policy and asks
/// approvers.
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

/// A node with its name.
#[derive(Debug, Clone)]
pub(super) struct NamedNode {
    pub id: String,
    pub name: Option<String>,
}

impl NamedNode {
    /// The name with the id, because two nodes can have the same name.
    pub fn shown(&self) -> String {
        match &self.name {
            Some(name) => format!("{} ({})", line(name), line(&self.id)),
            None => line(&self.id),
        }
    }
}

/// The id of the named node, by the same rules as a call's.
pub(super) fn resolve(gateway: &mut GatewayClient, asked: &str) -> Result<String, Failure> {
    Ok(resolve_named(gateway, asked)?.id)
}

/// Like [`resolve`], with the name of the node.
pub(super) fn resolve_named(
    gateway: &mut GatewayClient,
    asked: &str,
) -> Result<NamedNode, Failure> {
    let listed = gateway.request(&NodeList {
        named: Some(asked.to_owned()),
        ..NodeList::default()
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

/// The node that runs commands if none is named: the only connected one that can.
pub(super) fn only(gateway: &mut GatewayClient) -> Result<NamedNode, Failure> {
    let can_run = |node: &NodeEntry| node.commands.iter().any(|command| command == SYSTEM_RUN);
    let mut able = connected(gateway)?;
    able.retain(can_run);
    match able.as_slice() {
        [one] => Ok(NamedNode {
            id: one.node_id.clone(),
            name: one.display_name.clone(),
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

/// All connected nodes, read page by page.
pub(in crate::commands) fn connected(
    gateway: &mut GatewayClient,
) -> Result<Vec<NodeEntry>, Failure> {
    let mut nodes = Vec::new();
    let mut params = NodeList {
        connected: Some(true),
        ..NodeList::default()
    };
    for _ in 0..MOST_PAGES {
        let listed = gateway.request(&params)?;
        nodes.extend(listed.nodes);
        params.cursor = listed.next_cursor;
        if params.cursor.is_none() {
            break;
        }
    }
    Ok(nodes)
}

/// The request for the page that the flags name.
fn page(arguments: &NodesListArguments) -> NodeList {
    NodeList {
        limit: Some(arguments.limit),
        cursor: arguments.cursor.clone(),
        connected: arguments.connected.then_some(true),
        named: None,
    }
}

/// Prints how to list the next page, if there is one.
fn note_rest(
    state: &StateArguments,
    command: &str,
    listed: &NodeListing,
    arguments: &NodesListArguments,
) {
    let Some(cursor) = &listed.next_cursor else {
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
        listed.nodes.len(),
        listed.total,
        state.in_command(&go_on)
    ));
}

fn list(
    state: &StateArguments,
    gateway: &mut GatewayClient,
    arguments: &NodesListArguments,
) -> Result<(), Failure> {
    let listed = gateway.request_json(&page(arguments))?;
    if arguments.json {
        output::print_json(&listed);
        return Ok(());
    }
    let listed = read_result::<NodeList>(listed)?;
    print_table(state, &listed);
    note_rest(state, "interlock nodes list", &listed, arguments);
    Ok(())
}

fn print_table(state: &StateArguments, listed: &NodeListing) {
    let rows: Vec<Vec<String>> = listed.nodes.iter().map(row).collect();
    if rows.is_empty() {
        let enroll = state.in_command("interlock nodes enroll");
        output::note(&format!("no nodes; to add one: {enroll}"));
    }
    output::print(&output::table(&rows, ""));
}

fn row(node: &NodeEntry) -> Vec<String> {
    let standing = match (node.connected, node.paired) {
        (true, true) => "connected",
        (true, false) => "connected, not approved",
        (false, true) => "away",
        (false, false) => "away, not approved",
    };
    vec![
        short_id(&node.node_id),
        one_line_or_empty(node.display_name.as_deref()),
        one_line_or_empty(node.platform.as_deref()),
        standing.to_owned(),
        words(&node.commands),
    ]
}

fn words(commands: &[String]) -> String {
    let commands: Vec<String> = commands.iter().map(|command| one_line(command)).collect();
    commands.join(" ")
}

fn status(
    state: &StateArguments,
    gateway: &mut GatewayClient,
    arguments: &NodesListArguments,
) -> Result<(), Failure> {
    let listed = gateway.request_json(&page(arguments))?;
    let pairing = gateway.request_json(&NodePairList::default())?;
    if arguments.json {
        // Print the rows unchanged, with fields that this version does not know.
        let part = |value: &Value, name: &str| value.get(name).cloned().unwrap_or_default();
        let mut known = Map::new();
        known.insert("nodes".to_owned(), part(&listed, "nodes"));
        known.insert("total".to_owned(), part(&listed, "total"));
        known.insert("pending".to_owned(), part(&pairing, "pending"));
        if let Some(cursor) = listed.get("nextCursor") {
            known.insert("nextCursor".to_owned(), cursor.clone());
        }
        output::print_json(&known);
        return Ok(());
    }
    let listed = read_result::<NodeList>(listed)?;
    print_table(state, &listed);
    let mut out = String::new();
    for request in &read_result::<NodePairList>(pairing)?.pending {
        let id = short_id(&request.request_id);
        out += &format!(
            "{} waits for approval of: {}\n  {}\n",
            one_line_or_empty(request.display_name.as_deref()),
            words(&request.commands),
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
    // Show every field, even unknown ones.
    let text = |value: &Value| one_line_or_empty(value.as_str());
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

/// The id of a pending request.
fn waiting(gateway: &mut GatewayClient, asked: &str) -> Result<String, Failure> {
    let pairing = gateway.request(&NodePairList::default())?;
    Ok(pick(&pairing.pending, asked, "request")?.request_id.clone())
}

fn approve(gateway: &mut GatewayClient, arguments: &NodesApproveArguments) -> Result<(), Failure> {
    let request_id = waiting(gateway, &arguments.id)?;
    let mut answer = gateway.request_json(&NodePairApprove { request_id })?;
    if arguments.json {
        // Only older programs need the token. Printing it would put a secret on the screen.
        if let Some(Value::Object(node)) = answer.get_mut("node") {
            node.remove("token");
        }
        output::print_json(&answer);
        return Ok(());
    }
    let node = read_result::<NodePairApprove>(answer)?.node;
    output::print(&format!(
        "approved {} ({}): {}\n",
        one_line_or_empty(node.display_name.as_deref()),
        short_id(&node.node_id),
        words(&node.commands)
    ));
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
    let call = NodeInvoke {
        node_id: id,
        command: arguments.command.clone(),
        idempotency_key: key,
        params,
        timeout_ms: arguments.timeout_ms,
        ..NodeInvoke::default()
    };
    if arguments.json {
        output::print_json(&gateway.request_json(&call)?);
    } else {
        output::print_json(&gateway.request(&call)?.payload);
    }
    Ok(())
}
