//! Decides which devices may connect, and in which role.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use interlock_store::{
    Change, DeviceToken, PairedDevice, PairedNode, Pairing, PairingRequest, StoreError,
};
use interlock_wire::identity::VerifiedDevice;
use interlock_wire::refusal::PairingReason;
use interlock_wire::{Connect, Role, Scopes, Secret};
use serde_json::json;
use sha2::Sha256;

/// How long a request of a device waits for an operator. A later decision would be about a device
/// that is no longer there. A device that still wants to pair has asked again. Requests of nodes
/// last as long as the node is connected, because they are not repeated.
const REQUEST_KEPT_MS: u64 = 5 * 60 * 1000;

/// Forgets requests that have waited too long.
pub fn forget_old_requests(change: &Change<'_>, now_ms: u64) -> Result<(), StoreError> {
    let before = now_ms.saturating_sub(REQUEST_KEPT_MS);
    change.drop_pairing_requests(Pairing::Device, before)?;
    Ok(())
}

/// The request of a device that connects.
#[derive(Debug, Clone, Copy)]
pub struct DeviceRequest<'a> {
    pub device: &'a VerifiedDevice,
    pub connect: &'a Connect,
    pub role: Role,
    pub scopes: &'a Scopes,
    pub address: Option<IpAddr>,
    pub now_ms: u64,
    /// The most requests that are kept.
    pub most_requests: usize,
}

impl DeviceRequest<'_> {
    fn remote_ip(&self) -> Option<String> {
        interlock_connections::remote_ip(self.address)
    }
}

/// How far a device is trusted without the approval of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceTrust {
    /// The device connects from this machine with the operator's secret. It gets what it requests.
    Local,
    /// The device connects from an address that the owner named. It may become a node.
    Network,
    None,
}

/// The result of a device's request.
#[derive(Debug)]
pub enum Admission {
    Admitted {
        device: Box<PairedDevice>,
        /// Whether the device was unknown before.
        is_new: bool,
    },
    Waits {
        reason: PairingReason,
        request: Box<PairingRequest>,
        approved: Option<(Vec<String>, Vec<String>)>,
        is_new: bool,
    },
}

/// Admits a device that is approved for what it requests, or needs no approval. Otherwise its
/// request is stored.
pub fn admit(
    change: &Change<'_>,
    wanted: &DeviceRequest<'_>,
    trust: DeviceTrust,
) -> Result<Admission, StoreError> {
    let id = &wanted.device.device_id;
    let known = change.device(id)?;
    let missing = match &known {
        None => Some(PairingReason::NotPaired),
        Some(device) => missing(device, wanted),
    };
    let is_revoked = known
        .as_ref()
        .is_some_and(|device| is_revoked(device, wanted.role));
    let is_granted = match (missing, trust) {
        // The metadata of a device is pinned. A person must see every change.
        (Some(PairingReason::MetadataUpgrade), _) => false,
        // A person must also see the return of a device whose role was revoked, whatever else it
        // can present.
        _ if is_revoked => false,
        (None, _) | (Some(_), DeviceTrust::Local) => true,
        (Some(PairingReason::NotPaired), DeviceTrust::Network) => {
            wanted.role == Role::Node && wanted.scopes.is_empty()
        }
        (Some(_), DeviceTrust::Network | DeviceTrust::None) => false,
    };
    if let (Some(reason), false) = (missing, is_granted) {
        return wait(change, wanted, reason, known.as_ref());
    }
    let is_new = missing.is_some();
    let mut device = met(known, wanted);
    let role = wanted.role.as_str();
    // The token of a known device keeps its rights.
    if is_new || !device.tokens.contains_key(role) {
        add_role(&mut device, role, wanted.scopes, wanted.now_ms);
    }
    change.put_device(&device)?;
    if is_new {
        let record = json!({
            "by": match trust { DeviceTrust::Local => "loopback", _ => "autoApproveCidrs" },
            "deviceId": id,
            "role": wanted.role.as_str(),
            "scopes": wanted.scopes.names(),
            "what": "device-approved",
        });
        change.record_pairing(&record, wanted.now_ms)?;
    }
    Ok(Admission::Admitted {
        device: Box::new(device),
        is_new,
    })
}

/// Returns which part of the request is not approved.
fn missing(device: &PairedDevice, wanted: &DeviceRequest<'_>) -> Option<PairingReason> {
    let client = &wanted.connect.client;
    let plain = |text: Option<&str>| text.map(|text| text.trim().to_ascii_lowercase());
    let pinned = |known: &Option<String>, said: Option<&str>| {
        known.is_none() || plain(known.as_deref()) == plain(said)
    };
    if !pinned(&device.platform, Some(&client.platform))
        || !pinned(&device.device_family, client.device_family.as_deref())
    {
        return Some(PairingReason::MetadataUpgrade);
    }
    let has_role = device.roles.iter().any(|role| role == wanted.role.as_str());
    if !has_role || is_revoked(device, wanted.role) {
        return Some(PairingReason::RoleUpgrade);
    }
    let approved = Scopes::from_names(&device.scopes);
    (!approved.cover(wanted.scopes)).then_some(PairingReason::ScopeUpgrade)
}

fn is_revoked(device: &PairedDevice, role: Role) -> bool {
    let token = device.tokens.get(role.as_str());
    token.is_some_and(|token| token.revoked)
}

/// Returns the device with what it reports about itself.
fn met(known: Option<PairedDevice>, wanted: &DeviceRequest<'_>) -> PairedDevice {
    let client = &wanted.connect.client;
    let mut device = known.unwrap_or_else(|| PairedDevice {
        device_id: wanted.device.device_id.clone(),
        public_key: wanted.device.public_key.clone(),
        created_at_ms: wanted.now_ms,
        approved_at_ms: wanted.now_ms,
        ..PairedDevice::default()
    });
    // The name that a person approved or chose stays: a device cannot rename itself.
    device.display_name = device.display_name.or(client.display_name.clone());
    device
        .platform
        .get_or_insert_with(|| client.platform.clone());
    if device.device_family.is_none() {
        device.device_family.clone_from(&client.device_family);
    }
    device.client_id = Some(client.id.clone());
    device.client_mode = Some(client.mode.clone());
    device.remote_ip = wanted.remote_ip();
    device
}

/// Adds a role with scopes. A valid token stays, and covers the new scopes too. A revoked token
/// never becomes valid again: the role gets a new one.
pub fn add_role(device: &mut PairedDevice, role: &str, scopes: &Scopes, now_ms: u64) {
    if !device.roles.iter().any(|known| known == role) {
        device.roles.push(role.to_owned());
    }
    let all = Scopes::from_names(&device.scopes);
    device.scopes = all.iter().chain(scopes.iter()).collect::<Scopes>().names();
    device
        .tokens
        .retain(|known, token| known != role || !token.revoked);
    let token = device
        .tokens
        .entry(role.to_owned())
        .or_insert_with(|| DeviceToken {
            generation: uuid::Uuid::new_v4().to_string(),
            created_at_ms: now_ms,
            ..DeviceToken::default()
        });
    let held = Scopes::from_names(&token.scopes);
    token.scopes = held.iter().chain(scopes.iter()).collect::<Scopes>().names();
}

fn wait(
    change: &Change<'_>,
    wanted: &DeviceRequest<'_>,
    reason: PairingReason,
    known: Option<&PairedDevice>,
) -> Result<Admission, StoreError> {
    let id = &wanted.device.device_id;
    forget_old_requests(change, wanted.now_ms)?;
    let client = &wanted.connect.client;
    let earlier = change.pairing_request_of(Pairing::Device, id)?;
    let asks_the_same = |request: &PairingRequest| {
        request.role == wanted.role.as_str() && request.scopes == wanted.scopes.names()
    };
    let (request, is_new) = match earlier.filter(asks_the_same) {
        // Repeating the same request creates no second one.
        Some(request) => (request, false),
        None => {
            let request = PairingRequest {
                request_id: uuid::Uuid::new_v4().to_string(),
                device_id: id.clone(),
                public_key: wanted.device.public_key.clone(),
                display_name: client.display_name.clone(),
                platform: Some(client.platform.clone()),
                device_family: client.device_family.clone(),
                version: Some(client.version.clone()),
                client_id: Some(client.id.clone()),
                client_mode: Some(client.mode.clone()),
                role: wanted.role.as_str().to_owned(),
                scopes: wanted.scopes.names(),
                remote_ip: wanted.remote_ip(),
                reason: reason.as_str().to_owned(),
                ts: wanted.now_ms,
                ..PairingRequest::default()
            };
            change.put_pairing_request(Pairing::Device, &request, wanted.most_requests)?;
            let record = json!({
                "deviceId": id,
                "reason": reason.as_str(),
                "requestId": request.request_id,
                "role": request.role,
                "scopes": request.scopes,
                "what": "device-requested",
            });
            change.record_pairing(&record, wanted.now_ms)?;
            (request, true)
        }
    };
    Ok(Admission::Waits {
        reason,
        request: Box::new(request),
        approved: known.map(|device| (device.roles.clone(), device.scopes.clone())),
        is_new,
    })
}

/// Returns the text of a device's token. It is derived from a key of this gateway and stored
/// nowhere.
pub fn token(key: &Secret, device: &str, role: &str, token: &DeviceToken) -> Secret {
    let mut mac = <Hmac<Sha256>>::new_from_slice(key.expose().as_bytes())
        .unwrap_or_else(|_| unreachable!("a key of any length will do"));
    for part in ["device-token", device, role, &token.generation] {
        mac.update(part.as_bytes());
        mac.update(b"\n");
    }
    Secret::new(URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

/// Returns the token of a node's pairing, for older programs that expect one. It gives no access.
pub fn node_token(key: &Secret, node: &PairedNode) -> Secret {
    let pairing = DeviceToken {
        generation: node.approved_at_ms.to_string(),
        ..DeviceToken::default()
    };
    token(key, &node.node_id, "node-pairing", &pairing)
}

/// Returns the scopes of a device that authenticates with its token only: those of the requested
/// scopes that the token has. A token may have been exchanged for one with fewer rights than the
/// device was approved for. A request that exceeds the approved scopes is returned unchanged, so
/// that a person sees it.
pub fn within_token(device: &PairedDevice, role: Role, asked: Scopes) -> Scopes {
    if !Scopes::from_names(&device.scopes).cover(&asked) {
        return asked;
    }
    let held = device.tokens.get(role.as_str());
    let held = Scopes::from_names(held.map(|token| &token.scopes).into_iter().flatten());
    let asked_and_held = asked.iter().filter(|scope| held.allow(*scope));
    // A request for a wide scope includes the narrower scopes that the token holds.
    let held_and_asked = held.iter().filter(|scope| asked.allow(*scope));
    asked_and_held.chain(held_and_asked).collect()
}

/// Whether the caller holds the token of a device for a role.
pub fn holds_token(key: &Secret, device: &PairedDevice, role: Role, presented: &str) -> bool {
    let role = role.as_str();
    device.tokens.get(role).is_some_and(|known| {
        !known.revoked && token(key, &device.device_id, role, known).matches(presented)
    })
}
