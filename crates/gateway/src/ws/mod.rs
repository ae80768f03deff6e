//! The WebSocket protocol: one connection of an operator or a node.
//!
//! Read `socket` (messages on a stream), `handshake` (who is this, and may it come in), then `connection` (the
//! life of a connection). Clients are in `interlock_connections`, methods in `interlock_methods`.

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

/// Where a connection comes from, as far as the upgrade tells.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    pub(crate) peer: Peer,
    /// From this machine, by a local name, through no proxy and no browser.
    pub(crate) is_direct: bool,
    /// From a browser of this machine that shows this server's own page, through no proxy.
    pub(crate) is_own_page: bool,
    /// Through a proxy: the address is that one's.
    pub(crate) is_forwarded: bool,
    /// The other end of a TCP connection.
    pub(crate) tcp: Option<Arc<TcpPeer>>,
}

impl Arrival {
    /// Where the process at the other end comes from. The Unix socket tells that by itself.
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

/// Turns a request into a connection of the protocol.
pub(crate) async fn upgrade(
    State(doors): State<Doors>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
) -> Response {
    let Some(accept) = accept_key(request.headers()) else {
        // A browser that wants the page, and no connection.
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

/// What to answer to a request for a WebSocket; none if it is no such request.
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
