//! The test calls: starts exactly the commands that setup wrote, as the agent program will, and
//! asks the agent program itself.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use interlock_arguments::AgentProgram;
use interlock_console::output;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::programs::ENTRY;

/// How long a test call may take, including the start of a gateway.
const CALL_TIME: Duration = Duration::from_secs(30);

/// How long the agent program may take to list its servers. It starts every one of them.
const LIST_TIME: Duration = Duration::from_mins(1);

/// How many bytes of an answer are read.
const MAX_OUTPUT: u64 = 256 * 1024;

/// The variables that every agent program passes on. The test passes only these.
const PASSED_VARIABLES: [&str; 5] = ["HOME", "PATH", "USER", "LANG", "TMPDIR"];

/// The result of a test.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckResult {
    pub ok: bool,
    pub text: String,
}

impl CheckResult {
    fn failed(text: impl Into<String>) -> Self {
        Self {
            ok: false,
            text: text.into(),
        }
    }
}

/// Starts the MCP entry and makes calls that change nothing: `initialize`, `tools/list`, and
/// `process` with the action `list`.
pub fn call_entry(command: &[String]) -> CheckResult {
    match call(command) {
        Ok(text) => CheckResult { ok: true, text },
        Err(problem) => CheckResult::failed(problem),
    }
}

fn call(command: &[String]) -> Result<String, String> {
    let mut started = start(&command[0], &command[1..])?;
    let mut client = McpCheck {
        input: started.child.stdin.take().ok_or("it has no input")?,
        lines: started.lines(),
        until: Instant::now() + CALL_TIME,
    };
    let initialize = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "interlock setup", "version": env!("CARGO_PKG_VERSION") },
    });
    let answer = client.request(1, "initialize", &initialize);
    // Its stderr explains why there is no answer.
    let answer = answer.map_err(|problem| started.with_errors(&problem))?;
    let answer: InitializeResult = serde_json::from_value(answer).unwrap_or_default();
    let server = answer.server_info.version.unwrap_or_else(|| "?".to_owned());
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
    let listed = client.request(2, "tools/list", &json!({}))?;
    let listed: ToolListResult = serde_json::from_value(listed).unwrap_or_default();
    let tools: Vec<&str> = listed.tools.iter().map(|tool| tool.name.as_str()).collect();
    if tools.is_empty() {
        return Err("it offers no tools".to_owned());
    }
    if tools.contains(&"process") {
        let call = json!({ "name": "process", "arguments": { "action": "list" } });
        let result = client.request(3, "tools/call", &call)?;
        let result: ToolCallResult = serde_json::from_value(result).unwrap_or_default();
        if result.is_error {
            let first = result.content.first().and_then(|part| part.text.as_deref());
            let text = first.unwrap_or("no reason");
            return Err(format!("the test call was refused: {}", output::line(text)));
        }
    }
    Ok(format!("version {server} offers {}", tools.join(", ")))
}

/// Runs the hook with a tool that no agent program has. The hook must deny the call.
pub fn call_hook(line: &str) -> CheckResult {
    let tried = || -> Result<(), String> {
        let mut started = start("/bin/sh", &["-c".to_owned(), line.to_owned()])?;
        let mut input = started.child.stdin.take().ok_or("it has no input")?;
        let request = json!({ "hook_event_name": "setup", "tool_name": "interlock-setup-test", "tool_input": {} });
        input
            .write_all(request.to_string().as_bytes())
            .map_err(|error| error.to_string())?;
        drop(input);
        let answer = started.lines().recv_timeout(CALL_TIME);
        let answer = answer.map_err(|_| started.with_errors("it did not answer"))?;
        if answer.contains("\"deny\"") {
            Ok(())
        } else {
            Err(format!(
                "it did not deny an unknown tool: {}",
                output::line(&answer)
            ))
        }
    };
    match tried() {
        Ok(()) => CheckResult {
            ok: true,
            text: "denies what it does not know".to_owned(),
        },
        Err(problem) => CheckResult::failed(problem),
    }
}

/// Asks the agent program whether it sees the entry. Returns `None` if the program is not installed
/// or cannot list its servers.
pub fn ask_program(program: AgentProgram) -> Option<(String, CheckResult)> {
    let (name, arguments) = program.list_command()?;
    let path = find_program(name)?;
    let command = format!("{name} {}", arguments.join(" "));
    let mut asked = Command::new(path);
    asked
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let result = match asked.spawn() {
        Err(error) => CheckResult::failed(error.to_string()),
        Ok(child) => find_entry(child),
    };
    Some((command, result))
}

/// Searches the output of the agent program for the entry. Some programs print the list to stderr.
fn find_entry(mut child: Child) -> CheckResult {
    let (send, lines) = mpsc::channel();
    let pipes: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|pipe| Box::new(pipe) as _),
        child.stderr.take().map(|pipe| Box::new(pipe) as _),
    ];
    for pipe in pipes.into_iter().flatten() {
        send_lines(pipe, send.clone());
    }
    drop(send);
    let until = Instant::now() + LIST_TIME;
    let mut last = String::new();
    let mut found = None;
    while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
        let line = without_colors(&line).trim().to_owned();
        if line.contains(ENTRY) {
            found = Some(line);
            break;
        }
        if !line.is_empty() {
            last = line;
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    match found {
        Some(line) => CheckResult {
            ok: true,
            text: output::line(&line),
        },
        None if last.is_empty() => CheckResult::failed("it does not list Interlock"),
        None => {
            let last = output::line(&last);
            CheckResult::failed(format!("it does not list Interlock: {last}"))
        }
    }
}

fn send_lines(pipe: impl Read + Send + 'static, send: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe.take(MAX_OUTPUT)).lines() {
            let Ok(line) = line else { return };
            if send.send(line).is_err() {
                return;
            }
        }
    });
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&path).map(|directory| directory.join(name));
    candidates.find(|candidate| candidate.is_absolute() && candidate.is_file())
}

/// Removes colors, which agent programs print even without a terminal.
fn without_colors(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic());
        rest = end.map_or("", |end| &after[end + 1..]);
    }
    plain + rest
}

/// A process under test. Dropping this kills it.
struct TestedProcess {
    child: Child,
    errors: Receiver<String>,
}

impl Drop for TestedProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(program: impl AsRef<OsStr>, arguments: &[String]) -> Result<TestedProcess, String> {
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    for name in PASSED_VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command
        .spawn()
        .map_err(|error| format!("it does not start: {error}"))?;
    Ok(TestedProcess::new(child))
}

impl TestedProcess {
    fn new(mut child: Child) -> Self {
        let (send, errors) = mpsc::channel();
        if let Some(stderr) = child.stderr.take() {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let _ = stderr.take(MAX_OUTPUT).read_to_end(&mut text);
                let _ = send.send(String::from_utf8_lossy(&text).into_owned());
            });
        }
        Self { child, errors }
    }

    /// The lines of its stdout, as they arrive.
    fn lines(&mut self) -> Receiver<String> {
        let (send, lines) = mpsc::channel();
        if let Some(stdout) = self.child.stdout.take() {
            send_lines(stdout, send);
        }
        lines
    }

    /// Appends what the process wrote to stderr to a problem.
    fn with_errors(&mut self, problem: &str) -> String {
        let _ = self.child.kill();
        let errors = self.errors.recv_timeout(Duration::from_secs(1));
        match errors.as_deref().map(str::trim) {
            Ok(errors) if !errors.is_empty() => format!("{problem}: {}", output::line(errors)),
            _ => problem.to_owned(),
        }
    }
}

/// A minimal MCP client for the test.
struct McpCheck {
    input: std::process::ChildStdin,
    lines: Receiver<String>,
    until: Instant,
}

impl McpCheck {
    fn send(&mut self, message: &Value) -> Result<(), String> {
        let line = format!("{message}\n");
        let sent = self.input.write_all(line.as_bytes());
        sent.map_err(|error| format!("it does not read: {error}"))
    }

    fn request(&mut self, id: u64, method: &str, params: &Value) -> Result<Value, String> {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            let line = self
                .lines
                .recv_timeout(left)
                .map_err(|_| format!("no answer to {method}"))?;
            let Ok(answer) = serde_json::from_str::<McpAnswer>(&line) else {
                return Err(format!("not MCP: {}", output::line(&line)));
            };
            if answer.id != id {
                continue;
            }
            if let Some(McpError { message }) = answer.error {
                return Err(format!("{method}: {}", output::line(&message)));
            }
            return Ok(answer.result);
        }
    }
}

/// The fields of an MCP answer that the test reads.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct McpAnswer {
    id: Value,
    result: Value,
    error: Option<McpError>,
}

#[derive(Debug, Deserialize)]
struct McpError {
    message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InitializeResult {
    server_info: McpServerInfo,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct McpServerInfo {
    version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToolListResult {
    tools: Vec<ListedTool>,
}

#[derive(Debug, Deserialize)]
struct ListedTool {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ToolCallResult {
    is_error: bool,
    content: Vec<ToolContent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ToolContent {
    text: Option<String>,
}
