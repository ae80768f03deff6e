//! The methods that clients can call, and the events that they get.
//!
//! Who may call what is settled before a request gets here (`interlock_wire::method`).

mod approvals;
mod ask;
mod config;
mod documents;
mod node_pairing;
mod nodes;
mod pairing;
mod processes;
mod sessions;
mod system;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use interlock_host::{HostError, RoleToken, TokenRole, now_ms};
use interlock_rules::RulesError;
use interlock_wire::hello::{HEALTH_INTERVAL_MS, Shutdown, Tick};
use interlock_wire::params::{self, Params};
use interlock_wire::{Close, Event, Request, Response, Role, WireError, event};
use serde::Serialize;
use serde_json::{Value, json};

use super::client::Client;
use super::connection::ping_interval;
use crate::gateway::Gateway;
use crate::work::{CallError, blocking};

pub(crate) use approvals::tell as tell_approval;

/// Presence is published at most so often, however many clients come and go.
const PRESENCE_PAUSE: Duration = Duration::from_secs(1);

/// How long a connection may outlive the token that it came with.
const REVOCATION_LOOK: Duration = Duration::from_secs(2);

/// Clients that presence names at most.
const MAX_PRESENCE: usize = 200;

/// Who calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) gateway: &'a Arc<Gateway>,
    pub(crate) client: &'a Arc<Client>,
}

pub(crate) type MethodAnswer = Result<Value, WireError>;

/// Calls that last as long as another party needs.
const WAITING: &[&str] = &[
    "exec.approval.request",
    "exec.approval.waitDecision",
    "node.invoke",
    "tools.invoke",
];

/// Whether a call mostly waits.
pub(crate) fn waits(method: &str) -> bool {
    WAITING.contains(&method)
}

/// Answers a request. None where the answer was sent already.
pub(crate) async fn call(
    gateway: &Arc<Gateway>,
    client: &Arc<Client>,
    request: &Request,
) -> Option<Response> {
    let context = Context { gateway, client };
    let answer = match request.method.as_str() {
        "health" => read::<params::Health>(request).map(|_| health(gateway)),
        "exec.approval.request" => ask::request(context, request).await?,
        "exec.approval.waitDecision" => approvals::wait_decision(context, request).await,
        "exec.approval.resolve" => approvals::resolve(context, request).await,
        "exec.approval.list" => approvals::list(context, request).await,
        "exec.approval.get" => approvals::get(context, request).await,
        "exec.approvals.get" => documents::get(context, request).await,
        "exec.approvals.set" => documents::set(context, request).await,
        "device.pair.list" => pairing::device_list(context, request).await,
        "device.pair.approve" => pairing::device_approve(context, request).await,
        "device.pair.reject" => pairing::device_reject(context, request).await,
        "device.pair.remove" => pairing::device_remove(context, request).await,
        "device.pair.rename" => pairing::device_rename(context, request).await,
        "device.token.rotate" => pairing::token_rotate(context, request).await,
        "device.token.revoke" => pairing::token_revoke(context, request).await,
        "node.list" => nodes::list(context, request).await,
        "node.describe" => nodes::describe(context, request).await,
        "node.policy" => nodes::policy(context, request).await,
        "node.explain" => nodes::explain(context, request).await,
        "node.rename" => nodes::rename(context, request).await,
        "node.invoke" => nodes::invoke(context, request).await,
        "node.invoke.result" => nodes::result(context, request).await,
        "node.event" => nodes::event(context, request).await,
        "exec.approvals.node.get" => nodes::approvals_get(context, request).await,
        "exec.approvals.node.set" => nodes::approvals_set(context, request).await,
        "node.pair.list" => node_pairing::list(context, request).await,
        "node.pair.approve" => node_pairing::approve(context, request).await,
        "node.pair.reject" => node_pairing::reject(context, request).await,
        "node.pair.remove" => node_pairing::remove(context, request).await,
        "node.pair.request" => node_pairing::request(context, request).await,
        "node.pair.verify" => node_pairing::verify(context, request).await,
        "status" => system::status(context, request).await,
        "system-presence" => system::who_is_there(context, request),
        "system-event" => system::event(context, request).await,
        "skills.bins" => system::skill_programs(context, request),
        "logs.tail" => system::logs(context, request),
        "audit.list" => system::audit_list(context, request).await,
        "audit.verify" => system::audit_verify(context, request).await,
        "audit.head" => system::audit_head(context, request).await,
        "agents.list" => tools::agents(context, request).await,
        "tools.catalog" => tools::catalog(context, request).await,
        "tools.effective" => tools::effective(context, request).await,
        "tools.invoke" => tools::invoke(context, request).await,
        "config.get" => config::get(context, request).await,
        "config.set" => config::set(context, request).await,
        "config.patch" => config::patch(context, request).await,
        "config.schema" => config::schema(context, request),
        "sessions.list" => sessions::list(context, request).await,
        "sessions.patch" => sessions::patch(context, request).await,
        "sessions.directive" => sessions::directive(context, request).await,
        "tasks.list" => processes::tasks(context, request).await,
        "tasks.get" => processes::task_get(context, request).await,
        "tasks.cancel" => processes::task_cancel(context, request).await,
        "process.list" => processes::list(context, request).await,
        "process.poll" => processes::poll(context, request).await,
        "process.log" => processes::log(context, request).await,
        "process.write" => processes::write(context, request).await,
        "process.kill" => processes::kill(context, request).await,
        "process.perform" => processes::perform(context, request).await,
        "process.subscribe" => processes::subscribe(context, request).await,
        "process.unsubscribe" => processes::unsubscribe(context, request),
        other => Err(WireError::unknown_method(other)),
    };
    Some(match answer {
        Ok(payload) => Response::success(&request.id, &payload),
        Err(error) => Response::failed(&request.id, error),
    })
}

pub(crate) fn read<P: Params>(request: &Request) -> Result<P, WireError> {
    request.read()
}

/// Work on the store, off the threads that serve connections.
pub(crate) async fn work<T: Send + 'static>(
    context: Context<'_>,
    work: impl FnOnce(&Gateway) -> Result<T, WireError> + Send + 'static,
) -> Result<T, WireError> {
    let gateway = Arc::clone(context.gateway);
    match blocking(move || work(&gateway)).await {
        Ok(done) => done,
        Err(error) => Err(WireError::unavailable(error.to_string())),
    }
}

pub(crate) fn unavailable(error: &HostError) -> WireError {
    WireError::unavailable(error.to_string()).with("code", error.code())
}

pub(crate) fn approvals_unavailable(error: &RulesError) -> WireError {
    WireError::unavailable(error.to_string()).with("code", error.code())
}

pub(crate) fn store_failed(error: interlock_store::StoreError) -> WireError {
    unavailable(&error.into())
}

impl From<CallError> for WireError {
    fn from(error: CallError) -> Self {
        WireError::unavailable(error.to_string())
    }
}

pub(crate) fn broadcast(gateway: &Gateway, name: &str, payload: &impl Serialize) {
    if let Ok(event) = Event::new(name, payload) {
        gateway
            .hub
            .broadcast(&event.with_state_version(gateway.state_version()));
    }
}

/// A client was welcomed.
pub(crate) async fn connected(gateway: &Arc<Gateway>, client: &Arc<Client>) {
    gateway.presence_changed();
    if client.role == Role::Node {
        nodes::connected(gateway, client).await;
    }
    if client.role == Role::Operator
        && let Ok(event) = Event::new(event::HEALTH, &health(gateway))
    {
        client.tell(&event);
    }
}

/// A client has gone.
pub(crate) async fn disconnected(gateway: &Arc<Gateway>, client: &Arc<Client>) {
    gateway.subscriptions.remove_all(client);
    gateway.presence_changed();
    if client.role == Role::Node {
        nodes::disconnected(gateway, client).await;
    }
}

/// Signs of life, and who is there, until the gateway ends. Who gives none is given up where its
/// messages are read.
pub(crate) async fn beat(gateway: Arc<Gateway>) {
    let tick = Duration::from_millis(gateway.tick_ms);
    let mut ticks = tokio::time::interval(tick);
    let mut pings = tokio::time::interval(ping_interval(&gateway));
    let mut healths = tokio::time::interval(Duration::from_millis(HEALTH_INTERVAL_MS));
    let mut presences = tokio::time::interval(PRESENCE_PAUSE);
    let mut revocations = tokio::time::interval(REVOCATION_LOOK);
    let mut published = gateway.state_version().presence;
    loop {
        tokio::select! {
            _ = ticks.tick() => broadcast(&gateway, event::TICK, &Tick { ts: now_ms() }),
            _ = pings.tick() => gateway.hub.all().iter().for_each(|client| client.ping()),
            _ = revocations.tick() => end_revoked(&gateway).await,
            _ = healths.tick() => broadcast(&gateway, event::HEALTH, &health(&gateway)),
            _ = presences.tick() => {
                let version = gateway.state_version().presence;
                if version != published {
                    published = version;
                    broadcast(&gateway, event::PRESENCE, &json!({ "presence": presence(&gateway) }));
                }
            }
        }
    }
}

/// Ends the connections that came with a token that is revoked now.
async fn end_revoked(gateway: &Arc<Gateway>) {
    let clients = gateway.hub.all();
    if clients.iter().all(|client| client.token_id.is_none()) {
        return;
    }
    let reader = Arc::clone(gateway);
    let read = move || -> Result<Vec<RoleToken>, HostError> {
        let mut tokens = reader.host.role_tokens(TokenRole::Operator)?;
        tokens.extend(reader.host.role_tokens(TokenRole::Node)?);
        Ok(tokens)
    };
    let Ok(Ok(tokens)) = blocking(read).await else {
        return;
    };
    for client in clients {
        let is_revoked = |id: &String| !tokens.iter().any(|token| token.id == *id);
        if client.token_id.as_ref().is_some_and(is_revoked) {
            client.close(Close::auth_changed());
        }
    }
}

/// Tells a client that the gateway goes, before its connection is closed.
pub(crate) fn say_goodbye(gateway: &Gateway, client: &Client) {
    let shutdown = Shutdown {
        reason: "gateway stopping".to_owned(),
        restart_expected_ms: None,
    };
    if let Ok(event) = Event::new(event::SHUTDOWN, &shutdown) {
        client.broadcast(&event.with_state_version(gateway.state_version()));
    }
}

pub(crate) fn health(gateway: &Gateway) -> Value {
    json!({
        "ok": true,
        "ts": now_ms(),
        "uptimeMs": now_ms().saturating_sub(gateway.started_at_ms),
        "version": gateway.version,
        "defaultAgentId": gateway.default_agent(),
        "clients": gateway.hub.count(),
    })
}

/// Who is connected, the newest first.
pub(crate) fn presence(gateway: &Gateway) -> Vec<Value> {
    let mut clients = gateway.hub.all();
    clients.sort_by_key(|client| std::cmp::Reverse(client.connected_at_ms));
    clients.truncate(MAX_PRESENCE);
    let rows = clients.iter().map(|client| {
        json!({
            "host": client.name(),
            "mode": client.program.mode,
            "version": client.program.version,
            "platform": client.program.platform,
            "deviceFamily": client.program.device_family,
            "instanceId": client.program.instance_id,
            "deviceId": client.device,
            "roles": [client.role.as_str()],
            "scopes": client.scopes.names(),
            "ip": client.address.map(|address| address.to_string()),
            "reason": "connect",
            "ts": client.connected_at_ms,
        })
    });
    rows.collect()
}
