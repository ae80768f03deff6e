//! The server: its transports and its life. A state directory has one gateway, from its lock to its
//! last answer.

pub(crate) mod info;
mod listen;
mod log_file;
mod shared;
mod tls;

use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use interlock_access::RunOf;
use interlock_dispatch::approvals;
use interlock_dispatch::events;
use interlock_dispatch::limits::ConnectionPlace;
use interlock_dispatch::look;
use interlock_dispatch::metrics::MetricsTransport;
use interlock_dispatch::wake;
use interlock_dispatch::work::blocking;
use interlock_host::HostError;
use interlock_mcp::{McpServer, Offer};
use interlock_supervisor::tcp_peer::TcpEnds;
use interlock_supervisor::{PeerOrigin, SupervisorPaths, memory, origin};
use interlock_tls::TlsAcceptor;
use rmcp::ServerHandler;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::info::{GatewayInfo, GatewayLock};
use self::shared::SharedStream;
use crate::http;
use interlock_access::tcp::{PeerLooks, TcpPeer};
use interlock_access::{Peer, record_of};
use interlock_methods::handlers;
use interlock_methods::{Gateway, GatewayError, GatewayOptions};

/// How long a caller may take to send its headers.
const HEADER_TIME: Duration = Duration::from_secs(10);

/// How long calls may take to end when the gateway stops.
const LAST_CALLS: Duration = Duration::from_secs(5);

/// A gateway that accepts calls.
#[derive(Debug, Clone)]
pub struct ReadyGateway {
    pub info: GatewayInfo,
}

/// Serves until `stop` is cancelled. Calls `tell` as soon as the gateway accepts calls.
pub async fn serve(
    options: GatewayOptions,
    stop: CancellationToken,
    tell: impl FnOnce(&ReadyGateway),
) -> Result<(), GatewayError> {
    serve_offering(options, stop, tell, McpServer::new).await
}

/// Like [`serve`], with other tools for MCP clients: the protocol's test suite needs its own tools
/// behind the same transports. All other transports still lead to the normal tools.
pub async fn serve_offering<S: ServerHandler>(
    options: GatewayOptions,
    stop: CancellationToken,
    tell: impl FnOnce(&ReadyGateway),
    offer: Offer<S>,
) -> Result<(), GatewayError> {
    let port = options.port;
    let (gateway, config) = Gateway::open(options, stop.clone())?;
    let lock = GatewayLock::take(gateway.dispatcher.host.state_dir())?;
    interlock_dispatch::nodes::system_run::recover(&gateway.dispatcher);
    let address = listen::address(&config, port, gateway.access.asks_for_proof())?;
    let identity = tls::identity(&gateway, &config, address.ip())?.map(Arc::new);
    let tcp = listen::tcp(address).await?;
    let socket = gateway.dispatcher.host.state_dir().join("gateway.sock");
    let unix = listen::unix(&socket)?;
    let bound = tcp.local_addr().map_err(|source| GatewayError::Listen {
        address: address.to_string(),
        source,
    })?;
    let ready_info = ReadyGateway {
        info: GatewayInfo {
            pid: std::process::id(),
            address: bound,
            socket: socket.clone(),
            version: gateway.version.to_owned(),
            started_at_ms: gateway.dispatcher.started_at_ms,
            tls_fingerprint: identity
                .as_ref()
                .map(|identity| identity.fingerprint().to_string()),
            operator_access: Some(gateway.access.source.clone()),
        },
    };
    let base = config.gateway.control_ui.base_path.as_deref();
    gateway
        .ui
        .opened(bound, identity.is_some(), base.unwrap_or_default());
    lock.publish(&ready_info.info)?;
    let service = ConnectionService {
        acceptor: identity.as_ref().map(|identity| identity.acceptor()),
        router: http::router(Arc::clone(&gateway), identity, &stop, offer)?,
        connections: gateway.connections.clone(),
        places: Arc::new(Semaphore::new(gateway.dispatcher.limits.connections)),
        local_places: Arc::new(Semaphore::new(gateway.dispatcher.limits.local_connections)),
        stop: stop.clone(),
        looks: PeerLooks::start(gateway.dispatcher.supervisor.place().clone()),
        gateway: Arc::clone(&gateway),
    };
    look::follow(&gateway.dispatcher);
    let following = tokio::spawn(approvals::follow(Arc::clone(&gateway.dispatcher)));
    let beating = tokio::spawn(handlers::beat(Arc::clone(&gateway)));
    let telling = tokio::spawn(events::follow(Arc::clone(&gateway.dispatcher)));
    let waking = tokio::spawn(wake::follow(Arc::clone(&gateway.dispatcher)));
    let expiring = tokio::spawn(approvals::expire(Arc::clone(&gateway.dispatcher)));
    tokio::spawn(interlock_dispatch::tools::resume(Arc::clone(
        &gateway.dispatcher,
    )));
    tokio::spawn(interlock_dispatch::session_pages::prepare(Arc::clone(
        &gateway.dispatcher,
    )));
    tokio::spawn(interlock_methods::upkeep::follow(Arc::clone(&gateway)));
    let pushing = tokio::spawn(interlock_methods::push::follow(Arc::clone(&gateway)));
    let chatting = tokio::spawn(interlock_methods::channels::follow(Arc::clone(&gateway)));
    let receiving = tokio::spawn(interlock_methods::ui::receipts::follow(Arc::clone(
        &gateway,
    )));
    let running = tokio::spawn(interlock_methods::ui::allowed_runs::follow(Arc::clone(
        &gateway,
    )));
    let recording = tokio::spawn(interlock_methods::refused_attempts::follow(Arc::clone(
        &gateway,
    )));
    let resting = tokio::spawn(rest(Arc::clone(&gateway)));
    tell(&ready_info);
    let ended = tokio::select! {
        () = service.accept_tcp(tcp) => Ok(()),
        () = service.accept_unix(unix) => Ok(()),
        () = stop.cancelled() => Ok(()),
        error = state_removed(&gateway) => Err(error.into()),
    };
    stop.cancel();
    // If the state directory was created anew, the socket belongs to another gateway.
    if ended.is_ok() {
        let _ = std::fs::remove_file(&socket);
    }
    service.connections.close();
    let _ = tokio::time::timeout(LAST_CALLS, service.connections.wait()).await;
    following.abort();
    beating.abort();
    expiring.abort();
    telling.abort();
    waking.abort();
    pushing.abort();
    chatting.abort();
    receiving.abort();
    running.abort();
    resting.abort();
    let _ = tokio::time::timeout(LAST_CALLS, recording).await;
    gateway.dispatcher.host.store().flush();
    drop(lock);
    ended
}

/// Returns when the database was missing from its place at two checks in a row. A gateway without
/// its state can decide and record nothing, and would only block the port for the next one.
async fn state_removed(gateway: &Gateway) -> HostError {
    let mut missing = 0;
    loop {
        tokio::time::sleep(STATE_LOOK).await;
        let store = Arc::clone(gateway.dispatcher.host.store());
        match blocking(move || store.check_in_place()).await {
            Ok(Err(error)) if missing > 0 => return error.into(),
            Ok(Err(_)) => missing += 1,
            _ => missing = 0,
        }
    }
}

/// How often the gateway checks that its state exists.
const STATE_LOOK: Duration = Duration::from_secs(1);

/// Releases memory while the gateway is idle, until the gateway ends.
async fn rest(gateway: Arc<Gateway>) {
    let mut rest = memory::RestWatch::default();
    let mut looks = 0_u32;
    loop {
        tokio::time::sleep(memory::LOOK_EVERY).await;
        gateway.dispatcher.once.tidy();
        rest.look(|| gateway.dispatcher.host.store().shrink());
        let here = Arc::clone(&gateway);
        let taken = blocking(move || here.dispatcher.host.record_connections()).await;
        if let Ok(Err(error)) = taken {
            tracing::warn!(%error, "connections of sandboxed runs are not in the audit yet");
        }
        if looks.is_multiple_of(SESSIONS_EVERY) {
            let supervisor = gateway.dispatcher.supervisor.clone();
            let _ = blocking(move || supervisor.remove_due_sessions()).await;
            let here = Arc::clone(&gateway);
            let _ = blocking(move || log_file::keep_short(here.dispatcher.host.state_dir())).await;
        }
        looks = looks.wrapping_add(1);
    }
}

/// Expired sessions are removed at every so many checks.
const SESSIONS_EVERY: u32 = 12;

/// Serves the connections of both transports.
struct ConnectionService {
    router: Router,
    /// `None` if the TCP port is plain. The Unix socket always is.
    acceptor: Option<TlsAcceptor>,
    connections: TaskTracker,
    places: Arc<Semaphore>,
    /// The places of the Unix socket.
    local_places: Arc<Semaphore>,
    stop: CancellationToken,
    /// Finds the processes at the other ends of TCP connections.
    looks: PeerLooks,
    gateway: Arc<Gateway>,
}

impl ConnectionService {
    async fn accept_tcp(&self, listener: TcpListener) {
        loop {
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, address)) => {
                    let _ = stream.set_nodelay(true);
                    let _ = end_when_gone(&stream);
                    let Ok(local) = stream.local_addr() else {
                        continue;
                    };
                    let ends = TcpEnds {
                        local,
                        peer: address,
                    };
                    let tcp = TcpPeer::new(ends, self.looks.clone());
                    let peer = AcceptedPeer::Network(address, tcp);
                    match self.acceptor.clone() {
                        Some(acceptor) => {
                            let opening = tls::handshake(acceptor, stream);
                            let opening = async { Some((opening.await?, None)) };
                            self.answer(opening, peer, MetricsTransport::Tcp, place);
                        }
                        None => {
                            let opening = ready(Some((stream, None)));
                            self.answer(opening, peer, MetricsTransport::Tcp, place);
                        }
                    }
                }
                Err(error) => refused_by_system(&error).await,
            }
        }
    }

    async fn accept_unix(&self, listener: UnixListener) {
        loop {
            let Ok(place) = Arc::clone(&self.local_places).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    match origin(&stream, self.gateway.dispatcher.supervisor.place()) {
                        Ok(origin) => {
                            let peer = AcceptedPeer::Local(origin);
                            let runs = self.gateway.dispatcher.supervisor.place().clone();
                            let opening = async move {
                                let run = run_of(&stream, origin, runs).await;
                                Some((stream, run))
                            };
                            self.answer(opening, peer, MetricsTransport::Unix, place);
                        }
                        Err(refusal) => {
                            self.gateway.dispatcher.metrics.refused();
                            tracing::warn!(%refusal, "refused at the Unix socket");
                        }
                    }
                }
                Err(error) => refused_by_system(&error).await,
            }
        }
    }

    /// Serves a connection. Never waits: a slow caller only occupies its own place.
    fn answer<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        opening: impl Future<Output = Option<(S, Option<RunOf>)>> + Send + 'static,
        peer: AcceptedPeer,
        door: MetricsTransport,
        place: OwnedSemaphorePermit,
    ) {
        let (router, stop) = (self.router.clone(), self.stop.clone());
        let gateway = Arc::clone(&self.gateway);
        let counted = self.gateway.dispatcher.metrics.connected(door);
        self.connections.spawn(async move {
            let _counted = counted;
            let place = ConnectionPlace::new(place);
            let _held = FreePlace(place.clone());
            let opened = tokio::select! {
                opened = opening => opened,
                () = stop.cancelled() => return,
            };
            let Some((stream, run)) = opened else {
                return gateway.dispatcher.metrics.refused();
            };
            let stream = SharedStream::new(stream);
            let service = tower_service(router, peer, run, place, stream.clone());
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIME)
                .max_buf_size(64 * 1024);
            let connection = builder
                .serve_connection(TokioIo::new(stream.clone()), service)
                .with_upgrades();
            tokio::pin!(connection);
            tokio::select! {
                served = connection.as_mut() => {
                    if served.is_err_and(|error| error.is_timeout()) {
                        stream.say_too_slow().await;
                    }
                }
                () = stop.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = connection.await;
                }
            }
        });
    }
}

/// The run at the other end. A shim serves no other run while a process of its run lives, so that
/// process must still be there after the record was read.
async fn run_of(stream: &UnixStream, from: PeerOrigin, place: SupervisorPaths) -> Option<RunOf> {
    let PeerOrigin::Run(Some(shim)) = from else {
        return None;
    };
    let session = record_of(&place, shim).await?;
    let is_still_there = origin(stream, &place).is_ok_and(|now| now == from);
    RunOf::new(session).filter(|_| is_still_there)
}

/// Frees the place of an ended connection, unless a WebSocket has taken it over.
struct FreePlace(ConnectionPlace);

impl Drop for FreePlace {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

/// The other end of an accepted connection.
#[derive(Clone)]
enum AcceptedPeer {
    Network(SocketAddr, Arc<TcpPeer>),
    Local(PeerOrigin),
}

/// The router, which gets the identity of the peer.
fn tower_service<S: Send + 'static>(
    router: Router,
    caller: AcceptedPeer,
    run: Option<RunOf>,
    place: ConnectionPlace,
    stream: SharedStream<S>,
) -> impl hyper::service::Service<
    Request<hyper::body::Incoming>,
    Response = axum::response::Response,
    Error = std::convert::Infallible,
    Future: Send,
> {
    let service = TowerToHyperService::new(router);
    hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        let extensions = request.extensions_mut();
        match caller.clone() {
            AcceptedPeer::Network(address, tcp) => {
                extensions.insert(Peer::Network(address));
                extensions.insert(tcp);
            }
            AcceptedPeer::Local(origin) => {
                extensions.insert(Peer::Local(origin));
            }
        }
        if let Some(run) = run.clone() {
            extensions.insert(run);
        }
        extensions.insert(place.clone());
        let answering = hyper::service::Service::call(&service, request);
        let stream = stream.clone();
        async move {
            let answer = answering.await;
            stream.owes_nothing();
            answer
        }
    })
}

/// Makes the system probe the connection. A machine that was switched off does not close it, and a
/// connection without pings would keep its place forever.
fn end_when_gone(stream: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;

    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_mins(1))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(20))?;
    sockopt::set_tcp_keepcnt(stream, 3)
}

/// Handles a failed accept: too few descriptors, or the caller is already gone. Neither is a reason
/// to stop.
async fn refused_by_system(error: &std::io::Error) {
    tracing::warn!(%error, "a connection could not be taken");
    tokio::time::sleep(Duration::from_millis(20)).await;
}
