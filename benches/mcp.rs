//! What `exec` costs an MCP client, next to the system's own way, in one run.
//!
//! `cargo bench -p interlock --bench mcp [-- stdio|http]`
//!
//! The calls start a real program by its path; that each of them does so is shown first, by what the
//! program writes. Both ways go through a gateway on this machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::parts::measure_parts;

const PROGRAM: &str = "/usr/bin/true";
const ROUNDS: usize = 400;
const PROTOCOL: &str = "2025-06-18";

fn main() {
    measure_parts(
        &Bench::new(),
        &[
            ("stdio", |bench| {
                measure("exec by MCP over stdio", &mut StdioClient::new(bench));
            }),
            ("http", |bench| {
                measure("exec by MCP over HTTP", &mut HttpClient::new(bench));
            }),
        ],
    );
}

/// A way to send a request and get its answer.
trait McpClient {
    fn request(&mut self, request: &Value) -> Value;

    fn exec(&mut self, command: &str) -> String {
        let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": { "name": "exec", "arguments": { "command": command } } });
        let answer = self.request(&call).to_string();
        assert!(answer.contains("\"exitCode\":0"), "{answer}");
        answer
    }
}

fn measure(name: &str, client: &mut impl McpClient) {
    let calls = 50;
    let starts = (0..calls).filter(|_| {
        client
            .exec(&format!("{PROGRAM} --version"))
            .contains("coreutils")
    });
    assert_eq!(starts.count(), calls, "each call has to start {PROGRAM}");
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        client.exec(PROGRAM);
        times.0.push(began.elapsed());
        let began = Instant::now();
        assert!(
            Command::new(PROGRAM)
                .stdin(Stdio::null())
                .status()
                .unwrap()
                .success()
        );
        times.1.push(began.elapsed());
    }
    let (mcp, spawn) = (median(&mut times.0), median(&mut times.1));
    let ratio = mcp.as_secs_f64() / spawn.as_secs_f64();
    println!(
        "{name}, allowlisted (beside posix_spawn): {mcp:?} beside {spawn:?}: {ratio:.2} times"
    );
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A state directory with a gateway whose allowlist names the program.
struct Bench {
    state: tempfile::TempDir,
    gateway: Child,
    port: u16,
    token: String,
}

fn interlock(state: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(testkit::binary());
    command.arg("--state-dir").arg(state).args(arguments);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

impl Bench {
    fn new() -> Self {
        let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let set = |arguments: &[&str]| {
            let mut command = interlock(state.path(), arguments);
            assert!(command.stdout(Stdio::null()).status().unwrap().success());
        };
        set(&["exec-policy", "preset", "cautious"]);
        set(&["approvals", "allowlist", "add", PROGRAM]);
        let mut gateway = interlock(state.path(), &["gateway", "run", "--port", "0", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(gateway.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let minted = interlock(state.path(), &["gateway", "token", "--new"]).output();
        let token = String::from_utf8(minted.unwrap().stdout).unwrap();
        Self {
            gateway,
            port: u16::try_from(ready["port"].as_u64().unwrap()).unwrap(),
            token: token.trim().to_owned(),
            state,
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.gateway.kill();
        let _ = self.gateway.wait();
        let state = format!("guard --state-dir {}", self.state.path().display());
        let kill = ["-KILL", "-f", &state];
        let _ = Command::new("/usr/bin/pkill").args(kill).status();
    }
}

fn initialize() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": PROTOCOL, "capabilities": {},
        "clientInfo": { "name": "benchmark", "version": "1" } } })
}

fn initialized() -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })
}

/// `interlock mcp`, as an agent program starts it.
struct StdioClient {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl StdioClient {
    fn new(bench: &Bench) -> Self {
        let mut child = interlock(bench.state.path(), &["mcp"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut client = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        client.request(&initialize());
        client.send(&initialized());
        client
    }

    fn send(&mut self, message: &Value) {
        self.input
            .write_all(format!("{message}\n").as_bytes())
            .unwrap();
    }
}

impl McpClient for StdioClient {
    fn request(&mut self, request: &Value) -> Value {
        self.send(request);
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == request["id"] && message.get("method").is_none() {
                return message;
            }
        }
    }
}

impl Drop for StdioClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One connection to `/mcp`.
struct HttpClient {
    stream: BufReader<TcpStream>,
    head: String,
}

impl HttpClient {
    fn new(bench: &Bench) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", bench.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Self {
            stream: BufReader::new(stream),
            head: format!(
                "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\n\
                 Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n",
                bench.token
            ),
        };
        let (headers, _) = client.post(&initialize());
        let session = headers
            .iter()
            .find_map(|line| line.strip_prefix("mcp-session-id: "));
        if let Some(session) = session {
            client.head += &format!("Mcp-Session-Id: {session}\r\n");
        }
        client.head += &format!("Mcp-Protocol-Version: {PROTOCOL}\r\n");
        client.post(&initialized());
        client
    }

    /// Headers and body of the answer, which comes with a length or in pieces.
    fn post(&mut self, message: &Value) -> (Vec<String>, String) {
        let body = message.to_string();
        let request = format!("{}Content-Length: {}\r\n\r\n{body}", self.head, body.len());
        self.stream.get_mut().write_all(request.as_bytes()).unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                break;
            }
            headers.push(line);
        }
        let length = headers
            .iter()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = Vec::new();
        if let Some(length) = length {
            body = self.bytes(length.parse().unwrap());
        } else if headers
            .iter()
            .any(|line| line == "transfer-encoding: chunked")
        {
            loop {
                let size = usize::from_str_radix(&self.line(), 16).unwrap();
                let piece = self.bytes(size);
                assert_eq!(self.line(), "");
                if size == 0 {
                    break;
                }
                body.extend(piece);
            }
        }
        (headers, String::from_utf8(body).unwrap())
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(
            self.stream.read_line(&mut line).unwrap(),
            0,
            "it was closed"
        );
        line.trim_end_matches("\r\n").to_owned()
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }
}

impl McpClient for HttpClient {
    /// The answer is the body, or the last event of a stream.
    fn request(&mut self, request: &Value) -> Value {
        let (headers, body) = self.post(request);
        let is_answer = |message: &Value| message["id"] == request["id"];
        let lines = body
            .lines()
            .map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
        let messages = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        messages
            .filter(is_answer)
            .reduce(|_, last| last)
            .unwrap_or_else(|| panic!("{headers:?} {body}"))
    }
}
