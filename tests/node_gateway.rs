//! A real gateway and a real node: the commands of one machine, decided on another.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use support::mcp::{Gateway, StdioClient, raw, tool_call};
use support::{Machine, eventually};

/// Ends with the test.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("/bin/kill").args(["-TERM", &pid]).status();
        let _ = self.0.wait();
    }
}

fn connect(machine: &Machine, gateway: &Gateway<'_>, token: &str) -> Node {
    let port = gateway.port.to_string();
    let mut command = machine.command(&["node", "run", "--host", "127.0.0.1", "--port", &port]);
    command.env("INTERLOCK_GATEWAY_TOKEN", token);
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Node(child)
}

fn exec(gateway: &Gateway<'_>, token: &str, command: &str) -> Value {
    let body =
        json!({ "tool": "exec", "args": { "command": command, "host": "node" } }).to_string();
    let request = format!(
        "POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let reply = raw(gateway.port, request.as_bytes());
    let answer: Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(reply.status, 200, "{answer}");
    answer["result"]["details"].clone()
}

/// Allowlisted programs run on a node in every form, whoever the node runs as.
fn the_forms_of_an_allowlisted_program_run(there: &Machine) {
    let here = Machine::new();
    here.start();
    let gateway = Gateway::start(&here);
    let token = here.ok(&["gateway", "token"]).stdout.trim().to_owned();
    there.start();
    there.ok(&["exec-policy", "set", "--ask", "off"]);
    for program in ["/usr/bin/whoami", "/usr/bin/uname"] {
        there.ok(&["approvals", "allowlist", "add", program]);
    }
    let _node = connect(there, &gateway, &token);
    eventually("a node that waits", || {
        let listed = here.run(&["nodes", "list", "--json"]);
        listed.code == 0 && listed.stdout.contains("nodeId")
    });
    let nodes = here.ok(&["nodes", "list", "--json"]).json();
    let id = nodes["nodes"][0]["nodeId"].as_str().unwrap().to_owned();
    here.ok(&["nodes", "approve", &id]);
    for (command, lines) in [
        ("/usr/bin/whoami", 1),
        ("env /usr/bin/whoami", 1),
        ("whoami", 1),
        ("uname && whoami", 2),
        ("uname | head -n 1", 1),
    ] {
        let result = exec(&gateway, &token, command);
        assert_eq!(result["status"], "completed", "{command}: {result}");
        let output = result["aggregated"].as_str().unwrap();
        assert_eq!(output.lines().count(), lines, "{command}: {result}");
    }
    // What its document does not name does not run, whatever the gateway's says.
    here.ok(&["exec-policy", "preset", "yolo"]);
    let refused = exec(&gateway, &token, "/usr/bin/id");
    assert_eq!(refused["status"], "denied", "{refused}");
}

#[test]
fn all_forms_run_on_a_node() {
    the_forms_of_an_allowlisted_program_run(&Machine::new());
}

#[test]
fn all_forms_run_on_a_node_of_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can make another user's machine");
    }
    if let Some(machine) = Machine::of_ordinary_user() {
        the_forms_of_an_allowlisted_program_run(&machine);
    }
}

/// A person at the gateway approves what the node's policy asks about; a changed script is refused.
#[test]
fn an_approval_at_the_gateway_runs_the_plan_of_the_node() {
    let (here, there) = (Machine::new(), Machine::new());
    here.start();
    there.start();
    let gateway = Gateway::start(&here);
    let token = here.ok(&["gateway", "token"]).stdout.trim().to_owned();
    let _node = connect(&there, &gateway, &token);
    eventually("a node that waits", || {
        let listed = here.run(&["nodes", "list", "--json"]);
        listed.code == 0 && listed.stdout.contains("nodeId")
    });
    let nodes = here.ok(&["nodes", "list", "--json"]).json();
    let id = nodes["nodes"][0]["nodeId"].as_str().unwrap().to_owned();
    here.ok(&["nodes", "approve", &id]);
    let script = there.script("work/deploy.sh", "#!/bin/sh\necho deployed\n");
    let command = script.display().to_string();
    for edited in [false, true] {
        let result = std::thread::scope(|scope| {
            let call = scope.spawn(|| exec(&gateway, &token, &command));
            let mut asked = String::new();
            eventually("a question", || {
                here.pending_ids().first().is_some_and(|id| {
                    asked.clone_from(id);
                    true
                })
            });
            if edited {
                there.script("work/deploy.sh", "#!/bin/sh\necho evil\n");
            }
            here.ok(&["approvals", "approve", &asked]);
            call.join().unwrap()
        });
        if edited {
            assert_ne!(result["status"], "completed", "{result}");
        } else {
            assert_eq!(result["aggregated"], "deployed\n", "{result}");
        }
    }
}

/// Where prompts at the client were switched on, that holds for runs on nodes as well.
#[test]
fn the_person_at_an_mcp_client_is_asked_about_a_run_on_a_node() {
    let (here, there) = (Machine::new(), Machine::new());
    here.start();
    there.start();
    let gateway = Gateway::start(&here);
    let token = here.ok(&["gateway", "token"]).stdout.trim().to_owned();
    let _node = connect(&there, &gateway, &token);
    eventually("a node that waits", || {
        let listed = here.run(&["nodes", "list", "--json"]);
        listed.code == 0 && listed.stdout.contains("nodeId")
    });
    let nodes = here.ok(&["nodes", "list", "--json"]).json();
    let id = nodes["nodes"][0]["nodeId"].as_str().unwrap().to_owned();
    here.ok(&["nodes", "approve", &id]);
    let forms = json!({ "elicitation": { "form": {} } });
    let mut client = StdioClient::begin(&here, &["--elicitation"], &forms);
    let call = json!({ "command": "/usr/bin/id -un", "host": "node" });
    for (decision, status) in [("deny", "denied"), ("allow-once", "completed")] {
        let asked = client.ask(tool_call(0, "exec", &call));
        let prompt = client.receive();
        assert_eq!(prompt["method"], "elicitation/create", "{prompt}");
        let shown = prompt["params"]["message"].as_str().unwrap();
        assert!(shown.contains("/usr/bin/id -un"), "{shown}");
        let answer = json!({ "action": "accept", "content": { "decision": decision } });
        client.send(&json!({ "jsonrpc": "2.0", "id": prompt["id"], "result": answer }));
        let result = client.answer(asked)["result"].clone();
        assert_eq!(result["structuredContent"]["status"], status, "{result}");
    }
}
