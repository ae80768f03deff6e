//! A gateway on this side, a node on the other, and a file there that every command leaves a line in.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::network::Network;
use testkit::ws::{EVERYTHING, Gateway, WsClient};
use testkit::{Machine, eventually};

/// A call on its way: its number, and the id of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    number: usize,
    request: usize,
}

pub struct Site {
    // Ends before the machines are removed.
    node: Option<Child>,
    pub admin: WsClient,
    gateway: Option<Gateway>,
    gateway_port: u16,
    tick_ms: &'static str,
    here: Machine,
    there: Machine,
    pub network: Network,
    calls: usize,
}

impl Site {
    pub fn new(tick_ms: &'static str) -> Option<Self> {
        let network = Network::new()?;
        let (here, there) = (Machine::new(), Machine::unguarded());
        here.leave_to_nodes();
        let address = network.here().to_string();
        let ranges = json!([network.range()]).to_string();
        for (key, value) in [
            ("gateway.bind", "custom"),
            ("gateway.customBindHost", address.as_str()),
            ("gateway.nodes.pairing.autoApproveCidrs", ranges.as_str()),
        ] {
            here.ok(&["config", "set", key, value]);
        }
        let gateway = here.gateway_with(&["--port", "0", "--tick-ms", tick_ms]);
        Some(Self {
            node: None,
            admin: gateway.connect_locally(EVERYTHING),
            gateway_port: gateway.port,
            gateway: Some(gateway),
            tick_ms,
            here,
            there,
            network,
            calls: 0,
        })
    }

    pub fn port(&self) -> u16 {
        self.gateway_port
    }

    pub fn start_node(&mut self, port: u16) {
        let (address, port) = (self.network.here().to_string(), port.to_string());
        let mut command = self
            .there
            .command(&["node", "run", "--host", &address, "--port", &port]);
        let token = &self.gateway.as_ref().unwrap().token;
        command.env("INTERLOCK_GATEWAY_TOKEN", token);
        let mut command = self.network.there(&command);
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.there.root().join("node.log"))
            .unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        self.node = Some(command.stderr(log).spawn().unwrap());
    }

    /// Lets the node be used.
    pub fn pair(&mut self) {
        let asked = self.admin.event("node.pair.requested", |_| true);
        let request = json!({ "requestId": asked["requestId"] });
        self.admin.ok("node.pair.approve", &request);
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.node.as_ref().unwrap().id().to_string();
        let sent = Command::new("/bin/kill").args([signal, &pid]).status();
        assert!(sent.unwrap().success());
    }

    pub fn kill_node(&mut self) {
        let mut node = self.node.take().unwrap();
        node.kill().unwrap();
        node.wait().unwrap();
    }

    pub fn kill_gateway(&mut self) {
        self.gateway.take().unwrap().kill();
    }

    /// At the address where it was.
    pub fn start_gateway(&mut self) {
        let port = self.gateway_port.to_string();
        let flags = ["--port", &port, "--tick-ms", self.tick_ms];
        let gateway = self.here.gateway_with(&flags);
        self.admin = gateway.connect_locally(EVERYTHING);
        self.gateway = Some(gateway);
    }

    fn ran(&self) -> PathBuf {
        self.there.work().join("ran")
    }

    /// How often a command left its line.
    fn lines(&self, line: &str) -> usize {
        let text = fs::read_to_string(self.ran()).unwrap_or_default();
        text.lines().filter(|one| *one == line).count()
    }

    fn call(&mut self, command: &str) -> Call {
        let args = json!({ "command": command, "host": "node" });
        let call = json!({ "name": "exec", "args": args });
        let request = self.admin.send("tools.invoke", &call).unwrap();
        Call {
            number: self.calls,
            request: request.parse().unwrap(),
        }
    }

    /// Calls a command that leaves its line at once.
    pub fn begin(&mut self) -> Call {
        self.calls += 1;
        let command = format!("echo end-{} >> {}", self.calls, self.ran().display());
        self.call(&command)
    }

    /// Calls one that has begun, and ends only when it may.
    pub fn begin_held(&mut self) -> Call {
        self.calls += 1;
        let (number, ran) = (self.calls, self.ran());
        let go = self.there.work().join(format!("go-{number}"));
        let command = format!(
            "echo begin-{number} >> {ran}; until [ -e {go} ]; do sleep 0.05; done; echo end-{number} >> {ran}",
            ran = ran.display(),
            go = go.display(),
        );
        let call = self.call(&command);
        let begun = format!("begin-{number}");
        eventually(&begun, || self.lines(&begun) == 1);
        call
    }

    /// Lets the last one that was held end.
    pub fn let_go(&self) {
        fs::write(self.there.work().join(format!("go-{}", self.calls)), "").unwrap();
    }

    /// What became of a call; none if the gateway has gone. What is said to be finished is.
    pub fn finish(&mut self, call: Call) -> Option<Value> {
        let mut answer = self.admin.answer(&call.request.to_string())?.unwrap();
        let details = answer["output"]["details"].take();
        if details["status"] == "completed" {
            assert_eq!(details["exitCode"], 0, "{details}");
            assert!(details["error"].is_null(), "{details}");
            assert_eq!(self.lines(&format!("end-{}", call.number)), 1, "{details}");
        }
        Some(details)
    }

    /// A held command ended by itself, and was begun once.
    pub fn ends_once(&self, call: &Call) {
        let end = format!("end-{}", call.number);
        eventually(&end, || self.lines(&end) == 1);
        assert_eq!(self.lines(&format!("begin-{}", call.number)), 1);
    }

    /// Sooner or later a command runs.
    pub fn works(&mut self) {
        eventually("a command runs on the node", || {
            let call = self.begin();
            self.finish(call).unwrap()["status"] == "completed"
        });
    }

    /// Whether the gateway believes that the node is there.
    pub fn is_listed(&mut self, connected: bool) {
        eventually(&format!("connected: {connected}"), || {
            let listed = self.admin.ok("node.list", &json!({}));
            listed["nodes"][0]["connected"] == connected
        });
    }

    /// Nothing that was ever called has run twice, and the record is whole.
    pub fn check(&self) {
        let text = fs::read_to_string(self.ran()).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let all = lines.len();
        lines.dedup();
        assert_eq!(lines.len(), all, "{text}");
        self.here.ok(&["audit", "verify"]);
        self.there.ok(&["audit", "verify"]);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(mut node) = self.node.take() {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}
