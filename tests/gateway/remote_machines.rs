//! A machine with a gateway, and one whose commands go there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};

use testkit::Machine;
use testkit::node_pair::{Started, start_gateway};

/// A machine with a gateway that speaks TLS, and its fingerprint.
pub fn served() -> (Machine, Started, u16, String) {
    let machine = Machine::new();
    machine.write_config("{ gateway: { tls: { enabled: true } } }");
    machine.start();
    let (gateway, port) = start_gateway(&machine, 0);
    let status = machine.ok(&["gateway", "status", "--json"]).json();
    let fingerprint = status["tlsFingerprint"].as_str().unwrap().to_owned();
    (machine, gateway, port, fingerprint)
}

/// A machine whose commands go elsewhere.
pub fn client(token: &str, remote: &Value) -> Machine {
    let machine = Machine::new();
    machine.start();
    let file = machine.root().join("home/gateway.token");
    machine.write_private(&file, token);
    let mut remote = remote.clone();
    remote["tokenFile"] = file.to_str().unwrap().into();
    machine.ok(&["config", "set", "gateway.remote", &remote.to_string()]);
    machine
}

/// Both, with a token of the gateway's operator.
pub fn both() -> (Machine, Machine, Started, u16) {
    let (here, gateway, port, fingerprint) = served();
    let token = here.operator_token();
    let url = format!("wss://127.0.0.1:{port}");
    let remote = json!({ "url": url, "tlsFingerprint": fingerprint });
    let there = client(&token, &remote);
    (here, there, gateway, port)
}
