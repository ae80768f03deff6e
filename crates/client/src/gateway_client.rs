//! A client of the gateway for commands, which sends one request at a time: to the gateway of this
//! state directory over its Unix socket, or to the remote gateway that `gateway.remote` names.

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

/// The longest message that the client accepts.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// The error code of a lost connection.
const LOST: &str = "GATEWAY_UNREACHABLE";

/// All scopes of an operator. Only the owner can reach the socket.
const SCOPES: &[&str] = &[
    "operator.admin",
    "operator.approvals",
    "operator.pairing",
    "operator.read",
    "operator.write",
];

#[derive(Debug)]
pub struct GatewayClient {
    socket: WebSocket<RetryingStream>,
    last: u64,
    /// The id that the gateway gave to this connection.
    connection: String,
    /// The address of a remote gateway, whose approvals are on its machine.
    remote_url: Option<String>,
}

/// A stream that repeats a read or write that a signal interrupted. On a socket with a timeout,
/// even a stop and continue of the process interrupts a read.
#[derive(Debug)]
struct RetryingStream(UnixStream);

impl Read for RetryingStream {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        again(|| self.0.read(into))
    }
}

impl Write for RetryingStream {
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

/// Why a call failed.
#[derive(Debug)]
pub struct CallFailure {
    /// The error code, if the gateway sent one.
    pub detail: Option<String>,
    pub message: String,
    remedy: Option<String>,
    /// The request that an operator has to approve before this device may connect.
    pairing_request: Option<String>,
}

impl CallFailure {
    /// Whether the connection broke or no answer came in time.
    pub fn is_lost(&self) -> bool {
        self.detail.as_deref() == Some(LOST)
    }

    /// The failure with the code that the gateway sent, for commands that use the same codes on
    /// this machine.
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

    /// Whether the node or the gateway does not know the method or command.
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
    /// Connects as the owner of the state directory, or to the remote gateway that the owner
    /// follows. If no gateway runs, one is started, unless `--no-spawn` is given.
    pub fn connect(state: &StateArguments, host: &LocalHost) -> Result<Self, Failure> {
        match RemoteGateway::followed(state, host)? {
            Some(remote) => Self::connect_remote(host.state_dir(), &remote),
            None => Self::connect_to(&join(state, host, Absent::wanted(state))?),
        }
    }

    /// Like [`Self::connect`], but starts no gateway: a gateway that has just started would have
    /// nothing to answer.
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

    /// Connects to a remote gateway as an operator, with the key of this device and the token or
    /// password of the gateway. A run must not act as an operator, and a remote gateway cannot see
    /// that the caller is a run, so runs are refused here.
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

    /// The address of a remote gateway; `None` for the gateway of this machine.
    pub fn remote_url(&self) -> Option<&str> {
        self.remote_url.as_deref()
    }

    /// Limits how long each call may wait for an answer, for commands that must stay responsive.
    pub fn limit_calls(&self, time: Duration) -> Result<(), Failure> {
        let RetryingStream(stream) = self.socket.get_ref();
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
        let opened =
            tungstenite::client::client_with_config(url, RetryingStream(stream), Some(config));
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
        // A call may take as long as the run that it waits for.
        let RetryingStream(stream) = client.socket.get_ref();
        stream
            .set_read_timeout(None)
            .map_err(|error| unreachable(error.to_string()))?;
        Ok(client)
    }

    /// Reads the challenge, the first message of a gateway to a client over the network.
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

    /// The requester that the gateway records in approvals of this connection's calls.
    pub fn requester(&self) -> String {
        format!("ws:{}", self.connection)
    }

    /// Calls a method and reads its result.
    pub fn request<P: Params>(&mut self, params: &P) -> Result<P::Answer, CallFailure> {
        read_result::<P>(self.request_json(params)?)
    }

    /// Calls a method and returns the result as JSON, for commands that print it unchanged: a
    /// gateway of another version may send fields that this version does not know.
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

    /// Calls a method that subscribes to events, and passes them to `hear` until it returns
    /// `false`.
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

/// Reads the JSON result of a method.
pub fn read_result<P: Params>(result: Value) -> Result<P::Answer, CallFailure> {
    serde_json::from_value(result).map_err(|error| unreadable(P::METHOD, &error))
}

/// Reads the fields that this version knows of a result that the gateway relayed.
pub fn read_relayed<P, T>(result: &Relayed<T>) -> Result<T, CallFailure>
where
    P: Params<Answer = Relayed<T>>,
    T: DeserializeOwned,
{
    result.read().map_err(|error| unreadable(P::METHOD, &error))
}

/// The failure for a result of an unknown shape: the gateway has another version or is another
/// program.
fn unreadable(method: &str, error: &serde_json::Error) -> CallFailure {
    CallFailure {
        detail: None,
        message: format!("the result of {method} cannot be read: {error}"),
        remedy: None,
        pairing_request: None,
    }
}

/// The fields of a message that this version reads. A gateway of another version may send more.
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

/// The fields of `hello-ok` that this client reads.
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

/// The final answer to the request `id`, if the frame is one.
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
