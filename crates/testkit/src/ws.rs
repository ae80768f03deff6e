//! A gateway on a machine, and minimal clients of its WebSocket protocol.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use interlock_wire::identity::DeviceIdentity;
use interlock_wire::params::{Auth, Client, Connect};
use interlock_wire::{Request, Secret};
use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use super::Machine;

/// The longest wait. Only a failure reaches it.
const PATIENCE: Duration = Duration::from_mins(1);

pub const EVERYTHING: &[&str] = &[
    "operator.admin",
    "operator.read",
    "operator.write",
    "operator.approvals",
    "operator.pairing",
];

/// A running gateway. It ends when this is dropped.
pub struct Gateway {
    child: Child,
    pub port: u16,
    pub socket: PathBuf,
    pub token: String,
    /// The file of its log.
    pub log: PathBuf,
}

impl Machine {
    /// Starts the gateway of this machine, on any free port.
    pub fn gateway(&self) -> Gateway {
        self.gateway_with(&["--port", "0"])
    }

    /// Starts the gateway with these flags.
    pub fn gateway_with(&self, flags: &[&str]) -> Gateway {
        self.gateway_as(flags, &[])
    }

    /// Starts the gateway with these flags, and variables of its own.
    pub fn gateway_as(&self, flags: &[&str], variables: &[(&str, &str)]) -> Gateway {
        let log = self.root().join("gateway.log");
        let mut arguments = vec!["gateway", "run", "--json"];
        arguments.extend(flags);
        let mut child = self
            .command(&arguments)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(
                File::options()
                    .create(true)
                    .append(true)
                    .open(&log)
                    .unwrap(),
            )
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let logged = || std::fs::read_to_string(&log).unwrap_or_default();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{}", logged()));
        let token = self.operator_token();
        Gateway {
            child,
            port: u16::try_from(ready["port"].as_u64().unwrap()).unwrap(),
            socket: PathBuf::from(ready["socket"].as_str().unwrap()),
            token,
            log,
        }
    }
}

impl Gateway {
    /// Connects a new device with these scopes, over TCP with the operator token.
    pub fn connect(&self, scopes: &[&str]) -> WsClient {
        self.welcome(self.open(), scopes)
    }

    /// Connects such a device over the Unix socket, where no token is needed.
    pub fn connect_locally(&self, scopes: &[&str]) -> WsClient {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        self.join(Box::new(stream), scopes)
    }

    /// Connects such a device over a connection that already exists.
    pub fn join(&self, stream: Box<dyn Stream>, scopes: &[&str]) -> WsClient {
        self.welcome(WsClient::open(stream, self.port).unwrap(), scopes)
    }

    fn welcome(&self, mut client: WsClient, scopes: &[&str]) -> WsClient {
        let identity = DeviceIdentity::generate().unwrap();
        let welcomed = client.introduce(self.operator(scopes), Some(&identity));
        welcomed.unwrap_or_else(|error| panic!("connect: {error:#}"));
        client
    }

    /// Opens a connection that was upgraded and challenged, and has not introduced itself.
    pub fn open(&self) -> WsClient {
        WsClient::dial(self.port).unwrap()
    }

    /// Returns how an operator with these scopes introduces itself.
    pub fn operator(&self, scopes: &[&str]) -> Connect {
        operator(&self.token, scopes)
    }

    /// Returns how a node with these commands introduces itself.
    pub fn node(&self, name: &str, commands: &[&str]) -> Connect {
        let own = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect();
        let mut connect = Connect {
            role: Some("node".to_owned()),
            caps: Some(own(&["system"])),
            commands: Some(own(commands)),
            ..self.operator(&[])
        };
        "node-host".clone_into(&mut connect.client.id);
        "node".clone_into(&mut connect.client.mode);
        connect.client.display_name = Some(name.to_owned());
        connect
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the memory that the gateway uses now, and the most that it ever used, in KiB.
    pub fn memory(&self) -> (u64, u64) {
        super::memory(self.pid())
    }

    /// Ends the gateway as a service manager would, and waits for its end.
    pub fn stop(mut self) {
        self.end();
    }

    /// Kills the gateway, as if the machine's memory had run out.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn end(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("/bin/kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

/// Returns how an operator with this token and these scopes introduces itself.
pub fn operator(token: &str, scopes: &[&str]) -> Connect {
    Connect {
        min_protocol: 3,
        max_protocol: 4,
        client: Client {
            id: "test".to_owned(),
            mode: "test".to_owned(),
            version: "1".to_owned(),
            platform: "linux".to_owned(),
            display_name: Some("a test".to_owned()),
            ..Client::default()
        },
        role: Some("operator".to_owned()),
        scopes: Some(scopes.iter().map(|scope| (*scope).to_owned()).collect()),
        auth: Some(Auth {
            token: Some(Secret::new(token)),
            ..Auth::default()
        }),
        ..Connect::default()
    }
}

pub trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// What arrives on a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Came {
    Frame(Value),
    /// A close frame: its code and its reason.
    Closed(u16, String),
    /// The connection ended without a close frame.
    Gone,
}

/// One connection.
pub struct WsClient {
    pub socket: WebSocket<Box<dyn Stream>>,
    calls: u64,
    /// Events that the test has not asked for yet.
    events: VecDeque<Value>,
    /// The nonce of the challenge.
    pub nonce: String,
    /// The gateway's greeting.
    pub hello: Value,
}

impl WsClient {
    /// Connects over TCP. Returns `None` if no server answers.
    pub fn dial(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::open(Box::new(stream), port)
    }

    /// Opens a connection up to the challenge. Returns `None` if it ends before.
    fn open(stream: Box<dyn Stream>, port: u16) -> Option<Self> {
        let address = format!("ws://127.0.0.1:{port}/");
        let (socket, _) = tungstenite::client(address, stream).ok()?;
        let mut client = Self {
            socket,
            calls: 0,
            events: VecDeque::new(),
            nonce: String::new(),
            hello: Value::Null,
        };
        let Came::Frame(challenge) = client.next() else {
            return None;
        };
        assert_eq!(challenge["event"], "connect.challenge");
        let nonce = challenge["payload"]["nonce"].as_str().unwrap();
        nonce.clone_into(&mut client.nonce);
        Some(client)
    }

    /// Introduces the client, with the proof of a device if it has one. Returns why it was refused.
    pub fn introduce(
        &mut self,
        mut connect: Connect,
        identity: Option<&DeviceIdentity>,
    ) -> Result<(), Value> {
        if let Some(identity) = identity {
            identity.prove(&mut connect, &self.nonce, now_ms());
        }
        self.hello = self.call("connect", &json!(connect))?;
        Ok(())
    }

    /// Calls a method and returns the payload or the error.
    pub fn call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        let id = self.send(method, params).unwrap();
        match self.answer(&id) {
            Some(answer) => answer,
            None => panic!("{method} was not answered"),
        }
    }

    /// Sends a request without waiting for the answer.
    pub fn send(&mut self, method: &str, params: &Value) -> tungstenite::Result<String> {
        self.calls += 1;
        let id = self.calls.to_string();
        let request = Request::call(&id, method, params).unwrap();
        self.socket.send(Message::text(request.to_text()))?;
        Ok(id)
    }

    /// Returns the answer to a request, or `None` if the connection ends before.
    pub fn answer(&mut self, id: &str) -> Option<Result<Value, Value>> {
        let fits = |frame: &Value| frame["type"] == "res" && frame["id"] == id;
        let mut frame = self.await_frame(fits)?;
        let is_ok = frame["ok"] == true;
        let name = if is_ok { "payload" } else { "error" };
        let said = frame[name].take();
        Some(if is_ok { Ok(said) } else { Err(said) })
    }

    /// Returns the next frame that fits, and keeps the others. Returns `None` if the connection
    /// ends before.
    fn await_frame(&mut self, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        if let Some(at) = self.events.iter().position(&fits) {
            return self.events.remove(at);
        }
        // The gateway sends ticks all the time, so that a read never waits too long.
        let end = Instant::now() + PATIENCE;
        loop {
            let frame = match self.next() {
                Came::Frame(frame) => frame,
                end => {
                    println!("the connection ended: {end:?}");
                    return None;
                }
            };
            if fits(&frame) {
                return Some(frame);
            }
            self.events.push_back(frame);
            assert!(Instant::now() < end, "it never came");
        }
    }

    #[track_caller]
    pub fn ok(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.call(method, params);
        answer.unwrap_or_else(|error| panic!("{method}: {error:#}"))
    }

    #[track_caller]
    pub fn refused(&mut self, method: &str, params: &Value) -> Value {
        match self.call(method, params) {
            Err(error) => error,
            Ok(payload) => panic!("{method} was not refused: {payload:#}"),
        }
    }

    /// Returns the payload of the next event of this name that fits. Others are kept.
    pub fn event(&mut self, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let fits = |frame: &Value| frame["event"] == name && holds(&frame["payload"]);
        let frame = self.await_frame(fits);
        frame.unwrap_or_else(|| panic!("no event {name}"))["payload"].take()
    }

    /// Returns whatever arrives next, except events that were already kept.
    #[allow(clippy::should_implement_trait)] // it waits, and a message must come
    pub fn next(&mut self) -> Came {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => {
                    return Came::Frame(serde_json::from_str(&text).unwrap());
                }
                Ok(Message::Close(frame)) => {
                    let frame =
                        frame.map(|frame| (u16::from(frame.code), frame.reason.to_string()));
                    let (code, reason) = frame.unwrap_or((1005, String::new()));
                    return Came::Closed(code, reason);
                }
                Ok(_) => {}
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("nothing came")
                }
                Err(_) => return Came::Gone,
            }
        }
    }

    /// Returns how the gateway ends the connection. Frames before the end are skipped.
    pub fn end(&mut self) -> Came {
        loop {
            match self.next() {
                Came::Frame(_) => {}
                end => return end,
            }
        }
    }
}

pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}
