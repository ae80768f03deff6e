//! The life of a connection: challenge, welcome, requests, end.

use std::sync::Arc;
use std::time::Duration;

use interlock_connections::{Client, KnownClient, Outbox};
use interlock_dispatch::work::blocking;
use interlock_host::now_ms;
use interlock_wire::close::MAX_UNAUTHORIZED_CALLS;
use interlock_wire::hello::{
    Challenge, ConnectionLimits, Features, HANDSHAKE_TIMEOUT_MS, HelloAuth, HelloKind, HelloOk,
    HelloSnapshot, ServerInfo, SessionDefaults,
};
use interlock_wire::node::extension::INTERLOCK;
use interlock_wire::{
    BadFrame, Close, Connect, Event, OperatorScope, Request, Response, Role, WireError, event,
    method, refusal,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Arrival;
use super::handshake::{self, Turned, Welcome};
use super::socket::{self, Received, SocketReader, SocketWriter};
use interlock_access::Peer;
use interlock_access::tcp::PeerStanding;
use interlock_methods::refused_attempts::{is_deciding, named_approval};
use interlock_methods::{Gateway, handlers};

/// How many requests of one client are handled at once. With more, nothing further is read from the
/// client.
const MAX_AT_WORK: usize = 128;

/// How many requests of one client may wait for people, runs or nodes. Further ones are refused.
const MAX_WAITS: usize = 4096;

/// Larger requests always count as work, because many of them would take much memory.
const MAX_WAITING_BYTES: usize = 64 * 1024;

/// How much output may wait for a client before nothing further is read from it.
const MAX_UNREAD: usize = 1024 * 1024;

/// How often a client that does not read its answers is checked.
const LOOK: Duration = Duration::from_millis(50);

/// How much later than the next ping a sign of life may come.
const SILENCE: Duration = Duration::from_secs(1);

/// How long a client that is being disconnected may take to read its pending messages.
const GRACE: Duration = Duration::from_secs(2);

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
        () = gateway.dispatcher.stop.cancelled() => Err(Close::restart()),
    };
    let (connect, welcome, id) = match welcomed {
        Ok(welcomed) => welcomed,
        Err(close) => {
            let _ = tokio::time::timeout(LAST_WORDS, writer.close(close)).await;
            return;
        }
    };
    reader.welcome();
    let out = Outbox::new(
        writer.into_socket(),
        Arc::clone(&gateway.dispatcher.hub.buffered),
    );
    let out = Arc::new(out);
    let ending = CancellationToken::new();
    let known = known(&arrival, &connect, &welcome);
    let client = Arc::new(Client::new(known, Arc::clone(&out), ending.clone()));
    client.answer(&hello(&gateway, &client, &welcome, &id));
    gateway.dispatcher.hub.add(&client);
    gateway.dispatcher.metrics.clients.inc();
    handlers::connected(&gateway, &client).await;
    let closed = CancellationToken::new();
    let when_closed = closed.clone().drop_guard();
    let sending = Arc::clone(&out);
    let writing = tokio::spawn(async move {
        write(&sending, &ending).await;
        drop(when_closed);
    });
    read(&gateway, &client, &arrival, &mut reader, &closed).await;
    gateway.dispatcher.hub.remove(&client);
    gateway.dispatcher.metrics.clients.dec();
    handlers::disconnected(&gateway, &client).await;
    // All pending messages are sent, including a last close frame, unless the client does not read.
    out.finish();
    let abort = writing.abort_handle();
    if tokio::time::timeout(LAST_WORDS, writing).await.is_err() {
        abort.abort();
        out.give_up();
    }
}

/// Sends the challenge and handles `connect`. The error is the end of the connection.
async fn greet<S>(
    gateway: &Arc<Gateway>,
    arrival: &Arrival,
    reader: &mut SocketReader<S>,
    writer: &mut SocketWriter<S>,
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
        reader.too_large();
        return Err(Close::too_large());
    }
    let request = match Request::parse(&text) {
        Ok(request) => request,
        Err(BadFrame::NotJson) => return Err(gone()),
        Err(bad @ BadFrame::DuplicateKey { .. }) => {
            if let Some(response) = bad.response() {
                writer.send(response.to_text().into()).await;
            }
            return Err(Close::invalid_request_frame());
        }
        Err(BadFrame::NotFrame { .. }) => return Err(Close::invalid_request_frame()),
    };
    let id = request.id.clone();
    let greeted = async {
        if request.method != "connect" {
            return Err(Turned::from(&refusal::FIRST_REQUEST_NOT_CONNECT));
        }
        let connect: Connect = request.read().map_err(Turned::from)?;
        let (gateway, arrival) = (Arc::clone(gateway), arrival.clone());
        let standing = arrival.standing().await;
        let checked = blocking(move || {
            let checked = handshake::check(&gateway, &arrival, &standing, &connect, &nonce);
            checked.map(|welcome| (connect, welcome))
        })
        .await;
        checked.unwrap_or_else(|_| Err(Turned(refusal::starting(), Close::restart())))
    };
    match greeted.await {
        Ok((connect, welcome)) => Ok((connect, welcome, id)),
        Err(Turned(error, close)) => {
            let address = match arrival.peer {
                Peer::Network(_) => arrival.peer.address().to_string(),
                Peer::Local(_) => "unix socket".to_owned(),
            };
            gateway.refused.note_connect(&error, &address);
            tracing::info!(%error, peer = ?arrival.peer, "not let in");
            writer
                .send(Response::failed(id, error).to_text().into())
                .await;
            Err(close)
        }
    }
}

fn known(arrival: &Arrival, connect: &Connect, welcome: &Welcome) -> KnownClient {
    let mut program = connect.client.clone();
    if let Some(name) = &welcome.name {
        program.display_name = Some(name.clone());
    }
    KnownClient {
        connection: uuid::Uuid::new_v4().to_string(),
        role: welcome.role,
        token_id: welcome.token_id.clone(),
        scopes: welcome.scopes.clone(),
        device: welcome.device.clone(),
        program,
        caps: connect.caps.clone().unwrap_or_default(),
        commands: connect.commands.clone().unwrap_or_default(),
        permissions: connect.permissions.clone().unwrap_or_default(),
        path_env: connect.path_env.clone(),
        address: match arrival.peer {
            Peer::Network(_) => Some(arrival.peer.address()),
            Peer::Local(_) => None,
        },
        connected_at_ms: now_ms(),
    }
}

fn hello(gateway: &Gateway, client: &Client, welcome: &Welcome, id: &str) -> Response {
    let is_admin = client.scopes.allow(OperatorScope::Admin);
    let for_admins = |text: String| is_admin.then_some(text);
    let (token, issued_at_ms) = welcome.token.clone().unzip();
    let usual_agent = gateway.dispatcher.default_agent();
    let hello = HelloOk {
        kind: HelloKind::HelloOk,
        protocol: welcome.protocol,
        server: ServerInfo {
            version: gateway.version.to_owned(),
            conn_id: client.connection.clone(),
            product: Some(INTERLOCK.to_owned()),
        },
        features: Features {
            methods: method::METHODS
                .iter()
                .map(|method| method.name.to_owned())
                .collect(),
            events: event::names(),
        },
        snapshot: HelloSnapshot {
            // Nodes have no use for it, and no right to know the other clients.
            presence: match client.role {
                Role::Operator => handlers::presence(gateway)
                    .iter()
                    .map(|one| serde_json::json!(one))
                    .collect(),
                Role::Node => Vec::new(),
            },
            health: serde_json::json!(handlers::health(gateway)),
            state_version: gateway.dispatcher.state_version(),
            uptime_ms: now_ms().saturating_sub(gateway.dispatcher.started_at_ms),
            session_defaults: Some(SessionDefaults {
                main_key: "main".to_owned(),
                main_session_key: interlock_approvals::usual_session_key(&usual_agent),
                default_agent_id: usual_agent,
                scope: Some("per-sender".to_owned()),
            }),
            config_path: for_admins(gateway.dispatcher.host.config_path().display().to_string()),
            state_dir: for_admins(gateway.dispatcher.host.state_dir().display().to_string()),
            auth_mode: for_admins(gateway.access.mode().to_string()),
        },
        plugin_surface_urls: None,
        auth: HelloAuth {
            role: client.role.to_string(),
            scopes: client.scopes.names(),
            device_token: token,
            issued_at_ms,
        },
        policy: ConnectionLimits {
            tick_interval_ms: gateway.tick_ms,
            ..ConnectionLimits::default()
        },
    };
    Response::success(id, &hello)
}

/// Reads until the client disconnects, breaks the rules, or the gateway stops.
async fn read<S>(
    gateway: &Arc<Gateway>,
    client: &Arc<Client>,
    arrival: &Arrival,
    reader: &mut SocketReader<S>,
    closed: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let places = Arc::new(Semaphore::new(MAX_AT_WORK));
    let waits = Arc::new(Semaphore::new(MAX_WAITS));
    let mut unauthorized = 0;
    loop {
        let next = tokio::select! {
            next = next(gateway, client, reader, &places) => next,
            () = gateway.dispatcher.stop.cancelled() => {
                handlers::say_goodbye(gateway, client);
                Err(Close::restart())
            }
            () = closed.cancelled() => return,
        };
        let (place, received) = match next {
            Ok(next) => next,
            Err(close) => return client.close(close),
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
            if is_deciding(&request.method) {
                let named = named_approval(&request);
                let refused = &gateway.refused;
                refused.note_call(client, &request.method, &error, named.as_deref());
            }
            client.answer(&Response::failed(&request.id, error));
            if unauthorized >= MAX_UNAUTHORIZED_CALLS {
                return client.close(Close::repeated_unauthorized());
            }
            continue;
        }
        unauthorized = 0;
        // A request that mostly waits must not prevent other requests from being read.
        let place = if text.len() <= MAX_WAITING_BYTES && handlers::waits(&request.method) {
            match Arc::clone(&waits).try_acquire_owned() {
                Ok(wait) => wait,
                Err(_) => {
                    client.answer(&Response::failed(&request.id, too_many_wait()));
                    continue;
                }
            }
        } else {
            place
        };
        let (gateway, client) = (Arc::clone(gateway), Arc::clone(client));
        let arrival = arrival.clone();
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = may_still_act(&client, &arrival).await {
                gateway
                    .refused
                    .note_call(&client, &request.method, &error, None);
                return client.answer(&Response::failed(&request.id, error));
            }
            if let Some(response) = handlers::call(&gateway, &client, &request).await {
                client.answer(&response);
            }
        });
    }
}

/// Checks that no run holds an operator's connection by now. Connections can be passed on.
async fn may_still_act(client: &Client, arrival: &Arrival) -> Result<(), WireError> {
    if client.role != Role::Operator {
        return Ok(());
    }
    let refused = handshake::refused_standing(&arrival.standing().await, client.role);
    let Some(error) = refused else {
        return Ok(());
    };
    if matches!(arrival.standing().await, PeerStanding::Run(_)) {
        client.close(Close::policy(error.message.clone()));
    }
    Err(error)
}

fn too_many_wait() -> WireError {
    let message = format!("{MAX_WAITS} calls of this connection wait for an end already");
    WireError::unavailable(message).with("reason", "TOO_MANY_CALLS")
}

/// The next message, once there is a place to handle it and the client reads its answers. The error
/// is the end of a client that does not read, or that shows no sign of life.
async fn next<S>(
    gateway: &Gateway,
    client: &Client,
    reader: &mut SocketReader<S>,
    places: &Arc<Semaphore>,
) -> Result<(OwnedSemaphorePermit, Received), Close>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let place = Arc::clone(places).acquire_owned().await;
    let place = place.map_err(|_| Close::restart())?;
    let patience = gateway.ping_interval().saturating_add(SILENCE);
    let room = tokio::time::timeout(patience, async {
        while client.buffered_bytes() > MAX_UNREAD {
            tokio::time::sleep(LOOK).await;
        }
    });
    room.await.map_err(|_| Close::slow_consumer())?;
    let look = gateway.ping_interval() / 2;
    loop {
        // Received data is read first: a client must not be disconnected because this gateway was
        // busy.
        if let Ok(received) = tokio::time::timeout(look, reader.next()).await {
            return Ok((place, received));
        }
        if client.silence(now_ms()) > patience {
            return Err(Close::tick_timeout());
        }
    }
}

/// Sends pending messages, until the connection has to close or the client does not read.
async fn write(out: &Outbox, ending: &CancellationToken) {
    let too_long = async {
        ending.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    // A client that reads nothing would delay the end forever.
    tokio::select! {
        () = out.run() => {}
        () = too_long => {}
    }
    out.give_up();
}
