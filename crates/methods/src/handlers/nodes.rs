//! `node.*`: lists nodes, calls their commands, and receives their results and events.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use interlock_approvals::AuditKind;
use interlock_connections::Client;
use interlock_dispatch::nodes::known::refresh;
use interlock_dispatch::nodes::system_run::{MARGIN, NodeRunRequest};
use interlock_dispatch::nodes::{
    Node, NodeInvocation, approval, extension, list as listing, registry, remote_runs, system_run,
};
use interlock_dispatch::once::{self, KeyReused, OnceKey};
use interlock_dispatch::tools::GatewayLevels;
use interlock_dispatch::work::blocking;
use interlock_host::{Elevation, HostError, now_ms};
use interlock_policy::{AgentId, Ask, Levels};
use interlock_wire::node::extension::{
    ExplainAsked, ForwardedCallFacts, INTERLOCK_RUN_ENDED, PolicyAsked, PolicyLayer, RunHasEnded,
};
use interlock_wire::node::{
    DEFAULT_INVOKE_TIMEOUT_MS, NodeListing, SYSTEM_EXEC_APPROVALS_GET, SYSTEM_EXEC_APPROVALS_SET,
    SYSTEM_RUN, SystemExecApprovalsSet, SystemRun,
};
use interlock_wire::params;
use interlock_wire::results::{
    ApprovalsDocument, NodeDescription, NodeEventReceipt, NodeExplanation, NodeInvokeReceipt,
    NodeInvoked, NodePolicyReport, NodeRenamed, Relayed,
};
use interlock_wire::{PeerRelease, WireError, refusal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::node_presence::{self, NODE_PRESENCE_ALIVE};
use super::{Context, pairing::PairingFailure, store_failed, work};
use crate::gateway::Gateway;

/// The prefix of commands that administrators reach through methods of their own.
const DOCUMENTS: &str = "system.execApprovals.";

/// Runs when a node was welcomed.
pub(super) async fn connected(gateway: &Arc<Gateway>, client: &Arc<Client>) {
    let (welcoming, node) = (Arc::clone(gateway), Arc::clone(client));
    let taken = blocking(move || registry::welcome(&welcoming.dispatcher, &node)).await;
    if let Ok(Err(error)) = taken {
        tracing::error!(%error, "a node is connected and cannot be used");
    }
    if let Some(id) = client.device.clone() {
        tokio::spawn(remote_runs::reconcile(Arc::clone(&gateway.dispatcher), id));
    }
}

pub(super) async fn disconnected(gateway: &Arc<Gateway>, client: &Arc<Client>) {
    let (gateway, client) = (Arc::clone(gateway), Arc::clone(client));
    let _ = blocking(move || registry::farewell(&gateway.dispatcher, &client)).await;
}

pub(crate) async fn list(
    context: Context<'_>,
    params: params::NodeList,
) -> Result<NodeListing, WireError> {
    work(context, move |gateway| {
        listing::page(&gateway.dispatcher, &params)
    })
    .await
}

pub(super) async fn describe(
    context: Context<'_>,
    params: params::NodeDescribe,
) -> Result<NodeDescription, WireError> {
    work(context, move |gateway| {
        let entry = listing::entry(&gateway.dispatcher, &params.node_id).map_err(store_failed)?;
        let node = entry.ok_or_else(WireError::unknown_node)?;
        let ts = now_ms();
        Ok(NodeDescription { ts, node })
    })
    .await
}

pub(super) async fn rename(
    context: Context<'_>,
    params: params::NodeRename,
) -> Result<NodeRenamed, WireError> {
    let name = params.display_name.trim().to_owned();
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(WireError::params(
            "node.rename",
            &["at /displayName: must be a name".to_owned()],
        ));
    }
    let who = context.client.name().to_owned();
    work(context, move |gateway| {
        let node = gateway
            .dispatcher
            .host
            .store()
            .change(|change| {
                let Some(mut node) = change.node(&params.node_id)? else {
                    return Err(PairingFailure(WireError::unknown_node()));
                };
                node.display_name = Some(name.clone());
                change.put_node(&node)?;
                let record = json!({
                    "by": who,
                    "displayName": name,
                    "nodeId": node.node_id,
                    "what": "node-renamed",
                });
                change.record_pairing(&record, now_ms())?;
                Ok(node)
            })
            .map_err(|PairingFailure(error)| error)?;
        gateway
            .dispatcher
            .nodes
            .approval_changed(&node.node_id, (&node).into());
        refresh(&gateway.dispatcher, &node.node_id);
        Ok(NodeRenamed {
            node_id: node.node_id,
            display_name: node.display_name,
        })
    })
    .await
}

/// Calls a command of a node. A second call with the same key gets the same answer, and the work is
/// done once.
pub(super) async fn invoke(
    context: Context<'_>,
    params: params::NodeInvoke,
) -> Result<NodeInvoked, WireError> {
    if params.command.trim().starts_with(DOCUMENTS) {
        return Err(refusal::NO_EXEC_APPROVALS_BY_INVOKE.error());
    }
    // A client without a device is known by its instance id, else by its connection.
    let client = context.client;
    let instance = client.program.instance_id.as_deref();
    let who = client.device.as_deref().or(instance);
    let who = who.unwrap_or(&client.connection);
    let name = format!(
        "node.invoke\n{who}\n{}\n{}\n{}",
        params.node_id, params.command, params.idempotency_key
    );
    let is_run = params.command.trim() == SYSTEM_RUN;
    let asked = json!({ "params": params.params, "timeoutMs": params.timeout_ms });
    let key = OnceKey::new(name, "node.invoke", asked);
    let (gateway, client) = (Arc::clone(context.gateway), Arc::clone(context.client));
    let work = async move {
        let outcome = match invoke_once(&gateway, &client, params).await {
            Ok(invoked) => InvokeOutcome {
                payload: Some(invoked),
                failed: None,
            },
            Err(error) => InvokeOutcome {
                payload: None,
                failed: Some(error),
            },
        };
        (StatusCode::OK, json!(outcome))
    };
    let once = &context.gateway.dispatcher.once;
    let answer = once.run(Some(key), had_effect, work).await;
    let (_, answer) = answer
        .map_err(|reused| WireError::invalid(reused.to_string()).with("reason", KeyReused::CODE))?;
    let outcome = serde_json::from_value::<InvokeOutcome>(answer).unwrap_or_default();
    match (outcome.failed, outcome.payload) {
        (Some(error), _) => Err(error),
        (None, Some(invoked)) => {
            let release = PeerRelease::of_version(&context.client.program.version);
            let is_newer = release.knows_exit_code_of_timeout();
            Ok(if is_newer && is_run {
                invoked.with_timeout_exit_code()
            } else {
                invoked
            })
        }
        (None, None) => Err(WireError::unavailable(
            "the call broke off; whether it had an effect is not known",
        )),
    }
}

/// The result or the error that is stored for further calls with the same key.
#[derive(Debug, Default, Serialize, Deserialize)]
struct InvokeOutcome {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<NodeInvoked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<WireError>,
}

/// Whether an answer stands for something that the node did, or may have done. It does not if the
/// node was never called, or if its policy denied the call.
fn had_effect((_, answer): &once::OnceAnswer) -> bool {
    let failed = answer.get("failed").map(WireError::deserialize);
    let Some(Ok(error)) = failed else {
        return true;
    };
    let told = error
        .detail("nodeError")
        .and_then(|told| told.get("message"));
    match told.and_then(Value::as_str) {
        Some(words) => !words.starts_with("SYSTEM_RUN_D"),
        None => extension::is_lost(&error) && error.detail_code() != Some("NOT_CONNECTED"),
    }
}

async fn invoke_once(
    gateway: &Arc<Gateway>,
    client: &Arc<Client>,
    params: params::NodeInvoke,
) -> Result<NodeInvoked, WireError> {
    let command = params.command.trim().to_owned();
    let node = usable(gateway, &params.node_id, &command, &refusal::NOT_CONNECTED)?;
    let asked = params.timeout_ms.map(Duration::from_millis);
    let (payload, text) = if command == SYSTEM_RUN {
        let run = forwarded(gateway, client, &node, params.params).await?;
        let limit = run.timeout_ms.filter(|limit| *limit > 0);
        // No default cuts the call off: it lasts as long as the run may take, or as long as the
        // node is connected.
        let usual = limit.map(|limit| Duration::from_millis(limit).saturating_add(MARGIN));
        let order = NodeRunRequest {
            timeout: asked.or(usual).filter(|time| !time.is_zero()),
            node_timeout_ms: params.timeout_ms,
            idempotency_key: Some(params.idempotency_key),
            run,
        };
        system_run::run_to_end(&gateway.dispatcher, &node, order).await?
    } else {
        let usual = Duration::from_millis(DEFAULT_INVOKE_TIMEOUT_MS);
        let invocation = NodeInvocation {
            command: &command,
            params: params.params,
            timeout: Some(asked.unwrap_or(usual)).filter(|time| !time.is_zero()),
            node_timeout_ms: params.timeout_ms,
            idempotency_key: Some(params.idempotency_key),
        };
        gateway.dispatcher.nodes.invoke(&node, invocation).await?
    };
    Ok(NodeInvoked {
        ok: true,
        node_id: node.id.clone(),
        command,
        payload,
        payload_json: text,
    })
}

/// Returns a node that is connected and whose command may be used.
fn usable(
    gateway: &Gateway,
    node_id: &str,
    command: &str,
    absent: &refusal::WireRefusal,
) -> Result<Arc<Node>, WireError> {
    let node = gateway
        .dispatcher
        .nodes
        .get(node_id)
        .ok_or_else(|| absent.error())?;
    let config = gateway.dispatcher.host.config();
    let config = config.map_err(|error| super::unavailable(&error))?;
    node.check(command, &config.config().gateway.nodes)?;
    Ok(node)
}

/// Returns the part of the caller's parameters that goes to the node: known fields only, and
/// nothing about an approval that its record does not say.
async fn forwarded(
    gateway: &Arc<Gateway>,
    client: &Arc<Client>,
    node: &Arc<Node>,
    params: Option<Value>,
) -> Result<SystemRun, WireError> {
    let params = params.filter(Value::is_object).unwrap_or_else(|| json!({}));
    let mut sent: SystemRun = serde_json::from_value(params)
        .map_err(|error| WireError::params(SYSTEM_RUN, &[error.to_string()]))?;
    sent.command_text()?;
    let blank = |id: &String| id.trim().is_empty();
    sent.run_id = sent.run_id.filter(|id| !blank(id));
    let (gateway, client, node) = (Arc::clone(gateway), Arc::clone(client), Arc::clone(node));
    blocking(move || {
        // A policy layer from the caller counts for nothing.
        sent.policy_layer = None;
        if node.is_interlock() {
            sent.policy_layer = Some(policy_layer(&gateway, &sent)?);
        }
        if approval::is_claimed(&sent) {
            return approval::redeem(&gateway.dispatcher, &client, &node.id, &sent);
        }
        sent.run_id
            .get_or_insert_with(|| uuid::Uuid::new_v4().to_string());
        Ok(sent.without_approval())
    })
    .await?
}

/// Returns the layer that this gateway adds to the policy of an Interlock node, for every caller.
fn policy_layer(gateway: &Gateway, run: &SystemRun) -> Result<PolicyLayer, WireError> {
    let agent = run.agent_id.as_deref().map(AgentId::new);
    let agent = agent.and_then(Result::ok).unwrap_or_default();
    let key = run.session_key.as_deref().unwrap_or_default();
    layer_of(gateway, &agent, key, None)
}

/// Returns the layer that this gateway adds to the policy of a node, for a call of this agent in
/// this conversation.
fn layer_of(
    gateway: &Gateway,
    agent: &AgentId,
    session_key: &str,
    call_ask: Option<Ask>,
) -> Result<PolicyLayer, WireError> {
    let unavailable = |error: &HostError| super::unavailable(error);
    let config = gateway
        .dispatcher
        .host
        .config()
        .map_err(|error| unavailable(&error))?;
    let session = gateway.dispatcher.host.session(session_key);
    let session = session.map_err(|error| unavailable(&error))?;
    let wanted = GatewayLevels::of(
        &gateway.dispatcher,
        &config,
        agent,
        (&session, call_ask, Elevation::Off),
    );
    Ok(wanted.map_err(|error| unavailable(&error))?.layer())
}

/// `node.invoke.result`: takes a node's answer.
pub(super) async fn result(
    context: Context<'_>,
    result: params::NodeInvokeResult,
) -> Result<NodeInvokeReceipt, WireError> {
    if context.client.device.as_deref() != Some(result.node_id.as_str()) {
        return Err(refusal::NODE_ID_MISMATCH.error());
    }
    let nodes = &context.gateway.dispatcher.nodes;
    let is_awaited = nodes.answered(context.client, result).await;
    Ok(NodeInvokeReceipt {
        ok: true,
        ignored: (!is_awaited).then_some(true),
    })
}

/// `node.event`: takes an event of a node. The node waits for this answer before it goes on.
pub(super) async fn event(
    context: Context<'_>,
    event: params::NodeEvent,
) -> Result<NodeEventReceipt, WireError> {
    let node_id = context.client.device.clone().unwrap_or_default();
    let name = event.event.clone();
    if name == INTERLOCK_RUN_ENDED {
        let ended: Result<RunHasEnded, _> = serde_json::from_value(event.into_payload());
        if let Ok(RunHasEnded { run_id }) = ended {
            // The end is handled before the answer is sent. Thus at most as many ends are handled
            // at once as requests.
            remote_runs::run_has_ended(&context.gateway.dispatcher, &node_id, &run_id).await;
        }
        return Ok(NodeEventReceipt {
            ok: true,
            ..NodeEventReceipt::default()
        });
    }
    if name == NODE_PRESENCE_ALIVE {
        return Ok(node_presence::alive(context.client, &event.into_payload()));
    }
    work(context, move |gateway| {
        let receipt =
            system_run::receive_event(&gateway.dispatcher, &node_id, &name, event.into_payload());
        serde_json::from_value(receipt).map_err(|error| WireError::unavailable(error.to_string()))
    })
    .await
}

pub(super) async fn approvals_get(
    context: Context<'_>,
    params: params::ExecApprovalsNodeGet,
) -> Result<Relayed<ApprovalsDocument>, WireError> {
    document(
        context,
        &params.node_id,
        SYSTEM_EXEC_APPROVALS_GET,
        json!({}),
    )
    .await
}

pub(super) async fn approvals_set(
    context: Context<'_>,
    params: params::ExecApprovalsNodeSet,
) -> Result<Relayed<ApprovalsDocument>, WireError> {
    let set = SystemExecApprovalsSet {
        file: Some(params.file),
        base_hash: params.base_hash,
    };
    let written = document(
        context,
        &params.node_id,
        SYSTEM_EXEC_APPROVALS_SET,
        json!(set),
    )
    .await?;
    // The node knows only its gateway. Which client changed the document is known here.
    let record = json!({
        "document": "node",
        "hash": written.text("hash"),
        "nodeId": params.node_id,
        "who": context.client.name(),
        "device": context.client.device,
        "connection": context.client.connection,
    });
    work(context, move |gateway| {
        let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
        let store = gateway.dispatcher.host.store();
        store
            .append(AuditKind::PolicyWrite, &record, now)
            .map_err(store_failed)?;
        Ok(written)
    })
    .await
}

/// `node.policy`: returns the node's own report, on its config as well as its document.
pub(super) async fn policy(
    context: Context<'_>,
    params: params::NodePolicy,
) -> Result<NodePolicyReport, WireError> {
    let gateway = context.gateway;
    let absent = &refusal::NOT_CONNECTED;
    usable(gateway, &params.node_id, SYSTEM_RUN, absent)?;
    let Some(node) = remote_runs::connected_interlock_node(&gateway.dispatcher, &params.node_id)
    else {
        return Err(WireError::unavailable("the node does not tell its policy")
            .with("code", "NODE_UNSUPPORTED"));
    };
    let asked = PolicyAsked {
        agent_id: params.agent_id,
    };
    let reported: NodePolicyReport =
        extension::ask(&gateway.dispatcher, &node, &asked, Duration::ZERO).await?;
    let unreadable =
        |error: serde_json::Error| WireError::unavailable(format!("the node's policy: {error}"));
    let levels: Levels = serde_json::from_value(reported.policy).map_err(unreadable)?;
    Ok(NodePolicyReport {
        node_id: node.id.clone(),
        agent_id: reported.agent_id,
        document_hash: reported.document_hash,
        policy: serde_json::to_value(levels).map_err(unreadable)?,
        version: reported.version,
    })
}

/// `node.explain`: returns the node's verdict, with the layer that this gateway adds to its policy
/// for a run.
pub(crate) async fn explain(
    context: Context<'_>,
    params: params::NodeExplain,
) -> Result<Relayed<NodeExplanation>, WireError> {
    let gateway = context.gateway;
    let absent = &refusal::NOT_CONNECTED;
    usable(gateway, &params.node_id, SYSTEM_RUN, absent)?;
    let Some(node) = remote_runs::connected_interlock_node(&gateway.dispatcher, &params.node_id)
    else {
        let message = "the node is another program, which does not tell its verdicts";
        return Err(WireError::unavailable(message).with("code", "NODE_UNSUPPORTED"));
    };
    let agent = params.agent_id.as_deref().map(AgentId::new).transpose();
    let agent = agent.map_err(|error| WireError::invalid(format!("agentId: {error}")))?;
    let agent = agent.unwrap_or_default();
    let call_ask = match params.ask.as_deref() {
        None => None,
        Some(word) => {
            let ask = Ask::parse(word);
            Some(ask.ok_or_else(|| WireError::invalid(format!("ask: `{word}` is not known")))?)
        }
    };
    let name = agent.clone();
    let policy_layer = work(context, move |gateway| {
        let key = interlock_approvals::usual_session_key(name.as_str());
        let layer = layer_of(gateway, &name, &key, call_ask)?;
        serde_json::to_value(layer).map_err(|error| WireError::unavailable(error.to_string()))
    })
    .await?;
    let asked = ExplainAsked {
        agent_id: Some(agent.to_string()),
        command: params.command,
        cwd: params.cwd,
        call_facts: ForwardedCallFacts {
            env: params.env.unwrap_or_default(),
            pty: params.pty.unwrap_or_default(),
            stdin_pipe: params.stdin_pipe.unwrap_or_default(),
        },
        policy_layer: serde_json::from_value(policy_layer)
            .map_err(|error| WireError::unavailable(error.to_string()))?,
    };
    let reported: Relayed<NodeExplanation> =
        extension::ask(&gateway.dispatcher, &node, &asked, Duration::ZERO).await?;
    Ok(reported.with("nodeId", node.id.as_str()))
}

/// Reads or writes the document of a node, on the node.
async fn document(
    context: Context<'_>,
    node_id: &str,
    command: &str,
    params: Value,
) -> Result<Relayed<ApprovalsDocument>, WireError> {
    let gateway = context.gateway;
    let absent = &refusal::NODE_APPROVALS_NOT_CONNECTED;
    let node = usable(gateway, node_id, command, absent)?;
    let invocation = NodeInvocation {
        command,
        params: Some(params),
        timeout: Some(Duration::from_millis(DEFAULT_INVOKE_TIMEOUT_MS)),
        node_timeout_ms: None,
        idempotency_key: Some(uuid::Uuid::new_v4().to_string()),
    };
    let (payload, _) = gateway.dispatcher.nodes.invoke(&node, invocation).await?;
    Ok(Relayed::new(payload))
}
