//! The WebSocket protocol: one connection of an operator or a node.
//!
//! Read `socket` (messages on a stream), `handshake` (identifies a client and decides whether it
//! may connect), then `connection` (the life of a connection). Clients are in
//! `interlock_connections`, methods in `interlock_methods`.

mod connection;
mod handshake;
mod socket;

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use interlock_dispatch::limits::ConnectionPlace;
use interlock_supervisor::PeerOrigin;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::http::Doors;
use interlock_access::tcp::{PeerStanding, TcpPeer};
use interlock_access::{Peer, headers};

/// The origin of a connection, as far as the upgrade request shows it.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) peer: Peer,
    /// Whether it comes from this machine, by a local name, without a proxy or browser.
    pub(crate) is_direct: bool,
    /// Whether it comes from a browser of this machine that shows this server's own page, without a
    /// proxy.
    pub(crate) is_own_page: bool,
    /// Whether it comes through a proxy, so that the address is the proxy's.
    pub(crate) is_forwarded: bool,
    /// The other end of a TCP connection.
    pub(crate) tcp: Option<Arc<TcpPeer>>,
}

impl Arrival {
    /// The standing of the process at the other end. The Unix socket reveals it directly.
    pub(crate) async fn standing(&self) -> PeerStanding {
        match (self.peer, &self.tcp) {
            (Peer::Local(PeerOrigin::Outside), _) => PeerStanding::Trusted,
            (Peer::Local(PeerOrigin::Run(_)), _) => PeerStanding::Run(None),
            (Peer::Network(_), Some(tcp)) => tcp.standing().await,
            (Peer::Network(_), None) => {
                PeerStanding::Unidentified("it was not looked at".to_owned())
            }
        }
    }
}

/// Upgrades a request to a connection of the protocol.
pub(crate) async fn upgrade(
    State(doors): State<Doors>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
) -> Response {
    let Some(accept) = accept_key(request.headers()) else {
        // The browser requests the page, not a connection.
        return crate::http::pages::first_page(&doors, request.uri().path());
    };
    let is_local = match peer {
        Peer::Local(_) => true,
        Peer::Network(address) => address.ip().to_canonical().is_loopback(),
    };
    let arrival = Arrival {
        peer,
        is_direct: is_local && headers::is_direct(request.headers()),
        is_own_page: is_local && headers::is_own_page(request.headers()),
        is_forwarded: headers::is_forwarded(request.headers()),
        tcp: request.extensions().get().cloned(),
    };
    let place = request.extensions().get::<ConnectionPlace>();
    let place = place.and_then(ConnectionPlace::take);
    let upgrading = hyper::upgrade::on(&mut request);
    let gateway = doors.gateway;
    gateway.connections.clone().spawn(async move {
        let _place = place;
        match upgrading.await {
            Ok(stream) => connection::serve(gateway, TokioIo::new(stream), arrival).await,
            Err(error) => tracing::debug!(%error, "a connection was not upgraded"),
        }
    });
    let switched = [
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, switched).into_response()
}

/// The accept key for a WebSocket request; `None` for any other request.
fn accept_key(headers: &HeaderMap) -> Option<HeaderValue> {
    let has = |name, word: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| {
                value
                    .split(',')
                    .any(|part| part.trim().eq_ignore_ascii_case(word))
            })
    };
    let is_asked = has(header::UPGRADE, "websocket")
        && has(header::CONNECTION, "upgrade")
        && has(header::SEC_WEBSOCKET_VERSION, "13");
    let key = headers
        .get(header::SEC_WEBSOCKET_KEY)
        .filter(|_| is_asked)?;
    derive_accept_key(key.as_bytes()).parse().ok()
}
