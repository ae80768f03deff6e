//! A real gateway and a real node: the commands of one machine, decided on another.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::mcp::{Gateway, StdioClient, again, forms, modern, raw, tool_call};
use testkit::{Machine, eventually};

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

/// A machine for a gateway and one for a node, both set up.
fn machines() -> (Machine, Machine) {
    let machines = (Machine::new(), Machine::new());
    machines.0.start();
    machines.1.start();
    machines
}

/// With the token of its operator.
fn gateway_of(here: &Machine) -> (Gateway<'_>, String) {
    let gateway = Gateway::start(here);
    let token = here.operator_token();
    (gateway, token)
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

/// Allowlisted programs run on a node in every form, under every account of the node.
fn the_forms_of_an_allowlisted_program_run(there: &Machine) {
    let here = Machine::new();
    here.start();
    let (gateway, token) = gateway_of(&here);
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
    // What its document does not name does not run, whatever the gateway's says: that one asks, and an
    // approver there decides nothing that this machine refuses.
    let refused = exec(&gateway, &token, "/usr/bin/id");
    assert_eq!(refused["status"], "denied", "{refused}");
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
    let (here, there) = machines();
    let (gateway, token) = gateway_of(&here);
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

#[test]
fn a_node_joins_a_gateway_that_asks_for_a_password() {
    let (here, there) = machines();
    here.leave_to_nodes();
    let password = here.file("home/password", "open sesame\n");
    set_private(&password);
    let path = password.display().to_string();
    here.ok(&["config", "set", "gateway.auth.mode", "password"]);
    here.ok(&["config", "set", "gateway.auth.passwordFile", &path]);
    let gateway = Gateway::start(&here);
    let port = gateway.port.to_string();
    let run = ["node", "run", "--host", "127.0.0.1", "--port", &port];
    let refused = there.run(&run);
    assert_eq!(refused.code, 78, "{refused:#?}");
    assert!(
        refused.stderr.contains("INTERLOCK_GATEWAY_PASSWORD"),
        "{refused:#?}"
    );
    let mut command = there.command(&run);
    command.env("INTERLOCK_GATEWAY_PASSWORD", "open sesame");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let _node = Node(command.spawn().unwrap());
    approve_node(&here);
    there.ok(&["exec-policy", "preset", "yolo"]);
    let result = exec(&gateway, "open sesame", "env");
    assert_eq!(result["status"], "completed", "{result}");
    let shown = result["aggregated"].to_string();
    assert!(!shown.contains("sesame"), "{shown}");
}

/// Whether they are allowed says the document of the node.
#[test]
fn a_node_learns_from_its_gateway_which_programs_skills_use() {
    let (here, there) = machines();
    here.ok(&["config", "set", "skills.bins", "[\"uname\"]"]);
    let document = |skills: bool| {
        there.set_document(&format!(
            "{{ version: 1, defaults: {{ security: 'allowlist', ask: 'off', autoAllowSkills: {skills} }} }}"
        ));
    };
    document(true);
    let (gateway, token) = gateway_of(&here);
    let _node = connect(&there, &gateway, &token);
    approve_node(&here);
    eventually("a program of skills runs", || {
        exec(&gateway, &token, "uname")["status"] == "completed"
    });
    assert_ne!(exec(&gateway, &token, "id")["status"], "completed");
    document(false);
    assert_ne!(exec(&gateway, &token, "uname")["status"], "completed");
}

fn set_private(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// After `devices rotate` the old token is worth nothing; the new one is taken from a file.
#[test]
fn a_node_takes_the_token_that_was_made_for_it() {
    let (here, there) = machines();
    here.leave_to_nodes();
    let (gateway, token) = gateway_of(&here);
    let id = {
        let _node = connect(&there, &gateway, &token);
        approve_node(&here);
        let nodes = here.ok(&["nodes", "list", "--json"]).json();
        nodes["nodes"][0]["nodeId"].as_str().unwrap().to_owned()
    };
    let rotated = here.ok(&["devices", "rotate", &id, "--role", "node"]);
    let port = gateway.port.to_string();
    let mut run = vec!["node", "run", "--host", "127.0.0.1", "--port", &port];
    let refused = there.run(&run);
    assert_eq!(refused.code, 78, "{refused:#?}");
    assert!(
        refused.stderr.contains("--device-token-file"),
        "{refused:#?}"
    );
    let file = there.file("home/rotated", rotated.stdout.trim());
    let path = file.display().to_string();
    run.extend(["--device-token-file", &path]);
    let mut command = there.command(&run);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let _node = Node(command.spawn().unwrap());
    there.ok(&["exec-policy", "preset", "yolo"]);
    eventually("a node that runs something", || {
        exec(&gateway, &token, "uname")["status"] == "completed"
    });
}

/// What cannot work is said as the node's machine says it to its own callers.
#[test]
fn the_errors_of_an_interlock_node_name_the_problem_and_the_way_out() {
    let (here, there) = machines();
    let (gateway, token) = gateway_of(&here);
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

/// The owner of the node's machine sees what it waits for.
#[test]
fn a_node_says_that_its_commands_wait_for_an_approval() {
    let (here, there) = machines();
    let (gateway, token) = gateway_of(&here);
    let status = || there.run(&["node", "status"]).stdout;
    let approve = "interlock nodes approve ";
    let request = {
        let _node = connect(&there, &gateway, &token);
        eventually("a node that waits", || status().contains(approve));
        let said = status();
        let request = said.split(approve).nth(1).unwrap();
        request.split_whitespace().next().unwrap().to_owned()
    };
    // Once more: the question is the same.
    let _node = connect(&there, &gateway, &token);
    eventually("a node that waits", || status().contains(&request));
    here.ok(&["nodes", "approve", &request]);
    eventually("a node that waits for nothing", || {
        let said = status();
        said.contains(": connected\n") && !said.contains(approve)
    });
}

/// Where prompts at the client were switched on, that holds for runs on nodes as well.
#[test]
fn the_person_at_an_mcp_client_is_asked_about_a_run_on_a_node() {
    let (here, there) = machines();
    let (gateway, token) = gateway_of(&here);
    let _node = connect(&there, &gateway, &token);
    approve_node(&here);
    let mut client = StdioClient::begin(&here, &["--elicitation"], &forms());
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

/// In the newest protocol version the question comes back with the call, and the answer with the
/// next one.
#[test]
fn in_the_newest_era_the_answer_about_a_run_on_a_node_comes_with_a_second_request() {
    let (here, there) = machines();
    let (gateway, token) = gateway_of(&here);
    let _node = connect(&there, &gateway, &token);
    approve_node(&here);
    let client = gateway.client(&gateway.token(&["--elicitation"])).newest();
    let make = |name: &str| {
        let path = there.root().join(name);
        json!({ "command": format!("/usr/bin/mkdir {}", path.display()), "host": "node" })
    };
    let is_made = |name: &str| there.root().join(name).exists();
    let begin = |call: &Value| {
        let given = client.send(&modern(tool_call(8, "exec", call), &forms()));
        let given = given.result();
        assert_eq!(given["resultType"], "input_required", "{given}");
        given
    };
    let come_again = |call: &Value, given: &Value, decision: &str| {
        let answer = json!({ "action": "accept", "content": { "decision": decision } });
        let result = client.send(&again(call, given, &answer)).result();
        result["structuredContent"].clone()
    };
    let call = make("allowed");
    let given = begin(&call);
    let prompt = &given["inputRequests"]["approval"]["params"]["message"];
    assert!(prompt.as_str().unwrap().contains("/usr/bin/mkdir"));
    assert!(!is_made("allowed"));
    let result = come_again(&call, &given, "allow-once");
    assert_eq!(result["status"], "completed", "{result}");
    assert_eq!(result["exitCode"], 0, "{result}");
    assert!(is_made("allowed"));
    // It would fail if it ran once more.
    let used = come_again(&call, &given, "allow-once");
    assert_eq!(used["code"], "APPROVAL_USED", "{used}");
    let call = make("denied");
    let result = come_again(&call, &begin(&call), "deny");
    assert_eq!(result["code"], "APPROVAL_DENIED", "{result}");
    // Nothing else runs than what was shown, whatever comes with the answer.
    let given = begin(&make("shown"));
    let result = come_again(&make("another"), &given, "allow-once");
    assert_eq!(result["code"], "APPROVAL_REQUEST_MISMATCH", "{result}");
    eventually("what was allowed", || is_made("shown"));
    // A caller that does not come again misses nothing: it runs when it is allowed.
    begin(&make("elsewhere"));
    let pending = here.ok(&["approvals", "pending", "--json"]).json();
    let id = pending["approvals"][0]["id"].as_str().unwrap().to_owned();
    here.ok(&["approvals", "approve", &id]);
    eventually("what was allowed elsewhere", || is_made("elsewhere"));
    assert!(!is_made("denied") && !is_made("another"));
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

/// The node knows variables and terminal of a call before it says what an approver decides about.
#[test]
fn a_node_says_what_always_would_hold_of_the_call() {
    let (here, there) = machines();
    here.ok(&["config", "set", "tools.exec.approvalWaitMs", "0"]);
    there.ok(&["approvals", "allowlist", "add", "/usr/bin/printenv"]);
    let (gateway, token) = gateway_of(&here);
    let _node = connect(&there, &gateway, &token);
    approve_node(&here);
    let ask = |more: Value| {
        let mut arguments = json!({ "command": "/usr/bin/printenv FOO", "host": "node" });
        for (name, value) in more.as_object().unwrap() {
            arguments[name] = value.clone();
        }
        call(&gateway, &token, &arguments)
    };
    for (more, env, interactive) in [
        (
            json!({ "env": { "FOO": "1" } }),
            json!(["FOO=1"]),
            Value::Null,
        ),
        (json!({ "pty": true }), Value::Null, json!(true)),
    ] {
        let result = ask(more);
        assert_eq!(result["status"], "approval-pending", "{result}");
        let id = result["approvalId"].as_str().unwrap();
        let shown = here.ok(&["approvals", "pending", id, "--json"]).json();
        let text = shown.to_string();
        let entry = shown["always"][0].clone();
        assert_eq!(entry["env"], env, "{text}");
        assert_eq!(entry["interactive"], interactive, "{text}");
        here.ok(&["approvals", "deny", id]);
    }
}
