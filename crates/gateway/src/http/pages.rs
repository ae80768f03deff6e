//! The resources that a browser loads: one document without data, and its files.

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use interlock_tls::Identity;
use interlock_web::{CONTENT_SECURITY_POLICY, assets, shell};
use serde_json::json;

use super::{Doors, refusal};
use crate::ws;

/// The permissions policy: pages may use no device of the machine.
const PERMISSIONS: &str = "accelerometer=(), camera=(), clipboard-read=(), display-capture=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(), midi=(), payment=(), usb=()";

/// The longest nonce of a proof.
const MOST_NONCE: usize = 64;

/// The routes of the pages, which are all the same document, and of its files, below the path that
/// the owner chose. `/` also serves the protocol: see [`crate::ws::upgrade`].
pub(crate) fn routes(base: &str) -> Router<Doors> {
    let below = |path: &str| format!("{base}{path}");
    let mut router = Router::new()
        .route(&below("/ui/{version}/{name}"), get(asset))
        .route(&below("/ui/proof/{nonce}"), get(proof));
    router = router
        .route("/ca.crt", get(authority))
        .route(&below("/sw.js"), get(worker))
        .route(&below("/manifest.webmanifest"), get(manifest));
    if !base.is_empty() {
        router = router
            .route(base, get(ws::upgrade))
            .route(&below("/"), get(ws::upgrade));
    }
    for page in [
        "/inbox",
        "/approve/{id}",
        "/sessions",
        "/sessions/{id}",
        "/nodes",
        "/policy",
        "/audit",
        "/sandbox",
        "/settings",
        "/health",
    ] {
        router = router.route(&below(page), get(page_shell));
    }
    router
}

async fn page_shell(State(doors): State<Doors>) -> Response {
    document(&doors)
}

/// The page for a browser that named none. If the pages are below a path, the browser is redirected
/// there.
pub(crate) fn first_page(doors: &Doors, path: &str) -> Response {
    let base = doors.gateway.ui.base();
    if base.is_empty() || path == format!("{base}/") {
        return document(doors);
    }
    if !is_enabled(doors) {
        return not_found();
    }
    let leads = [
        (header::LOCATION, format!("{base}/")),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    (StatusCode::FOUND, leads).into_response()
}

/// The document that contains all pages. It is the same for every caller.
pub(crate) fn document(doors: &Doors) -> Response {
    if !is_enabled(doors) {
        return not_found();
    }
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (HeaderName::from_static("permissions-policy"), PERMISSIONS),
    ];
    let body = shell(doors.gateway.version, doors.gateway.ui.base()).into_string();
    (headers, body).into_response()
}

async fn asset(
    State(doors): State<Doors>,
    Path((version, name)): Path<(String, String)>,
) -> Response {
    let found = assets::find(&name).filter(|_| version == assets::version());
    let Some(asset) = found.filter(|_| is_enabled(&doors)) else {
        return not_found();
    };
    let headers = [
        (header::CONTENT_TYPE, asset.content_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    (headers, asset.body()).into_response()
}

/// The pages' service worker. Browsers check it again and again, so it is never outdated.
async fn worker(State(doors): State<Doors>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/javascript; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; connect-src 'self'; frame-ancestors 'none'",
        ),
    ];
    if !is_enabled(&doors) {
        return not_found();
    }
    (headers, assets::worker()).into_response()
}

async fn manifest(State(doors): State<Doors>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/manifest+json"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    if !is_enabled(&doors) {
        return not_found();
    }
    (headers, assets::manifest(doors.gateway.ui.base())).into_response()
}

/// The authority that signed the gateway's own certificate, which phones install. It is not secret.
async fn authority(State(doors): State<Doors>) -> Response {
    let host = &doors.gateway.dispatcher.host;
    let is_own = host
        .config()
        .is_ok_and(|config| config.config().gateway.tls.cert_path.is_none());
    let authority = Identity::kept_authority(host.state_dir());
    let authority = authority.filter(|_| doors.identity.is_some() && is_own && is_enabled(&doors));
    let Some(authority) = authority else {
        return not_found();
    };
    let headers = [
        (header::CONTENT_TYPE, "application/x-x509-ca-cert"),
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"interlock-ca.crt\"",
        ),
    ];
    (headers, authority).into_response()
}

/// Signs a nonce of the page together with the host name that the page called. A browser sends
/// nothing of itself to a server that cannot do that.
async fn proof(
    State(doors): State<Doors>,
    Path(nonce): Path<String>,
    headers: HeaderMap,
) -> Response {
    let is_nonce = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let (true, Some(host)) = (is_enabled(&doors), host) else {
        return not_found();
    };
    if nonce.len() > MOST_NONCE || !nonce.bytes().all(is_nonce) {
        return refusal(StatusCode::BAD_REQUEST, "invalid_request", "not a nonce");
    }
    let key = &doors.gateway.ui.key;
    let signature = key.sign_text(&format!("interlock-ui|{host}|{nonce}"));
    let body = json!({ "publicKey": key.public_key(), "signature": signature });
    let mut response = Json(body).into_response();
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}

fn is_enabled(doors: &Doors) -> bool {
    let config = doors.gateway.dispatcher.host.config();
    config.is_ok_and(|config| config.config().gateway.control_ui.enabled != Some(false))
}

fn not_found() -> Response {
    refusal(StatusCode::NOT_FOUND, "not_found", "Not Found")
}
