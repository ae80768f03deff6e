//! The methods that clients can call, and the events that they receive.
//!
//! Whether a client may call a method is decided before a request gets here
//! (`interlock_wire::method`).

mod approval_pages;
mod approval_records;
mod approvals;
mod ask;
mod config;
mod documents;
mod node_pairing;
mod node_presence;
mod nodes;
mod pairing;
mod policy;
mod processes;
mod sandbox;
mod sessions;
mod system;
mod tools;

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use interlock_connections::Client;
use interlock_dispatch::broadcast;
use interlock_dispatch::work::blocking;
pub(crate) use interlock_dispatch::work::{store_failed, unavailable};
use interlock_host::{HostError, RoleToken, TokenRole, now_ms};
use interlock_rules::RulesError;
use interlock_wire::hello::{HEALTH_INTERVAL_MS, Shutdown, Tick};
use interlock_wire::params::{self, Params};
use interlock_wire::results::{ClientPresence, HealthReport, PresenceChanged};
use interlock_wire::{Close, Event, Request, Response, Role, WireError, event};
use serde::Serialize;

use crate::channels;
use crate::gateway::Gateway;
use crate::push;
use crate::refused_attempts::{is_decision, named_approval};
use crate::ui::open as ui;

pub(crate) use approvals::{find_with as find_approval, show as show_approval};
pub(crate) use config::get as config_get;
pub(crate) use node_pairing::list as node_pair_list;
pub(crate) use nodes::{explain as node_explain, list as node_list};
pub(crate) use pairing::device_list;
pub(crate) use policy::read_draft;
pub(crate) use processes::{list as process_list, log as process_log, perform as process_perform};
pub(crate) use sandbox::scopes as sandbox_scopes;
pub(crate) use sessions::direct_session;
pub(crate) use system::{audit_head, audit_search, logs, status};

/// The shortest time between two presence events, however many clients come and go.
const PRESENCE_PAUSE: Duration = Duration::from_secs(1);

/// How long a connection may outlive the token with which it connected.
const REVOCATION_LOOK: Duration = Duration::from_secs(2);

/// The most clients that presence names.
const MAX_PRESENCE: usize = 200;

/// The gateway and the client of one call.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    pub gateway: &'a Arc<Gateway>,
    pub client: &'a Arc<Client>,
}

/// Methods whose calls last until another party acts.
const WAITING: &[&str] = &[
    "exec.approval.request",
    "exec.approval.waitDecision",
    "node.invoke",
    "tools.invoke",
];

/// Whether a call mostly waits for another party.
pub fn waits(method: &str) -> bool {
    WAITING.contains(&method)
}

/// Passes a request to the handler of its method. Each row ties the parameters, which name the
/// method and its result, to a handler of exactly these types.
macro_rules! dispatch {
    ($context:expr, $request:expr, {
        $($params:ident => $handler:expr,)*
    } else $other:expr) => {
        match $request.method.as_str() {
            $(
                <params::$params as Params>::METHOD => {
                    answer::<params::$params, _>($context, $request, $handler).await
                }
            )*
            _ => $other,
        }
    };
}

/// Reads the parameters, calls the handler and writes its result.
async fn answer<'a, P: Params, F>(
    context: Context<'a>,
    request: &Request,
    handler: impl FnOnce(Context<'a>, P) -> F,
) -> Response
where
    F: Future<Output = Result<P::Answer, WireError>>,
{
    let result = match read(request) {
        Ok(params) => handler(context, params).await,
        Err(refused) => Err(refused),
    };
    respond(request, result)
}

/// Wraps a handler that answers without waiting.
fn now<'a, P: Params>(
    handler: impl FnOnce(Context<'a>, P) -> Result<P::Answer, WireError>,
) -> impl FnOnce(Context<'a>, P) -> Ready<Result<P::Answer, WireError>> {
    |context, params| ready(handler(context, params))
}

fn respond<T: Serialize>(request: &Request, result: Result<T, WireError>) -> Response {
    match result {
        Ok(payload) => Response::success(&request.id, &payload),
        Err(error) => Response::failed(&request.id, error),
    }
}

/// Answers a request. Returns `None` if the answer was already sent.
pub async fn call(
    gateway: &Arc<Gateway>,
    client: &Arc<Client>,
    request: &Request,
) -> Option<Response> {
    let context = Context { gateway, client };
    let response = dispatch!(context, request, {
        Health => now(|context, _| Ok(health(context.gateway))),
        Status => system::status,
        SystemPresence => now(|context, params| Ok(system::who_is_there(context, params))),
        SystemEvent => system::event,
        SkillsBins => now(system::skill_programs),
        LogsTail => now(|context, params| Ok(system::logs(context, &params))),
        AuditList => system::audit_list,
        AuditVerify => system::audit_verify,
        AuditHead => system::audit_head,
        AgentsList => tools::agents,
        ToolsCatalog => tools::catalog,
        ToolsEffective => tools::effective,
        ToolsInvoke => tools::invoke,
        ConfigGet => config::get,
        ConfigSet => config::set,
        ConfigPatch => config::patch,
        ConfigSchema => now(|context, params| Ok(config::schema(context, params))),
        SessionsList => sessions::list,
        SessionsPatch => sessions::patch,
        SessionsDirective => sessions::directive,
        ExecApprovalsGet => documents::get,
        ExecApprovalsSet => documents::set,
        PolicyReplay => policy::replay,
        SandboxExplain => sandbox::explain,
        SandboxRecreate => sandbox::recreate,
        SandboxPrune => sandbox::prune,
        DevicePairList => pairing::device_list,
        DevicePairApprove => pairing::device_approve,
        DevicePairReject => pairing::device_reject,
        DevicePairRemove => pairing::device_remove,
        DevicePairRename => pairing::device_rename,
        DeviceTokenRotate => pairing::token_rotate,
        DeviceTokenRevoke => pairing::token_revoke,
        NodePairList => node_pairing::list,
        NodePairApprove => node_pairing::approve,
        NodePairReject => node_pairing::reject,
        NodePairRemove => node_pairing::remove,
        NodePairRequest => node_pairing::request,
        NodePairVerify => node_pairing::verify,
        NodeList => nodes::list,
        NodeDescribe => nodes::describe,
        NodePolicy => nodes::policy,
        NodeExplain => nodes::explain,
        NodeRename => nodes::rename,
        NodeInvoke => nodes::invoke,
        NodeInvokeResult => nodes::result,
        NodeEvent => nodes::event,
        ExecApprovalsNodeGet => nodes::approvals_get,
        ExecApprovalsNodeSet => nodes::approvals_set,
        ExecApprovalWaitDecision => approvals::wait_decision,
        ExecApprovalResolve => approvals::resolve,
        ExecApprovalResolveMany => approvals::resolve_many,
        ExecApprovalList => approvals::list,
        ExecApprovalPage => approval_pages::page,
        DeliveriesList => approval_pages::deliveries,
        ExecApprovalAskAgain => approvals::ask_again,
        ExecApprovalGet => approvals::get,
        ApprovalGet => approval_records::get,
        ApprovalResolve => approval_records::resolve,
        ApprovalHistory => approval_records::history,
        PluginApprovalList => now(|_, _| Ok(approval_records::none())),
        OpenclawApprovalList => now(|_, _| Ok(approval_records::none())),
        ExecApprovalGrantsList => approval_records::grants,
        ExecApprovalGrantsRevoke => approval_records::revoke_grant,
        TasksList => processes::tasks,
        TasksGet => processes::task_get,
        TasksCancel => processes::task_cancel,
        ProcessList => processes::list,
        ProcessPoll => processes::poll,
        ProcessLog => processes::log,
        ProcessWrite => processes::write,
        ProcessKill => processes::kill,
        ProcessPerform => processes::perform,
        ProcessSubscribe => processes::subscribe,
        ProcessUnsubscribe => now(|context, params| Ok(processes::unsubscribe(context, &params))),
        UiOpen => ui::open,
        UiClose => now(|context, params| Ok(ui::close(context, &params))),
        UiCode => now(ui::code),
        UiScreen => ui::screen,
        UiPhone => now(ui::phone),
        PushKey => push::key,
        PushSubscribe => push::subscribe,
        PushUnsubscribe => push::unsubscribe,
        PushTest => push::test,
        ChannelsList => channels::list,
        ChannelsTest => channels::test,
    } else call_self_answering(context, request).await?);
    if let Some(error) = &response.error
        && is_decision(&request.method)
    {
        let approval = named_approval(request);
        let refused = &gateway.refused;
        refused.note_call(client, &request.method, error, approval.as_deref());
    }
    Some(response)
}

/// Calls a method whose handler may send the answer itself. Returns `None` in that case.
async fn call_self_answering(context: Context<'_>, request: &Request) -> Option<Response> {
    match request.method.as_str() {
        params::ExecApprovalRequest::METHOD => {
            Some(respond(request, ask::request(context, request).await?))
        }
        other => {
            let unknown = WireError::unknown_method(other);
            Some(Response::failed(&request.id, unknown))
        }
    }
}

pub fn read<P: Params>(request: &Request) -> Result<P, WireError> {
    request.read()
}

/// Runs work on the store outside the threads that serve connections.
pub async fn work<T: Send + 'static>(
    context: Context<'_>,
    work: impl FnOnce(&Gateway) -> Result<T, WireError> + Send + 'static,
) -> Result<T, WireError> {
    let gateway = Arc::clone(context.gateway);
    match blocking(move || work(&gateway)).await {
        Ok(done) => done,
        Err(error) => Err(WireError::unavailable(error.to_string())),
    }
}

pub fn approvals_unavailable(error: &RulesError) -> WireError {
    WireError::unavailable(error.to_string()).with("code", error.code())
}

/// Runs when a client was welcomed.
pub async fn connected(gateway: &Arc<Gateway>, client: &Arc<Client>) {
    gateway.dispatcher.presence_changed();
    if client.role == Role::Node {
        nodes::connected(gateway, client).await;
    }
    if client.role == Role::Operator
        && let Ok(event) = Event::new(event::HEALTH, &health(gateway))
    {
        client.tell(&event);
    }
}

/// Runs when a client has disconnected.
pub async fn disconnected(gateway: &Arc<Gateway>, client: &Arc<Client>) {
    gateway.subscriptions.remove_all(client);
    gateway.dispatcher.presence_changed();
    if client.role == Role::Node {
        nodes::disconnected(gateway, client).await;
    }
}

/// Sends ticks, pings and presence until the gateway ends. The reader of a connection drops clients
/// that stop answering.
pub async fn beat(gateway: Arc<Gateway>) {
    let tick = Duration::from_millis(gateway.tick_ms);
    let mut ticks = tokio::time::interval(tick);
    let mut pings = tokio::time::interval(gateway.ping_interval());
    let mut healths = tokio::time::interval(Duration::from_millis(HEALTH_INTERVAL_MS));
    let mut presences = tokio::time::interval(PRESENCE_PAUSE);
    let mut revocations = tokio::time::interval(REVOCATION_LOOK);
    let mut published = gateway.dispatcher.state_version().presence;
    loop {
        tokio::select! {
            _ = ticks.tick() => broadcast(&gateway.dispatcher, event::TICK, &Tick { ts: now_ms() }),
            _ = pings.tick() => gateway.dispatcher.hub.all().iter().for_each(|client| client.ping()),
            _ = revocations.tick() => end_revoked(&gateway).await,
            _ = healths.tick() => broadcast(&gateway.dispatcher, event::HEALTH, &health(&gateway)),
            _ = presences.tick() => {
                let version = gateway.dispatcher.state_version().presence;
                if version != published {
                    published = version;
                    let presence = presence(&gateway);
                    broadcast(&gateway.dispatcher, event::PRESENCE, &PresenceChanged { presence });
                }
            }
        }
    }
}

/// Closes the connections whose token has been revoked.
async fn end_revoked(gateway: &Arc<Gateway>) {
    let clients = gateway.dispatcher.hub.all();
    if clients.iter().all(|client| client.token_id.is_none()) {
        return;
    }
    let reader = Arc::clone(gateway);
    let read = move || -> Result<Vec<RoleToken>, HostError> {
        let mut tokens = reader.dispatcher.host.role_tokens(TokenRole::Operator)?;
        tokens.extend(reader.dispatcher.host.role_tokens(TokenRole::Node)?);
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

/// Notifies a client that the gateway stops, before its connection is closed.
pub fn say_goodbye(gateway: &Gateway, client: &Client) {
    let shutdown = Shutdown {
        reason: "gateway stopping".to_owned(),
        restart_expected_ms: None,
    };
    if let Ok(event) = Event::new(event::SHUTDOWN, &shutdown) {
        client.broadcast(&event.with_state_version(gateway.dispatcher.state_version()));
    }
}

pub fn health(gateway: &Gateway) -> HealthReport {
    HealthReport {
        ok: true,
        ts: now_ms(),
        uptime_ms: now_ms().saturating_sub(gateway.dispatcher.started_at_ms),
        version: gateway.version.to_owned(),
        default_agent_id: gateway.dispatcher.default_agent(),
        clients: gateway.dispatcher.hub.count(),
    }
}

/// Lists the connected clients, the newest first.
pub fn presence(gateway: &Gateway) -> Vec<ClientPresence> {
    let mut clients = gateway.dispatcher.hub.all();
    clients.sort_by_key(|client| std::cmp::Reverse(client.connected_at_ms));
    clients.truncate(MAX_PRESENCE);
    let rows = clients.iter().map(|client| ClientPresence {
        host: client.name().to_owned(),
        mode: client.program.mode.clone(),
        version: client.program.version.clone(),
        platform: client.program.platform.clone(),
        device_family: client.program.device_family.clone(),
        instance_id: client.program.instance_id.clone(),
        device_id: client.device.clone(),
        roles: vec![client.role.as_str().to_owned()],
        scopes: client.scopes.names(),
        ip: client.address.map(|address| address.to_string()),
        reason: "connect".to_owned(),
        ts: client.connected_at_ms,
    });
    rows.collect()
}
