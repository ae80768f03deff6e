//! `node.pair.*`: the commands of a node that may be used, the pending requests, and their
//! decisions.

use interlock_dispatch::nodes::known::refresh;
use interlock_dispatch::nodes::registry::{self, ApprovedNode};
use interlock_dispatch::nodes::{Platform, remote_runs};
use interlock_host::now_ms;
use interlock_store::{PairedNode, Pairing, PairingRequest};
use interlock_wire::results::{
    NodePairApproved, NodePairListing, NodePairPending, NodePairRejected, NodePairRemoved,
    NodePairVerified, PairedNodeEntry,
};
use interlock_wire::{WireError, method, params};
use serde_json::json;

use super::{Context, broadcast, pairing::PairingFailure, store_failed, work};
use crate::pairing;

pub(crate) async fn list(
    context: Context<'_>,
    _params: params::NodePairList,
) -> Result<NodePairListing, WireError> {
    work(context, |gateway| {
        let store = gateway.dispatcher.host.store();
        let pending = store
            .pairing_requests(Pairing::Node)
            .map_err(store_failed)?;
        let paired = store.nodes().map_err(store_failed)?;
        Ok(NodePairListing {
            pending: pending.iter().map(registry::listed).collect(),
            paired: paired.into_iter().map(shown).collect(),
        })
    })
    .await
}

/// Returns a node as operators see it.
fn shown(node: PairedNode) -> PairedNodeEntry {
    PairedNodeEntry {
        node_id: node.node_id,
        display_name: node.display_name,
        platform: node.platform,
        version: node.version,
        device_family: node.device_family,
        caps: node.caps,
        commands: node.commands,
        permissions: node.permissions,
        created_at_ms: node.created_at_ms,
        approved_at_ms: node.approved_at_ms,
        last_seen_at_ms: node.last_seen_at_ms,
        last_connected_at_ms: node.last_connected_at_ms,
        token: None,
    }
}

/// Approves commands of a node, with immediate effect on its present connection.
pub(super) async fn approve(
    context: Context<'_>,
    params: params::NodePairApprove,
) -> Result<NodePairApproved, WireError> {
    let scopes = context.client.scopes.clone();
    let who = context.client.name().to_owned();
    work(context, move |gateway| {
        let now = now_ms();
        let node = gateway
            .dispatcher
            .host
            .store()
            .change(|change| {
                let taken = change.take_pairing_request(Pairing::Node, &params.request_id)?;
                let Some(waiting) = taken else {
                    return Err(PairingFailure(WireError::invalid("unknown requestId")));
                };
                // An operator cannot grant a scope that it does not have.
                for scope in method::pairing_scopes(&waiting.commands) {
                    method::require(scope, &scopes)?;
                }
                let live = gateway.dispatcher.nodes.get(&waiting.device_id);
                let mut node = approved(change.node(&waiting.device_id)?, waiting, now);
                if let Some(live) = live {
                    node.last_connected_at_ms = Some(live.client.connected_at_ms);
                }
                change.put_node(&node)?;
                let record = json!({
                    "by": who,
                    "caps": node.caps,
                    "commands": node.commands,
                    "nodeId": node.node_id,
                    "requestId": params.request_id,
                    "what": "node-approved",
                });
                change.record_pairing(&record, now)?;
                Ok(node)
            })
            .map_err(|PairingFailure(error)| error)?;
        gateway
            .dispatcher
            .nodes
            .approval_changed(&node.node_id, (&node).into());
        refresh(&gateway.dispatcher, &node.node_id);
        registry::resolved(
            &gateway.dispatcher,
            &params.request_id,
            &node.node_id,
            "approved",
        );
        let token = pairing::node_token(&gateway.dispatcher.device_key, &node);
        Ok(NodePairApproved {
            request_id: params.request_id,
            node: PairedNodeEntry {
                token: Some(token),
                ..shown(node)
            },
        })
    })
    .await
}

/// Approves exactly the commands that the request names. A command that the node no longer declares
/// loses its approval.
fn approved(known: Option<PairedNode>, waiting: PairingRequest, now: u64) -> PairedNode {
    let known = known.unwrap_or_else(|| PairedNode {
        created_at_ms: now,
        ..PairedNode::default()
    });
    PairedNode {
        node_id: waiting.device_id,
        // A name that an operator gave the node stays.
        display_name: known.display_name.or(waiting.display_name),
        platform: waiting.platform,
        version: waiting.version,
        device_family: waiting.device_family,
        caps: waiting.caps,
        commands: waiting.commands,
        permissions: waiting.permissions,
        created_at_ms: known.created_at_ms,
        approved_at_ms: now,
        last_seen_at_ms: known.last_seen_at_ms,
        last_connected_at_ms: known.last_connected_at_ms,
    }
}

pub(super) async fn reject(
    context: Context<'_>,
    params: params::NodePairReject,
) -> Result<NodePairRejected, WireError> {
    let who = context.client.name().to_owned();
    work(context, move |gateway| {
        let waiting = gateway
            .dispatcher
            .host
            .store()
            .change(|change| {
                let taken = change.take_pairing_request(Pairing::Node, &params.request_id)?;
                let Some(waiting) = taken else {
                    return Err(PairingFailure(WireError::invalid("unknown requestId")));
                };
                let record = json!({
                    "by": who,
                    "nodeId": waiting.device_id,
                    "requestId": waiting.request_id,
                    "what": "node-rejected",
                });
                change.record_pairing(&record, now_ms())?;
                Ok(waiting)
            })
            .map_err(|PairingFailure(error)| error)?;
        let (id, node) = (&waiting.request_id, &waiting.device_id);
        registry::resolved(&gateway.dispatcher, id, node, "rejected");
        Ok(NodePairRejected {
            request_id: waiting.request_id,
            node_id: waiting.device_id,
        })
    })
    .await
}

/// Revokes the approval of a node, with immediate effect on its present connection.
pub(super) async fn remove(
    context: Context<'_>,
    params: params::NodePairRemove,
) -> Result<NodePairRemoved, WireError> {
    let who = context.client.name().to_owned();
    let removed = params.node_id.clone();
    let answer = work(context, move |gateway| {
        let id = params.node_id;
        let connected = gateway.dispatcher.nodes.get(&id);
        let most_requests = gateway.dispatcher.limits.pairing_requests;
        let asked = gateway
            .dispatcher
            .host
            .store()
            .change(|change| {
                if !change.remove_node(&id)? {
                    return Err(PairingFailure(WireError::unknown_node()));
                }
                let record = json!({ "by": who, "nodeId": id, "what": "node-removed" });
                change.record_pairing(&record, now_ms())?;
                let node = connected.as_deref();
                let asked = node.map(|node| registry::ask_again(change, node, most_requests));
                Ok(asked.transpose()?)
            })
            .map_err(|PairingFailure(error)| error)?;
        gateway
            .dispatcher
            .nodes
            .approval_changed(&id, ApprovedNode::default());
        refresh(&gateway.dispatcher, &id);
        if let Some(asked) = asked {
            broadcast(
                &gateway.dispatcher,
                interlock_wire::event::NODE_PAIR_REQUESTED,
                &asked,
            );
        }
        Ok(NodePairRemoved { node_id: id })
    })
    .await?;
    remote_runs::abandon(&context.gateway.dispatcher, &removed).await;
    Ok(answer)
}

/// Requests pairing for a node that does not request it itself.
pub(super) async fn request(
    context: Context<'_>,
    params: params::NodePairRequest,
) -> Result<NodePairPending, WireError> {
    let (asked, is_new) = work(context, move |gateway| {
        let config = gateway.dispatcher.host.config();
        let config = config.map_err(|error| super::unavailable(&error))?;
        let family = params.device_family.as_deref();
        let platform = Platform::of(params.platform.as_deref().unwrap_or_default(), family);
        let commands = params.commands.unwrap_or_default();
        let wanted = PairingRequest {
            commands: platform.cut(&commands, &config.config().gateway.nodes),
            device_id: params.node_id,
            display_name: params.display_name,
            platform: params.platform,
            version: params.version,
            device_family: params.device_family,
            caps: params.caps.unwrap_or_default(),
            remote_ip: params.remote_ip,
            ..PairingRequest::default()
        };
        let store = gateway.dispatcher.host.store();
        let most_requests = gateway.dispatcher.limits.pairing_requests;
        let asked = store.change(|change| {
            // A request by the connected node itself is never replaced by what others say about it.
            match change.pairing_request_of(Pairing::Node, &wanted.device_id)? {
                Some(waiting) => Ok((registry::requested(&waiting), false)),
                None => Ok((registry::ask(change, wanted, most_requests)?, true)),
            }
        });
        asked.map_err(store_failed)
    })
    .await?;
    if is_new {
        let name = interlock_wire::event::NODE_PAIR_REQUESTED;
        broadcast(&context.gateway.dispatcher, name, &asked);
    }
    Ok(NodePairPending {
        status: "pending".to_owned(),
        request: asked,
        created: is_new,
    })
}

pub(super) async fn verify(
    context: Context<'_>,
    params: params::NodePairVerify,
) -> Result<NodePairVerified, WireError> {
    work(context, move |gateway| {
        let node = gateway.dispatcher.host.store().node(&params.node_id);
        let node = node.map_err(store_failed)?.filter(|node| {
            let token = pairing::node_token(&gateway.dispatcher.device_key, node);
            token.matches(params.token.expose())
        });
        Ok(NodePairVerified {
            ok: node.is_some(),
            node: node.map(shown),
        })
    })
    .await
}
