//! A gateway, and who talks to it: operators, and nodes that answer as a test wants.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use interlock_wire::identity::DeviceIdentity;
use interlock_wire::node::format_exec_command;
use interlock_wire::params::{Auth, Client, Connect};
use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::http::HeaderValue;
use tungstenite::{Message, WebSocket};

use testkit::Machine;

/// A deadline that only a failure reaches.
const PATIENCE: Duration = Duration::from_mins(1);

pub struct Gateway {
    child: Child,
    pub port: u16,
    pub token: String,
}

impl Gateway {
    pub fn start(machine: &Machine) -> Self {
        let mut child = machine
            .command(&["gateway", "run", "--port", "0", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let token = machine.operator_token();
        Self {
            child,
            port: u16::try_from(ready["port"].as_u64().unwrap()).unwrap(),
            token,
        }
    }

    /// An operator without a device, as the gateway's own tools are.
    pub fn operator(&self, scopes: &[&str]) -> Wire {
        let connect = Connect {
            role: Some("operator".to_owned()),
            scopes: Some(scopes.iter().map(|&scope| scope.to_owned()).collect()),
            ..self.connect("gateway-client", "backend")
        };
        Wire::open(self, connect, None).unwrap()
    }

    pub fn admin(&self) -> Wire {
        self.operator(&[
            "operator.admin",
            "operator.approvals",
            "operator.pairing",
            "operator.read",
            "operator.write",
        ])
    }

    fn connect(&self, id: &str, mode: &str) -> Connect {
        Connect {
            min_protocol: 4,
            max_protocol: 4,
            client: Client {
                id: id.to_owned(),
                version: "9.9.9".to_owned(),
                platform: "linux".to_owned(),
                mode: mode.to_owned(),
                display_name: Some("laptop".to_owned()),
                device_family: Some("Linux".to_owned()),
                ..Client::default()
            },
            auth: Some(Auth {
                token: Some(self.token.clone().into()),
                ..Auth::default()
            }),
            ..Connect::default()
        }
    }

    /// A node that says it has these commands.
    pub fn node(&self, identity: &DeviceIdentity, name: &str, commands: &[&str]) -> Wire {
        self.node_with(identity, name, commands, &["system"])
    }

    pub fn node_with(
        &self,
        identity: &DeviceIdentity,
        name: &str,
        commands: &[&str],
        caps: &[&str],
    ) -> Wire {
        let connect = self.as_node(name, commands, caps);
        Wire::open(self, connect, Some(identity)).unwrap()
    }

    fn as_node(&self, name: &str, commands: &[&str], caps: &[&str]) -> Connect {
        let own = |list: &[&str]| list.iter().map(|&one| one.to_owned()).collect();
        let mut connect = Connect {
            role: Some("node".to_owned()),
            scopes: Some(Vec::new()),
            caps: Some(own(caps)),
            commands: Some(own(commands)),
            ..self.connect("node-host", "node")
        };
        connect.client.display_name = Some(name.to_owned());
        connect
    }

    /// What a node is told that is not let in.
    pub fn refused_node(&self, identity: &DeviceIdentity, name: &str, commands: &[&str]) -> Value {
        let connect = self.as_node(name, commands, &["system"]);
        Wire::open(self, connect, Some(identity)).err().unwrap()
    }

    /// An operator with a device of its own.
    pub fn device(&self, identity: &DeviceIdentity, scopes: &[&str]) -> Wire {
        let connect = Connect {
            role: Some("operator".to_owned()),
            scopes: Some(scopes.iter().map(|&scope| scope.to_owned()).collect()),
            ..self.connect("cli", "cli")
        };
        Wire::open(self, connect, Some(identity)).unwrap()
    }

    /// The answer to an unknown device that comes through a proxy.
    pub fn stranger(&self, identity: &DeviceIdentity, role: &str) -> Value {
        let (id, mode) = match role {
            "node" => ("node-host", "node"),
            _ => ("cli", "cli"),
        };
        let connect = Connect {
            role: Some(role.to_owned()),
            scopes: Some(Vec::new()),
            ..self.connect(id, mode)
        };
        let headers = [("x-forwarded-for", "192.0.2.7")];
        Wire::open_with(self, connect, Some(identity), &headers)
            .err()
            .unwrap()
    }

    /// `POST /tools/invoke` with `exec`; the result.
    pub fn exec(&self, arguments: &Value) -> Value {
        exec(self.port, &self.token, arguments)
    }
}

/// The result of a call of `exec`.
pub fn exec(port: u16, token: &str, arguments: &Value) -> Value {
    exec_as(port, token, "main", arguments)
}

pub fn exec_as(port: u16, token: &str, agent: &str, arguments: &Value) -> Value {
    let body = json!({ "tool": "exec", "args": arguments, "agentId": agent });
    let mut answer = invoke_tool(port, token, &body);
    assert_eq!(answer["ok"], true, "{answer}");
    answer["result"].take()
}

/// All of the answer to a call of `exec`.
pub fn invoke_exec(gateway: &Gateway, arguments: &Value) -> Value {
    let body = json!({ "tool": "exec", "args": arguments });
    invoke_tool(gateway.port, &gateway.token, &body)
}

/// `POST /tools/invoke`.
pub fn invoke_tool(port: u16, token: &str, body: &Value) -> Value {
    let body = body.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"))
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn identity(seed: u8) -> DeviceIdentity {
    DeviceIdentity::from_seed(&[seed; 32])
}

/// A read with a time limit is interrupted when its process was stopped for a moment.
struct Patient(TcpStream);

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.0.read(into) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// One connection.
pub struct Wire {
    socket: WebSocket<Patient>,
    events: VecDeque<Value>,
    last: u64,
}

impl Wire {
    fn open(
        gateway: &Gateway,
        connect: Connect,
        identity: Option<&DeviceIdentity>,
    ) -> Result<Self, Value> {
        Self::open_with(gateway, connect, identity, &[])
    }

    fn open_with(
        gateway: &Gateway,
        mut connect: Connect,
        identity: Option<&DeviceIdentity>,
        headers: &[(&'static str, &'static str)],
    ) -> Result<Self, Value> {
        let port = gateway.port;
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let url = format!("ws://127.0.0.1:{port}/");
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            let value = HeaderValue::from_static(value);
            request.headers_mut().insert(*name, value);
        }
        let (socket, _) = tungstenite::client::client(request, Patient(stream)).unwrap();
        let mut wire = Self {
            socket,
            events: VecDeque::new(),
            last: 0,
        };
        let challenge = wire.event("connect.challenge");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let now = u64::try_from(now.as_millis()).unwrap();
        if let Some(identity) = identity {
            identity.prove(&mut connect, challenge["nonce"].as_str().unwrap(), now);
        }
        // Secrets are shown where a client sends them.
        let mut params = serde_json::to_value(&connect).unwrap();
        params["auth"] = json!({ "token": gateway.token });
        wire.call("connect", &params)?;
        Ok(wire)
    }

    /// The next message; none when the connection has ended.
    fn next(&mut self) -> Option<Value> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(frame)) => {
                    let code = frame.map_or(1005, |frame| u16::from(frame.code));
                    return Some(json!({ "closed": code }));
                }
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    pub fn send(&mut self, method: &str, params: &Value) -> String {
        self.last += 1;
        let id = self.last.to_string();
        let request = json!({ "type": "req", "id": id, "method": method, "params": params });
        self.socket
            .send(Message::text(request.to_string()))
            .unwrap();
        id
    }

    /// The next answer to a request.
    pub fn answer(&mut self, id: &str) -> Result<Value, Value> {
        loop {
            let mut frame = self.next().expect("the connection ended");
            if frame["type"] == "res" && frame["id"] == id {
                return if frame["ok"] == true {
                    Ok(frame["payload"].take())
                } else {
                    Err(frame["error"].take())
                };
            }
            self.events.push_back(frame);
        }
    }

    pub fn call(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        let id = self.send(method, params);
        self.answer(&id)
    }

    #[track_caller]
    pub fn ok(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.call(method, params);
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    #[track_caller]
    pub fn refused(&mut self, method: &str, params: &Value) -> Value {
        match self.call(method, params) {
            Err(error) => error,
            Ok(payload) => panic!("{method} was answered: {payload}"),
        }
    }

    /// The payload of the next event of this name.
    pub fn event(&mut self, name: &str) -> Value {
        let mut at = 0;
        loop {
            if at == self.events.len() {
                let frame = self.next().unwrap_or_else(|| panic!("no event {name}"));
                self.events.push_back(frame);
            }
            if self.events[at]["event"] == name {
                return self.events.remove(at).unwrap()["payload"].take();
            }
            at += 1;
        }
    }

    /// Whether such an event came before what was read last.
    pub fn has_event(&self, name: &str) -> bool {
        self.events.iter().any(|event| event["event"] == name)
    }

    /// The code of the close frame with which the gateway ends the connection.
    pub fn closed(&mut self) -> u64 {
        loop {
            let frame = self.next().expect("no close frame");
            if let Some(code) = frame["closed"].as_u64() {
                return code;
            }
        }
    }

    /// The next invocation, with its parameters parsed.
    pub fn invocation(&mut self) -> Value {
        let mut request = self.event("node.invoke.request");
        let text = request["paramsJSON"].as_str().unwrap_or("null");
        request["params"] = serde_json::from_str(text).unwrap();
        request
    }

    pub fn give(&mut self, invocation: &Value, payload: &Value) -> Value {
        let params = json!({
            "id": invocation["id"],
            "nodeId": invocation["nodeId"],
            "ok": true,
            "payloadJSON": payload.to_string(),
        });
        self.ok("node.invoke.result", &params)
    }

    pub fn fail(&mut self, invocation: &Value, code: &str, message: &str) -> Value {
        let params = json!({
            "id": invocation["id"],
            "nodeId": invocation["nodeId"],
            "ok": false,
            "error": { "code": code, "message": message },
        });
        self.ok("node.invoke.result", &params)
    }
}

/// What a node does with an invocation.
pub enum Reply {
    Give(Value),
    Fail(&'static str, &'static str),
}

/// Answers every invocation from now on; the receiver sees them all.
pub fn answering(
    mut wire: Wire,
    reply: impl Fn(&Value) -> Reply + Send + 'static,
) -> Receiver<Value> {
    let (tell, seen) = channel();
    std::thread::spawn(move || {
        loop {
            let Some(frame) = wire.events.pop_front().or_else(|| wire.next()) else {
                return;
            };
            if frame["event"] != "node.invoke.request" {
                continue;
            }
            wire.events.push_front(frame);
            let invocation = wire.invocation();
            let done = reply(&invocation);
            if tell.send(invocation.clone()).is_err() {
                return;
            }
            match done {
                Reply::Give(payload) => wire.give(&invocation, &payload),
                Reply::Fail(code, message) => wire.fail(&invocation, code, message),
            };
        }
    });
    seen
}

/// The plan that a node makes of a command.
pub fn plan(params: &Value) -> Value {
    let argv: Vec<String> = serde_json::from_value(params["command"].clone()).unwrap();
    json!({
        "commandText": format_exec_command(&argv),
        "argv": argv,
        "cwd": params["cwd"],
        "commandPreview": params["rawCommand"],
        "agentId": params["agentId"],
        "sessionKey": params["sessionKey"],
    })
}

pub fn ran(stdout: &str) -> Value {
    json!({
        "exitCode": 0,
        "timedOut": false,
        "success": true,
        "stdout": stdout,
        "stderr": "",
        "error": null,
    })
}

/// An operator's call of a command of a node.
pub fn invoke(node: &str, command: &str, params: &Value, key: &str) -> Value {
    json!({ "nodeId": node, "command": command, "params": params, "idempotencyKey": key })
}

/// Lets all that a node says be used.
pub fn approve(admin: &mut Wire) -> Value {
    let requested = admin.event("node.pair.requested");
    let params = json!({ "requestId": requested["requestId"] });
    admin.ok("node.pair.approve", &params)
}
