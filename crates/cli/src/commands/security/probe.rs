//! `--deep`: probes the running gateway without credentials, and asks it and its nodes as the
//! owner.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use interlock_arguments::StateArguments;
use interlock_client::{GatewayClient, open_for_repair};
use interlock_config::GatewayBind;
use interlock_doctor::audit::{FindingSeverity, SecurityFinding, checks};
use interlock_engine::shield::{ShieldKind, probe_shield};
use interlock_gateway::{GatewayInfo, running};
use interlock_host::LocalHost;
use interlock_policy::{AgentId, Ask, Levels, Security};
use interlock_wire::params::NodePolicy;
use serde::Serialize;
use serde_json::json;

use crate::commands::nodes;

/// How long the gateway may take to answer a call without credentials.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How many bytes of an answer are read. They contain its first line.
const MAX_ANSWER: u64 = 4096;

/// The result of a probe in words.
#[derive(Debug, Serialize)]
pub struct ProbeResult {
    pub name: &'static str,
    pub result: String,
}

pub fn run(state: &StateArguments, findings: &mut Vec<SecurityFinding>) -> Vec<ProbeResult> {
    let mut probes = vec![ProbeResult {
        name: "shield",
        result: match probe_shield() {
            Ok(ShieldKind::User) => "namespaces of an ordinary user work".to_owned(),
            Ok(ShieldKind::Root) => "namespaces of root work".to_owned(),
            Err(reason) => format!("none: {reason}"),
        },
    }];
    // A state that cannot be opened is already a finding.
    let Ok(host) = open_for_repair(state) else {
        return probes;
    };
    let Some(info) = running(host.state_dir()) else {
        let result = "not running".to_owned();
        probes.push(ProbeResult {
            name: "gateway",
            result,
        });
        return probes;
    };
    probes.push(ProbeResult {
        name: "gateway",
        result: probe_gateway(&host, &info, findings),
    });
    probes.push(ProbeResult {
        name: "nodes",
        result: probe_nodes(state, &host, findings),
    });
    probes
}

fn probe_gateway(
    host: &LocalHost,
    info: &GatewayInfo,
    findings: &mut Vec<SecurityFinding>,
) -> String {
    let is_loopback = info.address.ip().is_loopback();
    let wants_loopback = host.config().is_ok_and(|file| {
        let bind = file.config().gateway.bind;
        bind.is_none_or(|bind| bind == GatewayBind::Loopback)
    });
    if wants_loopback && !is_loopback {
        findings.push(checks::LIVE_BIND_DIFFERS.finding(
            FindingSeverity::Critical,
            info.address.to_string(),
            format!(
                "the gateway listens on {}, and gateway.bind is `loopback`",
                info.address
            ),
            "interlock gateway stop",
        ));
    }
    if info.tls_fingerprint.is_some() {
        return format!(
            "{} speaks TLS; not called without credentials",
            info.address
        );
    }
    match call_as_stranger(info.address) {
        Ok(401) => format!("{} turns callers without credentials away", info.address),
        // The gateway did not ask for credentials: it answers that there is no such tool.
        Ok(status @ (400 | 404)) => {
            let severity = if is_loopback {
                FindingSeverity::Warn
            } else {
                FindingSeverity::Critical
            };
            findings.push(checks::BIND_NO_AUTH.finding(
                severity,
                info.address.to_string(),
                format!(
                    "the gateway at {} takes calls of tools without credentials",
                    info.address
                ),
                "interlock config set gateway.auth.mode token",
            ));
            format!(
                "{} answers callers without credentials ({status})",
                info.address
            )
        }
        Ok(status) => format!("{} answered with status {status}", info.address),
        Err(error) => format!("{} did not answer: {error}", info.address),
    }
}

/// The HTTP status of a call without credentials. It names a tool that does not exist, so that
/// nothing is read or run.
fn call_as_stranger(address: SocketAddr) -> std::io::Result<u16> {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let address = SocketAddr::new(ip, address.port());
    let mut stream = TcpStream::connect_timeout(&address, CALL_TIMEOUT)?;
    stream.set_read_timeout(Some(CALL_TIMEOUT))?;
    stream.set_write_timeout(Some(CALL_TIMEOUT))?;
    let body = json!({ "tool": "no-such-tool", "args": {} }).to_string();
    let request = format!(
        "POST /tools/invoke HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    let status = text.split_ascii_whitespace().nth(1);
    status
        .and_then(|status| status.parse().ok())
        .ok_or_else(|| std::io::Error::other("no HTTP answer"))
}

/// Checks the policy that every connected node reports.
fn probe_nodes(
    state: &StateArguments,
    host: &LocalHost,
    findings: &mut Vec<SecurityFinding>,
) -> String {
    let mut gateway = match GatewayClient::connect_running(state, host) {
        Ok(gateway) => gateway,
        Err(failure) => return format!("the gateway refused the owner: {failure}"),
    };
    let connected = match nodes::connected(&mut gateway) {
        Ok(connected) => connected,
        Err(failure) => return format!("not listed: {failure}"),
    };
    let (mut answered, mut silent) = (0, 0);
    for node in &connected {
        let params = NodePolicy {
            node_id: node.node_id.clone(),
            agent_id: Some(AgentId::MAIN.to_owned()),
        };
        let reported = gateway.request(&params).ok();
        let levels =
            reported.and_then(|report| serde_json::from_value::<Levels>(report.policy).ok());
        let Some(levels) = levels else {
            silent += 1;
            continue;
        };
        answered += 1;
        let asks = levels.ask.value() == Ask::Always;
        if levels.security.value() == Security::Full && !asks {
            let name = node.display_name.clone().filter(|name| !name.is_empty());
            let name = name.unwrap_or_else(|| node.node_id.clone());
            findings.push(checks::NODE_FULL.finding(
                FindingSeverity::Warn,
                name.clone(),
                format!("the effective security of the agent main is `full` on the node {name}"),
                "ssh NODE interlock exec-policy preset cautious",
            ));
        }
    }
    format!("{answered} reported their policy, {silent} did not")
}
