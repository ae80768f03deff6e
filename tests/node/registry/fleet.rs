//! Many paired nodes on one gateway: which of them a word means, and lists in pages.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::wire::{Gateway, Reply, Wire, answering, approve, identity, plan, ran};
use testkit::fleet::FleetNode;
use testkit::{Machine, eventually};

const COMMANDS: &[&str] = &["system.run", "system.run.prepare"];
const FLEET: usize = 1_500;

fn answers(invocation: &Value) -> Reply {
    match invocation["command"].as_str().unwrap() {
        "system.run.prepare" => Reply::Give(json!({ "plan": plan(&invocation["params"]) })),
        _ => Reply::Give(ran("ran")),
    }
}

/// A gateway that knows a fleet, all of it away.
fn fleet() -> (Machine, Gateway) {
    let machine = Machine::new();
    machine.leave_to_nodes();
    machine.pair_fleet(FLEET);
    let gateway = Gateway::start(&machine);
    (machine, gateway)
}

fn call(gateway: &Gateway, asked: &str) -> Value {
    let mut result = gateway.exec(&json!({ "command": "id", "host": "node", "node": asked }));
    result["details"].take()
}

#[test]
fn a_node_among_many_is_found_by_id_prefix_name_and_address() {
    let (machine, gateway) = fleet();
    let mut admin = gateway.admin();
    let one = FleetNode::of(700);
    for asked in [&one.id, &one.id[..16], &one.name, &one.address] {
        let details = call(&gateway, asked);
        assert_eq!(details["code"], "NODE_NOT_CONNECTED", "{asked}: {details}");
        let listed = admin.ok("node.list", &json!({ "named": asked }));
        assert_eq!(listed["total"], 1, "{asked}");
        assert_eq!(listed["nodes"][0]["nodeId"], one.id, "{asked}");
        let shown = machine.ok(&["nodes", "describe", asked, "--json"]).json();
        assert_eq!(shown["nodeId"], one.id, "{asked}");
    }
    // With an unknown name, an error says of how many nodes some are.
    let result = gateway.exec(&json!({ "command": "id", "host": "node", "node": "elsewhere" }));
    assert_eq!(result["details"]["code"], "NODE_UNKNOWN", "{result}");
    let text = result.to_string();
    assert!(text.contains("fleet-00000"), "{text}");
    assert!(
        text.contains(&format!(" and {} more", FLEET - 20)),
        "{text}"
    );
    assert!(text.len() < 4_000, "{} characters", text.len());
}

#[test]
fn a_node_is_found_by_what_it_is_called_now_and_by_nothing_that_it_was_called() {
    let (_machine, gateway) = fleet();
    let mut admin = gateway.admin();
    let one = FleetNode::of(3);
    // Now the gateway knows all of them.
    assert_eq!(call(&gateway, &one.name)["code"], "NODE_NOT_CONNECTED");
    let rename = json!({ "nodeId": one.id, "displayName": "Shed" });
    admin.ok("node.rename", &rename);
    assert_eq!(call(&gateway, &one.name)["code"], "NODE_UNKNOWN");
    assert_eq!(call(&gateway, "shed")["code"], "NODE_NOT_CONNECTED");

    // A new node under the same name is meant as soon as it is approved and as long as it is there.
    let new = identity(71);
    let node = answering(gateway.node(&new, "shed", COMMANDS), answers);
    approve(&mut admin);
    let details = call(&gateway, "shed");
    assert_eq!(details["nodeId"], new.device_id().as_str(), "{details}");
    drop(node);
    eventually("it is away", || {
        call(&gateway, &new.device_id())["code"] == "NODE_NOT_CONNECTED"
    });
    let result = gateway.exec(&json!({ "command": "id", "host": "node", "node": "shed" }));
    assert_eq!(result["details"]["code"], "NODE_AMBIGUOUS", "{result}");
    let text = result.to_string();
    for candidate in [&new.device_id()[..12], &one.id[..12]] {
        assert!(text.contains(candidate), "{text}");
    }

    // What is taken back or removed does not compete any more.
    admin.ok("node.pair.remove", &json!({ "nodeId": new.device_id() }));
    let listed = admin.ok("node.list", &json!({ "named": "shed" }));
    assert_eq!(listed["nodes"][0]["nodeId"], one.id, "{listed}");
    admin.ok("device.pair.remove", &json!({ "deviceId": one.id }));
    let listed = admin.ok("node.list", &json!({ "named": "shed" }));
    assert_eq!(listed["nodes"][0]["nodeId"], new.device_id().as_str());
    assert_eq!(listed["nodes"][0]["paired"], false, "{listed}");
    admin.ok(
        "device.pair.remove",
        &json!({ "deviceId": new.device_id() }),
    );
    assert_eq!(call(&gateway, "shed")["code"], "NODE_UNKNOWN");
    assert_eq!(call(&gateway, &one.id)["code"], "NODE_UNKNOWN");
}

#[test]
fn the_only_connected_node_among_many_runs_a_call_that_names_none() {
    let (_machine, gateway) = fleet();
    let mut admin = gateway.admin();
    let result = gateway.exec(&json!({ "command": "id", "host": "node" }));
    assert_eq!(result["details"]["code"], "NODE_NOT_CONNECTED", "{result}");
    assert!(result.to_string().contains(" more"), "{result}");
    let new = identity(72);
    let _node = answering(gateway.node(&new, "here", COMMANDS), answers);
    approve(&mut admin);
    let result = gateway.exec(&json!({ "command": "id", "host": "node" }));
    assert_eq!(result["details"]["status"], "completed", "{result}");
    assert_eq!(result["details"]["nodeId"], new.device_id().as_str());
    let listed = admin.ok("node.list", &json!({ "connected": true }));
    assert_eq!(listed["total"], 1, "{listed}");
    assert_eq!(listed["nodes"][0]["displayName"], "here");
}

/// All names, page by page.
fn names(admin: &mut Wire, limit: usize) -> Vec<String> {
    let mut names = Vec::new();
    let mut params = json!({ "limit": limit });
    loop {
        let listed = admin.ok("node.list", &params);
        let page = listed["nodes"].as_array().unwrap();
        assert!(page.len() <= limit, "{} nodes", page.len());
        names.extend(
            page.iter()
                .map(|node| node["displayName"].as_str().unwrap().to_owned()),
        );
        match &listed["nextCursor"] {
            Value::Null => return names,
            cursor => params["cursor"] = cursor.clone(),
        }
    }
}

#[test]
fn a_list_comes_in_pages_that_hold_each_node_once() {
    let (machine, gateway) = fleet();
    let mut admin = gateway.admin();
    let listed = admin.ok("node.list", &json!({}));
    assert_eq!(listed["total"], FLEET);
    assert_eq!(listed["nodes"].as_array().unwrap().len(), 1_000);
    let expected: Vec<String> = (0..FLEET)
        .map(|number| FleetNode::of(number).name)
        .collect();
    for limit in [1_000, 400, 500] {
        assert_eq!(names(&mut admin, limit), expected, "{limit} a page");
    }
    // A node that is removed between two pages is no reason to begin anew, or to leave others out.
    let mut params = json!({ "limit": 10 });
    let listed = admin.ok("node.list", &params);
    params["cursor"] = listed["nextCursor"].clone();
    for number in [9, 10] {
        let id = FleetNode::of(number).id;
        admin.ok("device.pair.remove", &json!({ "deviceId": id }));
    }
    let listed = admin.ok("node.list", &params);
    assert_eq!(listed["total"], FLEET - 2);
    let first = &listed["nodes"][0]["displayName"];
    assert_eq!(*first, FleetNode::of(11).name.as_str());

    for wrong in [
        json!({ "limit": 0 }),
        json!({ "limit": 1_001 }),
        json!({ "cursor": "xyz" }),
    ] {
        let refused = admin.call("node.list", &wrong).unwrap_err();
        assert_eq!(refused["code"], "INVALID_REQUEST", "{wrong}: {refused}");
    }

    // The command line says how to go on, and what it says works.
    let mut command: Vec<String> = ["nodes", "list", "--limit", "600"]
        .map(str::to_owned)
        .to_vec();
    let mut seen = BTreeSet::new();
    for page in [600, 600, FLEET - 2 - 1_200] {
        let run = machine.ok(&command);
        assert_eq!(run.stdout.lines().count(), page);
        seen.extend(run.stdout.lines().map(str::to_owned));
        match run.stderr.split_once(" nodes; go on: interlock ") {
            Some((count, go_on)) => {
                assert_eq!(count, format!("{page} of {}", FLEET - 2));
                command = go_on.split_ascii_whitespace().map(str::to_owned).collect();
                // The machine sets the state directory by itself.
                command.retain(|word| !word.is_empty());
            }
            None => assert_eq!(page, FLEET - 2 - 1_200, "{run:?}"),
        }
    }
    assert_eq!(seen.len(), FLEET - 2);
    let listed = machine
        .ok(&["nodes", "list", "--limit", "3", "--json"])
        .json();
    assert_eq!(listed["total"], FLEET - 2);
    assert!(listed["nextCursor"].is_string(), "{listed}");
    let status = machine.ok(&["status"]).stdout;
    let further = format!("and {} more: interlock nodes list", FLEET - 2 - 20);
    assert!(status.contains(&further), "{status}");
}
