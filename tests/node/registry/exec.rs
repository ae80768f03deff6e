//! `exec host=node`: prepared there, asked about here, run there.

use serde_json::{Value, json};

use super::wire::{Gateway, Reply, Wire, answering, approve, exec, identity, plan, ran};
use testkit::{Machine, eventually};

const COMMANDS: &[&str] = &["system.run", "system.run.prepare"];

/// Allows nothing by itself.
fn asks(invocation: &Value) -> Reply {
    let params = &invocation["params"];
    match invocation["command"].as_str().unwrap() {
        "system.run.prepare" => Reply::Give(json!({ "plan": plan(params) })),
        _ if params["approved"] == true => Reply::Give(ran("done there\n")),
        _ => Reply::Fail("UNAVAILABLE", "SYSTEM_RUN_DENIED: approval required"),
    }
}

/// Runs what it is given.
fn runs(invocation: &Value) -> Reply {
    let params = &invocation["params"];
    match invocation["command"].as_str().unwrap() {
        "system.run.prepare" => Reply::Give(json!({ "plan": plan(params) })),
        _ => Reply::Give(ran(params["rawCommand"].as_str().unwrap())),
    }
}

fn start(machine: &Machine, config: &str) -> (Gateway, Wire) {
    machine.write_config(config);
    machine.leave_to_nodes();
    let gateway = Gateway::start(machine);
    let admin = gateway.admin();
    (gateway, admin)
}

/// What waits for a person.
fn waiting(machine: &Machine) -> Vec<Value> {
    let pending = machine.ok(&["approvals", "pending", "--json"]).json();
    pending["approvals"].as_array().unwrap().clone()
}

#[test]
fn a_run_that_the_node_wants_approved_is_asked_about_here_and_its_plan_replayed_there() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine, "{}");
    let key = identity(20);
    let seen = answering(gateway.node(&key, "lab", COMMANDS), asks);
    approve(&mut admin);
    let (port, token) = (gateway.port, gateway.token.clone());
    let calling = std::thread::spawn(move || {
        let call = json!({
            "command": "id -un", "host": "node", "workdir": "/tmp", "env": { "LANG": "C" },
        });
        exec(port, &token, &call)
    });
    eventually("an approver is asked", || !waiting(&machine).is_empty());
    let approval = waiting(&machine).remove(0);
    assert_eq!(
        (&approval["host"], &approval["node"]),
        (&json!("node"), &json!(key.device_id()))
    );
    let shown = admin.event("exec.approval.requested");
    assert_eq!(shown["request"]["nodeId"], key.device_id().as_str());
    assert_eq!(shown["request"]["envKeys"], json!(["LANG"]));
    machine.ok(&[
        "approvals",
        "approve",
        approval["shortId"].as_str().unwrap(),
    ]);
    let result = calling.join().unwrap();
    let details = &result["details"];
    assert_eq!(
        (&details["status"], &details["exitCode"], &details["host"]),
        (&json!("completed"), &json!(0), &json!("node")),
        "{result}"
    );
    assert_eq!(details["node"], "lab");
    assert_eq!(details["nodeId"], key.device_id().as_str());
    assert_eq!(details["cwd"], "/tmp");
    assert_eq!(result["content"][0]["text"], "done there\n");

    let prepare = seen.recv().unwrap();
    // A single plain command needs no shell.
    assert_eq!(prepare["params"]["command"], json!(["id", "-un"]));
    assert_eq!(prepare["params"]["rawCommand"], "id -un");
    assert_eq!(prepare["params"]["env"], json!({ "LANG": "C" }));
    let (first, replay) = (seen.recv().unwrap(), seen.recv().unwrap());
    assert_eq!(first["params"]["approved"], false);
    let made = plan(&prepare["params"]);
    for run in [&first, &replay] {
        assert_eq!(run["params"]["systemRunPlan"], made);
        assert_eq!(run["params"]["env"], json!({ "LANG": "C" }));
        // As long as a run may take, and a little.
        assert_eq!(run["params"]["timeoutMs"], 1_800_000);
        assert_eq!(run["timeoutMs"], 1_810_000);
    }
    let replay = &replay["params"];
    assert_eq!(replay["approved"], true);
    assert_eq!(replay["approvalDecision"], "allow-once");
    assert_eq!(replay["runId"], approval["id"]);
}

#[test]
fn a_call_that_does_not_wait_is_told_later_how_it_ended() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine, "{ tools: { exec: { approvalWaitMs: 1 } } }");
    let key = identity(21);
    let _seen = answering(gateway.node(&key, "lab", COMMANDS), asks);
    approve(&mut admin);
    let call = json!({ "command": "id -un", "host": "node" });
    let result = gateway.exec(&call);
    let details = &result["details"];
    assert_eq!(details["status"], "approval-pending", "{result}");
    assert_eq!(
        details["allowedDecisions"],
        json!(["allow-once", "allow-always", "deny"])
    );
    let id = details["approvalId"].as_str().unwrap();
    machine.ok(&["approvals", "approve", id]);
    // The next answers of the session tell it.
    let told = std::cell::RefCell::new(String::new());
    eventually("the session is told", || {
        let result = gateway.exec(&json!({ "command": "id -gn", "host": "node", "timeout": 5 }));
        told.replace(result["content"][0]["text"].as_str().unwrap().to_owned());
        told.borrow().contains("Exec finished")
    });
    let expected = format!(
        "Exec finished (node={} id={id}, code 0)\ndone there",
        key.device_id()
    );
    assert!(told.borrow().contains(&expected), "{}", told.borrow());

    // One that is denied is told as well.
    let denied = waiting(&machine).remove(0);
    machine.ok(&["approvals", "deny", denied["id"].as_str().unwrap()]);
    eventually("the session is told", || {
        let result = gateway.exec(&json!({ "command": "id -gn", "host": "node" }));
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        text.contains("Exec denied (node=") && text.contains("user-denied")
    });
}

#[test]
fn what_a_person_denies_does_not_run() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine, "{}");
    let seen = answering(gateway.node(&identity(22), "lab", COMMANDS), asks);
    approve(&mut admin);
    let (port, token) = (gateway.port, gateway.token.clone());
    let call = json!({ "command": "id -un", "host": "node" });
    let calling = std::thread::spawn(move || exec(port, &token, &call));
    eventually("an approver is asked", || !waiting(&machine).is_empty());
    let approval = waiting(&machine).remove(0);
    machine.ok(&["approvals", "deny", approval["id"].as_str().unwrap()]);
    let result = calling.join().unwrap();
    assert_eq!(result["details"]["status"], "denied", "{result}");
    assert_eq!(result["details"]["code"], "APPROVAL_DENIED");
    let commands: Vec<Value> = seen.try_iter().map(|one| one["command"].clone()).collect();
    assert_eq!(commands, ["system.run.prepare", "system.run"]);
}

#[test]
fn the_owner_of_the_gateway_can_only_be_stricter_than_the_node() {
    let machine = Machine::new();
    let config = "{ agents: { list: [
        { id: 'careful', tools: { exec: { ask: 'always', approvalWaitMs: 1 } } },
        { id: 'closed', tools: { exec: { security: 'deny' } } },
        { id: 'here', tools: { exec: { host: 'gateway' } } },
        { id: 'there', tools: { exec: { host: 'node', node: 'lab' } } },
        { id: 'nowhere', tools: { exec: { host: 'node', node: 'attic' } } },
    ] } }";
    let (gateway, mut admin) = start(&machine, config);
    let seen = answering(gateway.node(&identity(23), "lab", COMMANDS), runs);
    approve(&mut admin);
    let call = |agent: &str, arguments: Value| {
        let body = super::wire::exec_as(gateway.port, &gateway.token, agent, &arguments);
        body["details"].clone()
    };
    let on_node = json!({ "command": "id", "host": "node" });
    assert_eq!(call("main", on_node.clone())["status"], "completed");
    assert_eq!(
        call("careful", on_node.clone())["status"],
        "approval-pending"
    );
    assert_eq!(call("closed", on_node.clone())["code"], "EXEC_DENIED");
    assert_eq!(call("here", on_node)["code"], "HOST_NOT_ALLOWED");
    let anywhere = json!({ "command": "id" });
    assert_eq!(call("there", anywhere.clone())["node"], "lab");
    assert_eq!(call("nowhere", anywhere)["code"], "NODE_UNKNOWN");
    let here = json!({ "command": "id", "host": "gateway" });
    assert_eq!(call("there", here)["code"], "HOST_NOT_ALLOWED");
    let path = json!({ "command": "id", "host": "node", "env": { "PATH": "/x" } });
    assert_eq!(call("main", path)["code"], "ENV_REJECTED");
    for extra in [
        json!({ "pty": true }),
        json!({ "background": true }),
        json!({ "workdir": "x" }),
    ] {
        let mut arguments = json!({ "command": "id", "host": "node" });
        for (name, value) in extra.as_object().unwrap() {
            arguments[name] = value.clone();
        }
        assert_eq!(
            call("main", arguments)["code"],
            "NODE_UNSUPPORTED",
            "{extra}"
        );
    }
    // Two calls ran, and for a third one a plan was made.
    let runs = seen.try_iter().filter(|one| one["command"] == "system.run");
    assert_eq!(runs.count(), 2);
}

#[test]
fn a_node_is_chosen_by_name_or_because_it_is_the_only_one_that_can() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine, "{}");
    let call = |node: Option<&str>| {
        let result = gateway.exec(&json!({ "command": "id", "host": "node", "node": node }));
        result["details"].clone()
    };
    assert_eq!(call(None)["code"], "NODE_UNAVAILABLE");
    let one = identity(24);
    let _one = answering(gateway.node(&one, "one", COMMANDS), runs);
    admin.event("node.pair.requested");
    assert_eq!(call(None)["code"], "NODE_CANNOT_RUN");
    let pending = admin.ok("node.pair.list", &json!({}));
    let request = json!({ "requestId": pending["pending"][0]["requestId"] });
    admin.ok("node.pair.approve", &request);
    assert_eq!(call(None)["node"], "one");
    let two = identity(25);
    let second = gateway.node(&two, "two", COMMANDS);
    approve(&mut admin);
    let several = call(None);
    assert_eq!(several["code"], "NODE_AMBIGUOUS");
    let message = several["message"].as_str().unwrap();
    assert!(
        message.contains("one (") && message.contains("two ("),
        "{message}"
    );
    assert_eq!(call(Some("ONE"))["nodeId"], one.device_id().as_str());
    assert_eq!(call(Some(&one.device_id()[..10]))["node"], "one");
    let unknown = call(Some("zz"));
    assert!(
        unknown["message"]
            .as_str()
            .unwrap()
            .starts_with("unknown node: zz (known: one")
    );
    drop(second);
    eventually("it is noticed", || {
        call(Some("two"))["code"] == "NODE_NOT_CONNECTED"
    });
    assert_eq!(call(None)["node"], "one");
}

#[test]
fn an_agent_that_is_bound_to_a_node_leaves_it_neither_by_a_call_nor_by_its_session() {
    let machine = Machine::new();
    let config = "{ tools: { exec: { node: 'one' } }, agents: { list: [
        { id: 'free' },
        { id: 'bound', tools: { exec: { node: 'two' } } },
        { id: 'gone', tools: { exec: { node: 'attic' } } },
    ] } }";
    let (gateway, mut admin) = start(&machine, config);
    let (one, two) = (identity(32), identity(33));
    let seen_one = answering(gateway.node(&one, "one", COMMANDS), runs);
    approve(&mut admin);
    let seen_two = answering(gateway.node(&two, "two", COMMANDS), runs);
    approve(&mut admin);
    let call = |agent: &str, node: Option<&str>| {
        let arguments = json!({ "command": "id", "host": "node", "node": node });
        let result = super::wire::exec_as(gateway.port, &gateway.token, agent, &arguments);
        result["details"].clone()
    };
    // The call, then the session, then the agent, then what holds for all.
    assert_eq!(call("free", None)["node"], "one");
    assert_eq!(call("free", Some("two"))["node"], "two");
    assert_eq!(call("bound", None)["node"], "two");
    // By any of its names it is the one that it is bound to.
    assert_eq!(call("bound", Some(&two.device_id()[..8]))["node"], "two");
    for other in ["one", "attic"] {
        let refused = call("bound", Some(other));
        assert_eq!(
            (&refused["status"], &refused["code"]),
            (&json!("denied"), &json!("NODE_NOT_ALLOWED")),
            "{refused}"
        );
    }
    // What it is bound to is not there: nothing else takes its place.
    assert_eq!(call("gone", None)["code"], "NODE_UNKNOWN");
    assert_eq!(call("gone", Some("one"))["code"], "NODE_UNKNOWN");
    for agent in ["free", "bound"] {
        let key = format!("agent:{agent}:main");
        let set = json!({ "key": key, "execNode": if agent == "free" { "two" } else { "one" } });
        admin.ok("sessions.patch", &set);
    }
    assert_eq!(call("free", None)["node"], "two");
    assert_eq!(call("free", Some("one"))["node"], "one");
    assert_eq!(call("bound", None)["code"], "NODE_NOT_ALLOWED");
    let runs_of = |seen: &std::sync::mpsc::Receiver<Value>| {
        let seen = seen.try_iter();
        seen.filter(|one| one["command"] == "system.run").count()
    };
    assert_eq!((runs_of(&seen_one), runs_of(&seen_two)), (2, 4));
}

#[test]
fn a_run_that_outlives_its_connection_is_told_when_the_node_is_back() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine, "{}");
    let key = identity(26);
    let mut node = gateway.node(&key, "lab", COMMANDS);
    approve(&mut admin);
    let (port, token) = (gateway.port, gateway.token.clone());
    let call = json!({ "command": "id", "host": "node" });
    let calling = std::thread::spawn(move || exec(port, &token, &call));
    let prepare = node.invocation();
    node.give(&prepare, &json!({ "plan": plan(&prepare["params"]) }));
    let run = node.invocation();
    drop(node);
    let result = calling.join().unwrap();
    assert_eq!(result["details"]["status"], "failed");
    let message = &result["details"]["message"];
    assert_eq!(message, "Error: node disconnected (system.run)");
    let mut node = gateway.node(&key, "lab", COMMANDS);
    let finished = json!({
        "sessionKey": "agent:main:main", "runId": run["params"]["runId"], "host": "node",
        "command": "id", "exitCode": 0, "timedOut": false, "success": true, "output": "late",
    });
    let event = json!({ "event": "exec.finished", "payloadJSON": finished.to_string() });
    assert_eq!(node.ok("node.event", &event), json!({ "ok": true }));
    let _seen = answering(node, runs);
    let result = gateway.exec(&json!({ "command": "id", "host": "node" }));
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("Exec finished (node=") && text.contains("late"),
        "{text}"
    );
}

#[test]
fn an_approved_run_that_outlives_the_gateway_is_unknown_and_then_told_by_the_node() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine, "{ tools: { exec: { approvalWaitMs: 1 } } }");
    let key = identity(28);
    let mut node = gateway.node(&key, "lab", COMMANDS);
    approve(&mut admin);
    let (port, token) = (gateway.port, gateway.token.clone());
    let call = json!({ "command": "id", "host": "node" });
    let calling = std::thread::spawn(move || exec(port, &token, &call));
    let prepare = node.invocation();
    node.give(&prepare, &json!({ "plan": plan(&prepare["params"]) }));
    let run = node.invocation();
    // As nodes of the newest release say it.
    node.fail(
        &run,
        "SYSTEM_RUN_DENIED",
        "SYSTEM_RUN_DENIED: approval required",
    );
    let result = calling.join().unwrap();
    let id = result["details"]["approvalId"].as_str().unwrap();
    machine.ok(&["approvals", "approve", id]);
    assert_eq!(node.invocation()["params"]["approved"], true);
    drop(gateway);
    let gateway = Gateway::start(&machine);
    let ended = || {
        let log = machine.ok(&["audit", "log", "--json", "--kind", "run-ended"]);
        log.stdout
    };
    eventually("it is known that nothing is known", || {
        ended().contains("unknown")
    });
    let mut node = gateway.node(&key, "lab", COMMANDS);
    let finished = json!({
        "sessionKey": "agent:main:main", "runId": id, "host": "node", "command": "id",
        "exitCode": 4, "timedOut": false, "success": false, "output": "late",
    });
    let event = json!({ "event": "exec.finished", "payloadJSON": finished.to_string() });
    assert_eq!(node.ok("node.event", &event), json!({ "ok": true }));
    assert!(ended().contains("finished"), "{}", ended());
    // Told once.
    assert_eq!(node.ok("node.event", &event)["handled"], false);
    let _seen = answering(node, runs);
    let result = gateway.exec(&json!({ "command": "id", "host": "node" }));
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("code 4)\nlate"), "{text}");
}

#[test]
fn what_was_approved_runs_on_the_connection_that_the_node_has_by_then_or_not_at_all() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine, "{ tools: { exec: { approvalWaitMs: 1 } } }");
    let key = identity(29);
    let mut node = gateway.node(&key, "lab", COMMANDS);
    approve(&mut admin);
    let ask = |node: &mut Wire| {
        let (port, token) = (gateway.port, gateway.token.clone());
        let call = json!({ "command": "id", "host": "node" });
        let calling = std::thread::spawn(move || exec(port, &token, &call));
        let prepare = node.invocation();
        node.give(&prepare, &json!({ "plan": plan(&prepare["params"]) }));
        let run = node.invocation();
        node.fail(&run, "UNAVAILABLE", "SYSTEM_RUN_DENIED: approval required");
        let result = calling.join().unwrap();
        result["details"]["approvalId"].as_str().unwrap().to_owned()
    };
    let first = ask(&mut node);
    drop(node);
    let mut node = gateway.node(&key, "lab", COMMANDS);
    machine.ok(&["approvals", "approve", &first]);
    let run = node.invocation();
    assert_eq!(run["params"]["runId"], first.as_str());
    node.give(&run, &ran("there"));
    // Whose approval was taken back meanwhile runs nothing.
    let second = ask(&mut node);
    admin.ok("node.pair.remove", &json!({ "nodeId": key.device_id() }));
    machine.ok(&["approvals", "approve", &second]);
    eventually("it is over", || {
        let log = machine.ok(&["audit", "log", "--json", "--kind", "run-ended"]);
        log.stdout.contains(&second)
    });
    // Nothing came to the node: what it hears next is an answer.
    node.ok("health", &json!({}));
    assert!(!node.has_event("node.invoke.request"));
}

#[test]
fn a_plan_that_shows_another_command_or_is_for_another_session_is_not_used() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine, "{}");
    let lie = |invocation: &Value| {
        let params = &invocation["params"];
        let mut plan = plan(params);
        match params["rawCommand"].as_str().unwrap() {
            "text" => plan["commandPreview"] = "ls".into(),
            "session" => plan["sessionKey"] = "agent:main:other".into(),
            _ => plan["agentId"] = Value::Null,
        }
        Reply::Give(json!({ "plan": plan }))
    };
    let seen = answering(gateway.node(&identity(31), "lab", COMMANDS), lie);
    approve(&mut admin);
    for command in ["text", "session", "agent"] {
        let result = gateway.exec(&json!({ "command": command, "host": "node" }));
        assert_eq!(result["details"]["status"], "failed", "{result}");
    }
    let mut commands = seen.try_iter().map(|one| one["command"].clone());
    assert!(commands.all(|command| command == "system.run.prepare"));
    assert!(waiting(&machine).is_empty());
}

#[test]
fn a_node_that_makes_no_plan_may_still_run_what_it_allows() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine, "{}");
    let cannot_bind =
        "SYSTEM_RUN_DENIED: approval cannot safely bind this interpreter/runtime command";
    let _seen = answering(
        gateway.node(&identity(27), "lab", COMMANDS),
        move |invocation| {
            let text = invocation["params"]["rawCommand"].as_str().unwrap();
            match invocation["command"].as_str().unwrap() {
                "system.run.prepare" => Reply::Fail("INVALID_REQUEST", cannot_bind),
                _ if text == "/usr/bin/whoami" => Reply::Give(ran("root\n")),
                _ => Reply::Fail("UNAVAILABLE", "SYSTEM_RUN_DENIED: approval required"),
            }
        },
    );
    approve(&mut admin);
    let whoami = gateway.exec(&json!({ "command": "/usr/bin/whoami", "host": "node" }));
    assert_eq!(whoami["details"]["status"], "completed", "{whoami}");
    let other = gateway.exec(&json!({ "command": "x", "host": "node" }));
    assert_eq!(other["details"]["status"], "denied", "{other}");
    assert_eq!(other["details"]["code"], "SYSTEM_RUN_DENIED");
    let message = other["details"]["message"].as_str().unwrap();
    assert!(message.contains("cannot safely bind"), "{message}");
}
