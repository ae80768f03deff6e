//! Calls that carry a decision together with its proof: from a program that signs, a notification's
//! button, or a phone. This module contains their common rules.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::Extension;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use interlock_access::limiter::Tried;
use interlock_access::tcp::{PeerStanding, TcpPeer};
use interlock_access::{Peer, RefusedCaller};
use interlock_dispatch::work::blocking;
use serde_json::{Value, json};

use super::refusal;
use interlock_methods::Gateway;

/// Why a decision was refused.
#[derive(Debug)]
pub(crate) struct RefusedDecision {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// Whether the call may have been a guess.
    is_suspect: bool,
}

impl RefusedDecision {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            is_suspect: false,
        }
    }

    /// A refusal of a caller that may be guessing. It has to wait longer each time.
    pub(crate) fn suspect(code: &'static str, message: impl Into<String>) -> Self {
        let is_suspect = true;
        Self {
            is_suspect,
            ..Self::new(StatusCode::FORBIDDEN, code, message)
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_REQUEST", message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", message)
    }
}

/// The caller, and the transport by which the audit names the call.
pub(crate) struct DecisionCall {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) peer: Peer,
    pub(crate) tcp: Option<Extension<Arc<TcpPeer>>>,
    pub(crate) transport: &'static str,
    /// The parts of the call that a record of its refusal repeats.
    pub(crate) named: Value,
}

impl DecisionCall {
    /// Decides and answers. Callers that guess have to wait. Runs decide nothing, regardless of
    /// their proof. Refusals are in the audit, where a flood is counted.
    pub(crate) async fn answer(
        self,
        decide: impl FnOnce(&Gateway) -> Result<Value, RefusedDecision> + Send + 'static,
    ) -> Response {
        let gateway = self.gateway;
        let (who, now) = ((self.peer.address(), Tried::Device), Instant::now());
        if gateway.access.limiter.wait(who, now).is_some() {
            let message = "too many failed attempts";
            return refusal(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message);
        }
        let standing = match self.tcp {
            Some(Extension(tcp)) => tcp.standing().await,
            None => PeerStanding::Trusted,
        };
        let decided = match standing {
            PeerStanding::Trusted => {
                let deciding = Arc::clone(&gateway);
                match blocking(move || decide(&deciding)).await {
                    Ok(decided) => decided,
                    Err(error) => {
                        let message = error.to_string();
                        return refusal(StatusCode::SERVICE_UNAVAILABLE, "unavailable", &message);
                    }
                }
            }
            PeerStanding::Run(_) | PeerStanding::Unidentified(_) => Err(RefusedDecision::suspect(
                "PEER_IN_RUN",
                "a run decides nothing",
            )),
        };
        match decided {
            Ok(answer) => Json(answer).into_response(),
            Err(refused) => {
                let from = self.peer.address().to_string();
                let log = &gateway.refused;
                log.note_decision(self.transport, refused.code, &from, &self.named);
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
}
