//! Which node a word means, whichever other nodes there are.

use serde_json::{Value, json};

use super::wire::{Gateway, Reply, answering, approve, identity, plan, ran};
use testkit::{Machine, eventually};

const COMMANDS: &[&str] = &[
    "system.execApprovals.get",
    "system.run",
    "system.run.prepare",
];

fn answers(invocation: &Value) -> Reply {
    match invocation["command"].as_str().unwrap() {
        "system.execApprovals.get" => Reply::Give(json!({
            "path": "/x", "exists": true, "hash": "h", "file": { "version": 1 },
        })),
        "system.run.prepare" => Reply::Give(json!({ "plan": plan(&invocation["params"]) })),
        _ => Reply::Give(ran("ran")),
    }
}

#[test]
fn an_unapproved_device_takes_neither_a_name_nor_the_prefix_of_an_id() {
    let machine = Machine::new();
    machine.leave_to_nodes();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let real = identity(60);
    let id = real.device_id();
    let _real = answering(gateway.node(&real, "n1", COMMANDS), answers);
    approve(&mut admin);
    let prefix = &id[..6];
    let reached = |asked: &str| {
        let result = gateway.exec(&json!({ "command": "id", "node": asked }));
        assert_eq!(
            result["details"]["nodeId"],
            id.as_str(),
            "{asked}: {result}"
        );
        assert_eq!(
            result["details"]["status"], "completed",
            "{asked}: {result}"
        );
        machine.ok(&["approvals", "get", "--node", asked]);
    };
    let all = ["n1", prefix, id.as_str(), "127.0.0.1"];
    let fakes = [
        gateway.node(&identity(61), "n1", COMMANDS),
        gateway.node(&identity(62), prefix, COMMANDS),
        gateway.node(&identity(63), &id, COMMANDS),
        gateway.node(&identity(64), "127.0.0.1", COMMANDS),
    ];
    for asked in all {
        reached(asked);
    }
    drop(fakes);
    eventually("they are gone", || {
        let listed = admin.ok("node.list", &json!({}));
        let nodes = listed["nodes"].as_array().unwrap();
        nodes
            .iter()
            .filter(|node| node["connected"] == true)
            .count()
            == 1
    });
    for asked in all {
        reached(asked);
    }
    // Under a name of its own it is found, and cannot run.
    let _fake = gateway.node(&identity(65), "new", COMMANDS);
    let result = gateway.exec(&json!({ "command": "id", "node": "new" }));
    assert_eq!(result["details"]["code"], "NODE_CANNOT_RUN", "{result}");
}

#[test]
fn a_machine_that_was_set_up_anew_has_its_name_and_a_name_never_wins_over_an_id() {
    let machine = Machine::new();
    machine.leave_to_nodes();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let (old, new) = (identity(66), identity(67));
    let node = gateway.node(&old, "lab", COMMANDS);
    approve(&mut admin);
    drop(node);
    let _new = answering(gateway.node(&new, "lab", COMMANDS), answers);
    approve(&mut admin);
    let call = |asked: &str| {
        let result = gateway.exec(&json!({ "command": "id", "node": asked }));
        result["details"].clone()
    };
    eventually("the old one is gone", || {
        call("lab")["nodeId"] == new.device_id().as_str()
    });
    machine.ok(&["approvals", "get", "--node", "lab"]);
    assert_eq!(call(&old.device_id())["code"], "NODE_NOT_CONNECTED");
    // Approved, and named like the beginning of another one's id.
    let prefix = &new.device_id()[..8];
    let _named = answering(gateway.node(&identity(68), prefix, COMMANDS), answers);
    approve(&mut admin);
    assert_eq!(call(prefix)["nodeId"], new.device_id().as_str());
}
