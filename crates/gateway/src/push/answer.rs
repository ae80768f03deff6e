//! `POST /push/answer`: a denial from a lock screen, signed with the key of the device.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router, middleware};
use interlock_approvals::{ApprovalDecision, DecisionBy, PendingApproval};
use interlock_command::display::Secrets;
use interlock_dispatch::work::blocking;
use interlock_host::now_ms;
use interlock_wire::identity::is_signed_by;
use serde::Deserialize;
use serde_json::json;

use super::follow::may_decide;
use crate::gateway::Gateway;
use crate::http::{Doors, body, refusal};
use interlock_access::limiter::Tried;
use interlock_access::tcp::{PeerStanding, TcpPeer};
use interlock_access::{Peer, RefusedCaller};

/// The largest answer.
const MOST_BYTES: usize = 4096;

/// How old a signature may be.
const SIGNED_MS: u64 = 60_000;

pub(crate) fn routes(base: &str) -> Router<Doors> {
    Router::new()
        .route(&format!("{base}/push/answer"), post(answer))
        .layer(middleware::from_fn(body::read))
}

/// What a device decided.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SignedAnswer {
    device_id: String,
    id: String,
    digest: String,
    decision: String,
    /// Of the message that showed it.
    nonce: String,
    signed_at: u64,
    signature: String,
}

impl SignedAnswer {
    /// The text that is signed. No claim of a device begins with its first word.
    fn text(&self) -> String {
        format!(
            "interlock-push|{}|{}|{}|{}|{}",
            self.id, self.digest, self.decision, self.nonce, self.signed_at
        )
    }
}

/// Why nothing was decided.
struct RefusedAnswer {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// It may have been a guess.
    is_suspect: bool,
}

fn suspect(code: &'static str, message: &str) -> RefusedAnswer {
    RefusedAnswer {
        status: StatusCode::FORBIDDEN,
        code,
        message: message.to_owned(),
        is_suspect: true,
    }
}

async fn answer(
    State(doors): State<Doors>,
    Extension(peer): Extension<Peer>,
    tcp: Option<Extension<Arc<TcpPeer>>>,
    bytes: Bytes,
) -> Response {
    let gateway = doors.gateway;
    let (who, now) = ((peer.address(), Tried::Device), Instant::now());
    if gateway.access.limiter.wait(who, now).is_some() {
        let message = "too many failed attempts";
        return refusal(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message);
    }
    // A run decides nothing, whatever it can show.
    let standing = match tcp {
        Some(Extension(tcp)) => tcp.standing().await,
        None => PeerStanding::Trusted,
    };
    // As the answer names them, for the audit.
    let named = serde_json::from_slice::<SignedAnswer>(&bytes).ok();
    let (device, approval) = named.map_or_else(Default::default, |one| (one.device_id, one.id));
    let decided = match standing {
        PeerStanding::Trusted => {
            let deciding = Arc::clone(&gateway);
            match blocking(move || decide(&deciding, &bytes)).await {
                Ok(decided) => decided,
                Err(error) => {
                    let message = error.to_string();
                    return refusal(StatusCode::SERVICE_UNAVAILABLE, "unavailable", &message);
                }
            }
        }
        PeerStanding::Run(_) | PeerStanding::Unidentified(_) => {
            Err(suspect("PEER_IN_RUN", "a run decides nothing"))
        }
    };
    match decided {
        Ok(()) => Json(json!({ "ok": true })).into_response(),
        Err(refused) => {
            let from = peer.address().to_string();
            let log = &gateway.refused;
            log.note_push(refused.code, &from, &device, &approval);
            if refused.is_suspect {
                gateway.dispatcher.metrics.refused();
                gateway.access.failed(&RefusedCaller::Wrong, who, now);
            }
            let error = json!({ "code": refused.code, "message": refused.message });
            let body = json!({ "ok": false, "error": error });
            (refused.status, Json(body)).into_response()
        }
    }
}

fn decide(gateway: &Gateway, bytes: &[u8]) -> Result<(), RefusedAnswer> {
    let invalid = |message: String| RefusedAnswer {
        status: StatusCode::BAD_REQUEST,
        code: "INVALID_REQUEST",
        message,
        is_suspect: false,
    };
    if bytes.len() > MOST_BYTES {
        return Err(invalid(format!("more than {MOST_BYTES} bytes")));
    }
    let answer: SignedAnswer =
        serde_json::from_slice(bytes).map_err(|error| invalid(error.to_string()))?;
    let host = &gateway.dispatcher.host;
    let unavailable = |message: String| RefusedAnswer {
        status: StatusCode::SERVICE_UNAVAILABLE,
        code: "UNAVAILABLE",
        message,
        is_suspect: false,
    };
    let device = host.store().device(&answer.device_id);
    let device = device.map_err(|error| unavailable(error.to_string()))?;
    // The same words, whether there is such a device or not.
    let Some(device) = device.filter(may_decide) else {
        return Err(suspect("PUSH_DEVICE", "the device may not decide"));
    };
    if !is_signed_by(&device.public_key, &answer.text(), &answer.signature) {
        return Err(suspect("PUSH_SIGNATURE", "the device did not sign this"));
    }
    if now_ms().abs_diff(answer.signed_at) > SIGNED_MS {
        return Err(suspect(
            "PUSH_TIME",
            "signed over a minute ago, or later than now",
        ));
    }
    if answer.decision != "deny" {
        let message = "a notification can deny only; open the approval to allow it";
        return Err(suspect("PUSH_DECISION", message));
    }
    let (id, digest) = (&answer.id, &answer.digest);
    if !gateway
        .push
        .take_nonce(&answer.nonce, &device.device_id, id, digest)
    {
        let message = "not the notification of this approval, or it was used";
        return Err(suspect("PUSH_NONCE", message));
    }
    let name = device.display_name.as_deref().unwrap_or("a phone");
    let by = DecisionBy {
        decider: name,
        surface: &format!("push:{name}"),
        reason: None,
        has_shown: true,
        outside: gateway.outside,
    };
    let decided = host
        .approvals()
        .decide(id, digest, ApprovalDecision::Deny, by);
    let stored = decided.map_err(|error| RefusedAnswer {
        status: StatusCode::CONFLICT,
        code: error.code(),
        message: error.to_string(),
        is_suspect: false,
    })?;
    if !stored.again
        && let Ok(approval) = host.approvals().approval(id, Secrets::Masked)
    {
        let ended = Some(stored.ended);
        let ended = PendingApproval { ended, ..approval };
        gateway
            .dispatcher
            .approvals
            .tell(&gateway.dispatcher, ended);
    }
    Ok(())
}
