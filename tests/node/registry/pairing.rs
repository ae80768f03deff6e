//! What a node says it has is worth nothing until a person approves it.

use serde_json::json;

use super::wire::{Gateway, Wire, approve, identity, invoke};
use testkit::Machine;

const COMMANDS: &[&str] = &[
    "system.run",
    "system.run.prepare",
    "system.which",
    "foo.bar",
];
const CUT: &[&str] = &["system.run", "system.run.prepare", "system.which"];

#[test]
fn a_node_is_of_no_use_until_it_is_approved_and_then_at_once() {
    let machine = Machine::new();
    machine.start();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let key = identity(1);
    let id = key.device_id();
    let mut node = gateway.node(&key, "lab", COMMANDS);
    let requested = admin.event("node.pair.requested");
    assert_eq!(requested["nodeId"], id.as_str());
    assert_eq!(requested["displayName"], "lab");
    // What its platform may not have is not asked for.
    assert_eq!(requested["commands"], json!(CUT));

    let entry = admin.ok("node.describe", &json!({ "nodeId": id }));
    assert_eq!(
        (&entry["connected"], &entry["paired"], &entry["commands"]),
        (&json!(true), &json!(false), &json!([]))
    );
    let error = admin.refused(
        "node.invoke",
        &invoke(&id, "system.which", &json!({ "bins": ["sh"] }), "1"),
    );
    assert_eq!(error["code"], "INVALID_REQUEST");
    assert_eq!(error["details"]["reason"], "command not allowlisted");
    assert_eq!(error["details"]["code"], "NODE_COMMAND_NOT_APPROVED");

    let pending = admin.ok("node.pair.list", &json!({}));
    assert_eq!(
        pending["pending"][0]["requiredApproveScopes"],
        json!(["operator.pairing", "operator.admin"])
    );
    let request = json!({ "requestId": requested["requestId"] });
    let mut pairer = gateway.operator(&["operator.pairing", "operator.write"]);
    let error = pairer.refused("node.pair.approve", &request);
    assert_eq!(error["message"], "missing scope: operator.admin");

    let approved = admin.ok("node.pair.approve", &request);
    assert_eq!(approved["node"]["commands"], json!(CUT));
    let token = approved["node"]["token"].as_str().unwrap();
    let verify = json!({ "nodeId": id, "token": token });
    assert_eq!(admin.ok("node.pair.verify", &verify)["ok"], true);
    let verify = json!({ "nodeId": id, "token": "guess" });
    assert_eq!(admin.ok("node.pair.verify", &verify)["ok"], false);
    for wire in [&mut admin, &mut node] {
        let resolved = wire.event("node.pair.resolved");
        assert_eq!(resolved["decision"], "approved");
    }
    let entry = admin.ok("node.describe", &json!({ "nodeId": id }));
    assert_eq!(
        (&entry["paired"], &entry["commands"]),
        (&json!(true), &json!(CUT))
    );
    let call = invoke(&id, "system.which", &json!({ "bins": ["sh"] }), "2");
    let asked = admin.send("node.invoke", &call);
    let invocation = node.invocation();
    assert_eq!(invocation["params"], json!({ "bins": ["sh"] }));
    node.give(&invocation, &json!({ "bins": { "sh": "/bin/sh" } }));
    let answer = admin.answer(&asked).unwrap();
    assert_eq!(answer["payload"]["bins"]["sh"], "/bin/sh");

    // Taken back, it is of no use at once.
    admin.ok("node.pair.remove", &json!({ "nodeId": id }));
    let call = invoke(&id, "system.which", &json!({ "bins": ["sh"] }), "3");
    admin.refused("node.invoke", &call);
}

#[test]
fn a_node_that_comes_back_with_more_keeps_what_was_approved_and_asks_for_the_rest() {
    let machine = Machine::new();
    machine.start();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let key = identity(2);
    let id = key.device_id();
    let node = gateway.node(&key, "lab", &["system.which"]);
    approve(&mut admin);
    drop(node);
    let describe = json!({ "nodeId": id });
    testkit::eventually("the node is gone", || {
        let entry = gateway.admin().ok("node.describe", &describe);
        entry["connected"] == false && entry["lastSeenAtMs"].as_u64() > Some(0)
    });
    // The same again is no question.
    let node = gateway.node(&key, "lab", &["system.which"]);
    assert_eq!(admin.ok("node.pair.list", &json!({}))["pending"], json!([]));
    drop(node);
    let _node = gateway.node(&key, "lab", COMMANDS);
    let requested = admin.event("node.pair.requested");
    assert_eq!(requested["commands"], json!(CUT));
    let entry = admin.ok("node.describe", &describe);
    assert_eq!(entry["commands"], json!(["system.which"]));
    // Refused, it stays as it was.
    let request = json!({ "requestId": requested["requestId"] });
    admin.ok("node.pair.reject", &request);
    assert_eq!(
        admin.event("node.pair.resolved")["decision"],
        "approved",
        "the first one"
    );
    assert_eq!(admin.event("node.pair.resolved")["decision"], "rejected");
    assert_eq!(
        admin.refused("node.pair.approve", &request)["message"],
        "unknown requestId"
    );
    let entry = admin.ok("node.describe", &describe);
    assert_eq!(entry["commands"], json!(["system.which"]));
    admin.ok(
        "node.rename",
        &json!({ "nodeId": id, "displayName": "workshop" }),
    );
    let entry = admin.ok("node.describe", &describe);
    assert_eq!(entry["displayName"], "workshop");
    let unknown = json!({ "nodeId": "missing" });
    assert_eq!(
        admin.refused("node.describe", &unknown)["message"],
        "unknown nodeId"
    );
}

#[test]
fn the_newest_connection_of_a_node_gets_the_work_and_a_foreign_older_one_waits_for_its_turn() {
    let machine = Machine::new();
    machine.start();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let key = identity(3);
    let id = key.device_id();
    let mut first = gateway.node(&key, "lab", &["system.which"]);
    approve(&mut admin);
    let mut second = gateway.node(&key, "lab", &["system.which"]);
    let call = |key: &str| invoke(&id, "system.which", &json!({ "bins": [] }), key);
    let asked = admin.send("node.invoke", &call("1"));
    let invocation = second.invocation();
    second.give(&invocation, &json!({ "bins": {} }));
    admin.answer(&asked).unwrap();
    // The first one is still there: it answers requests, and when the second has gone it works.
    first.ok("health", &json!({}));
    drop(second);
    testkit::eventually("the first one has its work back", || {
        let mut admin = gateway.admin();
        let entry = admin.ok("node.describe", &json!({ "nodeId": id }));
        entry["connected"] == true
            && admin
                .call("node.invoke", &{
                    let mut call = call(&format!("{:?}", std::time::Instant::now()));
                    call["timeoutMs"] = 50.into();
                    call
                })
                .is_err_and(|error| error["message"] == "TIMEOUT: node invoke timed out")
    });
    let invocation = first.invocation();
    assert_eq!(invocation["command"], "system.which");
    // Its caller is gone.
    assert_eq!(
        first.give(&invocation, &json!({ "bins": {} })),
        json!({ "ok": true, "ignored": true })
    );
}

#[test]
fn an_interlock_node_learns_that_another_connection_took_over_and_is_closed() {
    let machine = Machine::new();
    machine.start();
    let gateway = Gateway::start(&machine);
    let key = identity(4);
    let caps = ["system", "interlock"];
    let mut first = gateway.node_with(&key, "lab", &["system.which"], &caps);
    let mut second = gateway.node_with(&key, "lab", &["system.which"], &caps);
    assert_eq!(
        first.event("node.taken-over")["nodeId"],
        key.device_id().as_str()
    );
    assert_eq!(first.closed(), 4002);
    second.ok("health", &json!({}));
}

#[test]
fn a_node_that_waits_to_be_let_in_is_told_to_come_again() {
    let machine = Machine::new();
    machine.start();
    let gateway = Gateway::start(&machine);
    let refused = gateway.stranger(&identity(1), "node");
    let details = &refused["details"];
    assert_eq!(details["code"], "PAIRING_REQUIRED");
    // Without these, foreign nodes stop for good and are gone when an operator approves them.
    assert_eq!(details["pauseReconnect"], false);
    assert_eq!(details["recommendedNextStep"], "wait_then_retry");
    let refused = gateway.stranger(&identity(2), "operator");
    assert_eq!(refused["details"]["code"], "PAIRING_REQUIRED");
    assert_eq!(refused["details"].get("pauseReconnect"), None);
    // The address is the proxy's, which is on this machine: it names no device.
    let listed = gateway.admin().ok("device.pair.list", &json!({}));
    let pending = listed["pending"].as_array().unwrap();
    assert_eq!(pending.len(), 2);
    assert!(pending.iter().all(|one| one["remoteIp"].is_null()));
}

#[test]
fn a_token_that_was_taken_away_is_shown_so_to_clients_of_others() {
    let machine = Machine::new();
    machine.start();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let key = identity(1);
    let _node = gateway.node(&key, "lab", COMMANDS);
    let token = json!({ "deviceId": key.device_id(), "role": "node" });
    let shown = |admin: &mut Wire| {
        let listed = admin.ok("device.pair.list", &json!({}));
        listed["paired"][0]["tokens"][0].clone()
    };
    let first = shown(&mut admin);
    assert_eq!(
        (&first["revokedAtMs"], &first["rotatedAtMs"]),
        (&json!(null), &json!(null))
    );
    let revoked = admin.ok("device.token.revoke", &token);
    let after = shown(&mut admin);
    assert!(after["revokedAtMs"].is_u64());
    assert_eq!(after["revokedAtMs"], revoked["revokedAtMs"]);
    let rotated = admin.ok("device.token.rotate", &token);
    let after = shown(&mut admin);
    assert!(after["rotatedAtMs"].is_u64());
    assert_eq!(after["rotatedAtMs"], rotated["rotatedAtMs"]);
    assert_eq!(after["revokedAtMs"], json!(null));
    assert_eq!(after["createdAtMs"], first["createdAtMs"]);
}

#[test]
fn it_is_known_when_a_node_was_last_connected_after_it_has_gone() {
    let machine = Machine::new();
    machine.start();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let key = identity(1);
    let id = json!({ "nodeId": key.device_id() });
    let node = gateway.node(&key, "lab", COMMANDS);
    approve(&mut admin);
    let entry = admin.ok("node.describe", &id);
    // A node on this machine has no address that would tell it from others.
    assert_eq!(entry.get("remoteIp"), None);
    drop(node);
    while admin.ok("node.describe", &id)["connected"] == true {
        std::thread::yield_now();
    }
    let listed = admin.ok("node.pair.list", &json!({}));
    let paired = &listed["paired"][0];
    assert!(paired["lastConnectedAtMs"].is_u64());
    assert_eq!(paired["lastConnectedAtMs"], entry["connectedAtMs"]);
}

#[test]
fn the_address_of_a_proxy_approves_no_device() {
    let machine = Machine::new();
    machine.start();
    machine
        .write_config("{ gateway: { nodes: { pairing: { autoApproveCidrs: ['127.0.0.0/8'] } } } }");
    let gateway = Gateway::start(&machine);
    let refused = gateway.stranger(&identity(1), "node");
    assert_eq!(refused["details"]["code"], "PAIRING_REQUIRED", "{refused}");
}

#[test]
fn a_revoked_device_stays_out_until_an_operator_approves_it_again() {
    let machine = Machine::new();
    machine.start();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let key = identity(1);
    let mut node = gateway.node(&key, "lab", COMMANDS);
    approve(&mut admin);
    let token = json!({ "deviceId": key.device_id(), "role": "node" });
    admin.ok("device.token.revoke", &token);
    assert_eq!(node.closed(), 4001);
    // Neither the shared secret nor this machine brings it back.
    let refused = gateway.refused_node(&key, "lab", COMMANDS);
    assert_eq!(refused["details"]["code"], "PAIRING_REQUIRED", "{refused}");
    let entry = admin.ok("node.describe", &json!({ "nodeId": key.device_id() }));
    assert_eq!(entry["connected"], false);
    let request = json!({ "requestId": refused["details"]["requestId"] });
    admin.ok("device.pair.approve", &request);
    let _node = gateway.node(&key, "lab", COMMANDS);
    let listed = admin.ok("device.pair.list", &json!({}));
    assert_eq!(listed["paired"][0]["tokens"][0]["revoked"], false);
}

#[test]
fn a_node_that_was_removed_while_it_is_connected_can_be_approved_again() {
    let machine = Machine::new();
    machine.start();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let key = identity(1);
    let id = key.device_id();
    let _node = gateway.node(&key, "lab", COMMANDS);
    approve(&mut admin);
    admin.ok("node.pair.remove", &json!({ "nodeId": id }));
    let describe = json!({ "nodeId": id });
    let entry = admin.ok("node.describe", &describe);
    assert_eq!(
        (&entry["connected"], &entry["commands"]),
        (&json!(true), &json!([]))
    );
    let waiting = admin.ok("node.pair.list", &json!({}))["pending"].clone();
    assert_eq!(waiting.as_array().unwrap().len(), 1, "{waiting}");
    approve(&mut admin);
    let entry = admin.ok("node.describe", &describe);
    assert_eq!(entry["commands"], json!(CUT));
}

#[test]
fn of_a_device_that_was_removed_nothing_is_left_to_approve() {
    let machine = Machine::new();
    machine.start();
    let gateway = Gateway::start(&machine);
    let mut admin = gateway.admin();
    let key = identity(1);
    let mut node = gateway.node(&key, "lab", COMMANDS);
    let request = json!({ "requestId": admin.event("node.pair.requested")["requestId"] });
    let device = json!({ "deviceId": key.device_id() });
    admin.ok("device.pair.remove", &device);
    assert_eq!(node.closed(), 4001);
    let refused = admin.refused("node.pair.approve", &request);
    assert_eq!(refused["message"], "unknown requestId");
    let listed = admin.ok("node.pair.list", &json!({}));
    assert_eq!(listed, json!({ "pending": [], "paired": [] }));
}
