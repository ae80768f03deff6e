//! The Control UI: what its HTTP and its protocol refuse, and its pages in a real browser.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod accessible;
mod attacks;
mod attacks_decide;
mod attacks_text;
mod attacks_wire;
mod details;
mod getting_in;
mod inbox;
mod keys;
mod pages;
mod phone;
mod push;
mod sight;
mod speed;
mod wire;
mod wire_lists;

use serde_json::{Value, json};
use testkit::Machine;
use testkit::ws::{EVERYTHING, Gateway, WsClient};

/// An agent whose calls are asked about.
struct Agent {
    client: WsClient,
}

impl Agent {
    fn new(gateway: &Gateway) -> Self {
        let client = gateway.connect(EVERYTHING);
        Self { client }
    }

    /// The same where the port speaks TLS.
    fn over_tls(gateway: &Gateway, authority: &std::path::Path) -> Self {
        let authority = testkit::tls::certificate(authority);
        let stream = testkit::tls::connect(gateway.port, "127.0.0.1", &authority);
        let client = gateway.join(Box::new(stream), EVERYTHING);
        Self { client }
    }

    /// Asks to run a command; the id of the approval.
    fn ask(&mut self, machine: &Machine, command: &str) -> String {
        self.ask_with(machine, &json!({ "command": command }))
    }

    /// Sends the call and waits for nothing.
    fn ask_later(&mut self, machine: &Machine, command: &str) -> String {
        let args = json!({ "command": command, "workdir": machine.work() });
        let call = json!({ "name": "exec", "args": args, "approvalWaitMs": 0 });
        self.client.send("tools.invoke", &call).unwrap()
    }

    /// The approval that such a call waits for.
    fn asked(&mut self, call: &str) -> String {
        approval_id(&self.client.answer(call).unwrap().unwrap())
    }

    fn ask_with(&mut self, machine: &Machine, args: &Value) -> String {
        let mut args = args.clone();
        if args["workdir"].is_null() {
            args["workdir"] = json!(machine.work());
        }
        let call = json!({ "name": "exec", "args": args, "approvalWaitMs": 0 });
        let answer = self.client.ok("tools.invoke", &call);
        approval_id(&answer)
    }
}

/// The approval that a call waits for.
fn approval_id(answer: &Value) -> String {
    let id = answer["approvalId"].as_str();
    let id = id.or_else(|| answer["output"]["details"]["approvalId"].as_str());
    id.unwrap_or_else(|| panic!("not asked: {answer:#}"))
        .to_owned()
}

/// The audit records of what was refused.
fn refusals(machine: &Machine) -> Vec<Value> {
    let log = machine.ok(&[
        "audit", "log", "--kind", "refusal", "--limit", "500", "--json",
    ]);
    let records = log.json()["records"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    records
        .iter()
        .map(|record| record["body"].clone())
        .collect()
}

/// Waits until the audit has a refusal with this code, and returns it.
fn refused_with(machine: &Machine, code: &str) -> Value {
    let mut found = Value::Null;
    testkit::eventually(code, || {
        let all = refusals(machine);
        found = all
            .into_iter()
            .find(|one| one["code"] == code)
            .unwrap_or_default();
        !found.is_null()
    });
    found
}

/// The file that a command makes, and the command.
fn marker(machine: &Machine, name: &str) -> (std::path::PathBuf, String) {
    let path = machine.work().join(name);
    let command = format!("touch {}", path.display());
    (path, command)
}
