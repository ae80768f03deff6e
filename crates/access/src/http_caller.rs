//! Identifies the caller of an HTTP request, and makes the response to a refused one.

use std::time::Instant;

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use interlock_host::{LocalHost, TokenRole};
use interlock_policy::AgentId;
use interlock_supervisor::PeerOrigin;
use serde_json::{Value, json};

use crate::limiter::Tried;
use crate::tcp::PeerStanding;
use crate::{
    IN_RUN, PEER_IN_RUN, PEER_UNIDENTIFIED, Peer, ProvenCaller, RefusedCaller, RunOf, SecretAccess,
    TOKEN_ROLE, unidentified,
};

/// Identifies the caller by the socket's credentials or by the presented secret.
pub fn identify(
    access: &SecretAccess,
    host: &LocalHost,
    peer: Peer,
    run: Option<&RunOf>,
    standing: &PeerStanding,
    headers: &HeaderMap,
) -> Result<ProvenCaller, RefusedCaller> {
    match peer {
        Peer::Local(PeerOrigin::Run(_)) => {
            return run
                .cloned()
                .map(ProvenCaller::Run)
                .ok_or(RefusedCaller::UnknownRun);
        }
        Peer::Local(PeerOrigin::Outside) => return Ok(ProvenCaller::Operator),
        Peer::Network(_) => {}
    }
    let (address, now) = (peer.address(), Instant::now());
    let Some(presented) = bearer(headers) else {
        if access.asks_for_proof() {
            return Err(RefusedCaller::Missing);
        }
        // The caller may be any process of this machine, including a run. A caller that proves
        // nothing decides nothing.
        return agent_or_run(AgentId::default(), standing);
    };
    let refused = match access.prove(host, access.bearer(presented), address, now) {
        Ok(proven) => return proven_caller(proven.role, standing),
        Err(refused) => refused,
    };
    match host.agent_of_token(presented) {
        Ok(Some(agent)) => agent_or_run(agent.agent, standing),
        _ => {
            let who = (address, Tried::Shared);
            access.failed(&refused, who, now);
            Err(refused)
        }
    }
}

/// An operator's secret proves an operator only if no run holds the connection.
fn proven_caller(role: TokenRole, standing: &PeerStanding) -> Result<ProvenCaller, RefusedCaller> {
    match (role, standing) {
        (_, PeerStanding::Run(_)) => Err(RefusedCaller::InRun),
        (TokenRole::Node, _) => Err(RefusedCaller::NodeToken),
        (TokenRole::Operator, PeerStanding::Trusted) => Ok(ProvenCaller::Operator),
        (TokenRole::Operator, PeerStanding::Unidentified(why)) => {
            Err(RefusedCaller::Unidentified(why.clone()))
        }
    }
}

/// The holder of an agent's token. Inside a run it counts only as that run, and only if the agent
/// is the same.
fn agent_or_run(agent: AgentId, standing: &PeerStanding) -> Result<ProvenCaller, RefusedCaller> {
    match standing {
        PeerStanding::Trusted | PeerStanding::Unidentified(_) => Ok(ProvenCaller::Agent(agent)),
        PeerStanding::Run(Some(run)) if run.agent == agent => Ok(ProvenCaller::Run(run.clone())),
        PeerStanding::Run(_) => Err(RefusedCaller::InRun),
    }
}

/// The secret of a bearer header.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    // With several headers, a proxy and this gateway might each read another one, so none counts.
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let value = value.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The response to a caller that was refused.
pub fn unauthorized(refused: RefusedCaller) -> Response {
    let (status, seconds) = match refused {
        RefusedCaller::Missing | RefusedCaller::Wrong => (StatusCode::UNAUTHORIZED, None),
        RefusedCaller::UnknownRun => {
            let message = "it is unknown which agent's run this is";
            return refusal(StatusCode::FORBIDDEN, "forbidden", message);
        }
        RefusedCaller::InRun => return forbidden(PEER_IN_RUN, IN_RUN),
        RefusedCaller::Unidentified(why) => {
            return forbidden(PEER_UNIDENTIFIED, &unidentified(&why));
        }
        RefusedCaller::NodeToken => {
            let message = "this token only lets a node connect; use an operator's or an agent's";
            return forbidden(TOKEN_ROLE, message);
        }
        RefusedCaller::Limited(seconds) => (StatusCode::TOO_MANY_REQUESTS, Some(seconds)),
    };
    let (message, kind) = match seconds {
        Some(_) => ("Too many failed attempts", "rate_limited"),
        None => ("Unauthorized", "unauthorized"),
    };
    let body = json!({ "error": { "message": message, "type": kind } });
    let mut response = (status, Json(body)).into_response();
    let headers = response.headers_mut();
    if let Some(seconds) = seconds {
        headers.insert(header::RETRY_AFTER, seconds.into());
    } else {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn forbidden(code: &str, message: &str) -> Response {
    let error = json!({ "type": "forbidden", "code": code, "message": message });
    let body = json!({ "ok": false, "error": error });
    (StatusCode::FORBIDDEN, Json(body)).into_response()
}

/// The response to a refused call, as JSON.
pub fn refusal(status: StatusCode, kind: &str, message: &str) -> Response {
    let body = json!({ "ok": false, "error": { "type": kind, "message": message } });
    (status, Json::<Value>(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_authorizations_none_counts() {
        let mut headers = HeaderMap::new();
        assert_eq!(bearer(&headers), None);
        headers.append(header::AUTHORIZATION, "Bearer one".parse().unwrap());
        assert_eq!(bearer(&headers), Some("one"));
        headers.append(header::AUTHORIZATION, "Bearer two".parse().unwrap());
        assert_eq!(bearer(&headers), None);
    }
}
