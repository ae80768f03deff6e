//! `interlock mcp`: connects the standard input and output of an MCP client to the gateway of this
//! state directory or to the one that `gateway.remote` names.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use interlock_arguments::{McpArguments, StateArguments};
use interlock_client::{Absent, RemoteGateway, join, known_agent, open, outside_runs};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_gateway::GatewayInfo;
use interlock_host::LocalHost;
use interlock_node::Secret;

/// The longest head of an answer. A gateway's answer never has a longer one.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// The longest PATH that is sent. With a longer one, the gateway uses its own.
const MAX_PATH_BYTES: usize = 64 * 1024;

/// How many bytes of a refusal are read.
const MAX_BODY_BYTES: u64 = 64 * 1024;

pub fn run(state: &StateArguments, arguments: &McpArguments) -> CommandOutcome {
    let host = open(state)?;
    let stream = match RemoteGateway::followed(state, &host)? {
        Some(remote) => connect_remote(&host, &remote, arguments)?,
        None => {
            if let Some(agent) = &arguments.agent {
                known_agent(&host, agent)?;
            }
            let info = join(state, &host, Absent::wanted(state))?;
            connect_here(&info, arguments)?
        }
    };
    drop(host);
    carry(stream).map_err(|error| unreachable(&error))?;
    Ok(ExitCode::SUCCESS)
}

/// Connects to the gateway of this state directory, which identifies the process at the other end
/// of its socket.
fn connect_here(info: &GatewayInfo, arguments: &McpArguments) -> Result<UnixStream, Failure> {
    let stream = UnixStream::connect(&info.socket).map_err(|error| unreachable(&error))?;
    let mut lines = head("localhost", arguments)?;
    lines.extend(client_program());
    if arguments.elicitation {
        lines.push("X-Interlock-Elicitation: on".to_owned());
    }
    upgrade(stream, &lines)
}

/// Connects to the gateway that `gateway.remote` names, with its token. The directories and the
/// PATH of this machine mean nothing there. A run must not connect: a remote gateway could not see
/// that the client belongs to a run.
fn connect_remote(
    host: &LocalHost,
    remote: &RemoteGateway,
    arguments: &McpArguments,
) -> Result<UnixStream, Failure> {
    if arguments.elicitation {
        let message = "--elicitation is for the gateway of this machine";
        return Err(Failure::usage("ELICITATION_REMOTE", message).with_hint(
            "mint an agent's token on its machine with `interlock agents token AGENT --elicitation`, and use that",
        ));
    }
    outside_runs(host.state_dir())?;
    let secret = remote.token.as_ref().or(remote.password.as_ref());
    let secret = secret.map(Secret::expose).unwrap_or_default();
    // A line break in the secret would begin another header.
    if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        let message = "the token or password of gateway.remote cannot stand in a request";
        return Err(Failure::refused("TOKEN_FILE_UNUSABLE", message)
            .with_hint("use letters, digits and punctuation, without blanks"));
    }
    let mut lines = head(&remote.target.authority(), arguments)?;
    lines.push(format!("Authorization: Bearer {secret}"));
    upgrade(remote.open()?, &lines)
}

/// Upgrades the connection from HTTP.
fn upgrade(mut stream: UnixStream, lines: &[String]) -> Result<UnixStream, Failure> {
    let request = lines.join("\r\n") + "\r\n\r\n";
    let head = stream
        .write_all(request.as_bytes())
        .and_then(|()| read_head(&mut stream))
        .map_err(|error| unreachable(&error))?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status == "101" {
        return Ok(stream);
    }
    Err(refused(status, &stream))
}

/// The lines of the request for every gateway.
fn head(host: &str, arguments: &McpArguments) -> Result<Vec<String>, Failure> {
    let mut lines = vec![
        "GET /mcp/stdio HTTP/1.1".to_owned(),
        format!("Host: {host}"),
        "Connection: Upgrade".to_owned(),
        "Upgrade: interlock-mcp".to_owned(),
    ];
    if let Some(agent) = &arguments.agent {
        let agent = interlock_policy::AgentId::new(agent)
            .map_err(|error| Failure::usage("AGENT_INVALID", error.to_string()))?;
        lines.push(format!("X-Interlock-Agent: {agent}"));
    }
    if let Some(key) = &arguments.session_key {
        let is_plain = key.bytes().all(|byte| byte.is_ascii_graphic());
        if key.is_empty() || !is_plain {
            let message = "--session-key is letters, digits and punctuation, without blanks";
            return Err(Failure::usage("SESSION_KEY_INVALID", message));
        }
        lines.push(format!("X-Interlock-Session: {key}"));
    }
    Ok(lines)
}

/// Headers with the client's working directory and PATH.
fn client_program() -> Vec<String> {
    let mut lines = Vec::new();
    if let Ok(directory) = std::env::current_dir() {
        let bytes = hexadecimal(directory.as_os_str().as_bytes());
        lines.push(format!("X-Interlock-Cwd: {bytes}"));
    }
    if let Some(path) = std::env::var_os("PATH").filter(|path| path.len() <= MAX_PATH_BYTES) {
        lines.push(format!(
            "X-Interlock-Path: {}",
            hexadecimal(path.as_bytes())
        ));
    }
    lines
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        digits.push_str(&format!("{byte:02x}"));
    }
    digits
}

/// Reads the head byte by byte: bytes after the head belong to the MCP client.
fn read_head(stream: &mut UnixStream) -> io::Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
        if head.len() > MAX_HEAD_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

fn refused(status: &str, stream: &UnixStream) -> Failure {
    // Close the sending side, so that the gateway ends the connection after the body.
    let _ = stream.shutdown(Shutdown::Write);
    let mut body = Vec::new();
    let _ = stream.take(MAX_BODY_BYTES).read_to_end(&mut body);
    let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let message = answer
        .pointer("/error/message")
        .and_then(|text| text.as_str());
    let message = message.unwrap_or("no reason given");
    let message = format!(
        "the gateway refused ({status}): {}",
        output::visible(message)
    );
    Failure::refused("GATEWAY_REFUSED", message)
}

/// Copies bytes both ways until either side ends. A client that closes its input still gets the
/// answers to its requests.
fn carry(stream: UnixStream) -> io::Result<()> {
    let mut to_gateway = stream.try_clone()?;
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut to_gateway);
        let _ = to_gateway.shutdown(Shutdown::Write);
    });
    let mut from_gateway = stream;
    let mut client = io::stdout().lock();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = match from_gateway.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(error),
        };
        let written = client
            .write_all(&buffer[..count])
            .and_then(|()| client.flush());
        match written {
            // The client has closed its end.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
}

fn unreachable(error: &io::Error) -> Failure {
    Failure::refused(
        "GATEWAY_UNREACHABLE",
        format!("the gateway cannot be reached: {error}"),
    )
}
