//! The gateway, as the command line calls it, one request after the other: that of this state directory
//! over its Unix socket, or the one that `gateway.remote` names.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use interlock_arguments::StateArguments;
use interlock_console::Failure;
use interlock_console::output::visible;
use interlock_gateway::GatewayInfo;
use interlock_host::LocalHost;
use interlock_wire::Connect;
use interlock_wire::hello::Challenge;
use interlock_wire::params::{Auth, Params};
use interlock_wire::results::Relayed;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Message, WebSocket};

use crate::{Absent, RemoteGateway, join, outside_runs};

/// How long the gateway may take for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(15);

/// The longest answer.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// The code of a connection that is gone.
const LOST: &str = "GATEWAY_UNREACHABLE";

/// All that an operator may do: who reaches the socket is the owner.
const SCOPES: &[&str] = &[
    "operator.admin",
    "operator.approvals",
    "operator.pairing",
    "operator.read",
    "operator.write",
];

#[derive(Debug)]
pub struct GatewayClient {
    socket: WebSocket<Patient>,
    last: u64,
    /// What the gateway calls this connection.
    connection: String,
    /// The address of a gateway elsewhere, which keeps its approvals there.
    remote_url: Option<String>,
}

/// Reads and writes again when a signal came between: with a time limit, even a stop and a
/// continuation do.
#[derive(Debug)]
struct Patient(UnixStream);

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        again(|| self.0.read(into))
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        again(|| self.0.write(bytes))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

fn again<T>(mut attempt: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Why a call was not answered as hoped.
#[derive(Debug)]
pub struct CallFailure {
    /// What programs decide by, if the gateway said it.
    pub detail: Option<String>,
    pub message: String,
    remedy: Option<String>,
    /// The request that an operator has to approve before this device may connect.
    pairing_request: Option<String>,
}

impl CallFailure {
    /// The connection is gone, or gave no answer in time.
    pub fn is_lost(&self) -> bool {
        self.detail.as_deref() == Some(LOST)
    }

    /// With the code that the gateway said, where a command of this machine has the same codes.
    pub fn into_reported(self) -> Failure {
        match self.detail {
            Some(code) => Failure::Reported {
                code,
                message: visible(&self.message),
                hint: self.remedy.as_deref().map(visible),
                denial: None,
            },
            None => self.into(),
        }
    }

    /// The node or the gateway does not know what was asked.
    pub fn is_unsupported(&self) -> bool {
        self.detail.as_deref() == Some("NODE_UNSUPPORTED")
            || self.message.contains("unknown method")
            || self.message.contains("command not supported")
    }
}

impl From<CallFailure> for Failure {
    fn from(failure: CallFailure) -> Self {
        let message = match &failure.detail {
            Some(detail) if !failure.message.contains(detail.as_str()) => {
                format!("{} ({detail})", failure.message)
            }
            _ => failure.message,
        };
        let refused = Failure::refused("GATEWAY_REFUSED", message);
        if let Some(request) = failure.pairing_request {
            let approve = format!("interlock devices approve {request}");
            return refused.with_hint(format!("on the machine of the gateway: {approve}"));
        }
        match failure.remedy {
            Some(remedy) => refused.with_hint(remedy),
            None => refused,
        }
    }
}

impl GatewayClient {
    /// Connects as the owner of the state directory. Where no gateway runs, one is started, unless
    /// the caller does not want that.
    pub fn connect(state: &StateArguments, host: &LocalHost) -> Result<Self, Failure> {
        match RemoteGateway::followed(state, host)? {
            Some(remote) => Self::connect_remote(host.state_dir(), &remote),
            None => Self::connect_to(&join(state, host, Absent::wanted(state))?),
        }
    }

    /// For commands that have nothing to ask a gateway that has just started.
    pub fn connect_running(state: &StateArguments, host: &LocalHost) -> Result<Self, Failure> {
        match RemoteGateway::followed(state, host)? {
            Some(remote) => Self::connect_remote(host.state_dir(), &remote),
            None => Self::connect_to(&join(state, host, Absent::Refuse)?),
        }
    }

    fn connect_to(info: &GatewayInfo) -> Result<Self, Failure> {
        let path = &info.socket;
        let stream = UnixStream::connect(path).map_err(|error| {
            let message = format!("{}: {error}", path.display());
            Failure::refused("GATEWAY_UNREACHABLE", message)
        })?;
        Self::introduce(stream, "ws://localhost/", None, |_| Ok(connect_params()))
    }

    /// As an operator, by the key of this device and the token or password of the gateway. A run is no
    /// operator, and a gateway elsewhere could not tell that it is one.
    pub fn connect_remote(state_dir: &Path, remote: &RemoteGateway) -> Result<Self, Failure> {
        outside_runs(state_dir)?;
        let identity = interlock_node::identity(state_dir)
            .map_err(|error| Failure::refused(error.code(), error.to_string()))?;
        let url = remote.target.url().replacen("wss://", "ws://", 1);
        let connect = |client: &mut Self| {
            let challenge = client.challenge()?;
            let mut connect: Connect = serde_json::from_value(connect_params())
                .map_err(|error| Failure::refused("GATEWAY_REFUSED", error.to_string()))?;
            connect.auth = Some(Auth {
                token: remote.token.clone(),
                password: remote.password.clone(),
                ..Auth::default()
            });
            identity.prove(&mut connect, &challenge.nonce, challenge.ts);
            serde_json::to_value(&connect)
                .map_err(|error| Failure::refused("GATEWAY_REFUSED", error.to_string()))
        };
        Self::introduce(remote.open()?, &url, Some(remote.target.url()), connect)
    }

    /// The address of a gateway elsewhere; its approvals are those of its machine.
    pub fn remote_url(&self) -> Option<&str> {
        self.remote_url.as_deref()
    }

    /// Has each call fail that takes longer: for callers that a person waits for.
    pub fn limit_calls(&self, time: Duration) -> Result<(), Failure> {
        let Patient(stream) = self.socket.get_ref();
        stream
            .set_read_timeout(Some(time))
            .map_err(|error| Failure::refused("GATEWAY_UNREACHABLE", error.to_string()))
    }

    fn introduce(
        stream: UnixStream,
        url: &str,
        remote_url: Option<String>,
        params: impl FnOnce(&mut Self) -> Result<Value, Failure>,
    ) -> Result<Self, Failure> {
        let unreachable =
            |what: String| Failure::refused("GATEWAY_UNREACHABLE", format!("the gateway: {what}"));
        stream
            .set_read_timeout(Some(HANDSHAKE))
            .map_err(|error| unreachable(error.to_string()))?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE))
            .max_frame_size(Some(MAX_MESSAGE));
        let opened = tungstenite::client::client_with_config(url, Patient(stream), Some(config));
        let (socket, _) = opened.map_err(|error| unreachable(error.to_string()))?;
        let mut client = Self {
            socket,
            last: 0,
            connection: String::new(),
            remote_url,
        };
        let params = params(&mut client)?;
        let hello = client.call("connect", &params)?;
        let greeting: Greeting =
            serde_json::from_value(hello).map_err(|error| unreadable("connect", &error))?;
        client.connection = greeting.server.conn_id;
        // An answer may take as long as what it is about.
        let Patient(stream) = client.socket.get_ref();
        stream
            .set_read_timeout(None)
            .map_err(|error| unreachable(error.to_string()))?;
        Ok(client)
    }

    /// The first message of a gateway to a client over the network.
    fn challenge(&mut self) -> Result<Challenge, Failure> {
        loop {
            let frame = self.next()?;
            if frame.event.as_deref() == Some("connect.challenge") {
                let challenge = serde_json::from_value(frame.payload);
                return challenge.map_err(|error| {
                    Failure::refused("GATEWAY_UNREACHABLE", format!("its challenge: {error}"))
                });
            }
        }
    }

    /// The name under which this connection asks: approvals that it causes have it.
    pub fn requester(&self) -> String {
        format!("ws:{}", self.connection)
    }

    /// Calls a method and reads its result.
    pub fn request<P: Params>(&mut self, params: &P) -> Result<P::Answer, CallFailure> {
        read_result::<P>(self.request_json(params)?)
    }

    /// Calls a method for a command that prints the result as it came: a gateway of another version
    /// may say more than is known here.
    pub fn request_json<P: Params>(&mut self, params: &P) -> Result<Value, CallFailure> {
        let params = serde_json::to_value(params).map_err(|error| unreadable(P::METHOD, &error))?;
        self.call(P::METHOD, &params)
    }

    /// Calls a method and waits for its final answer.
    pub fn call(&mut self, method: &str, params: &Value) -> Result<Value, CallFailure> {
        let id = self.send(method, params)?;
        loop {
            let frame = self.next()?;
            if let Some(answer) = answer(frame, &id) {
                return answer;
            }
        }
    }

    /// Calls a method that subscribes to events, and hears them until `hear` wants no more.
    pub fn subscribe<P: Params>(
        &mut self,
        params: &P,
        mut hear: impl FnMut(&str, &Value) -> bool,
    ) -> Result<(), CallFailure> {
        let params = serde_json::to_value(params).map_err(|error| unreadable(P::METHOD, &error))?;
        let id = self.send(P::METHOD, &params)?;
        loop {
            let frame = self.next()?;
            if frame.kind == "event" {
                let name = frame.event.as_deref().unwrap_or_default();
                if !hear(name, &frame.payload) {
                    return Ok(());
                }
            } else if let Some(Err(refused)) = answer(frame, &id) {
                return Err(refused);
            }
        }
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<String, CallFailure> {
        self.last += 1;
        let id = self.last.to_string();
        let request = json!({ "type": "req", "id": id, "method": method, "params": params });
        let request = Message::text(request.to_string());
        self.socket.send(request).map_err(|error| gone(&error))?;
        Ok(id)
    }

    fn next(&mut self) -> Result<IncomingFrame, CallFailure> {
        loop {
            let Message::Text(text) = self.socket.read().map_err(|error| gone(&error))? else {
                continue;
            };
            if let Ok(frame) = serde_json::from_str(&text) {
                return Ok(frame);
            }
        }
    }
}

fn gone(error: &tungstenite::Error) -> CallFailure {
    CallFailure {
        detail: Some(LOST.to_owned()),
        message: format!("the gateway does not answer: {error}"),
        remedy: None,
        pairing_request: None,
    }
}

/// The result of a method that came as JSON.
pub fn read_result<P: Params>(result: Value) -> Result<P::Answer, CallFailure> {
    serde_json::from_value(result).map_err(|error| unreadable(P::METHOD, &error))
}

/// What is known of a result that the gateway handed on.
pub fn read_relayed<P, T>(result: &Relayed<T>) -> Result<T, CallFailure>
where
    P: Params<Answer = Relayed<T>>,
    T: DeserializeOwned,
{
    result.read().map_err(|error| unreadable(P::METHOD, &error))
}

/// The gateway is of another version, or another program, and its result is of another shape.
fn unreadable(method: &str, error: &serde_json::Error) -> CallFailure {
    CallFailure {
        detail: None,
        message: format!("the result of {method} cannot be read: {error}"),
        remedy: None,
        pairing_request: None,
    }
}

/// A message of the gateway, as far as it is known here: a gateway of another version may say more.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IncomingFrame {
    #[serde(rename = "type")]
    kind: Value,
    id: Value,
    ok: Value,
    event: Option<String>,
    payload: Value,
    error: Option<IncomingError>,
}

/// The error of a response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IncomingError {
    message: Value,
    details: Value,
}

impl IncomingError {
    fn detail(&self, name: &str) -> Option<String> {
        self.details.get(name)?.as_str().map(str::to_owned)
    }
}

/// What of `hello-ok` is used here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Greeting {
    server: GreetingServer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GreetingServer {
    conn_id: String,
}

/// The final answer to a request, if this is it.
fn answer(frame: IncomingFrame, id: &str) -> Option<Result<Value, CallFailure>> {
    let status = frame.payload.get("status");
    let is_accepted = status.is_some_and(|status| status == "accepted");
    if frame.kind != "res" || frame.id != id || is_accepted {
        return None;
    }
    if frame.ok == true {
        return Some(Ok(frame.payload));
    }
    let error = frame.error.unwrap_or_default();
    let code = error.detail("code");
    let needs_pairing = code.as_deref() == Some("PAIRING_REQUIRED");
    Some(Err(CallFailure {
        detail: code.or_else(|| error.detail("reason")),
        remedy: error.detail("remediation"),
        pairing_request: error.detail("requestId").filter(|_| needs_pairing),
        message: error.message.as_str().unwrap_or("refused").to_owned(),
    }))
}

fn connect_params() -> Value {
    json!({
        "minProtocol": 4,
        "maxProtocol": 4,
        "client": {
            "id": "gateway-client",
            "displayName": "interlock",
            "version": env!("CARGO_PKG_VERSION"),
            "platform": std::env::consts::OS,
            "mode": "backend",
        },
        "role": "operator",
        "scopes": SCOPES,
        "caps": [],
    })
}
