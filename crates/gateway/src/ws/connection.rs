//! The life of a connection: challenge, welcome, requests, end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use interlock_host::now_ms;
use interlock_wire::close::MAX_UNAUTHORIZED_CALLS;
use interlock_wire::hello::{
    Challenge, Features, HANDSHAKE_TIMEOUT_MS, HelloAuth, HelloKind, HelloOk, Policy, Server,
    SessionDefaults, Snapshot,
};
use interlock_wire::node::extension::OURS;
use interlock_wire::{
    BadFrame, Close, Connect, Event, Request, Response, Scope, event, method, refusal,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::client::{Client, Known, Line, Outgoing};
use super::handshake::{self, Turned, Welcome};
use super::socket::{self, Reader, Received, Writer};
use super::{Arrival, methods};
use crate::access::Peer;
use crate::gateway::Gateway;
use crate::tools::blocking;

/// Requests of one client that are worked on at once; then it is not read on.
const MAX_AT_WORK: usize = 128;

/// How long the last messages to a client may take.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub(super) async fn serve<S>(gateway: Arc<Gateway>, stream: S, arrival: Arrival)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut reader, mut writer) = socket::open(stream).await;
    let time = Duration::from_millis(HANDSHAKE_TIMEOUT_MS);
    let welcomed = tokio::select! {
        welcomed = tokio::time::timeout(time, greet(&gateway, &arrival, &mut reader, &mut writer)) => {
            welcomed.unwrap_or_else(|_| Err(Close::handshake_timeout()))
        }
        () = gateway.stop.cancelled() => Err(Close::restart()),
    };
    let (connect, welcome, id) = match welcomed {
        Ok(welcomed) => welcomed,
        Err(close) => {
            let _ = tokio::time::timeout(LAST_WORDS, writer.close(close)).await;
            return;
        }
    };
    reader.welcome();
    let (out, outgoing) = mpsc::unbounded_channel();
    let buffered = Arc::new(AtomicUsize::new(0));
    let client = Arc::new(client(
        &gateway, &arrival, &connect, &welcome, out, &buffered,
    ));
    client.answer(&hello(&gateway, &client, &welcome, &id));
    gateway.hub.add(&client);
    gateway.metrics.clients.inc();
    methods::connected(&gateway, &client).await;
    let counts = (buffered, Arc::clone(&gateway.hub.buffered));
    let closed = CancellationToken::new();
    let when_closed = closed.clone().drop_guard();
    let writing = tokio::spawn(async move {
        write(writer, outgoing, counts).await;
        drop(when_closed);
    });
    read(&gateway, &client, &mut reader, &closed).await;
    gateway.hub.remove(&client);
    gateway.metrics.clients.dec();
    methods::disconnected(&gateway, &client).await;
    // What is still to be sent is sent, a last close frame too, unless nobody takes it.
    drop(client);
    let abort = writing.abort_handle();
    if tokio::time::timeout(LAST_WORDS, writing).await.is_err() {
        abort.abort();
    }
}

/// Challenge and connect. The error is how the connection ends.
async fn greet<S>(
    gateway: &Arc<Gateway>,
    arrival: &Arrival,
    reader: &mut Reader<S>,
    writer: &mut Writer<S>,
) -> Result<(Connect, Welcome, String), Close>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let nonce = uuid::Uuid::new_v4().to_string();
    let challenge = Challenge {
        nonce: nonce.clone(),
        ts: now_ms(),
    };
    let gone = || Close::new(Close::NORMAL, "");
    let challenge = Event::new(event::CONNECT_CHALLENGE, &challenge).map_err(|_| gone())?;
    if !writer.send(challenge.to_text().into()).await {
        return Err(gone());
    }
    let text = loop {
        match reader.next().await {
            Received::Text(text) => break text,
            Received::Alive => {}
            Received::TooLarge => return Err(Close::too_large()),
            Received::Gone => return Err(gone()),
        }
    };
    if text.len() > interlock_wire::frame::MAX_HANDSHAKE_BYTES {
        return Err(Close::too_large());
    }
    let request = match Request::parse(&text) {
        Ok(request) => request,
        Err(BadFrame::NotJson) => return Err(gone()),
        Err(BadFrame::NotFrame { .. }) => return Err(Close::invalid_request_frame()),
    };
    let id = request.id.clone();
    let greeted = async {
        if request.method != "connect" {
            return Err(Turned::from(&refusal::FIRST_REQUEST_NOT_CONNECT));
        }
        let connect: Connect = request.read().map_err(Turned::from)?;
        let (gateway, arrival) = (Arc::clone(gateway), arrival.clone());
        let checked = blocking(move || {
            let checked = handshake::check(&gateway, &arrival, &connect, &nonce);
            checked.map(|welcome| (connect, welcome))
        })
        .await;
        checked.unwrap_or_else(|_| Err(Turned(refusal::starting(), Close::restart())))
    };
    match greeted.await {
        Ok((connect, welcome)) => Ok((connect, welcome, id)),
        Err(Turned(error, close)) => {
            tracing::info!(%error, peer = ?arrival.peer, "not let in");
            writer
                .send(Response::failed(id, error).to_text().into())
                .await;
            Err(close)
        }
    }
}

fn client(
    gateway: &Gateway,
    arrival: &Arrival,
    connect: &Connect,
    welcome: &Welcome,
    out: mpsc::UnboundedSender<Outgoing>,
    buffered: &Arc<AtomicUsize>,
) -> Client {
    let known = Known {
        connection: uuid::Uuid::new_v4().to_string(),
        role: welcome.role,
        scopes: welcome.scopes.clone(),
        device: welcome.device.clone(),
        program: connect.client.clone(),
        caps: connect.caps.clone().unwrap_or_default(),
        commands: connect.commands.clone().unwrap_or_default(),
        permissions: connect.permissions.clone().unwrap_or_default(),
        path_env: connect.path_env.clone(),
        address: match arrival.peer {
            Peer::Network(_) => Some(arrival.peer.address()),
            Peer::Local(_) => None,
        },
        now_ms: now_ms(),
    };
    let line = Line {
        out,
        buffered: Arc::clone(buffered),
        buffered_in_all: Arc::clone(&gateway.hub.buffered),
    };
    Client::new(known, line)
}

fn hello(gateway: &Gateway, client: &Client, welcome: &Welcome, id: &str) -> Response {
    let is_admin = client.scopes.allow(Scope::Admin);
    let for_admins = |text: String| is_admin.then_some(text);
    let (token, issued_at_ms) = welcome.token.clone().unzip();
    let hello = HelloOk {
        kind: HelloKind::HelloOk,
        protocol: welcome.protocol,
        server: Server {
            version: gateway.version.to_owned(),
            conn_id: client.connection.clone(),
            product: Some(OURS.to_owned()),
        },
        features: Features {
            methods: method::METHODS
                .iter()
                .map(|method| method.name.to_owned())
                .collect(),
            events: event::names(),
        },
        snapshot: Snapshot {
            presence: methods::presence(gateway),
            health: methods::health(gateway),
            state_version: gateway.state_version(),
            uptime_ms: now_ms().saturating_sub(gateway.started_at_ms),
            session_defaults: Some(SessionDefaults {
                default_agent_id: "main".to_owned(),
                main_key: "main".to_owned(),
                main_session_key: "agent:main:main".to_owned(),
                scope: Some("per-sender".to_owned()),
            }),
            config_path: for_admins(gateway.host.config_path().display().to_string()),
            state_dir: for_admins(gateway.host.state_dir().display().to_string()),
            auth_mode: for_admins(gateway.access.mode().to_string()),
        },
        plugin_surface_urls: None,
        auth: HelloAuth {
            role: client.role.to_string(),
            scopes: client.scopes.names(),
            device_token: token,
            issued_at_ms,
        },
        policy: Policy {
            tick_interval_ms: gateway.tick_ms,
            ..Policy::default()
        },
    };
    Response::success(id, &hello)
}

/// Reads until the client goes, breaks the rules, or the gateway ends.
async fn read<S>(
    gateway: &Arc<Gateway>,
    client: &Arc<Client>,
    reader: &mut Reader<S>,
    closed: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let places = Arc::new(Semaphore::new(MAX_AT_WORK));
    let mut unauthorized = 0;
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let received = tokio::select! {
            received = reader.next() => received,
            () = gateway.stop.cancelled() => {
                client.close(Close::restart());
                return;
            }
            () = closed.cancelled() => return,
        };
        client.heard(now_ms());
        let text = match received {
            Received::Text(text) => text,
            Received::Alive => continue,
            Received::TooLarge => return client.close(Close::too_large()),
            Received::Gone => return,
        };
        let request = match Request::parse(&text) {
            Ok(request) => request,
            Err(bad) => {
                if let Some(response) = bad.response() {
                    client.answer(&response);
                }
                continue;
            }
        };
        if let Err(error) = method::authorize(&request.method, client.role, &client.scopes) {
            if method::is_unauthorized_role(&error) {
                unauthorized += 1;
            }
            client.answer(&Response::failed(&request.id, error));
            if unauthorized >= MAX_UNAUTHORIZED_CALLS {
                return client.close(Close::repeated_unauthorized());
            }
            continue;
        }
        unauthorized = 0;
        let (gateway, client) = (Arc::clone(gateway), Arc::clone(client));
        tokio::spawn(async move {
            let _place = place;
            if let Some(response) = methods::call(&gateway, &client, &request).await {
                client.answer(&response);
            }
        });
    }
}

/// Sends what waits, until it is told to close or nobody takes it.
async fn write<S>(
    mut writer: Writer<S>,
    mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
    (own, all): (Arc<AtomicUsize>, Arc<AtomicUsize>),
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(message) = outgoing.recv().await {
        let sent = match message {
            Outgoing::Text(text) => {
                let bytes = text.len();
                let sent = writer.send(text).await;
                own.fetch_sub(bytes, Ordering::Relaxed);
                all.fetch_sub(bytes, Ordering::Relaxed);
                sent
            }
            Outgoing::Ping => writer.ping().await,
            Outgoing::Close(close) => {
                writer.close(close).await;
                false
            }
        };
        if !sent {
            break;
        }
    }
    // What nobody takes does not wait any more.
    outgoing.close();
    while let Some(message) = outgoing.recv().await {
        if let Outgoing::Text(text) = message {
            all.fetch_sub(text.len(), Ordering::Relaxed);
        }
    }
}
