//! A node that claims to be an Interlock node and answers as it likes: it speaks for itself, and
//! for no other.

use serde_json::{Value, json};

use super::wire::{Gateway, Reply, Wire, answering, approve, identity, plan};
use testkit::{Machine, eventually};

const COMMANDS: &[&str] = &["system.run", "system.run.prepare"];
const CAPS: &[&str] = &["system", "interlock"];

fn start(machine: &Machine) -> (Gateway, Wire) {
    machine.write_config("{ agents: { list: [{ id: 'other' }] } }");
    machine.start();
    machine.ok(&["exec-policy", "set", "--security", "full", "--ask", "off"]);
    let gateway = Gateway::start(machine);
    let admin = gateway.admin();
    (gateway, admin)
}

fn tool(gateway: &Gateway, tool: &str, agent: &str, arguments: &Value) -> Value {
    let body = json!({ "tool": tool, "args": arguments, "agentId": agent }).to_string();
    let request = format!(
        "POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
         Authorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
        gateway.token,
        body.len()
    );
    let reply = testkit::mcp::raw(gateway.port, request.as_bytes());
    let answer: Value = serde_json::from_str(&reply.body).unwrap();
    assert_eq!(reply.status, 200, "{answer}");
    answer["result"]["details"].clone()
}

fn started(invocation: &Value) -> Value {
    json!({
        "runId": invocation["params"]["run"]["runId"], "sessionId": "calm-otter", "pid": 7,
        "startedAtMs": 1, "cwd": "/", "handlesSessions": true,
    })
}

fn session(name: &str, agent: &str) -> Value {
    json!({
        "sessionId": name, "name": "sleep 600", "status": "running", "exitCode": null,
        "signal": null, "timedOut": false, "outOfMemory": false, "agentId": agent,
        "sessionKey": "agent:main:main", "command": "sleep 600", "cwd": "/", "pid": 7,
        "pty": false, "stdinWritable": false, "background": true, "waitingForInput": false,
        "startedAtMs": 1, "endedAtMs": null, "ageMs": 1, "runtimeMs": 1, "totalBytes": null,
        // None of its business.
        "node": "another", "nodeId": "another",
    })
}

#[test]
fn a_node_names_nothing_but_its_own_sessions() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine);
    let here = tool(
        &gateway,
        "exec",
        "main",
        &json!({ "command": "exec sleep 600", "background": true }),
    );
    let here = here["sessionId"].as_str().unwrap().to_owned();
    let stolen = here.clone();
    let key = identity(40);
    let node = gateway.node_with(&key, "lab", COMMANDS, CAPS);
    let seen = answering(node, move |invocation| {
        let params = &invocation["params"];
        match invocation["command"].as_str().unwrap() {
            "interlock.process" => match params["arguments"]["action"].as_str().unwrap() {
                // The name of a session of the gateway, one of another agent, and no names at all.
                "list" => Reply::Give(json!({ "sessions": [
                    session(&stolen, "main"),
                    session("calm-otter", "other"),
                    session("../../etc", "main"),
                    session("calm-otter@000000000000", "main"),
                ] })),
                "kill" => Reply::Give(json!({
                    "sessionId": stolen, "status": "killed", "exitCode": 143, "signal": 15,
                    "timedOut": false, "outOfMemory": false,
                })),
                _ => Reply::Give(json!({ "nonsense": true })),
            },
            _ => Reply::Fail("UNAVAILABLE", "no"),
        }
    });
    approve(&mut admin);
    let tag = &key.device_id()[..12];
    let listed = tool(&gateway, "process", "main", &json!({ "action": "list" }));
    let rows = listed["sessions"].as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["sessionId"].as_str().unwrap())
        .collect();
    let there = format!("{here}@{tag}");
    assert_eq!(names, [here.as_str(), there.as_str()], "{listed}");
    assert_eq!(rows[1]["node"], "lab");
    assert_eq!(rows[1]["nodeId"], key.device_id().as_str());
    // What it says of a session is said of its own, whatever it calls that.
    let kill = json!({ "action": "kill", "sessionId": there });
    let killed = tool(&gateway, "process", "main", &kill);
    assert_eq!(killed["sessionId"], there.as_str(), "{killed}");
    let after = tool(&gateway, "process", "main", &json!({ "action": "list" }));
    assert_eq!(after["sessions"][0]["sessionId"], here.as_str());
    assert_eq!(after["sessions"][0]["status"], "running", "{after}");
    // What makes no sense is no answer.
    let log = json!({ "action": "log", "sessionId": there });
    let log = tool(&gateway, "process", "main", &log);
    assert_eq!(log["code"], "NODE_ANSWER_INVALID", "{log}");
    // A node that is not there has no sessions.
    let unknown = json!({ "action": "log", "sessionId": "calm-otter@000000000000" });
    let unknown = tool(&gateway, "process", "main", &unknown);
    assert_eq!(unknown["code"], "SESSION_NOT_FOUND");
    let owners: Vec<Value> = seen
        .try_iter()
        .map(|one| one["params"]["owner"].clone())
        .collect();
    assert!(owners.iter().all(|owner| *owner == owners[0]));
    assert!(owners[0].as_str().unwrap().len() >= 32);
}

/// Answers an order, and that the run goes on.
fn keeps(invocation: &Value) -> Reply {
    match invocation["command"].as_str().unwrap() {
        "system.run.prepare" => Reply::Give(json!({ "plan": plan(&invocation["params"]) })),
        "interlock.run" => Reply::Give(started(invocation)),
        "interlock.read" => Reply::Give(json!({
            "sessionId": "calm-otter", "command": "sleep 600", "cwd": "/", "raceFree": false,
            "startedAtMs": 1, "standing": {
                "status": "running", "exitCode": null, "signal": null, "timedOut": false,
                "outOfMemory": false,
            },
        })),
        "interlock.process" => Reply::Give(json!({ "sessions": [session("calm-otter", "main")] })),
        _ => Reply::Fail("UNAVAILABLE", "no"),
    }
}

#[test]
fn a_node_tells_of_the_end_of_its_own_runs_only_and_knows_no_secret_of_another() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine);
    let (one, two) = (identity(41), identity(42));
    let seen_one = answering(gateway.node_with(&one, "one", COMMANDS, CAPS), keeps);
    approve(&mut admin);
    let mut liar = gateway.node_with(&two, "two", COMMANDS, CAPS);
    approve(&mut admin);
    let call = json!({ "command": "sleep 600", "host": "node", "node": "one", "background": true });
    let running = tool(&gateway, "exec", "main", &call);
    assert_eq!(running["status"], "running", "{running}");
    let id = running["sessionId"].as_str().unwrap().to_owned();
    let (mut run, mut owner) = (Value::Null, Value::Null);
    eventually("the order", || {
        for one in seen_one.try_iter() {
            if one["command"] == "interlock.run" {
                run = one["params"]["run"]["runId"].clone();
                owner = one["params"]["owner"].clone();
            }
        }
        run.is_string()
    });
    // It is asked nothing about a run that it was not given, and nothing is recorded.
    let payload = json!({ "runId": run }).to_string();
    let event = json!({ "event": "interlock.run.ended", "payloadJSON": payload });
    assert_eq!(liar.ok("node.event", &event), json!({ "ok": true }));
    assert!(!liar.has_event("node.invoke.request"));
    // The end that counts is the one that the node tells when it is asked.
    let listed = machine.ok(&["audit", "log", "--json", "--kind", "run-ended"]);
    assert!(!listed.stdout.contains(run.as_str().unwrap()), "{listed:?}");
    let answering_two = answering(liar, keeps);
    let list = tool(&gateway, "process", "main", &json!({ "action": "list" }));
    let rows = list["sessions"].as_array().unwrap();
    let mut nodes: Vec<&str> = rows
        .iter()
        .map(|row| row["node"].as_str().unwrap())
        .collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["one", "two"], "{list}");
    let other = answering_two.recv().unwrap()["params"]["owner"].clone();
    assert!(other.is_string());
    assert_ne!(other, owner);
    assert!(id.ends_with(&one.device_id()[..12]), "{id}");
}

#[test]
fn a_node_that_was_not_approved_as_an_interlock_node_is_not_used_as_one() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine);
    let key = identity(43);
    drop(gateway.node(&key, "lab", COMMANDS));
    approve(&mut admin);
    // It claims more now than an operator approved.
    let seen = answering(gateway.node_with(&key, "lab", COMMANDS, CAPS), keeps);
    admin.event("node.pair.requested");
    let call = json!({ "command": "sleep 600", "host": "node", "background": true });
    let refused = tool(&gateway, "exec", "main", &call);
    assert_eq!(refused["code"], "NODE_UNSUPPORTED", "{refused}");
    // Nor does an operator call what belongs to runs.
    let invoke = super::wire::invoke(&key.device_id(), "interlock.run", &json!({}), "k");
    let error = admin.refused("node.invoke", &invoke);
    assert_eq!(
        error["details"]["reason"], "command not allowlisted",
        "{error}"
    );
    assert!(seen.try_iter().all(|one| {
        let command = one["command"].as_str().unwrap();
        !command.starts_with("interlock.")
    }));
}

#[test]
fn runs_on_a_device_that_was_removed_are_not_waited_for() {
    let machine = Machine::new();
    let (gateway, mut admin) = start(&machine);
    let key = identity(44);
    let _seen = answering(gateway.node_with(&key, "lab", COMMANDS, CAPS), keeps);
    approve(&mut admin);
    let call = json!({ "command": "sleep 600", "host": "node", "background": true });
    let running = tool(&gateway, "exec", "main", &call);
    assert_eq!(running["status"], "running", "{running}");
    admin.ok(
        "device.pair.remove",
        &json!({ "deviceId": key.device_id() }),
    );
    let list = tool(&gateway, "process", "main", &json!({ "action": "list" }));
    assert_eq!(list["sessions"], json!([]), "{list}");
}
