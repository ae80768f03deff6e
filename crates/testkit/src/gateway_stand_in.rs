//! The other side of a node. It speaks the protocol as recorded from gateways and checks everything
//! that a node sends as strictly as they do. It does nothing else.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_wire::params::{self, NodeEvent, NodeInvokeResult};
use interlock_wire::{Connect, Event, Frame, Request, Response, WireError, identity};
use serde_json::{Value, json};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

use crate::{Machine, Run};

pub const TOKEN: &str = "shared-token-of-the-gateway";
pub const DEVICE_TOKEN: &str = "token-of-this-device-and-no-other-one";
/// The releases of the reference implementation whose gateways were recorded.
pub const OLDER: &str = "2026.5.19";
pub const NEWER: &str = "2026.9.6";
/// The longest wait. Only a failure reaches it.
const PATIENCE: Duration = Duration::from_mins(1);

pub trait Wire: Read + Write + Send {}
impl<S: Read + Write + Send> Wire for S {}

/// A stream whose reads continue after a signal.
pub struct Patient(TcpStream);

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A stand-in for a gateway, on a port of its own.
pub struct StandIn {
    listener: TcpListener,
    pub tick_ms: u64,
    pub tls: Option<Arc<ServerConfig>>,
    /// The product that it claims to be. Foreign gateways name none.
    pub product: Option<&'static str>,
    /// The release that it claims to be.
    pub version: &'static str,
}

impl StandIn {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self {
            listener,
            tick_ms: 30_000,
            tls: None,
            product: None,
            version: OLDER,
        }
    }

    pub fn port(&self) -> String {
        self.listener.local_addr().unwrap().port().to_string()
    }

    /// Accepts the next connection, before any message.
    pub fn accept_stream(&self) -> Patient {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    return Patient(stream);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert!(Instant::now() < end, "no node came");
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Accepts the next connection, up to its first request.
    pub fn meet(&self) -> Guest {
        let stream = self.accept_stream();
        let stream: Box<dyn Wire> = match &self.tls {
            None => Box::new(stream),
            Some(config) => {
                let connection = ServerConnection::new(Arc::clone(config)).unwrap();
                Box::new(StreamOwned::new(connection, stream))
            }
        };
        let mut socket = tungstenite::accept(stream).unwrap();
        let nonce = format!("nonce-{}", std::process::id());
        let challenge = json!({ "nonce": nonce, "ts": now_ms() });
        let event = Event::new("connect.challenge", &challenge).unwrap();
        socket.send(Message::text(event.to_text())).unwrap();
        let Frame::Request(request) = frame(&mut socket) else {
            panic!("the first frame is no request");
        };
        assert_eq!(request.method, "connect");
        // Reading refuses unknown properties and wrong names, as gateways do.
        let connect: Connect = request.read().unwrap();
        let device = identity::verify(&connect, &nonce, now_ms()).unwrap();
        Guest {
            socket,
            id: request.id,
            connect,
            device_id: device.device_id,
            tick_ms: self.tick_ms,
            product: self.product,
            version: self.version,
        }
    }

    /// Accepts and welcomes the next connection.
    pub fn welcome(&self) -> Link {
        self.meet().welcome()
    }
}

/// A node that has introduced itself.
pub struct Guest {
    socket: WebSocket<Box<dyn Wire>>,
    id: String,
    pub connect: Connect,
    pub device_id: String,
    tick_ms: u64,
    product: Option<&'static str>,
    version: &'static str,
}

impl Guest {
    pub fn welcome(self) -> Link {
        self.welcome_with(DEVICE_TOKEN)
    }

    /// Welcomes the node with this token for its device.
    pub fn welcome_with(mut self, token: &str) -> Link {
        let mut hello = json!({
            "type": "hello-ok",
            "protocol": 4,
            "server": { "version": self.version, "connId": "c1", "bootId": "of a newer one" },
            "features": { "methods": [], "events": [] },
            "snapshot": { "presence": [], "health": {}, "stateVersion": { "presence": 1, "health": 1 }, "uptimeMs": 1 },
            "auth": { "role": "node", "scopes": [], "deviceToken": token, "issuedAtMs": 1 },
            "policy": { "maxPayload": 26_214_400, "maxBufferedBytes": 52_428_800, "tickIntervalMs": self.tick_ms },
        });
        if let Some(product) = self.product {
            hello["server"]["product"] = product.into();
        }
        let response = Response::success(&self.id, &hello);
        self.socket.send(Message::text(response.to_text())).unwrap();
        Link {
            socket: self.socket,
            connect: self.connect,
            device_id: self.device_id,
            order: Vec::new(),
            results: Results::Taken,
        }
    }

    pub fn refuse(mut self, error: WireError) {
        let response = Response::failed(&self.id, error);
        self.socket.send(Message::text(response.to_text())).unwrap();
        let _ = self.socket.close(None);
        let _ = self.socket.flush();
    }
}

/// A node that was welcomed.
pub struct Link {
    pub socket: WebSocket<Box<dyn Wire>>,
    pub connect: Connect,
    pub device_id: String,
    /// The methods that the node called, in order.
    pub order: Vec<String>,
    pub results: Results,
}

/// How the gateway receives a node's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Results {
    Taken,
    /// The caller of the invocation is gone.
    Ignored,
    Refused,
}

/// The result of an invocation.
#[derive(Debug)]
pub struct Done {
    pub ok: bool,
    pub payload: Value,
    pub code: String,
    pub message: String,
    /// The events before the result: name and payload.
    pub events: Vec<(String, Value)>,
}

impl Done {
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!(self.ok, "{self:#?}");
        self
    }

    #[track_caller]
    pub fn refused(&self, code: &str, message: &str) {
        assert_eq!(
            (self.ok, self.code.as_str(), self.message.as_str()),
            (false, code, message),
            "{self:#?}"
        );
    }

    /// Checks that the policy denied the run, and that the session was notified.
    #[track_caller]
    pub fn denied(&self, message: &str, reason: &str) {
        self.refused("SYSTEM_RUN_DENIED", message);
        assert_eq!(self.events.len(), 1, "{self:#?}");
        assert_eq!(self.events[0].0, "exec.denied");
        assert_eq!(self.events[0].1["reason"], reason);
    }
}

impl Link {
    pub fn send(&mut self, text: &str) {
        self.socket.send(Message::text(text)).unwrap();
    }

    /// Sends an invocation without waiting for its result.
    pub fn begin(&mut self, id: &str, command: &str, params_json: &Value) {
        let payload = json!({
            "id": id, "nodeId": self.device_id, "command": command,
            "paramsJSON": params_json, "idempotencyKey": "k",
        });
        let event = Event::new("node.invoke.request", &payload).unwrap();
        self.send(&event.to_text());
    }

    /// Sends an invocation that says how long the gateway will wait.
    pub fn begin_within(&mut self, id: &str, command: &str, params: &Value, timeout_ms: u64) {
        let payload = json!({
            "id": id, "nodeId": self.device_id, "command": command,
            "paramsJSON": params.to_string(), "idempotencyKey": "k", "timeoutMs": timeout_ms,
        });
        let event = Event::new("node.invoke.request", &payload).unwrap();
        self.send(&event.to_text());
    }

    pub fn invoke(&mut self, command: &str, params: &Value) -> Done {
        self.begin("invocation", command, &Value::String(params.to_string()));
        self.end("invocation")
    }

    /// Waits for the result, and answers everything that the node sends before it.
    pub fn end(&mut self, id: &str) -> Done {
        let mut events = Vec::new();
        loop {
            let Frame::Request(request) = frame(&mut self.socket) else {
                panic!("a node only asks");
            };
            self.order.push(request.method.clone());
            if request.method == "node.event" {
                events.push(self.take_event(&request));
                continue;
            }
            assert_eq!(request.method, "node.invoke.result");
            let result: NodeInvokeResult = read(&request);
            assert_eq!(result.node_id, self.device_id);
            assert_eq!(result.id, id);
            match self.results {
                Results::Taken => self.answer(&request),
                Results::Ignored => {
                    self.answer_with(&request, &json!({ "ok": true, "ignored": true }));
                }
                Results::Refused => {
                    let error = WireError::unavailable("not now");
                    self.send(&Response::failed(&request.id, error).to_text());
                }
            }
            let error = result.error.clone().unwrap_or_default();
            if let Some(text) = &result.payload_json {
                assert!(text.is_string(), "{text}");
            }
            return Done {
                ok: result.ok,
                payload: result.into_payload().0,
                code: error.code.unwrap_or_default(),
                message: error.message.unwrap_or_default(),
                events,
            };
        }
    }

    /// Waits for an event, and returns its name and payload.
    pub fn event(&mut self) -> (String, Value) {
        let Frame::Request(request) = frame(&mut self.socket) else {
            panic!("a node only asks");
        };
        self.order.push(request.method.clone());
        self.take_event(&request)
    }

    fn take_event(&mut self, request: &Request) -> (String, Value) {
        assert_eq!(request.method, "node.event");
        let event: NodeEvent = read(request);
        let text = event.payload_json.expect("payloadJSON must be a text");
        self.answer(request);
        (event.event, serde_json::from_str(&text).unwrap())
    }

    pub fn answer(&mut self, request: &Request) {
        self.answer_with(request, &json!({ "ok": true }));
    }

    fn answer_with(&mut self, request: &Request, payload: &Value) {
        let response = Response::success(&request.id, payload);
        self.send(&response.to_text());
    }

    pub fn run(&mut self, params: &Value) -> Done {
        self.invoke("system.run", params)
    }

    /// Runs shell text as gateways send it.
    pub fn run_text(&mut self, text: &str) -> Done {
        self.run(&json!({ "command": ["/bin/sh", "-lc", text], "rawCommand": text }))
    }

    /// Returns the plan of a command.
    pub fn plan(&mut self, params: &Value) -> Value {
        let prepared = self.invoke("system.run.prepare", params).ok();
        assert!(prepared.events.is_empty());
        prepared.payload["plan"].clone()
    }

    /// Runs a plan as gateways do after an approver has allowed it.
    pub fn run_approved(&mut self, plan: &Value, run_id: &str) -> Done {
        self.run(&approved(plan, run_id))
    }

    #[allow(clippy::should_implement_trait)] // it waits, and a message must come
    pub fn next(&mut self) -> Message {
        self.socket.read().unwrap()
    }
}

/// Returns the call that follows an approval.
pub fn approved(plan: &Value, run_id: &str) -> Value {
    let mut call = json!({
        "command": plan["argv"], "systemRunPlan": plan, "runId": run_id,
        "approved": true, "approvalDecision": "allow-once",
    });
    for name in ["cwd", "agentId", "sessionKey"] {
        if !plan[name].is_null() {
            call[name] = plan[name].clone();
        }
    }
    call
}

/// Reads parameters as strictly as a gateway, which refuses unknown properties.
fn read<P: params::Params>(request: &Request) -> P {
    request
        .read()
        .unwrap_or_else(|error| panic!("{}", error.message))
}

pub fn frame(socket: &mut WebSocket<Box<dyn Wire>>) -> Frame {
    loop {
        if let Message::Text(text) = socket.read().unwrap() {
            return Frame::parse(&text).unwrap();
        }
    }
}

/// Hashes with a program that every machine has.
pub fn sha256_hex(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

pub fn now_ms() -> u64 {
    let now = std::time::SystemTime::now();
    let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// `interlock node run`. It ends when this is dropped.
pub struct Node {
    child: Option<Child>,
}

impl Node {
    pub fn start(machine: &Machine, stand_in: &StandIn) -> Self {
        Self::start_with(machine, stand_in, &[])
    }

    pub fn start_with(machine: &Machine, stand_in: &StandIn, flags: &[&str]) -> Self {
        Self::spawn(machine, stand_in, flags, Some(TOKEN))
    }

    pub fn spawn(
        machine: &Machine,
        stand_in: &StandIn,
        flags: &[&str],
        token: Option<&str>,
    ) -> Self {
        let port = stand_in.port();
        let mut arguments = vec!["node", "run", "--host", "127.0.0.1", "--port", &port];
        arguments.extend(flags);
        let mut command = machine.command(&arguments);
        if let Some(token) = token {
            command.env("OPENCLAW_GATEWAY_TOKEN", token);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self {
            child: Some(command.spawn().unwrap()),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let mut kill = std::process::Command::new("/bin/kill");
        assert!(kill.args([name, &pid]).status().unwrap().success());
    }

    /// Waits until the node ends by itself.
    pub fn wait(mut self) -> Run {
        let output = self.child.take().unwrap().wait_with_output().unwrap();
        Run {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Ends the node as a service manager does.
    pub fn stop(self) -> Run {
        self.signal("-TERM");
        self.wait()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A machine and its connected node.
pub struct Pair {
    pub link: Link,
    pub node: Node,
    pub stand_in: StandIn,
    pub machine: Machine,
}

impl Pair {
    pub fn of(machine: Machine) -> Self {
        let stand_in = StandIn::new();
        let node = Node::start(&machine, &stand_in);
        let link = stand_in.welcome();
        Self {
            link,
            node,
            stand_in,
            machine,
        }
    }

    /// Starts a pair with a gateway of this release, and this document on the machine.
    pub fn of_release(version: &'static str, document: &str) -> Self {
        let machine = Machine::new();
        machine.start();
        let set = machine.set_document(document);
        assert_eq!(set.code, 0, "{set:#?}");
        let mut stand_in = StandIn::new();
        stand_in.version = version;
        let node = Node::start(&machine, &stand_in);
        let link = stand_in.welcome();
        Self {
            link,
            node,
            stand_in,
            machine,
        }
    }

    /// Starts a pair with a gateway that claims to be an Interlock gateway.
    pub fn interlock(machine: Machine) -> Self {
        let mut stand_in = StandIn::new();
        stand_in.product = Some("interlock");
        let node = Node::start(&machine, &stand_in);
        let link = stand_in.welcome();
        Self {
            link,
            node,
            stand_in,
            machine,
        }
    }

    /// Starts a pair on which everything may run without an approver.
    pub fn open() -> Self {
        Self::of(Machine::unguarded())
    }

    /// Starts a pair with this document.
    pub fn with_document(document: &str) -> Self {
        let machine = Machine::new();
        machine.start();
        let set = machine.set_document(document);
        assert_eq!(set.code, 0, "{set:#?}");
        Self::of(machine)
    }

    /// Returns the same machine after its node was ended and started again.
    pub fn restarted(self) -> Self {
        let Self { node, machine, .. } = self;
        node.stop();
        Self::of(machine)
    }
}
