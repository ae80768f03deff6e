//! Invocations: what goes to a node, what comes back, and who may answer.

use serde_json::{Value, json};

use super::wire::{Gateway, Wire, approve, identity, invoke, ran};
use testkit::Machine;

const COMMANDS: &[&str] = &[
    "system.run",
    "system.which",
    "system.execApprovals.get",
    "system.execApprovals.set",
];

/// A gateway with one approved node.
fn with_node(machine: &Machine) -> (Gateway, Wire, Wire, String) {
    machine.start();
    let gateway = Gateway::start(machine);
    let mut admin = gateway.admin();
    let key = identity(7);
    let node = gateway.node(&key, "lab", COMMANDS);
    approve(&mut admin);
    (gateway, admin, node, key.device_id())
}

fn shown(error: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&error["code"]), text(&error["message"]))
}

#[test]
fn every_failure_of_an_invocation_has_its_own_words() {
    let machine = Machine::new();
    let (_gateway, mut admin, mut node, id) = with_node(&machine);
    let which = json!({ "bins": ["sh"] });

    let asked = admin.send("node.invoke", &invoke(&id, "system.which", &which, "a"));
    let invocation = node.invocation();
    node.fail(&invocation, "UNAVAILABLE", "no");
    let error = admin.answer(&asked).unwrap_err();
    assert_eq!(
        shown(&error),
        ("UNAVAILABLE".into(), "UNAVAILABLE: no".into())
    );
    assert_eq!(
        error["details"]["nodeError"],
        json!({ "code": "UNAVAILABLE", "message": "no" })
    );

    let cases = [
        (
            invoke("missing", "system.which", &which, "b"),
            "UNAVAILABLE",
            "node not connected",
        ),
        (
            invoke(&id, "foo.bar", &which, "c"),
            "INVALID_REQUEST",
            "node command not allowed: \"foo.bar\" is not in the allowlist for platform \"linux\"",
        ),
        (
            invoke(&id, "system.notify", &which, "d"),
            "INVALID_REQUEST",
            "node command not allowed: the node (platform: linux) does not support \"system.notify\"",
        ),
        (
            invoke(&id, "system.execApprovals.get", &which, "e"),
            "INVALID_REQUEST",
            "node.invoke does not allow system.execApprovals.*; use exec.approvals.node.*",
        ),
        (
            invoke(&id, "system.run", &json!({ "command": "ls" }), "f"),
            "INVALID_REQUEST",
            "command required",
        ),
    ];
    for (call, code, message) in cases {
        let error = admin.refused("node.invoke", &call);
        assert_eq!(shown(&error), (code.to_owned(), message.to_owned()));
    }
    let mut call = invoke(&id, "system.which", &which, "g");
    call["timeoutMs"] = 50.into();
    let error = admin.refused("node.invoke", &call);
    assert_eq!(error["message"], "TIMEOUT: node invoke timed out");
    let late = node.invocation();
    assert_eq!(late["timeoutMs"], 50);
    assert_eq!(node.give(&late, &json!({}))["ignored"], true);

    let asked = admin.send("node.invoke", &invoke(&id, "system.which", &which, "h"));
    node.invocation();
    drop(node);
    let error = admin.answer(&asked).unwrap_err();
    assert_eq!(error["message"], "Error: node disconnected (system.which)");
    let nodes = json!({ "nodeId": id });
    let error = admin.refused("exec.approvals.node.get", &nodes);
    assert_eq!(error["message"], "NOT_CONNECTED: node not connected");
}

#[test]
fn the_same_key_reaches_the_node_once() {
    let machine = Machine::new();
    let (_gateway, mut admin, mut node, id) = with_node(&machine);
    let call = invoke(&id, "system.run", &json!({ "command": ["date"] }), "once");
    let first = admin.send("node.invoke", &call);
    let invocation = node.invocation();
    assert_eq!(invocation["idempotencyKey"], "once");
    node.give(&invocation, &ran("x"));
    let first = admin.answer(&first).unwrap();
    let again = admin.ok("node.invoke", &call);
    assert_eq!(first, again);
    // The next that the node hears of is another call.
    let other = invoke(&id, "system.which", &json!({ "bins": [] }), "other");
    let other = admin.send("node.invoke", &other);
    let invocation = node.invocation();
    assert_eq!(invocation["command"], "system.which");
    node.give(&invocation, &json!({ "bins": {} }));
    admin.answer(&other).unwrap();
}

#[test]
fn a_key_is_for_one_call_of_one_caller() {
    let machine = Machine::new();
    let (gateway, mut admin, mut node, id) = with_node(&machine);
    let run = |text: &str| {
        let params = json!({ "command": ["/bin/echo", text] });
        invoke(&id, "system.run", &params, "same")
    };
    let mine = admin.send("node.invoke", &run("secret"));
    let invocation = node.invocation();
    node.give(&invocation, &ran("secret"));
    let mine = admin.answer(&mine).unwrap();
    // Other callers without a device, one with another call and one with the same.
    for text in ["other", "secret"] {
        let mut other = gateway.admin();
        let asked = other.send("node.invoke", &run(text));
        let invocation = node.invocation();
        assert_eq!(invocation["params"]["command"][1], text);
        node.give(&invocation, &ran(text));
        let answer = other.answer(&asked).unwrap();
        assert_eq!(answer["payload"]["stdout"], text);
    }
    // The same caller with another call.
    let error = admin.refused("node.invoke", &run("third"));
    assert_eq!(error["code"], "INVALID_REQUEST", "{error}");
    assert_eq!(error["details"]["reason"], "IDEMPOTENCY_KEY_REUSED");
    assert_eq!(admin.ok("node.invoke", &run("secret")), mine);
    // What did nothing is not kept.
    let call = invoke(&id, "system.run", &json!({ "command": ["date"] }), "no");
    for answer in ["refused", "done"] {
        let asked = admin.send("node.invoke", &call);
        let invocation = node.invocation();
        if answer == "refused" {
            node.fail(
                &invocation,
                "UNAVAILABLE",
                "SYSTEM_RUN_DENIED: allowlist miss",
            );
            admin.answer(&asked).unwrap_err();
        } else {
            node.give(&invocation, &ran(answer));
            let done = admin.answer(&asked).unwrap();
            assert_eq!(done["payload"]["stdout"], "done");
        }
    }
    // What may have done something is.
    let call = invoke(&id, "system.run", &json!({ "command": ["date"] }), "lost");
    let asked = admin.send("node.invoke", &call);
    node.invocation();
    drop(node);
    let lost = admin.answer(&asked).unwrap_err();
    let _node = gateway.node(&identity(7), "lab", COMMANDS);
    assert_eq!(admin.refused("node.invoke", &call), lost);
}

#[test]
fn of_a_run_only_what_is_known_goes_to_the_node_and_nothing_of_an_approval() {
    let machine = Machine::new();
    let (_gateway, mut admin, mut node, id) = with_node(&machine);
    let params = json!({
        "command": ["/bin/sh", "-lc", "echo hi"],
        "rawCommand": "echo hi",
        "approved": false,
        "approvalDecision": "whatever",
        "timeoutMs": 100_000,
        "sneaky": true,
    });
    let asked = admin.send("node.invoke", &invoke(&id, "system.run", &params, "1"));
    let invocation = node.invocation();
    let mut sent = invocation["params"].clone();
    let run_id = sent.as_object_mut().unwrap().remove("runId").unwrap();
    assert_eq!(run_id.as_str().unwrap().len(), 36);
    assert_eq!(
        sent,
        json!({
            "command": ["/bin/sh", "-lc", "echo hi"],
            "rawCommand": "echo hi",
            "timeoutMs": 100_000,
        })
    );
    assert_eq!(invocation.get("timeoutMs"), None);
    node.give(&invocation, &ran("hi\n"));
    let answer = admin.answer(&asked).unwrap();
    assert_eq!(answer["payload"], ran("hi\n"));
    assert_eq!(answer["payloadJSON"], ran("hi\n").to_string());

    let params = json!({ "command": ["/bin/sh", "-lc", "echo hi"], "rawCommand": "rm -rf /" });
    let error = admin.refused("node.invoke", &invoke(&id, "system.run", &params, "2"));
    assert_eq!(error["message"], "rawCommand does not match command");
    assert_eq!(error["details"]["code"], "RAW_COMMAND_MISMATCH");
    assert_eq!(error["details"]["inferred"], "echo hi");
}

#[test]
fn a_node_answers_and_tells_for_itself_alone() {
    let machine = Machine::new();
    let (gateway, mut admin, mut node, id) = with_node(&machine);
    let key = identity(8);
    let mut other = gateway.node(&key, "other", COMMANDS);
    approve(&mut admin);
    let params = json!({ "command": ["date"], "runId": "run-1", "sessionKey": "agent:main:x" });
    let asked = admin.send("node.invoke", &invoke(&id, "system.run", &params, "1"));
    let invocation = node.invocation();

    // An answer in the name of another node, and one to an invocation that is not its own.
    let forged =
        json!({ "id": invocation["id"], "nodeId": id, "ok": true, "payload": ran("forged") });
    let error = other.refused("node.invoke.result", &forged);
    assert_eq!(error["message"], "nodeId mismatch");
    let stolen = json!({
        "id": invocation["id"],
        "nodeId": key.device_id(),
        "ok": true,
        "payload": ran("stolen"),
    });
    assert_eq!(
        other.ok("node.invoke.result", &stolen),
        json!({ "ok": true, "ignored": true })
    );
    let finished = json!({
        "sessionKey": "agent:main:x", "runId": "run-1", "host": "node", "command": "date",
        "exitCode": 3, "timedOut": false, "success": false, "output": "something",
    });
    let event = json!({ "event": "exec.finished", "payloadJSON": finished.to_string() });
    assert_eq!(
        other.ok("node.event", &event),
        json!({
            "ok": true,
            "event": "exec.finished",
            "handled": false,
            "reason": "unmatched_exec_event",
        })
    );
    let null = json!({ "event": "exec.finished", "payloadJSON": null });
    assert_eq!(
        other.refused("node.event", &null)["code"],
        "INVALID_REQUEST"
    );
    // Of another session it is not its run either.
    let mut foreign = finished.clone();
    foreign["sessionKey"] = "agent:main:y".into();
    let foreign = json!({ "event": "exec.finished", "payloadJSON": foreign.to_string() });
    assert_eq!(node.ok("node.event", &foreign)["handled"], false);
    assert_eq!(node.ok("node.event", &event), json!({ "ok": true }));
    node.give(&invocation, &ran("own"));
    let answer = admin.answer(&asked).unwrap();
    assert_eq!(answer["payload"]["stdout"], "own");
    // Operators' methods are not for nodes, nor theirs for operators.
    let error = node.refused("node.list", &json!({}));
    assert_eq!(error["message"], "unauthorized role: node");
    let error = admin.refused("node.invoke.result", &stolen);
    assert_eq!(error["message"], "unauthorized role: operator");
}

#[test]
fn the_document_of_a_node_is_read_and_written_there() {
    let machine = Machine::new();
    let (gateway, mut admin, mut node, id) = with_node(&machine);
    let document = json!({
        "path": "/n/exec-approvals.json", "exists": true, "hash": "h1",
        "file": { "version": 1, "agents": {} },
    });
    let asked = admin.send("exec.approvals.node.get", &json!({ "nodeId": id }));
    let invocation = node.invocation();
    assert_eq!(invocation["command"], "system.execApprovals.get");
    node.give(&invocation, &document);
    assert_eq!(admin.answer(&asked).unwrap(), document);

    let set = json!({ "nodeId": id, "file": { "version": 1 }, "baseHash": "h1" });
    let asked = admin.send("exec.approvals.node.set", &set);
    let invocation = node.invocation();
    assert_eq!(invocation["command"], "system.execApprovals.set");
    assert_eq!(
        invocation["params"],
        json!({ "file": { "version": 1 }, "baseHash": "h1" })
    );
    node.fail(
        &invocation,
        "INVALID_REQUEST",
        "Error: INVALID_REQUEST: exec approvals changed; reload and retry",
    );
    let error = admin.answer(&asked).unwrap_err();
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("changed; reload")
    );

    // Who changed it is put down here: the node knows its gateway only.
    let recorded = || {
        let log = machine.ok(&["audit", "log", "--json", "--kind", "policy-write"]);
        log.stdout
    };
    assert!(!recorded().contains("h2"), "a refused change is none");
    let asked = admin.send("exec.approvals.node.set", &set);
    let invocation = node.invocation();
    let mut changed = document.clone();
    changed["hash"] = "h2".into();
    node.give(&invocation, &changed);
    assert_eq!(admin.answer(&asked).unwrap(), changed);
    let recorded = recorded();
    for text in ["h2", id.as_str(), "laptop"] {
        assert!(recorded.contains(text), "{text}: {recorded}");
    }

    let mut reader = gateway.operator(&["operator.read", "operator.write"]);
    let error = reader.refused("exec.approvals.node.get", &json!({ "nodeId": id }));
    assert_eq!(error["message"], "missing scope: operator.admin");
}
