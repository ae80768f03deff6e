//! A real gateway and a real node: the commands of one machine, decided on another.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use support::mcp::{Gateway, raw};
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
    call(
        gateway,
        token,
        &json!({ "command": command, "host": "node" }),
    )
}

fn call(gateway: &Gateway<'_>, token: &str, arguments: &Value) -> Value {
    let body = json!({ "tool": "exec", "args": arguments }).to_string();
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
    approve_node(&here);
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
    approve_node(&here);
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

/// What cannot work is said as the node's machine says it to its own callers.
#[test]
fn the_errors_of_a_node_of_ours_name_the_problem_and_the_way_out() {
    let (here, there) = (Machine::new(), Machine::new());
    here.start();
    there.start();
    let gateway = Gateway::start(&here);
    let token = here.ok(&["gateway", "token"]).stdout.trim().to_owned();
    let _node = connect(&there, &gateway, &token);
    approve_node(&here);
    let script = there.file("work/x.sh", "echo hi\n").display().to_string();
    for ask in ["off", "on-miss", "always"] {
        here.ok(&["config", "set", "tools.exec.ask", ask]);
        let arguments = json!({ "command": "uname", "host": "node", "workdir": "/no/such/place" });
        let result = call(&gateway, &token, &arguments);
        assert_eq!(result["code"], "WORKDIR_UNUSABLE", "{ask}: {result}");
        assert_eq!(
            result["message"],
            "`workdir` cannot be used: /no/such/place: no such directory"
        );
        assert!(result["remedy"].is_string(), "{ask}: {result}");
        for (command, named) in [
            ("/no/such/program --flag".to_owned(), "/no/such/program"),
            (format!("bash -s < {script}"), "a shell"),
        ] {
            let far = exec(&gateway, &token, &command);
            let near = there.run(&["exec", "--no-wait", "--", &command]);
            assert_eq!(far["code"], "APPROVAL_UNBOUND", "{ask}: {far}");
            for said in [&far["code"], &far["message"], &far["remedy"]] {
                let said = said.as_str().unwrap();
                assert!(near.stderr.contains(said), "{ask}: {far}, {near:#?}");
            }
            assert!(far["message"].to_string().contains(named), "{ask}: {far}");
        }
    }
}

/// Waits for the node, and lets it offer its commands.
fn approve_node(here: &Machine) {
    eventually("a node that waits", || {
        let listed = here.run(&["nodes", "list", "--json"]);
        listed.code == 0 && listed.stdout.contains("nodeId")
    });
    let nodes = here.ok(&["nodes", "list", "--json"]).json();
    let id = nodes["nodes"][0]["nodeId"].as_str().unwrap().to_owned();
    // It is there a moment before its request is written.
    eventually("its request", || {
        here.run(&["nodes", "approve", &id]).code == 0
    });
}
