//! A gateway of a machine, and clients of its WebSocket protocol, as small as they can be.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use interlock_wire::identity::DeviceIdentity;
use interlock_wire::params::{Auth, Client, Connect};
use interlock_wire::{Request, Secret};
use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use super::Machine;

/// Only a failure takes so long.
const PATIENCE: Duration = Duration::from_mins(1);

pub const EVERYTHING: &[&str] = &[
    "operator.admin",
    "operator.read",
    "operator.write",
    "operator.approvals",
    "operator.pairing",
];

/// Ended when dropped.
pub struct Gateway {
    child: Child,
    pub port: u16,
    pub socket: PathBuf,
    pub token: String,
    /// What it logs.
    pub log: PathBuf,
}

impl Machine {
    /// Starts the gateway of this machine, on any free port.
    pub fn gateway(&self) -> Gateway {
        self.gateway_with(&[])
    }

    /// The same, with variables of its own.
    pub fn gateway_with(&self, variables: &[(&str, &str)]) -> Gateway {
        let log = self.root().join("gateway.log");
        let mut child = self
            .command(&["gateway", "run", "--port", "0", "--json"])
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
        let token = self.ok(&["gateway", "token"]).stdout.trim().to_owned();
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
    /// A device of its own, with these scopes, by TCP and the operator token.
    pub fn connect(&self, scopes: &[&str]) -> WsClient {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        self.join(Box::new(stream), scopes)
    }

    /// The same by the Unix socket, where no token is needed.
    pub fn connect_locally(&self, scopes: &[&str]) -> WsClient {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        self.join(Box::new(stream), scopes)
    }

    /// The same by a connection that stands already.
    pub fn join(&self, stream: Box<dyn Stream>, scopes: &[&str]) -> WsClient {
        let address = format!("ws://127.0.0.1:{}/", self.port);
        let (socket, _) = tungstenite::client(address, stream).unwrap();
        let mut client = WsClient {
            socket,
            calls: 0,
            events: VecDeque::new(),
            hello: Value::Null,
        };
        let challenge = client.event("connect.challenge", |_| true);
        let mut connect = Connect {
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
                token: Some(Secret::new(self.token.as_str())),
                ..Auth::default()
            }),
            ..Connect::default()
        };
        let identity = DeviceIdentity::generate().unwrap();
        identity.prove(&mut connect, challenge["nonce"].as_str().unwrap(), now_ms());
        client.hello = client.ok("connect", &json!(connect));
        client
    }

    /// Ends as a service manager would end it, and waits for that.
    pub fn stop(mut self) {
        self.end();
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

pub trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// One connection.
pub struct WsClient {
    socket: WebSocket<Box<dyn Stream>>,
    calls: u64,
    /// Those that nobody asked for yet.
    events: VecDeque<Value>,
    /// What the gateway said of itself.
    pub hello: Value,
}

impl WsClient {
    /// The payload, or the error.
    pub fn call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        self.calls += 1;
        let id = self.calls.to_string();
        let request = Request::call(&id, method, params).unwrap();
        self.socket.send(Message::text(request.to_text())).unwrap();
        loop {
            let mut frame = self.read();
            match frame["type"].as_str() {
                Some("res") if frame["id"] == id.as_str() => {
                    let is_ok = frame["ok"] == true;
                    let name = if is_ok { "payload" } else { "error" };
                    let said = frame[name].take();
                    return if is_ok { Ok(said) } else { Err(said) };
                }
                _ => self.events.push_back(frame),
            }
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

    /// The payload of the next event of this name for which it holds. Others wait.
    pub fn event(&mut self, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let fits = |frame: &Value| frame["event"] == name && holds(&frame["payload"]);
        if let Some(at) = self.events.iter().position(fits) {
            return self.events.remove(at).unwrap()["payload"].take();
        }
        loop {
            let mut frame = self.read();
            if fits(&frame) {
                return frame["payload"].take();
            }
            self.events.push_back(frame);
        }
    }

    fn read(&mut self) -> Value {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => return serde_json::from_str(&text).unwrap(),
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::Interrupted => {}
                other => panic!("not expected: {other:?}"),
            }
        }
    }
}

pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}
