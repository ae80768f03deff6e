//! A real gateway with TLS and a real node: pinned, wrongly pinned, and plain.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::ws::{EVERYTHING, Gateway};
use testkit::{Machine, eventually};

/// Ends with the test.
struct Node {
    child: Child,
    log: PathBuf,
}

impl Node {
    fn start(machine: &Machine, gateway: &Gateway, flags: &[&str]) -> Self {
        let log = machine.root().join("node.log");
        let port = gateway.port.to_string();
        let mut all = vec!["node", "run", "--host", "127.0.0.1", "--port", &port];
        all.extend(flags);
        let child = machine
            .command(&all)
            .env("INTERLOCK_GATEWAY_TOKEN", &gateway.token)
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    fn says(&self, what: &str) {
        eventually(what, || {
            fs::read_to_string(&self.log).is_ok_and(|log| log.contains(what))
        });
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("/bin/kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

/// A machine whose gateway speaks TLS, the gateway, and its fingerprint as `gateway status` tells it.
fn with_tls() -> (Machine, Gateway, String) {
    let machine = Machine::new();
    machine.write_config("{ gateway: { tls: { enabled: true } } }");
    machine.start();
    let gateway = machine.gateway();
    let told = machine.ok(&["gateway", "status", "--json"]).json();
    let fingerprint = told["tlsFingerprint"].as_str().unwrap().to_owned();
    (machine, gateway, fingerprint)
}

fn nodes(machine: &Machine) -> Vec<Value> {
    let listed = machine.ok(&["nodes", "list", "--json"]).json();
    listed["nodes"].as_array().unwrap().clone()
}

#[test]
fn a_node_that_pinned_the_certificate_runs_commands_for_its_gateway() {
    let (here, gateway, fingerprint) = with_tls();
    let there = Machine::new();
    there.start();
    there.ok(&["exec-policy", "set", "--ask", "off"]);
    there.ok(&["approvals", "allowlist", "add", "/usr/bin/uname"]);
    let flags = ["--tls", "--tls-fingerprint", &fingerprint];
    let _node = Node::start(&there, &gateway, &flags);
    eventually("a node that waits", || !nodes(&here).is_empty());
    let id = nodes(&here)[0]["nodeId"].as_str().unwrap().to_owned();
    here.ok(&["nodes", "approve", &id]);
    let mut client = gateway.connect_locally(EVERYTHING);
    let call = json!({ "name": "exec", "args": { "command": "uname", "host": "node" } });
    let answer = client.ok("tools.invoke", &call);
    let details = &answer["output"]["details"];
    assert_eq!(details["status"], "completed", "{answer:#}");
    assert_eq!(details["aggregated"], "Linux\n", "{answer:#}");
    let status = there.ok(&["node", "status", "--json"]).json();
    assert_eq!(
        status["gateway"],
        format!("wss://127.0.0.1:{}/", gateway.port)
    );
}

#[test]
fn a_node_that_pinned_another_certificate_says_which_it_was_shown_and_tells_nothing() {
    let (here, gateway, fingerprint) = with_tls();
    let there = Machine::new();
    let wrong = "00".repeat(32);
    let node = Node::start(&there, &gateway, &["--tls", "--tls-fingerprint", &wrong]);
    node.says(&format!(
        "it shows another certificate than the pinned one: {fingerprint} instead of {wrong}"
    ));
    node.says("next attempt");
    assert_eq!(nodes(&here), Vec::<Value>::new());
}

#[test]
fn a_node_without_tls_is_told_that_the_port_speaks_it() {
    let (here, gateway, _) = with_tls();
    let there = Machine::new();
    let node = Node::start(&there, &gateway, &[]);
    node.says("400 Bad Request: this port speaks TLS");
    assert_eq!(nodes(&here), Vec::<Value>::new());
}

#[test]
fn a_node_with_tls_is_told_that_a_plain_port_does_not_speak_it() {
    let (here, there) = (Machine::new(), Machine::new());
    here.start();
    let gateway = here.gateway();
    let pin = "00".repeat(32);
    let node = Node::start(&there, &gateway, &["--tls", "--tls-fingerprint", &pin]);
    node.says("it does not speak TLS there");
}
