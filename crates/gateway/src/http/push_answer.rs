//! `POST /push/answer`: a denial from a lock screen, signed with the device's key.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use axum::{Router, middleware};
use interlock_approvals::{ApprovalDecision, DecisionBy, PendingApproval};
use interlock_command::display::Secrets;
use interlock_host::now_ms;
use interlock_wire::identity::is_signed_by;
use serde::Deserialize;
use serde_json::json;

use super::decision::{DecisionCall, RefusedDecision};
use super::{Doors, body};
use interlock_access::Peer;
use interlock_access::tcp::TcpPeer;
use interlock_methods::Gateway;
use interlock_methods::push::may_decide;

/// The size limit of an answer.
const MOST_BYTES: usize = 4096;

/// How old a signature may be.
const SIGNED_MS: u64 = 60_000;

pub(crate) fn routes(base: &str) -> Router<Doors> {
    Router::new()
        .route(&format!("{base}/push/answer"), post(answer))
        .layer(middleware::from_fn(body::read))
}

/// The decision of a device.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SignedAnswer {
    device_id: String,
    id: String,
    digest: String,
    decision: String,
    /// The nonce of the message that showed the approval.
    nonce: String,
    signed_at: u64,
    signature: String,
}

impl SignedAnswer {
    /// The signed text. No claim of a device begins with its first word.
    fn text(&self) -> String {
        format!(
            "interlock-push|{}|{}|{}|{}|{}",
            self.id, self.digest, self.decision, self.nonce, self.signed_at
        )
    }
}

async fn answer(
    State(doors): State<Doors>,
    Extension(peer): Extension<Peer>,
    tcp: Option<Extension<Arc<TcpPeer>>>,
    bytes: Bytes,
) -> Response {
    // The names in the answer, for the audit.
    let named = serde_json::from_slice::<SignedAnswer>(&bytes).ok();
    let (device, approval) = named.map_or_else(Default::default, |one| (one.device_id, one.id));
    let call = DecisionCall {
        gateway: doors.gateway,
        peer,
        tcp,
        transport: "push",
        named: json!({ "device": device, "approvalId": approval }),
    };
    call.answer(move |gateway| decide(gateway, &bytes).map(|()| json!({ "ok": true })))
        .await
}

fn decide(gateway: &Gateway, bytes: &[u8]) -> Result<(), RefusedDecision> {
    if bytes.len() > MOST_BYTES {
        return Err(RefusedDecision::invalid(format!(
            "more than {MOST_BYTES} bytes"
        )));
    }
    let answer: SignedAnswer = serde_json::from_slice(bytes)
        .map_err(|error| RefusedDecision::invalid(error.to_string()))?;
    let host = &gateway.dispatcher.host;
    let device = host.store().device(&answer.device_id);
    let device = device.map_err(|error| RefusedDecision::unavailable(error.to_string()))?;
    // The refusal is the same whether or not the device exists.
    let Some(device) = device.filter(may_decide) else {
        return Err(RefusedDecision::suspect(
            "PUSH_DEVICE",
            "the device may not decide",
        ));
    };
    if !is_signed_by(&device.public_key, &answer.text(), &answer.signature) {
        return Err(RefusedDecision::suspect(
            "PUSH_SIGNATURE",
            "the device did not sign this",
        ));
    }
    if now_ms().abs_diff(answer.signed_at) > SIGNED_MS {
        return Err(RefusedDecision::suspect(
            "PUSH_TIME",
            "signed over a minute ago, or later than now",
        ));
    }
    if answer.decision != "deny" {
        let message = "a notification can deny only; open the approval to allow it";
        return Err(RefusedDecision::suspect("PUSH_DECISION", message));
    }
    let (id, digest) = (&answer.id, &answer.digest);
    if !gateway
        .push
        .take_nonce(&answer.nonce, &device.device_id, id, digest)
    {
        let message = "not the notification of this approval, or it was used";
        return Err(RefusedDecision::suspect("PUSH_NONCE", message));
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
    let stored = decided.map_err(|error| {
        RefusedDecision::new(StatusCode::CONFLICT, error.code(), error.to_string())
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
