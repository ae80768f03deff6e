//! Identifies a client and decides whether it may connect. The checks follow the order that clients
//! know.

use std::sync::Arc;
use std::time::Instant;

use interlock_config::GatewayAuthMode;
use interlock_dispatch::nodes::known::refresh;
use interlock_host::{TokenRole, now_ms};
use interlock_store::PairedDevice;
use interlock_supervisor::PeerOrigin;
use interlock_wire::identity::{self, VerifiedDevice};
use interlock_wire::refusal::{self, PairingRequired, WireRefusal};
use interlock_wire::{Close, Connect, Event, OperatorScope, Role, Scopes, Secret, WireError};
use serde_json::json;

use super::Arrival;
use interlock_access::limiter::Tried;
use interlock_access::tcp::PeerStanding;
use interlock_access::{
    IN_RUN, PEER_IN_RUN, PEER_UNIDENTIFIED, Peer, Presented, RefusedCaller, TOKEN_ROLE,
    unidentified,
};
use interlock_methods::Gateway;
use interlock_methods::pairing::{self, Admission, DeviceRequest, DeviceTrust};
use interlock_methods::ui::phones::within_phone_scopes;

/// A client that may connect.
#[derive(Debug)]
pub(super) struct Welcome {
    pub(super) protocol: u64,
    pub(super) role: Role,
    pub(super) scopes: Scopes,
    pub(super) device: Option<String>,
    pub(super) token: Option<(Secret, u64)>,
    /// The id of the stored token that proved the client's rights.
    pub(super) token_id: Option<String>,
    /// The name of an operator's device that an operator approved or chose. A name that the device
    /// later gives itself does not count, because decisions are recorded under this name.
    pub(super) name: Option<String>,
}

/// A client that may not connect: the answer, and the end of its connection.
#[derive(Debug)]
pub(super) struct Turned(pub(super) WireError, pub(super) Close);

impl From<&'static WireRefusal> for Turned {
    fn from(refusal: &'static WireRefusal) -> Self {
        Self(refusal.error(), refusal.close())
    }
}

impl From<WireError> for Turned {
    fn from(error: WireError) -> Self {
        let close = Close::policy(error.message.clone());
        Self(error, close)
    }
}

/// How a client proved its rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RightsProof {
    /// The operator's secret, or the Unix socket.
    Shared,
    /// The token of its own device.
    Device,
    /// A code that an operator showed to a phone. It lets a device request a few rights.
    PhoneCode,
    /// The owner requires no proof.
    NotAsked,
}

/// Checks a client. Waits for the disk, so it must not run on a thread that serves connections.
pub(super) fn check(
    gateway: &Arc<Gateway>,
    arrival: &Arrival,
    standing: &PeerStanding,
    connect: &Connect,
    nonce: &str,
) -> Result<Welcome, Turned> {
    let Some(protocol) = connect.speaks() else {
        let error = refusal::protocol_mismatch(connect.min_protocol, connect.max_protocol);
        return Err(Turned(error, refusal::PROTOCOL_MISMATCH.close()));
    };
    let role = Role::parse(connect.role.as_deref()).ok_or(&refusal::INVALID_ROLE)?;
    if let Some(error) = refused_standing(standing, role) {
        return Err(error.into());
    }
    if let Some(name) = unreadable(connect) {
        let wrong = format!("at /client/{name}: must not hold control characters");
        return Err(WireError::params("connect", &[wrong]).into());
    }
    let device = match &connect.device {
        Some(_) => Some(identity::verify(connect, nonce, now_ms())?),
        None if role == Role::Node => return Err((&refusal::DEVICE_IDENTITY_REQUIRED).into()),
        None => None,
    };
    let known = match &device {
        Some(device) => gateway.dispatcher.host.store().device(&device.device_id),
        None => Ok(None),
    };
    let known = known.map_err(|error| WireError::unavailable(error.to_string()))?;
    let device_id = device.as_ref().map(|device| device.device_id.as_str());
    let (proof, token_id) = prove(gateway, arrival, connect, role, (device_id, known.as_ref()))?;
    let asked = Scopes::from_names(connect.scopes.as_deref().unwrap_or_default());
    let scopes = match (role, &known) {
        (Role::Node, _) => Scopes::default(),
        (Role::Operator, Some(device)) if proof == RightsProof::Device => {
            pairing::within_token(device, role, asked)
        }
        (Role::Operator, _) => allowed(asked, proof),
    };
    match device {
        Some(device) => {
            let welcome = pair(
                gateway, arrival, connect, &device, role, scopes, proof, protocol,
            )?;
            Ok(Welcome {
                token_id,
                ..welcome
            })
        }
        None => Ok(Welcome {
            protocol,
            role,
            scopes: without_device(scopes, proof, arrival),
            device: None,
            token: None,
            token_id,
            name: None,
        }),
    }
}

/// Why a connection may not begin or continue in this role: a run holds it, or that is uncertain. A
/// node decides nothing, so its process need not be known.
pub(super) fn refused_standing(standing: &PeerStanding, role: Role) -> Option<WireError> {
    match (standing, role) {
        (PeerStanding::Trusted, _) | (PeerStanding::Unidentified(_), Role::Node) => None,
        (PeerStanding::Run(_), _) => Some(WireError::invalid(IN_RUN).with("code", PEER_IN_RUN)),
        (PeerStanding::Unidentified(why), Role::Operator) => {
            Some(WireError::invalid(unidentified(why)).with("code", PEER_UNIDENTIFIED))
        }
    }
}

/// The first field of a client's self-description that people could not read as one line.
fn unreadable(connect: &Connect) -> Option<&'static str> {
    let client = &connect.client;
    let said = [
        ("displayName", client.display_name.as_deref()),
        ("platform", Some(client.platform.as_str())),
        ("deviceFamily", client.device_family.as_deref()),
        ("version", Some(client.version.as_str())),
    ];
    let mut said = said.into_iter();
    said.find(|(_, text)| text.is_some_and(|text| text.chars().any(char::is_control)))
        .map(|(name, _)| name)
}

/// The scopes of a client without a device, whose rights cannot be revoked because there is no
/// record. Without a shared secret as well there is no proof at all: such callers use the transport
/// of agents.
fn without_device(asked: Scopes, proof: RightsProof, arrival: &Arrival) -> Scopes {
    let is_local = arrival.is_direct || matches!(arrival.peer, Peer::Local(_));
    match proof {
        RightsProof::Shared | RightsProof::Device if is_local => asked,
        _ => Scopes::default(),
    }
}

/// The permitted scopes. If no secret is required, no caller has proved that it is an operator, so
/// such callers decide nothing.
fn allowed(asked: Scopes, proof: RightsProof) -> Scopes {
    match proof {
        RightsProof::Shared | RightsProof::Device => asked,
        RightsProof::PhoneCode => within_phone_scopes(&asked),
        RightsProof::NotAsked => asked
            .iter()
            .filter(|scope| matches!(scope, OperatorScope::Read | OperatorScope::Write))
            .collect(),
    }
}

fn prove(
    gateway: &Gateway,
    arrival: &Arrival,
    connect: &Connect,
    role: Role,
    (device_id, device): (Option<&str>, Option<&PairedDevice>),
) -> Result<(RightsProof, Option<String>), Turned> {
    if arrival.peer == Peer::Local(PeerOrigin::Outside) {
        return Ok((RightsProof::Shared, None));
    }
    let (address, now) = (arrival.peer.address(), Instant::now());
    let auth = connect.auth.clone().unwrap_or_default();
    if let Some(code) = auth
        .bootstrap_token
        .as_ref()
        .filter(|_| role == Role::Operator)
    {
        return prove_code(gateway, arrival, code.expose(), device_id, now);
    }
    let mode = gateway.access.mode();
    let shared = match mode {
        GatewayAuthMode::Password => auth.password.as_ref(),
        _ => auth.token.as_ref(),
    };
    let token = auth
        .token
        .as_ref()
        .map(|token| Presented::Token(token.expose()));
    let password = auth.password.as_ref();
    let password = password.map(|password| Presented::Password(password.expose()));
    let mut proven = None;
    for presented in [token, password].into_iter().flatten() {
        match gateway
            .access
            .prove(&gateway.dispatcher.host, presented, address, now)
        {
            Ok(found) if found.role == TokenRole::Node && role != Role::Node => {
                let message = "unauthorized: this token only lets a node connect";
                return Err(WireError::invalid(message).with("code", TOKEN_ROLE).into());
            }
            Ok(found) => return Ok((RightsProof::Shared, found.token_id)),
            Err(refused) => proven = Some(refused),
        }
    }
    // A device's own token may be in either place.
    let presented = [auth.device_token.as_ref(), auth.token.as_ref()];
    let is_own = device.is_some_and(|device| {
        let mut presented = presented.iter().flatten();
        presented.any(|token| {
            pairing::holds_token(&gateway.dispatcher.device_key, device, role, token.expose())
        })
    });
    if is_own {
        return Ok((RightsProof::Device, None));
    }
    if mode == GatewayAuthMode::None && presented.iter().all(Option::is_none) {
        return Ok((RightsProof::NotAsked, None));
    }
    let refusal = match (mode, &auth.device_token, shared) {
        // A client that presents a device token means that token, regardless of other secrets.
        (_, Some(_), _) => &refusal::AUTH_DEVICE_TOKEN_MISMATCH,
        (GatewayAuthMode::Password, _, None) => &refusal::AUTH_PASSWORD_MISSING,
        (GatewayAuthMode::Password, _, Some(_)) => &refusal::AUTH_PASSWORD_MISMATCH,
        (_, _, None) => &refusal::AUTH_TOKEN_MISSING,
        (_, _, Some(_)) => &refusal::AUTH_TOKEN_MISMATCH,
    };
    gateway.dispatcher.metrics.refused();
    let tried = match proven {
        Some(refused) if shared.is_some() => Some((refused, Tried::Shared)),
        _ if presented.iter().any(Option::is_some) => {
            let pause = gateway.access.limiter.wait((address, Tried::Device), now);
            let refused = pause.map_or(RefusedCaller::Wrong, RefusedCaller::Limited);
            Some((refused, Tried::Device))
        }
        _ => None,
    };
    if let Some((refused, tried)) = tried {
        gateway.access.failed(&refused, (address, tried), now);
        if let RefusedCaller::Limited(seconds) = refused {
            let limited = &refusal::AUTH_RATE_LIMITED;
            let error = limited.error().retry_after(seconds * 1000);
            let error = error.with("recommendedNextStep", "wait_then_retry");
            return Err(Turned(error, limited.close()));
        }
    }
    let can_retry = device.is_some_and(|device| device.tokens.contains_key(role.as_str()));
    let can_retry = can_retry && auth.device_token.is_none();
    let next_step = match shared {
        _ if can_retry => "retry_with_device_token",
        None if auth.device_token.is_none() => "update_auth_configuration",
        _ => "update_auth_credentials",
    };
    let error = refusal
        .error()
        .with("authReason", refusal.detail.to_ascii_lowercase())
        .with("canRetryWithDeviceToken", can_retry)
        .with("recommendedNextStep", next_step);
    Err(Turned(error, refusal.close()))
}

/// Checks a code of `interlock dashboard`, which is valid once, for a browser of this machine that
/// shows the gateway's own page. Also checks the code of a phone.
fn prove_code(
    gateway: &Gateway,
    arrival: &Arrival,
    code: &str,
    device_id: Option<&str>,
    now: Instant,
) -> Result<(RightsProof, Option<String>), Turned> {
    let who = (arrival.peer.address(), Tried::Shared);
    let waits = gateway.access.limiter.wait(who, now);
    if waits.is_none() && arrival.is_own_page && gateway.ui.codes.take(code, now) {
        return Ok((RightsProof::Shared, None));
    }
    let is_phone = |device: &str| gateway.ui.phones.take(code, device, now);
    if waits.is_none() && device_id.is_some_and(is_phone) {
        return Ok((RightsProof::PhoneCode, None));
    }
    gateway.dispatcher.metrics.refused();
    let refused = waits.map_or(RefusedCaller::Wrong, RefusedCaller::Limited);
    gateway.access.failed(&refused, who, now);
    let message = "unauthorized: the code was used, is over a minute old, or is none";
    let error = WireError::invalid(message).with("code", "UI_CODE_INVALID");
    Err(error.with("remediation", "interlock dashboard").into())
}

#[expect(
    clippy::too_many_arguments,
    reason = "all that the handshake has found so far"
)]
fn pair(
    gateway: &Arc<Gateway>,
    arrival: &Arrival,
    connect: &Connect,
    device: &VerifiedDevice,
    role: Role,
    scopes: Scopes,
    proof: RightsProof,
    protocol: u64,
) -> Result<Welcome, Turned> {
    let unavailable =
        |error: interlock_store::StoreError| WireError::unavailable(error.to_string());
    let wanted = DeviceRequest {
        device,
        connect,
        role,
        scopes: &scopes,
        address: match arrival.peer {
            Peer::Network(_) => Some(arrival.peer.address()),
            Peer::Local(_) => None,
        },
        now_ms: now_ms(),
        most_requests: gateway.dispatcher.limits.pairing_requests,
    };
    let is_local =
        arrival.is_direct || arrival.is_own_page || matches!(arrival.peer, Peer::Local(_));
    let trust = match proof {
        RightsProof::Shared if is_local => DeviceTrust::Local,
        RightsProof::Shared if is_named(gateway, arrival) => DeviceTrust::Network,
        _ => DeviceTrust::None,
    };
    let admission = gateway
        .dispatcher
        .host
        .store()
        .change(|change| pairing::admit(change, &wanted, trust))
        .map_err(unavailable)?;
    match admission {
        Admission::Admitted { device, is_new } => {
            if role == Role::Node {
                refresh(&gateway.dispatcher, &device.device_id);
            }
            if is_new {
                tell(
                    gateway,
                    interlock_wire::event::DEVICE_PAIR_RESOLVED,
                    &json!({
                        "deviceId": device.device_id,
                        "decision": "approved",
                        "ts": wanted.now_ms,
                    }),
                );
            }
            let issued = device.tokens.get(role.as_str());
            let issued = issued.filter(|token| !token.revoked).map(|token| {
                let text = pairing::token(
                    &gateway.dispatcher.device_key,
                    &device.device_id,
                    role.as_str(),
                    token,
                );
                (text, token.created_at_ms)
            });
            Ok(Welcome {
                protocol,
                role,
                scopes,
                name: device.display_name.filter(|_| role == Role::Operator),
                device: Some(device.device_id),
                token: issued,
                token_id: None,
            })
        }
        Admission::Waits {
            reason,
            request,
            approved,
            is_new,
        } => {
            if is_new {
                let payload = DevicePairEvent {
                    request: &request,
                    is_repair: approved.is_some(),
                };
                tell(
                    gateway,
                    interlock_wire::event::DEVICE_PAIR_REQUESTED,
                    &payload,
                );
            }
            let approved = approved.as_ref();
            let (error, close) = refusal::pairing_required(&PairingRequired {
                reason,
                request_id: &request.request_id,
                device_id: &request.device_id,
                role: &request.role,
                scopes: &request.scopes,
                approved: approved.map(|(roles, scopes)| (roles.as_slice(), scopes.as_slice())),
            });
            let words = gateway.ui.phones.words(&request.device_id, Instant::now());
            let error = match words {
                Some(words) => error.with("words", words),
                None => error,
            };
            Err(Turned(error, close))
        }
    }
}

/// Whether the owner lets machines at this address become nodes without approval.
fn is_named(gateway: &Gateway, arrival: &Arrival) -> bool {
    if matches!(arrival.peer, Peer::Local(_)) || arrival.is_forwarded {
        return false;
    }
    let Ok(config) = gateway.dispatcher.host.config() else {
        return false;
    };
    let ranges = &config.config().gateway.nodes.pairing.auto_approve_cidrs;
    let address = arrival.peer.address();
    let mut ranges = ranges.iter().flatten();
    ranges.any(|range| interlock_access::cidr::contains(range, address))
}

fn tell(gateway: &Gateway, name: &str, payload: &impl serde::Serialize) {
    if let Ok(event) = Event::new(name, payload) {
        gateway.dispatcher.hub.broadcast(&event);
    }
}

/// The payload of the event that a device waits for approval.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct DevicePairEvent<'a> {
    #[serde(flatten)]
    request: &'a interlock_store::PairingRequest,
    is_repair: bool,
}
