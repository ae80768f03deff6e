//! A gateway on a machine, and MCP clients that send exactly what a test specifies.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::Machine;

pub const NEWEST: &str = "2026-07-28";

/// A running gateway. It ends with the test.
pub struct Gateway<'a> {
    pub machine: &'a Machine,
    child: Child,
    pub port: u16,
}

impl<'a> Gateway<'a> {
    pub fn start(machine: &'a Machine) -> Self {
        Self::start_by(machine, machine.command(Self::ARGUMENTS))
    }

    pub const ARGUMENTS: &'static [&'static str] = &["gateway", "run", "--port", "0", "--json"];

    /// Starts a gateway with this command.
    pub fn start_by(machine: &'a Machine, mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let port = u16::try_from(ready["port"].as_u64().unwrap()).unwrap();
        Self {
            machine,
            child,
            port,
        }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }

    /// Returns a new token for the agent `main`, created with further flags.
    pub fn token(&self, flags: &[&str]) -> String {
        let mut all = vec!["agents", "token", "main"];
        all.extend(flags);
        self.machine.ok(&all).stdout.trim().to_owned()
    }

    pub fn client(&self, token: &str) -> HttpClient {
        HttpClient {
            port: self.port,
            token: token.to_owned(),
            session: None,
            version: None,
        }
    }
}

impl Gateway<'_> {
    /// Kills the gateway, as if the machine's memory had run out.
    pub fn kill(&self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("/bin/kill").args(["-KILL", &pid]).status();
    }
}

impl Drop for Gateway<'_> {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    let pid = child.id().to_string();
    let _ = Command::new("/bin/kill").args(["-TERM", &pid]).status();
    let _ = child.wait();
}

/// The answer of the server.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl Reply {
    /// Returns the messages of the answer: one, or those of an event stream.
    pub fn messages(&self) -> Vec<Value> {
        if self.headers["content-type"].starts_with("application/json") {
            return vec![serde_json::from_str(&self.body).unwrap()];
        }
        let data = self
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("data:"));
        data.filter(|data| !data.trim().is_empty())
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    /// Returns the answer to the single request.
    pub fn answer(&self) -> Value {
        let messages = self.messages();
        let last = messages.last().unwrap_or_else(|| panic!("{self:#?}"));
        last.clone()
    }

    pub fn result(&self) -> Value {
        let answer = self.answer();
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }
}

/// Sends bytes and reads until the server ends its answer.
pub fn raw(port: u16, request: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    // The server may answer before it has read everything.
    let _ = stream.write_all(request);
    read_reply(&mut stream)
}

pub fn read_reply(stream: &mut impl Read) -> Reply {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap_or("0").parse().unwrap();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let is_chunked = headers
        .get("transfer-encoding")
        .is_some_and(|how| how == "chunked");
    let body = if is_chunked { unchunked(&bytes) } else { bytes };
    Reply {
        status,
        headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    }
}

fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") {
        let length = std::str::from_utf8(&bytes[..end]).unwrap();
        let length = usize::from_str_radix(length.trim(), 16).unwrap();
        let from = end + 2;
        let to = (from + length).min(bytes.len());
        body.extend_from_slice(&bytes[from..to]);
        bytes = bytes.get(to + 2..).unwrap_or_default();
    }
    body
}

/// A client over HTTP, with a session if one was begun.
#[derive(Clone)]
pub struct HttpClient {
    pub port: u16,
    pub token: String,
    pub session: Option<String>,
    pub version: Option<String>,
}

impl HttpClient {
    pub fn request(&self, method: &str, extra: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        let mut head = format!(
            "{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\
             Authorization: Bearer {}\r\nAccept: application/json, text/event-stream\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n",
            self.port,
            self.token,
            body.len()
        );
        if let Some(session) = &self.session {
            head.push_str(&format!("Mcp-Session-Id: {session}\r\n"));
        }
        if let Some(version) = &self.version {
            head.push_str(&format!("MCP-Protocol-Version: {version}\r\n"));
        }
        for (name, value) in extra {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut request = (head + "\r\n").into_bytes();
        request.extend_from_slice(body);
        request
    }

    pub fn send(&self, message: &Value) -> Reply {
        let body = message.to_string();
        raw(
            self.port,
            &self.request(
                "POST",
                &headers(message)
                    .each_ref()
                    .map(|(name, value)| (*name, value.as_str())),
                body.as_bytes(),
            ),
        )
    }

    /// Sends a message whose answer arrives in pieces.
    pub fn open(&self, message: &Value) -> Events {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_mins(1)))
            .unwrap();
        let body = message.to_string();
        let extra = headers(message);
        let extra = extra
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        stream
            .write_all(&self.request("POST", &extra, body.as_bytes()))
            .unwrap();
        Events(BufReader::new(stream))
    }

    /// Opens the stream on which the server sends messages of its own.
    pub fn listen(&self) -> Events {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_mins(1)))
            .unwrap();
        stream.write_all(&self.request("GET", &[], b"")).unwrap();
        Events(BufReader::new(stream))
    }

    /// Begins a session, in a protocol version that has sessions.
    pub fn initialize(&mut self, version: &str, capabilities: &Value) -> Value {
        let reply = self.send(&initialize(version, capabilities));
        assert_eq!(reply.status, 200, "{reply:#?}");
        self.session = Some(reply.headers["mcp-session-id"].clone());
        self.version = Some(version.to_owned());
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.send(&told).status, 202);
        reply.result()
    }

    /// Makes this a client of the newest protocol version.
    pub fn newest(mut self) -> Self {
        self.version = Some(NEWEST.to_owned());
        self
    }

    pub fn call(&self, name: &str, arguments: &Value) -> Value {
        let reply = self.send(&self.tool_call(name, arguments));
        assert_eq!(reply.status, 200, "{reply:#?}");
        reply.result()
    }

    pub fn tool_call(&self, name: &str, arguments: &Value) -> Value {
        let message = tool_call(7, name, arguments);
        if self.version.as_deref() == Some(NEWEST) {
            modern(message, &json!({}))
        } else {
            message
        }
    }
}

/// An answer that is still arriving.
pub struct Events(BufReader<TcpStream>);

impl Events {
    pub fn next_message(&mut self) -> Value {
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "no more events");
            if let Some(data) = line.strip_prefix("data:") {
                return serde_json::from_str(data).unwrap();
            }
        }
    }
}

/// Returns headers that repeat the message, as the newest protocol version requires.
fn headers(message: &Value) -> [(&'static str, String); 2] {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = &message["params"]["name"];
    let name = if name.is_null() {
        &message["params"]["uri"]
    } else {
        name
    };
    [
        ("Mcp-Method", text(&message["method"])),
        ("Mcp-Name", text(name)),
    ]
}

pub fn initialize(version: &str, capabilities: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": version,
        "capabilities": capabilities,
        "clientInfo": { "name": "tester", "version": "1" },
    } })
}

pub fn tool_call(id: u64, name: &str, arguments: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": name,
        "arguments": arguments,
    } })
}

/// Adds the sender to a request, as the newest protocol version requires.
pub fn modern(mut message: Value, capabilities: &Value) -> Value {
    message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = NEWEST.into();
    message["params"]["_meta"]["io.modelcontextprotocol/clientInfo"] =
        json!({ "name": "tester", "version": "1" });
    message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
    message
}

/// Returns the text of a result for a model.
pub fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

/// Returns the output of a command: all text behind the status line, if the result has no other
/// notes.
pub fn output(result: &Value) -> &str {
    text(result).split_once("\n\n").unwrap().1
}

/// Returns the capabilities of a client that shows prompts.
pub fn forms() -> Value {
    json!({ "elicitation": { "form": {} } })
}

/// Repeats a call with the state that the server returned, and an answer.
pub fn again(arguments: &Value, given: &Value, answer: &Value) -> Value {
    let mut call = modern(tool_call(9, "exec", arguments), &forms());
    call["params"]["requestState"] = given["requestState"].clone();
    call["params"]["inputResponses"] = json!({ "approval": answer });
    call
}

/// A client over `interlock mcp`. A gateway that it started ends with it.
pub struct StdioClient<'a> {
    machine: &'a Machine,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
    /// Whether it may have started a gateway.
    spawns: bool,
}

impl<'a> StdioClient<'a> {
    pub fn start(machine: &'a Machine, flags: &[&str]) -> Self {
        Self::start_with(machine, flags, |_| {})
    }

    /// Starts the program as its owner would, in a directory and with an environment of its own.
    pub fn start_with(
        machine: &'a Machine,
        flags: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let mut all = vec!["mcp"];
        all.extend(flags);
        let mut command = machine.command(&all);
        change(&mut command);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            machine,
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            next: 100,
            spawns: !flags.contains(&"--no-spawn"),
        }
    }

    pub fn begin(machine: &'a Machine, flags: &[&str], capabilities: &Value) -> Self {
        Self::start(machine, flags).initialized(capabilities)
    }

    /// Begins a session, in a protocol version with `initialize`.
    pub fn initialized(mut self, capabilities: &Value) -> Self {
        self.send(&initialize("2025-11-25", capabilities));
        assert_eq!(self.receive()["id"], 1);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        self
    }

    pub fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string());
    }

    pub fn send_text(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(text.as_bytes()).unwrap();
        input.write_all(b"\n").unwrap();
        input.flush().unwrap();
    }

    pub fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// Sends a request and returns its id.
    pub fn ask(&mut self, mut request: Value) -> u64 {
        self.next += 1;
        request["id"] = self.next.into();
        self.send(&request);
        self.next
    }

    /// Returns the answer to a request, whatever arrives before it.
    pub fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.receive();
            if message["id"] == id && message["method"].is_null() {
                return message;
            }
        }
    }

    pub fn call(&mut self, name: &str, arguments: &Value) -> Value {
        let id = self.ask(tool_call(0, name, arguments));
        let answer = self.answer(id);
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    /// Waits until the program has ended by itself. Returns whether it succeeded.
    pub fn is_over(&mut self) -> bool {
        let mut rest = Vec::new();
        self.output.read_to_end(&mut rest).unwrap();
        self.child.wait().unwrap().success()
    }

    /// Closes its input, as a client that leaves does.
    pub fn close_input(&mut self) {
        self.input = None;
    }
}

impl Drop for StdioClient<'_> {
    fn drop(&mut self) {
        self.input = None;
        end(&mut self.child);
        if self.spawns {
            self.machine.run(&["gateway", "stop"]);
        }
    }
}
