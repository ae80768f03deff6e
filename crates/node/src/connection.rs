//! One connection to the gateway: from the challenge to its end.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use interlock_tls::Trust;
use interlock_wire::event::{
    NODE_INVOKE_REQUEST, NODE_PAIR_REQUESTED, NODE_PAIR_RESOLVED, SHUTDOWN,
};
use interlock_wire::frame::MAX_FRAME_BYTES;
use interlock_wire::hello::{Challenge, HANDSHAKE_TIMEOUT_MS, TICK_INTERVAL_MS};
use interlock_wire::identity::DeviceIdentity;
use interlock_wire::node::extension::INTERLOCK;
use interlock_wire::{
    Close, Connect, ErrorCode, Event, Frame, Request, Response, Secret, WireError,
};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_util::sync::CancellationToken;

use crate::target::{GatewayTarget, TargetError};
use crate::uplink::Uplink;

/// How long it may take to open a connection.
const DIAL_TIME: Duration = Duration::from_secs(10);
const HANDSHAKE_TIME: Duration = Duration::from_millis(HANDSHAKE_TIMEOUT_MS);
/// How long the other side may take to receive a message.
const SEND_TIME: Duration = Duration::from_secs(30);
/// The bounds of a gateway's tick interval: a node must not check more often, nor hardly ever.
const SHORTEST_TICK: Duration = Duration::from_millis(50);
const LONGEST_TICK: Duration = Duration::from_mins(10);
/// How much of a failed HTTP answer is shown.
const SHOWN_BYTES: usize = 300;
/// The close frame of a client that received nothing for too long.
const TICK_TIMEOUT: (u16, &str) = (4000, "tick timeout");

/// A connection to a gateway, encrypted or not.
pub trait GatewayStream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> GatewayStream for S {}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{0}")]
    Unreachable(String),
    #[error("{}", .0.message)]
    Refused(Box<WireError>),
}

impl ConnectError {
    fn unreachable(error: impl std::fmt::Display) -> Self {
        Self::Unreachable(error.to_string())
    }
}

/// A connection to a gateway that has welcomed this node.
pub(crate) struct GatewayConnection {
    socket: WebSocketStream<Box<dyn GatewayStream>>,
    pub(crate) hello: GatewayHello,
}

impl std::fmt::Debug for GatewayConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayConnection")
            .field("hello", &self.hello)
            .finish_non_exhaustive()
    }
}

/// The used part of a welcome. Gateways of all versions send it, and more.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewayHello {
    pub(crate) server: HelloServer,
    #[serde(default)]
    pub(crate) auth: GatewayHelloAuth,
    #[serde(default)]
    policy: HelloPolicy,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct HelloServer {
    pub(crate) version: String,
    #[serde(default)]
    product: Option<String>,
}

impl GatewayHello {
    /// Whether the gateway knows the Interlock extension of the protocol.
    pub(crate) fn is_interlock(&self) -> bool {
        self.server.product.as_deref() == Some(INTERLOCK)
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct GatewayHelloAuth {
    pub(crate) scopes: Vec<String>,
    pub(crate) device_token: Option<Secret>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct HelloPolicy {
    tick_interval_ms: u64,
}

impl Default for HelloPolicy {
    fn default() -> Self {
        Self {
            tick_interval_ms: TICK_INTERVAL_MS,
        }
    }
}

impl HelloPolicy {
    /// How long a gateway may be silent: two ticks.
    fn patience(&self) -> Duration {
        let tick = Duration::from_millis(self.tick_interval_ms);
        tick.clamp(SHORTEST_TICK, LONGEST_TICK) * 2
    }
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    Stopped,
    /// Another connection of this device has taken over. Reconnecting would only take over from it
    /// again.
    TakenOver,
    Lost(String),
}

impl GatewayConnection {
    /// Connects and introduces this node. Signs `connect` with the nonce of the challenge.
    pub(crate) async fn open(
        target: &GatewayTarget,
        mut connect: Connect,
        identity: &DeviceIdentity,
    ) -> Result<Self, ConnectError> {
        let dialed = timeout(DIAL_TIME, dial(target)).await;
        let mut socket = dialed
            .map_err(|_| ConnectError::unreachable("no answer"))?
            .map_err(ConnectError::unreachable)?;
        let until = Instant::now() + HANDSHAKE_TIME;
        let challenge = timeout_at(until, challenge(&mut socket)).await;
        let challenge = challenge.map_err(|_| ConnectError::unreachable("no challenge"))??;
        // The signature uses the gateway's own time, so that a wrong clock of the node does not
        // matter.
        identity.prove(&mut connect, &challenge.nonce, challenge.ts);
        let id = uuid::Uuid::new_v4().to_string();
        let request = Request::new(&id, &connect).map_err(ConnectError::unreachable)?;
        let answered = timeout_at(until, async {
            let sent = socket.send(Message::text(request.to_text())).await;
            sent.map_err(ConnectError::unreachable)?;
            answer(&mut socket, &id).await
        });
        let response = answered
            .await
            .map_err(|_| ConnectError::unreachable("no welcome"))??;
        if let Some(error) = response.error {
            return Err(ConnectError::Refused(Box::new(error)));
        }
        let payload = response.payload.filter(|_| response.ok);
        let payload = payload.ok_or_else(|| ConnectError::unreachable("an empty welcome"))?;
        let hello = serde_json::from_str(payload.get());
        let hello =
            hello.map_err(|error| ConnectError::Unreachable(format!("welcome: {error}")))?;
        Ok(Self { socket, hello })
    }

    /// Serves until the connection ends: forwards events for this node, writes answers, and detects
    /// a gateway that is silent for two ticks.
    pub(crate) async fn serve(
        mut self,
        uplink: &Uplink,
        stop: &CancellationToken,
        hear: impl Fn(&Event),
    ) -> ConnectionEnd {
        let patience = self.hello.policy.patience();
        let mut calls = uplink.attach(self.hello.is_interlock());
        let mut waiting: HashMap<String, oneshot::Sender<Response>> = HashMap::new();
        let mut heard = Instant::now();
        let end = loop {
            tokio::select! {
                message = self.socket.next() => {
                    heard = Instant::now();
                    match message {
                        Some(Ok(Message::Text(text))) => read(&text, &mut waiting, &hear),
                        // The socket itself answers pings.
                        Some(Ok(Message::Close(Some(frame))))
                            if u16::from(frame.code) == Close::TAKEN_OVER =>
                        {
                            break ConnectionEnd::TakenOver;
                        }
                        Some(Ok(Message::Close(frame))) => break ConnectionEnd::Lost(closed(frame)),
                        Some(Ok(_)) => {}
                        Some(Err(error)) => break ConnectionEnd::Lost(error.to_string()),
                        None => break ConnectionEnd::Lost("the connection ended".to_owned()),
                    }
                }
                Some(call) = calls.recv() => {
                    // Calls that were given up no longer need an answer.
                    waiting.retain(|_, answer| !answer.is_closed());
                    let text = call.request.to_text();
                    waiting.insert(call.request.id, call.answer);
                    match timeout(SEND_TIME, self.socket.send(Message::text(text))).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => break ConnectionEnd::Lost(error.to_string()),
                        Err(_) => break ConnectionEnd::Lost("the gateway receives nothing".to_owned()),
                    }
                }
                () = tokio::time::sleep_until(heard + patience) => {
                    let (code, reason) = TICK_TIMEOUT;
                    self.close(code, reason).await;
                    let silence = patience.as_millis();
                    break ConnectionEnd::Lost(format!("nothing was heard for {silence} ms"));
                }
                () = stop.cancelled() => {
                    self.close(Close::NORMAL, "node stopped").await;
                    break ConnectionEnd::Stopped;
                }
            }
        };
        uplink.detach();
        end
    }

    async fn close(&mut self, code: u16, reason: &'static str) {
        let frame = CloseFrame {
            code: CloseCode::from(code),
            reason: reason.into(),
        };
        let _ = timeout(Duration::from_secs(1), self.socket.close(Some(frame))).await;
    }
}

fn closed(frame: Option<CloseFrame>) -> String {
    match frame {
        Some(frame) => format!("closed with {} {}", u16::from(frame.code), frame.reason),
        None => "closed".to_owned(),
    }
}

/// Handles a message. Unknown messages are ignored, because gateways send more than a node needs.
fn read(
    text: &str,
    waiting: &mut HashMap<String, oneshot::Sender<Response>>,
    hear: &impl Fn(&Event),
) {
    match Frame::parse(text) {
        Ok(Frame::Response(response)) if response.is_accepted() => {}
        Ok(Frame::Response(response)) => {
            if let Some(answer) = waiting.remove(&response.id) {
                let _ = answer.send(response);
            }
        }
        Ok(Frame::Event(event)) => match event.event.as_str() {
            NODE_INVOKE_REQUEST | NODE_PAIR_REQUESTED | NODE_PAIR_RESOLVED => hear(&event),
            SHUTDOWN => tracing::info!("the gateway goes away"),
            _ => {}
        },
        Ok(Frame::Request(_)) => {}
        Err(error) => tracing::debug!(%error, "a message was passed over"),
    }
}

/// Connects to the first address of the gateway that answers, among those that are permitted.
async fn reach(target: &GatewayTarget) -> io::Result<TcpStream> {
    let away = |error: TargetError| io::Error::other(format!("{error}; {}", error.remedy()));
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for address in tokio::net::lookup_host((target.host.as_str(), target.port)).await? {
        if let Err(error) = target.check_reached(address.ip()) {
            failed = away(error);
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => {
                target
                    .check_reached(stream.peer_addr()?.ip())
                    .map_err(away)?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Connects to a gateway: with the pinned certificate, or in plain text where that is permitted.
/// Nothing is sent anywhere else.
pub async fn open_stream(target: &GatewayTarget) -> io::Result<Box<dyn GatewayStream>> {
    let stream = reach(target).await?;
    stream.set_nodelay(true)?;
    Ok(match target.tls {
        Some(fingerprint) => {
            let secured = interlock_tls::connect(stream, &target.host, Trust::Pinned(fingerprint));
            Box::new(secured.await.map_err(io::Error::other)?)
        }
        None => Box::new(stream),
    })
}

async fn dial(target: &GatewayTarget) -> io::Result<WebSocketStream<Box<dyn GatewayStream>>> {
    let stream = open_stream(target).await?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME_BYTES))
        .max_frame_size(Some(MAX_FRAME_BYTES))
        .read_buffer_size(8 * 1024)
        .write_buffer_size(0);
    let opened =
        tokio_tungstenite::client_async_with_config(target.url(), stream, Some(config)).await;
    opened
        .map(|(socket, _)| socket)
        .map_err(|error| match error {
            tungstenite::Error::Http(answer) => io::Error::other(said(&answer)),
            error => io::Error::other(error),
        })
}

/// The reply of a server that does not switch to WebSocket.
fn said(answer: &tungstenite::http::Response<Option<Vec<u8>>>) -> String {
    let body = answer.body().as_deref().unwrap_or_default();
    let body = String::from_utf8_lossy(&body[..body.len().min(SHOWN_BYTES)]);
    let body: String = body
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    format!("it answers {}: {}", answer.status(), body.trim())
}

async fn challenge(
    socket: &mut WebSocketStream<Box<dyn GatewayStream>>,
) -> Result<Challenge, ConnectError> {
    loop {
        if let Frame::Event(event) = frame(socket).await?
            && event.event == "connect.challenge"
            && let Some(payload) = event.payload
        {
            let challenge = serde_json::from_str(payload.get());
            return challenge
                .map_err(|error| ConnectError::Unreachable(format!("challenge: {error}")));
        }
    }
}

async fn answer(
    socket: &mut WebSocketStream<Box<dyn GatewayStream>>,
    id: &str,
) -> Result<Response, ConnectError> {
    loop {
        match frame(socket).await? {
            Frame::Response(response) if response.id == id && !response.is_accepted() => {
                return Ok(response);
            }
            _ => {}
        }
    }
}

async fn frame(
    socket: &mut WebSocketStream<Box<dyn GatewayStream>>,
) -> Result<Frame, ConnectError> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => {
                return Frame::parse(&text).map_err(ConnectError::unreachable);
            }
            Some(Ok(Message::Close(frame))) => {
                return Err(ConnectError::Unreachable(closed(frame)));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(ConnectError::unreachable(error)),
            None => return Err(ConnectError::unreachable("the connection ended")),
        }
    }
}

/// Whether the gateway would accept the device's token in place of the presented secret.
pub(crate) fn wants_device_token(error: &WireError) -> bool {
    let told = error.detail("canRetryWithDeviceToken");
    told.is_some_and(|told| told == true)
}

/// The meaning of a refusal for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GatewayRefusal {
    /// The operator of the gateway has to approve this device.
    Pairing { request_id: Option<String> },
    /// The next attempt would be refused in the same way.
    Final,
    /// A later attempt may succeed.
    Later(Option<Duration>),
}

/// Handshake refusals that are temporary, although they have the code of final ones.
const PASSING: &[&str] = &["AUTH_RATE_LIMITED", "DEVICE_AUTH_NONCE_MISMATCH"];

impl GatewayRefusal {
    pub(crate) fn of(error: &WireError) -> Self {
        let detail = error.detail_code();
        if detail == Some("PAIRING_REQUIRED") {
            let request_id = error.detail("requestId").and_then(|id| id.as_str());
            return Self::Pairing {
                request_id: request_id.map(str::to_owned),
            };
        }
        let is_final =
            error.code == ErrorCode::INVALID_REQUEST || error.code == ErrorCode::NOT_PAIRED;
        if is_final && !detail.is_some_and(|detail| PASSING.contains(&detail)) {
            return Self::Final;
        }
        Self::Later(error.retry_after_ms.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_gateway_is_noticed_whatever_it_said_of_its_ticks() {
        for (tick_interval_ms, milliseconds) in [
            (0, 100),
            (30_000, 60_000),
            (86_400_000_000, 1_200_000),
            (u64::MAX, 1_200_000),
        ] {
            let patience = HelloPolicy { tick_interval_ms }.patience();
            assert_eq!(patience.as_millis(), milliseconds);
        }
    }
}
