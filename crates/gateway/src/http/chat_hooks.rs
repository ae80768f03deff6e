//! Decisions over HTTP: `POST /hooks/approvals` from a program that signs them, and `POST
//! /hooks/ticket/…` from a notification's button. There is no other method: opening a link decides
//! nothing.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::post;
use axum::{Router, middleware};
use interlock_access::Peer;
use interlock_access::tcp::TcpPeer;
use interlock_approvals::{ApprovalDecision, PendingApproval, StoredDecision};
use interlock_channels::{
    ChannelKind, ChatDecision, NtfyTickets, SignedCall, WebhookAnswer, chat_offers, webhook_secret,
};
use interlock_command::display::Secrets;
use interlock_host::now_ms;
use interlock_store::ChatMessageRow;
use serde_json::{Value, json};

use super::decision::{DecisionCall, RefusedDecision};
use super::{Doors, body};
use interlock_methods::Gateway;
use interlock_methods::channels::decide;

/// The size limit of a decision.
const MOST_BYTES: usize = 16 * 1024;

pub(crate) fn routes(base: &str) -> Router<Doors> {
    Router::new()
        .route(&format!("{base}/hooks/approvals"), post(signed))
        .route(&format!("{base}/hooks/ticket/{{ticket}}"), post(ticket))
        .layer(middleware::from_fn(body::read))
}

async fn signed(
    State(doors): State<Doors>,
    Extension(peer): Extension<Peer>,
    tcp: Option<Extension<Arc<TcpPeer>>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Response {
    let answer = serde_json::from_slice::<WebhookAnswer>(&bytes).ok();
    let approval = answer.map_or_else(String::new, |answer| answer.id);
    let call = DecisionCall {
        gateway: doors.gateway,
        peer,
        tcp,
        transport: "hooks",
        named: json!({ "approvalId": approval }),
    };
    call.answer(move |gateway| {
        by_webhook(gateway, &headers, &bytes).map(|decided| stored(&decided))
    })
    .await
}

async fn ticket(
    State(doors): State<Doors>,
    Extension(peer): Extension<Peer>,
    tcp: Option<Extension<Arc<TcpPeer>>>,
    Path(ticket): Path<String>,
) -> Response {
    // The seal of a ticket must not appear in the audit.
    let approval = NtfyTickets::read(&ticket).map_or("", |(id, _)| id);
    let call = DecisionCall {
        gateway: doors.gateway,
        peer,
        tcp,
        transport: "hooks",
        named: json!({ "approvalId": approval }),
    };
    call.answer(move |gateway| by_ticket(gateway, &ticket).map(|decided| stored(&decided)))
        .await
}

/// The answer to a caller whose decision counts.
fn stored(stored: &StoredDecision) -> Value {
    let ending = stored.ended.ending.as_str();
    json!({ "ok": true, "again": stored.again, "ending": ending })
}

fn by_webhook(
    gateway: &Gateway,
    headers: &HeaderMap,
    bytes: &[u8],
) -> Result<StoredDecision, RefusedDecision> {
    if bytes.len() > MOST_BYTES {
        return Err(RefusedDecision::invalid(format!(
            "more than {MOST_BYTES} bytes"
        )));
    }
    let host = &gateway.dispatcher.host;
    let config = host.config();
    let config = config.map_err(|error| {
        RefusedDecision::new(
            StatusCode::SERVICE_UNAVAILABLE,
            error.code(),
            error.to_string(),
        )
    })?;
    let service = gateway.channels.service();
    let secret = service.and_then(|service| webhook_secret(config.config(), service.desk()));
    let Some(secret) = secret else {
        return Err(RefusedDecision::new(
            StatusCode::NOT_FOUND,
            "HOOK_OFF",
            "decisions by webhook are not switched on: channels.webhook.decisionSecretFile",
        ));
    };
    let header = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    };
    let call = SignedCall {
        time: header("x-interlock-timestamp"),
        id: header("x-interlock-id"),
        signature: header("x-interlock-signature"),
        body: bytes,
    };
    call.check(&secret, now_ms())
        .map_err(|why| RefusedDecision::suspect(why.code(), why.to_string()))?;
    let answer: WebhookAnswer = serde_json::from_slice(bytes)
        .map_err(|error| RefusedDecision::invalid(error.to_string()))?;
    let decision = ApprovalDecision::from_word(&answer.decision, None);
    let decision = decision.ok_or_else(|| {
        RefusedDecision::invalid(
            "decision is not one of allow-once, allow-session, allow-always, deny".to_owned(),
        )
    })?;
    let kind = ChannelKind::Webhook;
    let (approval, row) = sent(gateway, kind, &answer.id)?;
    if approval.plan_digest != answer.digest {
        let message = "digest is not that of the plan that was sent";
        return Err(RefusedDecision::new(
            StatusCode::CONFLICT,
            "APPROVAL_REQUEST_MISMATCH",
            message,
        ));
    }
    let used = host.store().use_chat_id(
        &format!("hook:{}", call.id),
        i64::try_from(now_ms()).unwrap_or(i64::MAX),
    );
    match used {
        Ok(true) => {}
        Ok(false) => {
            return Err(RefusedDecision::suspect(
                "HOOK_REPLAYED",
                "this id was used before",
            ));
        }
        Err(error) => {
            return Err(RefusedDecision::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "UNAVAILABLE",
                error.to_string(),
            ));
        }
    }
    let reason = answer.reason.as_deref();
    hand_over(gateway, kind, (&approval, &row), decision, reason)
}

fn by_ticket(gateway: &Gateway, ticket: &str) -> Result<StoredDecision, RefusedDecision> {
    let wrong = || RefusedDecision::suspect("TICKET_WRONG", "this gateway made no such ticket");
    let (id, decision) = NtfyTickets::read(ticket).ok_or_else(wrong)?;
    let kind = ChannelKind::Ntfy;
    let (approval, row) = sent(gateway, kind, id).map_err(|_| wrong())?;
    if !gateway
        .channels
        .tickets
        .is_good(ticket, &approval.plan_digest)
    {
        return Err(wrong());
    }
    let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    let store = gateway.dispatcher.host.store();
    if !matches!(
        store.use_chat_id(&format!("ticket:{ticket}"), now),
        Ok(true)
    ) {
        let message = "this ticket was used before";
        return Err(RefusedDecision::new(
            StatusCode::CONFLICT,
            "TICKET_USED",
            message,
        ));
    }
    hand_over(gateway, kind, (&approval, &row), decision, None)
}

/// The approval, and the message that sent it to this channel.
fn sent(
    gateway: &Gateway,
    kind: ChannelKind,
    id: &str,
) -> Result<(PendingApproval, ChatMessageRow), RefusedDecision> {
    let unknown = || {
        let message = "no such approval was sent there";
        RefusedDecision::new(StatusCode::NOT_FOUND, "APPROVAL_NOT_FOUND", message)
    };
    let host = &gateway.dispatcher.host;
    let approval = host.approvals().approval(id, Secrets::Masked);
    let approval = approval.map_err(|_| unknown())?;
    if approval.id != id {
        return Err(unknown());
    }
    let rows = host.store().chat_messages_of(&approval.id);
    let is_here = |row: &ChatMessageRow| {
        let word = row.target.split([':', '/']).next().unwrap_or_default();
        ChannelKind::named(word) == Some(kind)
    };
    let row = rows.unwrap_or_default().into_iter().find(is_here);
    Ok((approval, row.ok_or_else(unknown)?))
}

/// Stores a decision that the channel offers, and refuses every other decision. The approver is
/// unknown, so the record names the target.
fn hand_over(
    gateway: &Gateway,
    kind: ChannelKind,
    (approval, row): (&PendingApproval, &ChatMessageRow),
    decision: ApprovalDecision,
    reason: Option<&str>,
) -> Result<StoredDecision, RefusedDecision> {
    let service = gateway.channels.service();
    let is_offered = service.is_some_and(|service| {
        let offered = chat_offers(service.desk(), kind, approval, row.offers_allow);
        offered.contains(&decision.as_str())
    });
    if approval.ended.is_none() && !is_offered {
        let message = format!("{} is not offered there", decision.as_str());
        return Err(RefusedDecision::new(
            StatusCode::CONFLICT,
            "APPROVAL_NOT_OFFERED",
            message,
        ));
    }
    let decided = decide(
        gateway,
        ChatDecision {
            id: &approval.id,
            plan_digest: &approval.plan_digest,
            decision,
            decider: &row.target,
            surface: &row.target,
            reason,
        },
    );
    decided.map_err(|error| {
        RefusedDecision::new(StatusCode::CONFLICT, error.code(), error.to_string())
    })
}
