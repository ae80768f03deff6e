//! The gateway's own approvals document is one more layer for runs on its nodes: levels and deny rules.

use serde_json::{Value, json};

use super::wire::{Gateway, Reply, Wire, answering, approve, identity, plan, ran};
use testkit::{Machine, eventually};

const RUNS: &[&str] = &["system.run", "system.run.prepare"];
const TELLS: &[&str] = &[
    "system.execApprovals.get",
    "system.run",
    "system.run.prepare",
];

/// A gateway whose document is the one of its first start, which is cautious.
fn cautious(machine: &Machine) -> (Gateway, Wire) {
    machine.write_config("{ tools: { exec: { approvalWaitMs: 1 } } }");
    machine.start();
    let gateway = Gateway::start(machine);
    let admin = gateway.admin();
    (gateway, admin)
}

fn details(gateway: &Gateway, command: &str) -> Value {
    let call = json!({ "command": command, "host": "node" });
    gateway.exec(&call)["details"].clone()
}

fn set_document(machine: &Machine, document: &Value) {
    let set = machine.set_document(&document.to_string());
    assert_eq!(set.code, 0, "{set:#?}");
}

#[test]
fn a_cautious_gateway_asks_about_what_an_open_node_would_run() {
    let (here, there) = (Machine::new(), Machine::new());
    let (gateway, mut admin) = cautious(&here);
    there.start();
    there.ok(&["exec-policy", "preset", "yolo"]);
    there.ok(&["approvals", "allowlist", "add", "/usr/bin/uname"]);
    let _node = super::real::connect(&there, &gateway, &mut admin);
    let made = there.work().join("made");
    let touch = format!("/usr/bin/touch {}", made.display());
    let asked = details(&gateway, &touch);
    assert_eq!(asked["status"], "approval-pending", "{asked}");
    assert!(!made.exists());
    // The node's allowlist says what is a miss; the gateway's entries are for its own files.
    here.ok(&["approvals", "allowlist", "add", "/usr/bin/touch"]);
    let status = |command: &str| details(&gateway, command)["status"].clone();
    assert_eq!(status(&touch), "approval-pending");
    assert_eq!(status("/usr/bin/uname"), "completed");
    // What the approver allows runs there.
    let id = asked["approvalId"].as_str().unwrap();
    here.ok(&["approvals", "approve", id]);
    eventually("what was approved runs", || made.exists());
    // Neither an operator who calls the node by hand gets around it.
    let node_id = admin.ok("node.list", &json!({}))["nodes"][0]["nodeId"].clone();
    let invoke = |admin: &mut Wire, key: &str, command: &str, layer: Value| {
        let params = json!({
            "command": ["/bin/sh", "-lc", command], "rawCommand": command, "interlock": layer,
        });
        let call = json!({
            "nodeId": node_id, "command": "system.run", "params": params, "idempotencyKey": key,
        });
        admin.call("node.invoke", &call)
    };
    let open = json!({ "security": "full", "ask": "off" });
    for (key, layer) in [("a", Value::Null), ("b", open)] {
        let refused = invoke(&mut admin, key, &touch, layer);
        let error = refused.unwrap_err();
        let said = error["message"].as_str().unwrap();
        assert!(
            said.contains("SYSTEM_RUN_DENIED: approval required"),
            "{error}"
        );
    }
    assert!(invoke(&mut admin, "c", "uname", Value::Null).is_ok());
    // An open gateway leaves it to the node again.
    here.leave_to_nodes();
    assert_eq!(status("/usr/bin/id"), "completed");
}

#[test]
fn a_closed_document_of_the_gateway_lets_nothing_run_on_nodes() {
    let (here, there) = (Machine::new(), Machine::new());
    let (gateway, mut admin) = cautious(&here);
    there.start();
    there.ok(&["exec-policy", "preset", "yolo"]);
    let _node = super::real::connect(&there, &gateway, &mut admin);
    set_document(
        &here,
        &json!({
            "version": 1, "defaults": { "security": "full", "ask": "off" },
            "agents": { "main": { "security": "deny" } },
        }),
    );
    let refused = details(&gateway, "/usr/bin/id");
    assert_eq!(refused["code"], "EXEC_DENIED", "{refused}");
    // Without questions, what the node's allowlist does not name is refused.
    let off = json!({ "version": 1, "defaults": { "security": "allowlist", "ask": "off" } });
    set_document(&here, &off);
    let refused = details(&gateway, "/usr/bin/id");
    assert_eq!(refused["status"], "denied", "{refused}");
}

fn denying(security: &str, ask: &str) -> Value {
    json!({
        "version": 1, "defaults": { "security": security, "ask": ask },
        "agents": { "*": { "deny": [
            { "pattern": "git", "args": ["push", "**"], "reason": "not here" },
            { "pattern": "/usr/bin/shred" },
        ] } },
    })
}

#[test]
fn deny_rules_of_the_gateway_hold_on_an_interlock_node() {
    let (here, there) = (Machine::new(), Machine::new());
    let (gateway, mut admin) = cautious(&here);
    there.start();
    there.ok(&["exec-policy", "preset", "yolo"]);
    let _node = super::real::connect(&there, &gateway, &mut admin);
    set_document(&here, &denying("full", "off"));
    let link = there.bin().join("wipe");
    std::os::unix::fs::symlink("/usr/bin/shred", &link).unwrap();
    for command in [
        "git push origin".to_owned(),
        "true && git push".to_owned(),
        "sh -c 'git push'".to_owned(),
        "shred x".to_owned(),
        // Only the node knows where that leads.
        link.display().to_string(),
    ] {
        let refused = details(&gateway, &command);
        assert_eq!(refused["status"], "denied", "{command}: {refused}");
        assert!(refused.to_string().contains("deny"), "{command}: {refused}");
    }
    assert_eq!(details(&gateway, "/usr/bin/uname")["status"], "completed");
}

#[test]
fn deny_rules_of_the_gateway_hold_on_the_words_for_a_foreign_node() {
    let machine = Machine::new();
    let (gateway, mut admin) = cautious(&machine);
    let answers = |invocation: &Value| match invocation["command"].as_str().unwrap() {
        "system.run.prepare" => Reply::Give(json!({ "plan": plan(&invocation["params"]) })),
        _ => Reply::Give(ran("ran")),
    };
    let seen = answering(gateway.node(&identity(70), "lab", RUNS), answers);
    approve(&mut admin);
    set_document(&machine, &denying("full", "off"));
    let runs = || {
        let runs = seen.try_iter();
        runs.filter(|one| one["command"] == "system.run").count()
    };
    for command in [
        "git push origin",
        "true && git push",
        "shred x",
        "env /usr/bin/shred x",
    ] {
        let refused = details(&gateway, command);
        assert_eq!(refused["code"], "EXEC_DENIED", "{command}: {refused}");
        assert_eq!(runs(), 0, "{command}");
    }
    // What the rules cannot see runs only if an approver says so.
    let hidden = "$(printf git) push";
    assert_eq!(details(&gateway, hidden)["code"], "EXEC_DENIED");
    assert_eq!(details(&gateway, "uname")["status"], "completed");
    assert_eq!(runs(), 1);
    set_document(&machine, &denying("full", "on-miss"));
    assert_eq!(details(&gateway, hidden)["status"], "approval-pending");
    assert_eq!(details(&gateway, "git push")["code"], "EXEC_DENIED");
    assert_eq!(runs(), 0);
}

/// A foreign node cannot be told of a level: it must say itself that it judges by an allowlist.
#[test]
fn a_cautious_gateway_asks_about_every_run_of_a_foreign_node_that_does_not_judge() {
    let machine = Machine::new();
    let (gateway, mut admin) = cautious(&machine);
    for (number, commands, security, expected) in [
        (71, TELLS, json!("full"), "approval-pending"),
        (72, TELLS, Value::Null, "approval-pending"),
        (73, RUNS, json!("allowlist"), "approval-pending"),
        (74, TELLS, json!("allowlist"), "completed"),
    ] {
        let name = format!("n{number}");
        let answers = move |invocation: &Value| match invocation["command"].as_str().unwrap() {
            "system.execApprovals.get" => Reply::Give(json!({
                "path": "/x", "exists": true, "hash": "h",
                "file": { "version": 1, "defaults": { "security": security }, "agents": {} },
            })),
            "system.run.prepare" => Reply::Give(json!({ "plan": plan(&invocation["params"]) })),
            _ => Reply::Give(ran("ran")),
        };
        let _seen = answering(gateway.node(&identity(number), &name, commands), answers);
        approve(&mut admin);
        let result = gateway.exec(&json!({ "command": "id", "node": name }));
        assert_eq!(result["details"]["status"], expected, "{name}: {result}");
    }
}
