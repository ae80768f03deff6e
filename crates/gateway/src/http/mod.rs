//! HTTP: who calls is settled before anything else is looked at.

pub(crate) mod body;
pub(crate) mod invoke;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use interlock_dispatch::proven::{ProvenCaller, RunOf};
use interlock_host::TokenRole;
use interlock_policy::AgentId;
use interlock_supervisor::PeerOrigin;
use interlock_tls::Identity;
use rmcp::ServerHandler;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::access::limiter::Tried;
use crate::access::tcp::{PeerStanding, TcpPeer};
use crate::access::token::TokenError;
use crate::access::{
    IN_RUN, PEER_IN_RUN, PEER_UNIDENTIFIED, Peer, RefusedCaller, TOKEN_ROLE, headers, unidentified,
};
use crate::gateway::Gateway;
use crate::mcp::{self, Offer};
use crate::push;
use crate::ui;
use crate::ws;

/// Every path that the gateway answers.
pub(crate) fn router<S: ServerHandler>(
    gateway: Arc<Gateway>,
    identity: Option<Arc<Identity>>,
    stop: &CancellationToken,
    offer: Offer<S>,
) -> Result<Router, TokenError> {
    let mcp = mcp::routes(&gateway, stop, offer)?;
    let pages = ui::http::routes(gateway.ui.base()).merge(push::routes(gateway.ui.base()));
    let doors = Doors { gateway, identity };
    let guarded = Router::new()
        .route(
            "/tools/invoke",
            post(invoke::invoke).fallback(invoke::not_post),
        )
        .route("/metrics", get(metrics))
        .merge(mcp)
        .layer(middleware::from_fn(body::read))
        .layer(middleware::from_fn_with_state(doors.clone(), authenticate));
    Ok(Router::new()
        .route("/", get(ws::upgrade))
        .route("/healthz", get(health))
        .route("/readyz", get(ready))
        .merge(pages)
        .merge(guarded)
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(doors.clone(), own_site))
        .with_state(doors))
}

/// What handlers get.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    pub(crate) gateway: Arc<Gateway>,
    /// What the TCP port shows, if it speaks TLS.
    pub(crate) identity: Option<Arc<Identity>>,
}

async fn health() -> Response {
    Json(json!({ "ok": true, "status": "live" })).into_response()
}

/// Ready is: the store answers, and the config can be read.
async fn ready(State(doors): State<Doors>) -> Response {
    let gateway = doors.gateway;
    let look = move || {
        gateway
            .dispatcher
            .host
            .document()
            .and_then(|_| gateway.dispatcher.host.config())
    };
    match interlock_dispatch::work::blocking(look).await {
        Ok(Ok(_)) => Json(json!({ "ok": true, "status": "ready" })).into_response(),
        Ok(Err(error)) => unavailable(error.code(), &error.to_string()),
        Err(error) => unavailable("STOPPING", &error.to_string()),
    }
}

fn unavailable(code: &str, message: &str) -> Response {
    let body = json!({ "ok": false, "error": { "type": code, "message": message } });
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

async fn metrics(State(doors): State<Doors>, request: Request) -> Response {
    if request.extensions().get::<ProvenCaller>() != Some(&ProvenCaller::Operator) {
        return refusal(StatusCode::FORBIDDEN, "forbidden", "operators only");
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    (
        [(header::CONTENT_TYPE, kind)],
        doors.gateway.dispatcher.metrics.text(),
    )
        .into_response()
}

async fn not_found() -> Response {
    refusal(StatusCode::NOT_FOUND, "not_found", "Not Found")
}

/// Checks before anything else that no other site led the caller here.
async fn own_site(State(doors): State<Doors>, request: Request, next: Next) -> Response {
    let is_local = matches!(request.extensions().get(), Some(Peer::Local(_)));
    if !is_local {
        let is_own = |name: &str| is_own_name(&doors, name);
        let schemes = match doors.identity {
            Some(_) => headers::Schemes::Https,
            None => headers::Schemes::Both,
        };
        let foreign =
            headers::check_host(request.headers(), is_own).and_then(
                |()| match headers::check_origin(request.headers(), schemes) {
                    Err(_) if is_allowed_origin(&doors, request.headers()) => Ok(()),
                    checked => checked,
                },
            );
        if let Err(foreign) = foreign {
            doors.gateway.dispatcher.metrics.refused();
            return refusal(StatusCode::FORBIDDEN, "forbidden", &foreign.to_string());
        }
    }
    let mut response = next.run(request).await;
    let nosniff = HeaderValue::from_static("nosniff");
    response
        .headers_mut()
        .insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// Whether the owner lets pages of this origin connect.
fn is_allowed_origin(doors: &Doors, headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let (Some(origin), None) = (origins.next(), origins.next()) else {
        return false;
    };
    let Ok(config) = doors.gateway.dispatcher.host.config() else {
        return false;
    };
    let allowed = config
        .config()
        .gateway
        .control_ui
        .allowed_origins
        .as_deref();
    let mut allowed = allowed.unwrap_or_default().iter();
    allowed.any(|allowed| allowed.trim_end_matches('/').as_bytes() == origin.as_bytes())
}

/// Names that the owner gave this machine, besides its addresses: the one by which others reach it,
/// and those in its certificate.
fn is_own_name(doors: &Doors, name: &str) -> bool {
    let certified = doors.identity.as_deref();
    if certified.is_some_and(|identity| identity.is_for(name)) {
        return true;
    }
    let Ok(config) = doors.gateway.dispatcher.host.config() else {
        return false;
    };
    let remote = config.config().gateway.remote.url.as_deref();
    let host = remote.and_then(host_of);
    host.is_some_and(|host| host.eq_ignore_ascii_case(name))
}

/// The host of an address, without its port.
pub(crate) fn host_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let end = rest.find(['/', ':', '?']).unwrap_or(rest.len());
    Some(&rest[..end])
}

/// Settles who calls; handlers find it in the request.
async fn authenticate(State(doors): State<Doors>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let standing = match peer {
        Some(Peer::Network(_)) => standing(worth_a_look(&doors, &request)).await,
        _ => PeerStanding::Trusted,
    };
    let who = peer.map_or(Err(RefusedCaller::Missing), |peer| {
        let run = request.extensions().get::<RunOf>();
        identify(&doors.gateway, peer, run, &standing, request.headers())
    });
    match who {
        Ok(who) => {
            request.extensions_mut().insert(who);
            request.extensions_mut().insert(standing);
            next.run(request).await
        }
        Err(refused) => {
            doors.gateway.dispatcher.metrics.refused();
            unauthorized(refused)
        }
    }
}

/// The other end of a TCP connection. A caller that shows nothing where something is asked for is
/// not worth the look.
fn worth_a_look(doors: &Doors, request: &Request) -> Option<Arc<TcpPeer>> {
    let is_refused = doors.gateway.access.asks_for_proof() && bearer(request.headers()).is_none();
    let tcp = request.extensions().get::<Arc<TcpPeer>>();
    tcp.filter(|_| !is_refused).cloned()
}

async fn standing(tcp: Option<Arc<TcpPeer>>) -> PeerStanding {
    match tcp {
        Some(tcp) => tcp.standing().await,
        None => PeerStanding::Unidentified("it was not looked at".to_owned()),
    }
}

/// Who calls, by the socket's credentials or by the secret that is presented.
pub(crate) fn identify(
    gateway: &Gateway,
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
        if gateway.access.asks_for_proof() {
            return Err(RefusedCaller::Missing);
        }
        // Any process of this machine, runs too: a caller that proves nothing decides nothing.
        return agent_or_run(AgentId::default(), standing);
    };
    let access = &gateway.access;
    let refused = match access.prove(
        &gateway.dispatcher.host,
        access.bearer(presented),
        address,
        now,
    ) {
        Ok(proven) => return proven_caller(proven.role, standing),
        Err(refused) => refused,
    };
    match gateway.dispatcher.host.agent_of_token(presented) {
        Ok(Some(agent)) => agent_or_run(agent.agent, standing),
        _ => {
            let who = (address, Tried::Shared);
            gateway.access.failed(&refused, who, now);
            Err(refused)
        }
    }
}

/// A secret of an operator proves an operator only where no run has a part in the connection.
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

/// The holder of an agent's token. Inside of a run it is that run, and only of the same agent.
fn agent_or_run(agent: AgentId, standing: &PeerStanding) -> Result<ProvenCaller, RefusedCaller> {
    match standing {
        PeerStanding::Trusted | PeerStanding::Unidentified(_) => Ok(ProvenCaller::Agent(agent)),
        PeerStanding::Run(Some(run)) if run.agent == agent => Ok(ProvenCaller::Run(run.clone())),
        PeerStanding::Run(_) => Err(RefusedCaller::InRun),
    }
}

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn unauthorized(refused: RefusedCaller) -> Response {
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

pub(crate) fn refusal(status: StatusCode, kind: &str, message: &str) -> Response {
    let body = json!({ "ok": false, "error": { "type": kind, "message": message } });
    (status, Json::<Value>(body)).into_response()
}
