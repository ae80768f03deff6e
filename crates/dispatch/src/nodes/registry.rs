//! The connected nodes, and their approved commands.
//!
//! Commands are routed to one connection of a device: the newest living one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlock_config::types::GatewayNodes;
use interlock_host::now_ms;
use interlock_store::{Change, PairedNode, Pairing, PairingRequest, StoreError};
use interlock_wire::node::extension::INTERLOCK;
use interlock_wire::node::{NodePairRequested, NodePairResolved, SYSTEM_RUN};
use interlock_wire::{Close, Event, WireError, event, method};
use serde_json::json;

use super::Platform;
use super::invoke::InvocationWaiter;
use super::known::{KnownNodes, refresh};
use super::system_run::ForwardedRunFacts;
use crate::dispatcher::Dispatcher;
use interlock_connections::Client;

/// A node that can be called.
#[derive(Debug)]
pub struct Node {
    pub id: String,
    pub client: Arc<Client>,
    pub platform: Platform,
    /// The declared commands that its platform may have. Sorted.
    declared: Vec<String>,
    approved: Mutex<ApprovedNode>,
}

/// The operator's approval of a node.
#[derive(Debug, Clone, Default)]
pub struct ApprovedNode {
    pub name: Option<String>,
    pub caps: Vec<String>,
    pub commands: Vec<String>,
    pub at_ms: Option<u64>,
}

impl From<&PairedNode> for ApprovedNode {
    fn from(node: &PairedNode) -> Self {
        Self {
            name: node.display_name.clone(),
            caps: node.caps.clone(),
            commands: node.commands.clone(),
            at_ms: Some(node.approved_at_ms),
        }
    }
}

impl Node {
    pub fn approved(&self) -> ApprovedNode {
        self.approved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn is_approved(&self, command: &str) -> bool {
        let approved = self.approved.lock();
        let approved = approved.unwrap_or_else(PoisonError::into_inner);
        approved.commands.iter().any(|name| name == command)
    }

    fn approve(&self, approved: ApprovedNode) {
        *self.approved.lock().unwrap_or_else(PoisonError::into_inner) = approved;
    }

    /// The node's name for people.
    pub fn name(&self) -> String {
        let own = self.client.program.display_name.clone();
        let name = self.approved().name.or(own);
        name.unwrap_or_else(|| self.id.clone())
    }

    /// The usable commands: declared, approved, and not denied since. Sorted.
    pub fn commands(&self, config: &GatewayNodes) -> Vec<String> {
        let declared = self.declared.iter();
        declared
            .filter(|command| self.check(command, config).is_ok())
            .cloned()
            .collect()
    }

    pub fn caps(&self) -> Vec<String> {
        let approved = self.approved();
        let said = self.client.caps.iter();
        said.filter(|cap| approved.caps.contains(cap))
            .cloned()
            .collect()
    }

    /// Checks that a command can be used. The error is the answer to the caller.
    pub fn check(&self, command: &str, config: &GatewayNodes) -> Result<(), WireError> {
        let platform = self.platform.as_str();
        if !self.platform.allows(command, config) {
            return Err(WireError::command_not_allowlisted(command, platform));
        }
        if !self.declared.iter().any(|name| name == command) {
            return Err(WireError::command_not_declared(command, platform));
        }
        if !self.is_approved(command) {
            return Err(WireError::command_not_allowlisted(command, platform)
                .with("code", "NODE_COMMAND_NOT_APPROVED")
                .with(
                    "remediation",
                    format!("approve it: interlock nodes approve {}", self.id),
                ));
        }
        Ok(())
    }

    pub fn is_interlock(&self) -> bool {
        self.client.caps.iter().any(|cap| cap == INTERLOCK)
    }

    /// Whether its runs and their sessions are handled by commands of the Interlock extension,
    /// which require the approval to run programs.
    pub fn keeps_sessions(&self, config: &GatewayNodes) -> bool {
        self.is_interlock()
            && self.caps().iter().any(|cap| cap == INTERLOCK)
            && self.check(SYSTEM_RUN, config).is_ok()
    }
}

#[derive(Debug, Default)]
pub struct Nodes {
    state: Mutex<NodesState>,
    pub(super) known: KnownNodes,
}

#[derive(Debug, Default)]
pub(super) struct NodesState {
    /// By id.
    pub(super) nodes: HashMap<String, Arc<Node>>,
    /// Invocations without an answer: by connection, then by their id.
    pub(super) waiting: HashMap<String, HashMap<String, InvocationWaiter>>,
    /// Runs that were sent by `system.run`, by node and run id.
    pub(super) forwarded: HashMap<(String, String), ForwardedRunFacts>,
    /// Runs on Interlock nodes that callers wait for, with the names of their sessions.
    pub(super) awaited: HashMap<String, Option<String>>,
    /// Runs on Interlock nodes that must be ended when their node reconnects.
    pub(super) cancelled: HashSet<String>,
}

impl Nodes {
    pub(super) fn lock(&self) -> MutexGuard<'_, NodesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, id: &str) -> Option<Arc<Node>> {
        self.lock().nodes.get(id).cloned()
    }

    /// The connected nodes, in no particular order.
    pub fn connected(&self) -> Vec<Arc<Node>> {
        self.lock().nodes.values().cloned().collect()
    }

    /// Applies an approval, or its end, to an existing connection.
    pub fn approval_changed(&self, id: &str, approved: ApprovedNode) {
        if let Some(node) = self.get(id) {
            node.approve(approved);
        }
    }
}

/// Registers a connected node. Its commands were approved earlier; new ones wait for an operator.
/// Waits for the disk.
pub fn welcome(dispatcher: &Dispatcher, client: &Arc<Client>) -> Result<(), WireError> {
    let Some(id) = client.device.clone() else {
        return Ok(());
    };
    let config = dispatcher.host.config();
    let config = config.map_err(|error| WireError::unavailable(error.to_string()))?;
    let program = &client.program;
    let platform = Platform::of(&program.platform, program.device_family.as_deref());
    let declared = platform.cut(&client.commands, &config.config().gateway.nodes);
    let most = dispatcher.limits.pairing_requests;
    let seen = dispatcher
        .host
        .store()
        .change(|change| meet(change, client, &id, &declared, most));
    let seen = seen.map_err(|error| WireError::unavailable(error.to_string()))?;
    let node = Arc::new(Node {
        id: id.clone(),
        client: Arc::clone(client),
        platform,
        declared,
        approved: Mutex::new(seen.approved),
    });
    let former = dispatcher.nodes.lock().nodes.insert(id, Arc::clone(&node));
    refresh(dispatcher, &node.id);
    if let Some(former) = former.filter(|former| former.client.connection != client.connection) {
        take_over(&former, client);
    }
    if let Some(request) = &seen.request {
        if seen.is_new {
            crate::broadcast::broadcast(dispatcher, event::NODE_PAIR_REQUESTED, request);
        }
        // The event shows the owner of the node's machine what the node waits for.
        if node.is_interlock()
            && let Ok(event) = Event::new(event::NODE_PAIR_REQUESTED, request)
        {
            client.tell(&event);
        }
    }
    Ok(())
}

/// Ends the work of an older connection. A foreign connection stays open without work: closing it
/// would make the two connections replace each other in turn.
fn take_over(former: &Node, by: &Client) {
    tracing::warn!(
        node = former.id,
        "another connection of this node took over"
    );
    if !former.is_interlock() {
        return;
    }
    let payload = json!({ "nodeId": former.id, "connId": by.connection, "ts": now_ms() });
    if let Ok(event) = Event::new(event::NODE_TAKEN_OVER, &payload) {
        former.client.tell(&event);
    }
    former.client.close(Close::taken_over());
}

/// The stored facts about a connecting node.
struct SeenNode {
    approved: ApprovedNode,
    /// The request that waits for an operator.
    request: Option<NodePairRequested>,
    /// Whether the request was not published yet.
    is_new: bool,
}

fn meet(
    change: &Change<'_>,
    client: &Client,
    id: &str,
    declared: &[String],
    most_requests: usize,
) -> Result<SeenNode, StoreError> {
    let known = change.node(id)?;
    let mut approved = ApprovedNode::default();
    if let Some(mut node) = known.clone() {
        approved = ApprovedNode::from(&node);
        node.last_seen_at_ms = now_ms();
        node.last_connected_at_ms = Some(client.connected_at_ms);
        node.version = Some(client.program.version.clone());
        change.put_node(&node)?;
    }
    let waiting = change.pairing_request_of(Pairing::Node, id)?;
    let is_known = known.is_some_and(|node| {
        let has = |command: &String| node.commands.contains(command);
        declared.iter().all(has)
            && same(&node.caps, &client.caps)
            && node.permissions == client.permissions
    });
    if is_known {
        if let Some(waiting) = waiting {
            change.take_pairing_request(Pairing::Node, &waiting.request_id)?;
        }
        return Ok(SeenNode {
            approved,
            request: None,
            is_new: false,
        });
    }
    let asks_the_same = |request: &PairingRequest| {
        request.commands == declared
            && same(&request.caps, &client.caps)
            && request.permissions == client.permissions
    };
    let (request, is_new) = match waiting.filter(asks_the_same) {
        // An equal request is not a new one.
        Some(waiting) => (requested(&waiting), false),
        None => {
            let request = request_of(client, id, declared);
            (ask(change, request, most_requests)?, true)
        }
    };
    Ok(SeenNode {
        approved,
        request: Some(request),
        is_new,
    })
}

/// Stores the request of a connected node again after its approval was revoked. Otherwise there
/// would be nothing to approve until the node reconnects.
pub fn ask_again(
    change: &Change<'_>,
    node: &Node,
    most_requests: usize,
) -> Result<NodePairRequested, StoreError> {
    let request = request_of(&node.client, &node.id, &node.declared);
    ask(change, request, most_requests)
}

fn same(one: &[String], other: &[String]) -> bool {
    let sorted = |list: &[String]| {
        let mut list = list.to_vec();
        list.sort();
        list.dedup();
        list
    };
    sorted(one) == sorted(other)
}

fn request_of(client: &Client, id: &str, declared: &[String]) -> PairingRequest {
    let program = &client.program;
    PairingRequest {
        device_id: id.to_owned(),
        display_name: program.display_name.clone(),
        platform: Some(program.platform.clone()),
        device_family: program.device_family.clone(),
        version: Some(program.version.clone()),
        client_id: Some(program.id.clone()),
        client_mode: Some(program.mode.clone()),
        caps: client.caps.clone(),
        commands: declared.to_vec(),
        permissions: client.permissions.clone(),
        remote_ip: client.remote_ip(),
        ..PairingRequest::default()
    }
}

/// Stores a request, and keeps at most `most_requests` of all requests.
pub fn ask(
    change: &Change<'_>,
    mut request: PairingRequest,
    most_requests: usize,
) -> Result<NodePairRequested, StoreError> {
    request.request_id = uuid::Uuid::new_v4().to_string();
    "node".clone_into(&mut request.role);
    request.ts = now_ms();
    change.put_pairing_request(Pairing::Node, &request, most_requests)?;
    let record = json!({
        "caps": request.caps,
        "commands": request.commands,
        "nodeId": request.device_id,
        "requestId": request.request_id,
        "what": "node-requested",
    });
    change.record_pairing(&record, request.ts)?;
    Ok(requested(&request))
}

/// A request as operators see it.
pub fn requested(request: &PairingRequest) -> NodePairRequested {
    NodePairRequested {
        request_id: request.request_id.clone(),
        node_id: request.device_id.clone(),
        display_name: request.display_name.clone(),
        platform: request.platform.clone(),
        version: request.version.clone(),
        device_family: request.device_family.clone(),
        remote_ip: request.remote_ip.clone(),
        caps: request.caps.clone(),
        commands: request.commands.clone(),
        silent: false,
        ts: request.ts,
        required_approve_scopes: None,
    }
}

/// A request in a list, with the scopes that its approval requires.
pub fn listed(request: &PairingRequest) -> NodePairRequested {
    let scopes = method::pairing_scopes(&request.commands);
    let names = scopes.iter().map(|scope| scope.as_str().to_owned());
    NodePairRequested {
        required_approve_scopes: Some(names.collect()),
        ..requested(request)
    }
}

/// Notifies operators, and the node itself, of the end of a request.
pub fn resolved(dispatcher: &Dispatcher, request_id: &str, node_id: &str, decision: &str) {
    let payload = NodePairResolved {
        request_id: request_id.to_owned(),
        node_id: node_id.to_owned(),
        decision: decision.to_owned(),
        ts: now_ms(),
    };
    crate::broadcast::broadcast(dispatcher, event::NODE_PAIR_RESOLVED, &payload);
    if let (Some(node), Ok(event)) = (
        dispatcher.nodes.get(node_id),
        Event::new(event::NODE_PAIR_RESOLVED, &payload),
    ) {
        node.client.tell(&event);
    }
}

/// Handles the end of a node's connection: its work fails, and another connection of the same node
/// replaces it, if there is one. Waits for the disk.
pub fn farewell(dispatcher: &Dispatcher, client: &Arc<Client>) {
    let Some(id) = &client.device else { return };
    let was_routed = {
        let mut state = dispatcher.nodes.lock();
        let is_routed = |node: &Arc<Node>| node.client.connection == client.connection;
        let routed = state.nodes.get(id).is_some_and(is_routed);
        if routed {
            state.nodes.remove(id);
        }
        routed
    };
    // The connection gets no more work, so these are all the answers that it owes.
    dispatcher.nodes.fail_waiting(&client.connection);
    if !was_routed {
        return;
    }
    let seen = dispatcher.host.store().change(|change| {
        if let Some(mut node) = change.node(id)? {
            node.last_seen_at_ms = now_ms();
            change.put_node(&node)?;
        }
        Ok::<_, StoreError>(())
    });
    if let Err(error) = seen {
        tracing::warn!(%error, node = id, "when a node was last seen is not stored");
    }
    refresh(dispatcher, id);
    let twins = dispatcher.hub.of_device(id).into_iter();
    let twin = twins
        .filter(|other| other.role == client.role && other.connection != client.connection)
        .max_by_key(|other| other.connected_at_ms);
    if let Some(twin) = twin
        && dispatcher.nodes.get(id).is_none()
        && let Err(error) = welcome(dispatcher, &twin)
    {
        tracing::warn!(%error, node = id, "another connection of the node is not used");
    }
}
