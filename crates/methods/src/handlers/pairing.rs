//! `device.*`: pairing requests, paired devices, and their tokens.

use std::sync::Arc;
use std::time::Instant;

use interlock_connections::Client;
use interlock_dispatch::nodes::known::refresh;
use interlock_dispatch::nodes::registry::ApprovedNode;
use interlock_dispatch::nodes::remote_runs;
use interlock_host::now_ms;
use interlock_store::{Change, DeviceToken, PairedDevice, Pairing, PairingRequest};
use interlock_wire::results::{
    DeviceApproved, DevicePairListing, DevicePairRequested, DeviceRejected, DeviceRemoved,
    DeviceRenamed, DeviceTokenEntry, DeviceTokenRevoked, DeviceTokenRotated, PairedDeviceEntry,
};
use interlock_wire::{Close, Scopes, WireError, event, method, params};
use serde_json::json;

use super::{Context, broadcast, store_failed, work};
use crate::gateway::Gateway;
use crate::pairing;

pub(crate) async fn device_list(
    context: Context<'_>,
    _params: params::DevicePairList,
) -> Result<DevicePairListing, WireError> {
    work(context, |gateway| {
        let store = gateway.dispatcher.host.store();
        store
            .change(|change| pairing::forget_old_requests(change, now_ms()))
            .map_err(store_failed)?;
        let pending = store
            .pairing_requests(Pairing::Device)
            .map_err(store_failed)?;
        let paired = store.devices().map_err(store_failed)?;
        Ok(DevicePairListing {
            pending: pending
                .into_iter()
                .map(|request| requested(gateway, request))
                .collect(),
            paired: paired.into_iter().map(shown).collect(),
        })
    })
    .await
}

/// Returns a waiting device as operators see it.
fn requested(gateway: &Gateway, request: PairingRequest) -> DevicePairRequested {
    let words = gateway.ui.phones.words(&request.device_id, Instant::now());
    DevicePairRequested {
        words,
        request_id: request.request_id,
        device_id: request.device_id,
        public_key: request.public_key,
        display_name: request.display_name,
        platform: request.platform,
        device_family: request.device_family,
        version: request.version,
        client_id: request.client_id,
        client_mode: request.client_mode,
        role: request.role,
        scopes: request.scopes,
        caps: request.caps,
        commands: request.commands,
        permissions: request.permissions,
        remote_ip: request.remote_ip,
        reason: request.reason,
        ts: request.ts,
    }
}

/// Returns a device as operators see it. Of its tokens it shows only that they exist, never their
/// text.
fn shown(device: PairedDevice) -> PairedDeviceEntry {
    let tokens = device.tokens.into_iter();
    let tokens = tokens.map(|(role, token)| DeviceTokenEntry {
        role,
        scopes: token.scopes,
        created_at_ms: token.created_at_ms,
        revoked: token.revoked,
        rotated_at_ms: token.rotated_at_ms,
        // Tokens that earlier versions revoked have no time of revocation.
        revoked_at_ms: token
            .revoked_at_ms
            .or(token.revoked.then_some(token.created_at_ms)),
    });
    PairedDeviceEntry {
        tokens: tokens.collect(),
        device_id: device.device_id,
        public_key: device.public_key,
        display_name: device.display_name,
        platform: device.platform,
        device_family: device.device_family,
        client_id: device.client_id,
        client_mode: device.client_mode,
        roles: device.roles,
        scopes: device.scopes,
        created_at_ms: device.created_at_ms,
        approved_at_ms: device.approved_at_ms,
        remote_ip: device.remote_ip,
    }
}

pub(super) async fn device_approve(
    context: Context<'_>,
    params: params::DevicePairApprove,
) -> Result<DeviceApproved, WireError> {
    let (scopes, who) = (
        context.client.scopes.clone(),
        context.client.name().to_owned(),
    );
    let device = work(context, move |gateway| {
        let now = now_ms();
        let approved = gateway
            .dispatcher
            .host
            .store()
            .change(|change| {
                let waiting = take(change, &params.request_id)?;
                // An operator cannot grant a scope that it does not have.
                let wanted = Scopes::from_names(&waiting.scopes);
                for scope in wanted.iter() {
                    method::require(scope, &scopes)?;
                }
                let device = change.device(&waiting.device_id).map_err(store_failed)?;
                let device = approved(device, &waiting, &wanted, now);
                change.put_device(&device).map_err(store_failed)?;
                let record = json!({
                    "by": who,
                    "deviceId": device.device_id,
                    "requestId": waiting.request_id,
                    "role": waiting.role,
                    "scopes": waiting.scopes,
                    "what": "device-approved",
                });
                change.record_pairing(&record, now).map_err(store_failed)?;
                Ok((waiting.request_id, device))
            })
            .map_err(|PairingFailure(error)| error)?;
        refresh(&gateway.dispatcher, &approved.1.device_id);
        Ok(approved)
    })
    .await?;
    let (request_id, device) = device;
    resolved(context.gateway, &request_id, &device.device_id, "approved");
    Ok(DeviceApproved {
        request_id,
        device: shown(device),
    })
}

/// Takes the request that an operator decides about.
fn take(change: &Change<'_>, id: &str) -> Result<PairingRequest, PairingFailure> {
    pairing::forget_old_requests(change, now_ms())?;
    let taken = change.take_pairing_request(Pairing::Device, id)?;
    taken.ok_or_else(|| PairingFailure(WireError::invalid("unknown requestId")))
}

fn approved(
    known: Option<PairedDevice>,
    waiting: &PairingRequest,
    scopes: &Scopes,
    now: u64,
) -> PairedDevice {
    let mut device = known.unwrap_or_else(|| PairedDevice {
        device_id: waiting.device_id.clone(),
        created_at_ms: now,
        ..PairedDevice::default()
    });
    device.public_key.clone_from(&waiting.public_key);
    device.display_name = device.display_name.or(waiting.display_name.clone());
    // What a person approved is pinned from now on.
    device.platform.clone_from(&waiting.platform);
    device.device_family.clone_from(&waiting.device_family);
    device.client_id.clone_from(&waiting.client_id);
    device.client_mode.clone_from(&waiting.client_mode);
    device.remote_ip = waiting.remote_ip.clone().or(device.remote_ip);
    device.approved_at_ms = now;
    pairing::add_role(&mut device, &waiting.role, scopes, now);
    device
}

pub(super) async fn device_reject(
    context: Context<'_>,
    params: params::DevicePairReject,
) -> Result<DeviceRejected, WireError> {
    let who = context.client.name().to_owned();
    let waiting = work(context, move |gateway| {
        gateway
            .dispatcher
            .host
            .store()
            .change(|change| {
                let waiting = take(change, &params.request_id)?;
                let record = json!({
                    "by": who,
                    "deviceId": waiting.device_id,
                    "requestId": waiting.request_id,
                    "what": "device-rejected",
                });
                change
                    .record_pairing(&record, now_ms())
                    .map_err(store_failed)?;
                Ok(waiting)
            })
            .map_err(|PairingFailure(error)| error)
    })
    .await?;
    resolved(
        context.gateway,
        &waiting.request_id,
        &waiting.device_id,
        "rejected",
    );
    Ok(DeviceRejected {
        request_id: waiting.request_id,
        device_id: waiting.device_id,
    })
}

fn resolved(gateway: &Gateway, request_id: &str, device_id: &str, decision: &str) {
    let payload = json!({
        "requestId": request_id,
        "deviceId": device_id,
        "decision": decision,
        "ts": now_ms(),
    });
    broadcast(&gateway.dispatcher, event::DEVICE_PAIR_RESOLVED, &payload);
}

pub(super) async fn device_remove(
    context: Context<'_>,
    params: params::DevicePairRemove,
) -> Result<DeviceRemoved, WireError> {
    let (id, who) = (params.device_id.clone(), context.client.name().to_owned());
    let removed = id.clone();
    let answer = edit(context, params.device_id, move |change, _| {
        change.remove_device(&id)?;
        change.remove_node(&id)?;
        // Pending requests of a removed device could not be used any more.
        for pairing in [Pairing::Device, Pairing::Node] {
            if let Some(waiting) = change.pairing_request_of(pairing, &id)? {
                change.take_pairing_request(pairing, &waiting.request_id)?;
            }
        }
        let record = json!({ "by": who, "deviceId": id, "what": "device-removed" });
        change
            .record_pairing(&record, now_ms())
            .map_err(store_failed)?;
        Ok(DeviceRemoved { device_id: id })
    })
    .await?;
    let gateway = context.gateway;
    // The directory changes when the connections have ended.
    gateway
        .dispatcher
        .nodes
        .approval_changed(&removed, ApprovedNode::default());
    disconnect(gateway, &removed, |_| true);
    remote_runs::abandon(&gateway.dispatcher, &removed).await;
    Ok(answer)
}

pub(super) async fn device_rename(
    context: Context<'_>,
    params: params::DevicePairRename,
) -> Result<DeviceRenamed, WireError> {
    let label = params.label.trim().to_owned();
    if label.is_empty() || label.chars().any(char::is_control) {
        let wrong = "at /label: must be a name".to_owned();
        return Err(WireError::params("device.pair.rename", &[wrong]));
    }
    let who = context.client.name().to_owned();
    edit(context, params.device_id, move |change, device| {
        device.display_name = Some(label);
        change.put_device(device).map_err(store_failed)?;
        let record = json!({
            "by": who,
            "deviceId": device.device_id,
            "displayName": device.display_name,
            "what": "device-renamed",
        });
        change.record_pairing(&record, now_ms())?;
        Ok(DeviceRenamed {
            device_id: device.device_id.clone(),
            display_name: device.display_name.clone(),
        })
    })
    .await
}

pub(super) async fn token_rotate(
    context: Context<'_>,
    params: params::DeviceTokenRotate,
) -> Result<DeviceTokenRotated, WireError> {
    let (own, who) = (
        context.client.scopes.clone(),
        context.client.name().to_owned(),
    );
    let key = context.gateway.dispatcher.device_key.clone();
    let role = params.role.clone();
    edit(context, params.device_id, move |change, device| {
        let Some(token) = device.tokens.get_mut(&params.role) else {
            return Err(WireError::invalid("unknown deviceId/role").into());
        };
        let scopes = match &params.scopes {
            Some(scopes) => Scopes::from_names(scopes),
            None => Scopes::from_names(&token.scopes),
        };
        // A new token never has more rights than the old one, nor more than its requester.
        if !Scopes::from_names(&token.scopes).cover(&scopes) {
            return Err(WireError::invalid("scopes exceed the approved ones").into());
        }
        for scope in scopes.iter() {
            method::require(scope, &own)?;
        }
        *token = DeviceToken {
            generation: uuid::Uuid::new_v4().to_string(),
            scopes: scopes.names(),
            created_at_ms: token.created_at_ms,
            rotated_at_ms: Some(now_ms()),
            ..DeviceToken::default()
        };
        let token = token.clone();
        let text = pairing::token(&key, &device.device_id, &params.role, &token);
        change.put_device(device).map_err(store_failed)?;
        let record = json!({
            "by": who,
            "deviceId": device.device_id,
            "role": params.role,
            "what": "device-token-rotated",
        });
        change
            .record_pairing(&record, now_ms())
            .map_err(store_failed)?;
        Ok(DeviceTokenRotated {
            device_id: device.device_id.clone(),
            role: params.role,
            token: text,
            scopes: token.scopes,
            rotated_at_ms: token.rotated_at_ms,
        })
    })
    .await
    .inspect(|changed| {
        // A client that exchanges its own token receives the answer first.
        let is_other = |client: &Client| client.connection != context.client.connection;
        disconnect(context.gateway, &changed.device_id, |client| {
            client.role.as_str() == role && is_other(client)
        });
    })
}

pub(super) async fn token_revoke(
    context: Context<'_>,
    params: params::DeviceTokenRevoke,
) -> Result<DeviceTokenRevoked, WireError> {
    let (role, who) = (params.role.clone(), context.client.name().to_owned());
    edit(context, params.device_id, move |change, device| {
        let Some(token) = device.tokens.get_mut(&params.role) else {
            return Err(WireError::invalid("unknown deviceId/role").into());
        };
        let now = now_ms();
        token.revoked = true;
        token.revoked_at_ms = Some(now);
        change.put_device(device).map_err(store_failed)?;
        let record = json!({
            "by": who,
            "deviceId": device.device_id,
            "role": params.role,
            "what": "device-token-revoked",
        });
        change.record_pairing(&record, now).map_err(store_failed)?;
        Ok(DeviceTokenRevoked {
            device_id: device.device_id.clone(),
            role: params.role,
            revoked_at_ms: now,
        })
    })
    .await
    .inspect(|changed| {
        disconnect(context.gateway, &changed.device_id, |client| {
            client.role.as_str() == role
        });
    })
}

/// Closes connections of a device whose authorization is gone.
fn disconnect(gateway: &Arc<Gateway>, device: &str, which: impl Fn(&Client) -> bool) {
    for client in gateway.dispatcher.hub.of_device(device) {
        if which(&client) {
            client.close(Close::auth_changed());
        }
    }
}

/// Changes a device, which must exist.
async fn edit<T: Send + 'static>(
    context: Context<'_>,
    device_id: String,
    change_it: impl FnOnce(&Change<'_>, &mut PairedDevice) -> Result<T, PairingFailure> + Send + 'static,
) -> Result<T, WireError> {
    work(context, move |gateway| {
        let changed = gateway
            .dispatcher
            .host
            .store()
            .change(|change| {
                let Some(mut device) = change.device(&device_id).map_err(store_failed)? else {
                    return Err(PairingFailure(WireError::invalid("unknown deviceId")));
                };
                change_it(change, &mut device)
            })
            .map_err(|PairingFailure(error)| error)?;
        refresh(&gateway.dispatcher, &device_id);
        Ok(changed)
    })
    .await
}

/// The error to answer with if a change was not made.
pub(super) struct PairingFailure(pub(super) WireError);

impl From<WireError> for PairingFailure {
    fn from(error: WireError) -> Self {
        Self(error)
    }
}

impl From<interlock_store::StoreError> for PairingFailure {
    fn from(error: interlock_store::StoreError) -> Self {
        Self(store_failed(error))
    }
}
