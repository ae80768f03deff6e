//! Approvals in chat: a real gateway, and stand-ins for the chat servers with the shapes that their
//! platforms document (`testkit::chat`). `tests/run-heavy matrix` does the same with a real Synapse,
//! `tests/run-heavy telegram` with an emulator of Telegram from npm.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod addresses;
mod commands;
mod discord;
mod failures;
mod floods;
mod hooks;
mod hostile;
mod hostile_servers;
mod kills;
mod matrix;
mod matrix_refusals;
mod memory;
mod slack;
mod slack_refusals;
mod synapse;
mod telegram;
mod telegram_emulator;

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::mcp::Reply;
use testkit::ws::Gateway;
use testkit::{Machine, eventually};

/// An approver, a stranger, and the room that approvals go to.
const ADA: &str = "@ada:test";
const EVE: &str = "@eve:test";
const ROOM: &str = "!room:test";

/// A machine with a gateway that has this config for chats, and an agent that asks.
struct Chatting {
    machine: Machine,
    gateway: Gateway,
    token: String,
}

/// Merges objects, key by key.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

impl Chatting {
    fn start(machine: Machine, config: &Value) -> Self {
        Self::start_with(machine, config, &[])
    }

    fn start_with(machine: Machine, config: &Value, variables: &[(&str, &str)]) -> Self {
        let mut whole = json!({ "tools": { "exec": { "approvalWaitMs": 0 } } });
        merge(&mut whole, config);
        machine.start();
        machine.write_config(&whole.to_string());
        let gateway = start_gateway(&machine, variables);
        let token = machine.ok(&["agents", "token", "main", "--json"]).json();
        let token = token["token"].as_str().unwrap().to_owned();
        Self {
            machine,
            gateway,
            token,
        }
    }

    fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut text = format!("POST {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "Host") {
            text.push_str(&format!("Host: 127.0.0.1:{}\r\n", self.gateway.port));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        testkit::mcp::raw(self.gateway.port, text.as_bytes())
    }

    /// An agent asks to run a command; the id of the approval.
    fn ask(&self, command: &str) -> String {
        let workdir = self.machine.work();
        self.ask_with(&json!({ "command": command, "workdir": workdir }))
    }

    /// The same with other arguments.
    fn ask_with(&self, arguments: &Value) -> String {
        let call = json!({ "tool": "exec", "args": arguments });
        let bearer = format!("Bearer {}", self.token);
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
        ];
        let reply = self.post("/tools/invoke", &headers, &call.to_string());
        assert_eq!(reply.status, 200, "{reply:?}");
        let answer: Value = serde_json::from_str(&reply.body).unwrap();
        let id = answer["result"]["details"]["approvalId"].as_str();
        id.unwrap_or_else(|| panic!("not asked: {answer:#}"))
            .to_owned()
    }

    /// The file that a command makes, and the approval of it.
    fn ask_marker(&self, name: &str) -> (PathBuf, String) {
        let path = self.machine.work().join(name);
        let id = self.ask(&format!("/usr/bin/touch {}", path.display()));
        (path, id)
    }

    /// How an approval ended: the word and who decided it. Not decided: none.
    fn ending(&self, id: &str) -> Option<(String, String)> {
        let database = self.machine.database();
        let statement =
            "SELECT coalesce(ending, ''), coalesce(decider, '') FROM approval WHERE id = ?1";
        let (ending, decider): (String, String) = database
            .query_row(statement, [id], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        (!ending.is_empty()).then_some((ending, decider))
    }

    fn until_ended(&self, id: &str) -> (String, String) {
        eventually("it is decided", || self.ending(id).is_some());
        self.ending(id).unwrap()
    }

    fn short_id(&self, id: &str) -> String {
        let database = self.machine.database();
        let statement = "SELECT short_id FROM approval WHERE id = ?1";
        database
            .query_row(statement, [id], |row| row.get(0))
            .unwrap()
    }

    /// The receipts of an approval: surface, state, detail.
    fn receipts(&self, id: &str) -> Vec<(String, String, String)> {
        let database = self.machine.database();
        let mut statement = database
            .prepare(
                "SELECT surface, approval_delivery.state, coalesce(detail, '')
                 FROM approval_delivery JOIN approval USING (number) WHERE id = ?1 ORDER BY at_ms",
            )
            .unwrap();
        let rows = statement
            .query_map([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// The texts of audit records of refused answers.
    fn refusals(&self) -> Vec<String> {
        let database = self.machine.database();
        let mut statement = database
            .prepare("SELECT body FROM audit WHERE kind = 'delivery' ORDER BY seq")
            .unwrap();
        let rows = statement
            .query_map([], |row| row.get::<_, String>(0))
            .unwrap();
        let bodies = rows.map(|body| serde_json::from_str::<Value>(&body.unwrap()).unwrap());
        bodies
            .filter(|body| body["state"] == "refused")
            .map(|body| body["detail"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// The codes of audit records of refused calls to `/hooks/…`.
    fn refused_hooks(&self) -> Vec<String> {
        let database = self.machine.database();
        let mut statement = database
            .prepare(
                "SELECT json_extract(body, '$.code') FROM audit WHERE kind = 'refusal'
                    AND json_extract(body, '$.transport') = 'hooks' ORDER BY seq",
            )
            .unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Kills the gateway and starts another one.
    fn restart(&mut self) {
        self.gateway.kill();
        self.gateway = start_gateway(&self.machine, &[]);
    }
}

fn start_gateway(machine: &Machine, variables: &[(&str, &str)]) -> Gateway {
    let roots = machine.root().join("chat-ca.pem");
    let mut all = vec![("SSL_CERT_FILE", roots.to_str().unwrap())];
    all.extend(variables);
    machine.gateway_as(&["--port", "0"], &all)
}

/// A file of mode 0600 in the state directory.
fn secret_file(machine: &Machine, name: &str, text: &str) -> String {
    machine.start();
    let path = machine.state().join(name);
    machine.write_private(&path, text);
    path.to_str().unwrap().to_owned()
}

/// The config of a Matrix account at this address, whose approver is Ada and which writes to the room.
fn matrix_config(machine: &Machine, url: &str) -> Value {
    let token = secret_file(machine, "matrix.token", "matrix-token");
    json!({
        "channels": { "matrix": {
            "homeserver": url, "userId": testkit::chat::MATRIX_BOT, "tokenFile": token,
            "allowPrivateNetwork": true,
            "execApprovals": { "approvers": [ADA], "target": "channel" },
        } },
        "approvals": { "exec": {
            "enabled": true, "targets": [{ "channel": "matrix", "to": ROOM }],
        } },
    })
}
