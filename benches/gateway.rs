//! What calls through the gateway cost, next to the system's own way, in one run.
//!
//! `cargo bench -p interlock --bench gateway [-- start|exec|rested|shell|parallel|approval|memory|commands]`
//!
//! Each pair is measured in turns, so that a busy machine slows both down. The state directory lies
//! in the build directory: on a real disk, since approvals wait for it. Measured calls start a real
//! program by its path. That every call does so is shown first, by what the program writes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::parts::measure_parts;
use tungstenite::{Message, WebSocket};

/// Longer than a server takes to find that it rests, and a supervisor that fewer shims will do.
const REST: Duration = Duration::from_secs(30);

/// Longer than a finding about the other end of a connection counts.
const PAUSE: Duration = Duration::from_millis(1_100);

fn main() {
    measure_parts(
        &Bench::new(),
        &[
            ("start", Bench::start_to_ready),
            ("exec", Bench::one_caller),
            ("rested", Bench::rested_caller),
            ("shell", Bench::through_the_shell),
            ("parallel", Bench::eight_callers),
            ("approval", Bench::approval),
            ("memory", Bench::idle_memory),
            ("commands", Bench::commands),
        ],
    );
}

/// The program of the measured calls.
const PROGRAM: &str = "/usr/bin/true";

/// A text for the shell that starts it, and cannot be run without a shell.
const SHELL_TEXT: &str = "x=$(/usr/bin/true); /usr/bin/true";

/// A state directory with a gateway. The agent `main` runs what the allowlist names, the agent `open`
/// runs everything.
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

/// Starts one and waits for its ready line.
fn start(state: &Path) -> (Child, u16) {
    let mut child = interlock(state, &["gateway", "run", "--port", "0", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    (
        child,
        u16::try_from(ready["port"].as_u64().unwrap()).unwrap(),
    )
}

fn end(child: &mut Child) {
    let pid = child.id().to_string();
    let _ = Command::new("/bin/kill").args(["-TERM", &pid]).status();
    let _ = child.wait();
}

impl Drop for Bench {
    fn drop(&mut self) {
        end(&mut self.gateway);
        let state = format!("guard --state-dir {}", self.state.path().display());
        let _ = Command::new("/usr/bin/pkill")
            .args(["-KILL", "-f", &state])
            .status();
    }
}

impl Bench {
    fn new() -> Self {
        let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let set = |arguments: &[&str]| {
            let mut command = interlock(state.path(), arguments);
            assert!(command.stdout(Stdio::null()).status().unwrap().success());
        };
        let document = json!({
            "version": 1,
            "defaults": { "security": "allowlist", "ask": "on-miss", "askFallback": "deny" },
            "agents": {
                "main": { "allowlist": [{ "pattern": PROGRAM }] },
                "open": { "security": "full", "ask": "off", "askFallback": "full" },
            },
        });
        let file = state.path().join("document.json");
        fs::write(&file, document.to_string()).unwrap();
        set(&["approvals", "set", "--file", &file.display().to_string()]);
        let agents = r#"[{ "id": "main", "default": true }, { "id": "open" }]"#;
        set(&["config", "set", "agents.list", agents]);
        let (gateway, port) = start(state.path());
        let minted = interlock(state.path(), &["gateway", "token", "--new"]).output();
        let token = String::from_utf8(minted.unwrap().stdout).unwrap();
        Self {
            gateway,
            port,
            token: token.trim().to_owned(),
            state,
        }
    }

    fn start_to_ready(&self) {
        let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut times = Vec::new();
        for _ in 0..20 {
            let began = Instant::now();
            let (mut child, _) = start(state.path());
            times.push(began.elapsed());
            end(&mut child);
        }
        println!("start to ready: {:?}", median(&mut times));
        let state = format!("guard --state-dir {}", state.path().display());
        let _ = Command::new("/usr/bin/pkill")
            .args(["-KILL", "-f", &state])
            .status();
        let _ = self;
    }

    /// A caller that runs a command again and again.
    fn caller(&self, agent: &str, command: &str) -> Caller {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        let body = json!({ "tool": "exec", "agentId": agent, "args": { "command": command } });
        let body = body.to_string();
        let request = format!(
            "POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        Caller {
            stream: BufReader::new(stream),
            request,
        }
    }

    /// Every call starts the program: it says its version each time.
    fn prove_starts(&self) {
        let mut caller = self.caller("main", &format!("{PROGRAM} --version"));
        let calls = 50;
        let starts = (0..calls).filter(|_| caller.call().contains("coreutils"));
        assert_eq!(starts.count(), calls, "each call has to start {PROGRAM}");
    }

    fn one_caller(&self) {
        self.prove_starts();
        let mut caller = self.caller("main", PROGRAM);
        caller.call();
        compare(
            "exec of `/usr/bin/true` over HTTP, allowlisted (beside posix_spawn)",
            400,
            || drop(caller.call()),
            || spawn(&[PROGRAM]),
        );
    }

    /// A call after a pause, as agents make them: the gateway looks again who is at the other end.
    fn rested_caller(&self) {
        let mut caller = self.caller("main", PROGRAM);
        caller.call();
        let mut times = (Vec::new(), Vec::new());
        for _ in 0..20 {
            std::thread::sleep(PAUSE);
            let began = Instant::now();
            caller.call();
            times.0.push(began.elapsed());
            std::thread::sleep(PAUSE);
            let began = Instant::now();
            spawn(&[PROGRAM]);
            times.1.push(began.elapsed());
        }
        let name = "exec of it after a pause (beside posix_spawn after a pause)";
        report(name, &mut times.0, &mut times.1);
    }

    fn through_the_shell(&self) {
        let mut caller = self.caller("open", SHELL_TEXT);
        caller.call();
        compare(
            "exec of a shell text that starts it, under full (beside posix_spawn of the shell)",
            400,
            || drop(caller.call()),
            || spawn(&["/bin/sh", "-c", SHELL_TEXT]),
        );
    }

    fn eight_callers(&self) {
        let callers = (0..8).map(|_| self.caller("main", PROGRAM));
        let mut callers: Vec<Caller> = callers.collect();
        compare(
            "8 callers at once, 5 calls each",
            60,
            || {
                std::thread::scope(|scope| {
                    for caller in &mut callers {
                        scope.spawn(|| (0..5).for_each(|_| drop(caller.call())));
                    }
                });
            },
            || {
                std::thread::scope(|scope| {
                    for _ in 0..8 {
                        scope.spawn(|| (0..5).for_each(|_| spawn(&[PROGRAM])));
                    }
                });
            },
        );
    }

    /// A question by one connection, the answer by another, until the first one knows it.
    fn approval(&self) {
        let (mut asker, mut decider) = (self.operator(), self.operator());
        let database = self.state.path().join("commits.db");
        let commits = Commits::new(&database);
        // A config that was just written is read again and again.
        std::thread::sleep(Duration::from_secs(3));
        let mut times = (Vec::new(), Vec::new());
        for _ in 0..200 {
            let began = Instant::now();
            asker.send(
                "exec.approval.request",
                &json!({ "command": "make deploy", "twoPhase": true, "cwd": "/tmp" }),
            );
            let id = loop {
                let frame = decider.next();
                if frame["event"] == "exec.approval.requested" {
                    break frame["payload"]["id"].clone();
                }
            };
            decider.send(
                "exec.approval.resolve",
                &json!({ "id": id, "decision": "allow-once" }),
            );
            assert_eq!(asker.answer()["payload"]["id"], id);
            let told = asker.answer();
            times.0.push(began.elapsed());
            assert_eq!(told["payload"]["decision"], "allow-once", "{told}");
            // Nothing is left to do while the other side is measured.
            assert_eq!(decider.answer()["ok"], true);
            let began = Instant::now();
            commits.commit();
            commits.commit();
            times.1.push(began.elapsed());
        }
        let name = "approval: request, resolve, decision (beside two durable commits)";
        report(name, &mut times.0, &mut times.1);
    }

    fn operator(&self) -> Operator {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        let (socket, _) = tungstenite::client("ws://127.0.0.1/", stream).unwrap();
        let mut operator = Operator { socket, next: 0 };
        operator.next();
        operator.send(
            "connect",
            &json!({
                "minProtocol": 4, "maxProtocol": 4, "role": "operator",
                "scopes": ["operator.admin"], "caps": [],
                "client": { "id": "gateway-client", "mode": "backend", "version": "1", "platform": "linux" },
                "auth": { "token": self.token },
            }),
        );
        assert_eq!(operator.answer()["ok"], true);
        operator
    }

    /// When it has rested for so long that it has given back what it does not use.
    fn idle_memory(&self) {
        self.caller("main", PROGRAM).call();
        std::thread::sleep(REST);
        let own = resident(self.gateway.id());
        let state = self.state.path().display().to_string();
        // The guard, the supervisor below it, and the shims below that.
        let mut all = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let called = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let called = String::from_utf8_lossy(&called);
            if called.contains("\0guard\0") && called.contains(&state) {
                let pid: u32 = entry.file_name().to_string_lossy().parse().unwrap();
                all.push((pid, number(pid, "PPid:")));
            }
        }
        let is_one = |pid: u64| all.iter().any(|(other, _)| u64::from(*other) == pid);
        let parent = |pid: u64| all.iter().find(|(other, _)| u64::from(*other) == pid);
        let is_shim = |of: u64| is_one(of) && parent(of).is_some_and(|(_, above)| is_one(*above));
        let (mut both, mut shims) = (0, 0);
        for (pid, above) in &all {
            if is_shim(*above) {
                shims += resident(*pid);
            } else {
                both += resident(*pid);
            }
        }
        let mib = |kib: u64| kib as f64 / 1024.0;
        println!(
            "idle: gateway {:.1} MiB, with supervisor and guard {:.1} MiB (bar: 24); waiting shims {:.1} MiB \
             (each counted whole)",
            mib(own),
            mib(own + both),
            mib(shims)
        );
    }

    fn commands(&self) {
        for (name, arguments) in [
            ("approvals get", &["approvals", "get", "--json"][..]),
            ("--version", &["--version"]),
        ] {
            let mut times: Vec<Duration> = (0..100)
                .map(|_| {
                    let mut command = interlock(self.state.path(), arguments);
                    command.stdout(Stdio::null());
                    let began = Instant::now();
                    assert!(command.status().unwrap().success());
                    began.elapsed()
                })
                .collect();
            println!("interlock {name}: {:?}", median(&mut times));
        }
    }
}

/// One connection that calls again and again.
struct Caller {
    stream: BufReader<TcpStream>,
    request: String,
}

impl Caller {
    /// The body of the answer.
    fn call(&mut self) -> String {
        self.stream
            .get_mut()
            .write_all(self.request.as_bytes())
            .unwrap();
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        assert!(body.starts_with("{\"ok\":true"), "{body}");
        assert!(body.contains("\"exitCode\":0"), "{body}");
        body
    }
}

struct Operator {
    socket: WebSocket<TcpStream>,
    next: u32,
}

impl Operator {
    fn send(&mut self, method: &str, params: &Value) {
        self.next += 1;
        let frame = json!({ "type": "req", "id": self.next.to_string(), "method": method, "params": params });
        self.socket.send(Message::text(frame.to_string())).unwrap();
    }

    fn next(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.socket.read().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    /// The answer to the last request; events in between are passed over.
    fn answer(&mut self) -> Value {
        loop {
            let frame = self.next();
            if frame["type"] == "res" && frame["id"] == self.next.to_string().as_str() {
                return frame;
            }
        }
    }
}

/// The least that a durable change costs here.
struct Commits(rusqlite::Connection);

impl Commits {
    fn new(path: &PathBuf) -> Self {
        let connection = rusqlite::Connection::open(path).unwrap();
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (x TEXT);",
            )
            .unwrap();
        Self(connection)
    }

    fn commit(&self) {
        let row = "x".repeat(600);
        self.0.execute("INSERT INTO t VALUES (?1)", [row]).unwrap();
    }
}

/// Starts a program and waits for its end: `posix_spawn` underneath.
fn spawn(words: &[&str]) {
    let null = Stdio::null;
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .stdin(null())
        .stdout(null())
        .stderr(null());
    assert!(command.status().unwrap().success());
}

fn resident(pid: u32) -> u64 {
    number(pid, "VmRSS:")
}

fn number(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_ascii_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// The medians of both, measured in turns.
fn compare(name: &str, rounds: usize, mut ours: impl FnMut(), mut theirs: impl FnMut()) {
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let began = Instant::now();
        ours();
        times.0.push(began.elapsed());
        let began = Instant::now();
        theirs();
        times.1.push(began.elapsed());
    }
    report(name, &mut times.0, &mut times.1);
}

fn report(name: &str, ours: &mut [Duration], theirs: &mut [Duration]) {
    let (own, other) = (median(ours), median(theirs));
    println!(
        "{name}: {own:?} beside {other:?}: {:.2} times, {:?} more",
        own.as_secs_f64() / other.as_secs_f64(),
        own.saturating_sub(other)
    );
}
