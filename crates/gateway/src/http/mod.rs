//! HTTP: the caller is identified before anything else.

mod body;
mod chat_hooks;
mod decision;
mod invoke;
pub(crate) mod pages;
mod push_answer;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
pub(crate) use interlock_access::refusal;
use interlock_access::tcp::{PeerStanding, TcpPeer};
use interlock_access::token::TokenError;
use interlock_access::{
    Peer, ProvenCaller, RefusedCaller, RunOf, bearer, headers, identify, unauthorized,
};
use interlock_mcp::{McpParts, Offer};
use interlock_tls::Identity;
use rmcp::ServerHandler;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::ws;
use interlock_methods::{Gateway, host_of};

/// The routes of every path that the gateway serves.
pub(crate) fn router<S: ServerHandler>(
    gateway: Arc<Gateway>,
    identity: Option<Arc<Identity>>,
    stop: &CancellationToken,
    offer: Offer<S>,
) -> Result<Router, TokenError> {
    let mcp = McpParts {
        dispatcher: Arc::clone(&gateway.dispatcher),
        access: Arc::clone(&gateway.access),
        version: gateway.version,
        max_body: body::MAX_BODY,
        stop: stop.clone(),
    };
    let mcp = interlock_mcp::routes(mcp, offer)?;
    let pages = pages::routes(gateway.ui.base())
        .merge(push_answer::routes(gateway.ui.base()))
        .merge(chat_hooks::routes(gateway.ui.base()));
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

/// The state of the handlers.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    pub(crate) gateway: Arc<Gateway>,
    /// The identity of the TCP port, if it uses TLS.
    pub(crate) identity: Option<Arc<Identity>>,
}

async fn health() -> Response {
    Json(json!({ "ok": true, "status": "live" })).into_response()
}

/// Ready means that the store answers and the config can be read.
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

/// Checks that a request target with a host (`GET http://HOST/ HTTP/1.1`) names the host of the
/// header.
fn target_fits_host(request: &Request) -> Result<(), headers::Foreign> {
    let Some(authority) = request.uri().authority() else {
        return Ok(());
    };
    let host = request.headers().get(header::HOST);
    let is_same = host.is_some_and(|host| {
        host.as_bytes()
            .eq_ignore_ascii_case(authority.as_str().as_bytes())
    });
    is_same.then_some(()).ok_or(headers::Foreign::Host)
}

/// Checks before anything else that the caller was not led here by another site.
async fn own_site(State(doors): State<Doors>, request: Request, next: Next) -> Response {
    let is_local = matches!(request.extensions().get(), Some(Peer::Local(_)));
    if !is_local {
        let is_own = |name: &str| is_own_name(&doors, name);
        let schemes = match doors.identity {
            Some(_) => headers::Schemes::Https,
            None => headers::Schemes::Both,
        };
        let foreign = headers::check_host(request.headers(), is_own)
            .and_then(|()| target_fits_host(&request))
            .and_then(
                |()| match headers::check_origin(request.headers(), schemes) {
                    Err(_) if is_allowed_origin(&doors, request.headers()) => Ok(()),
                    checked => checked,
                },
            );
        if let Err(foreign) = foreign {
            doors.gateway.dispatcher.metrics.refused();
            let code = match foreign {
                headers::Foreign::Host => "HOST_FOREIGN",
                headers::Foreign::Origin => "ORIGIN_FOREIGN",
            };
            let from = address_of(&request);
            let path = request.uri().path();
            let refused = &doors.gateway.refused;
            refused.note_foreign(code, &from, request.headers(), path);
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

/// The address of a request, for the audit.
fn address_of(request: &Request) -> String {
    match request.extensions().get::<Peer>() {
        Some(peer @ Peer::Network(_)) => peer.address().to_string(),
        _ => "unix socket".to_owned(),
    }
}

/// Whether the owner permits connections from pages of this origin.
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

/// Whether the owner gave this machine a name, besides its addresses: the name by which others
/// reach it, or a name in its certificate.
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

/// Identifies the caller. Handlers find it in the request.
async fn authenticate(State(doors): State<Doors>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let standing = match peer {
        Some(Peer::Network(_)) => standing(worth_a_look(&doors, &request)).await,
        _ => PeerStanding::Trusted,
    };
    let who = peer.map_or(Err(RefusedCaller::Missing), |peer| {
        let run = request.extensions().get::<RunOf>();
        let gateway = &doors.gateway;
        let host = &gateway.dispatcher.host;
        identify(
            &gateway.access,
            host,
            peer,
            run,
            &standing,
            request.headers(),
        )
    });
    match who {
        Ok(who) => {
            request.extensions_mut().insert(who);
            request.extensions_mut().insert(standing);
            next.run(request).await
        }
        Err(refused) => {
            doors.gateway.dispatcher.metrics.refused();
            let from = address_of(&request);
            doors.gateway.refused.note_caller(&refused, &from);
            unauthorized(refused)
        }
    }
}

/// The other end of a TCP connection, if it needs a lookup. A caller without the required proof is
/// refused anyway.
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
