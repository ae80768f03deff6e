//! A gateway and an Interlock node, each a process on a machine of its own.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::mcp::raw;
use crate::{Machine, eventually, is_root};

/// A process that ends with the test.
pub struct Started(Child);

impl Started {
    pub fn signal(&mut self, signal: &str) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        let pid = self.0.id().to_string();
        let _ = Command::new("/bin/kill").args([signal, &pid]).status();
        let _ = self.0.wait();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.signal("-TERM");
    }
}

/// A gateway on one machine and a node on another.
pub struct Pair {
    pub here: Machine,
    pub there: Machine,
    pub gateway: Started,
    pub node: Started,
    pub port: u16,
    pub token: String,
    pub node_id: String,
}

pub fn start_gateway(machine: &Machine, port: u16) -> (Started, u16) {
    let port = port.to_string();
    let mut child = machine
        .command(&["gateway", "run", "--port", &port, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
    let port = u16::try_from(ready["port"].as_u64().unwrap()).unwrap();
    (Started(child), port)
}

pub fn start_node(machine: &Machine, port: u16, token: &str) -> Started {
    let port = port.to_string();
    let child = machine
        .command(&["node", "run", "--host", "127.0.0.1", "--port", &port])
        .env("INTERLOCK_GATEWAY_TOKEN", token)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Started(child)
}

/// Whether a node is connected, according to the gateway.
pub fn is_connected(machine: &Machine, id: &str) -> bool {
    let listed = machine.run(&["nodes", "list", "--no-spawn", "--json"]);
    let nodes: Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
    let nodes = nodes["nodes"].as_array().cloned().unwrap_or_default();
    nodes
        .iter()
        .any(|node| node["nodeId"] == id && node["connected"] == true)
}

/// Waits for a node, approves it and returns its id.
pub fn approve(machine: &Machine, but: &[&str]) -> String {
    let mut id = String::new();
    eventually("a node that waits", || {
        let listed = machine.run(&["nodes", "list", "--no-spawn", "--json"]);
        let nodes: Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
        let nodes = nodes["nodes"].as_array().cloned().unwrap_or_default();
        let new = nodes.iter().find(|node| {
            let known = node["nodeId"].as_str().unwrap_or_default();
            node["connected"] == true && !but.contains(&known)
        });
        if let Some(new) = new {
            new["nodeId"].as_str().unwrap().clone_into(&mut id);
        }
        !id.is_empty()
    });
    machine.ok(&["nodes", "approve", &id]);
    id
}

impl Pair {
    pub fn new(there: Machine) -> Self {
        Self::with_config(there, "{ agents: { list: [{ id: 'other' }] } }")
    }

    pub fn with_config(there: Machine, config: &str) -> Self {
        let here = Machine::new();
        here.write_config(config);
        here.leave_to_nodes();
        there.start();
        there.ok(&["exec-policy", "preset", "yolo"]);
        let (gateway, port) = start_gateway(&here, 0);
        let token = here.operator_token();
        let node = start_node(&there, port, &token);
        let node_id = approve(&here, &[]);
        Self {
            here,
            there,
            gateway,
            node,
            port,
            token,
            node_id,
        }
    }

    pub fn call(&self, agent: &str, tool: &str, arguments: &Value) -> Value {
        let body = json!({ "tool": tool, "args": arguments, "agentId": agent }).to_string();
        let request = format!(
            "POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
             Authorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        );
        let reply = raw(self.port, request.as_bytes());
        let answer: Value =
            serde_json::from_str(&reply.body).unwrap_or_else(|_| panic!("{reply:?}"));
        assert_eq!(reply.status, 200, "{answer}");
        answer["result"].clone()
    }

    pub fn exec(&self, arguments: &Value) -> Value {
        let mut all = json!({ "host": "node" });
        for (name, value) in arguments.as_object().unwrap() {
            all[name] = value.clone();
        }
        self.call("main", "exec", &all)["details"].clone()
    }

    pub fn process(&self, arguments: &Value) -> Value {
        self.call("main", "process", arguments)["details"].clone()
    }

    pub fn of(&self, action: &str, id: &str) -> Value {
        self.process(&json!({ "action": action, "sessionId": id }))
    }

    /// Starts a command in the background on the node.
    #[track_caller]
    pub fn background(&self, command: &str) -> String {
        let running = self.exec(&json!({ "command": command, "background": true }));
        assert_eq!(running["status"], "running", "{running}");
        running["sessionId"].as_str().unwrap().to_owned()
    }

    /// Returns a session's row in the list.
    pub fn listed(&self, id: &str) -> Option<Value> {
        let all = self.process(&json!({ "action": "list" }));
        let all = all["sessions"]
            .as_array()
            .unwrap_or_else(|| panic!("{all}"));
        all.iter().find(|one| one["sessionId"] == id).cloned()
    }

    pub fn work(&self, name: &str) -> PathBuf {
        self.there.work().join(name)
    }

    pub fn node_is_back(&self) {
        eventually("the node is back", || {
            is_connected(&self.here, &self.node_id)
        });
    }

    /// Returns the texts of the session's next answers, until they contain these words.
    pub fn told(&self, words: &str) -> String {
        let mut text = String::new();
        eventually(words, || {
            let answer = self.call("main", "process", &json!({ "action": "list" }));
            answer["content"][0]["text"]
                .as_str()
                .unwrap()
                .clone_into(&mut text);
            text.contains(words)
        });
        text
    }
}

/// Returns the machines of root and of an ordinary user, if this user can have both.
pub fn machines() -> Vec<Machine> {
    let mut all = vec![Machine::new()];
    if is_root() {
        all.extend(Machine::of_ordinary_user());
    }
    all
}

/// Prints rising numbers until a file tells it to stop. It records each start and exits with 7.
pub const COUNT: &str = "echo started >> starts; i=0; until [ -e stop ]; do i=$((i+1)); echo $i; sleep 0.02; done; exit 7";
