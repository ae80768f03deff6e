//! An Interlock node, as a process of its own.

use std::process::{Child, Command, Stdio};

use super::wire::{Gateway, Wire, approve};
use testkit::{Machine, eventually};

/// Ends with the test.
pub struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("/bin/kill").args(["-TERM", &pid]).status();
        let _ = self.0.wait();
    }
}

/// Connects the machine to the gateway and has it approved.
pub fn connect(machine: &Machine, gateway: &Gateway, admin: &mut Wire) -> Node {
    let node = come(machine, gateway);
    approve(admin);
    node
}

/// Connects one that is known already, and waits until it is there.
pub fn come_back(machine: &Machine, gateway: &Gateway, admin: &mut Wire) -> Node {
    let node = come(machine, gateway);
    eventually("the node is back", || {
        let listed = admin.ok("node.list", &serde_json::json!({}));
        listed["nodes"][0]["connected"] == true
    });
    node
}

fn come(machine: &Machine, gateway: &Gateway) -> Node {
    let port = gateway.port.to_string();
    let flags = [
        "node",
        "run",
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "--display-name",
        "real",
    ];
    let mut command = machine.command(&flags);
    command.env("INTERLOCK_GATEWAY_TOKEN", &gateway.token);
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    Node(command.spawn().unwrap())
}
