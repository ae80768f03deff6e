//! A run that a person allowed: what was asked about, once, and nothing else.

use serde_json::{Value, json};

use super::wire::{Gateway, Wire, approve, identity, invoke, ran};
use testkit::{Machine, eventually};

/// The run that is asked about.
fn run() -> Value {
    json!({
        "command": ["/bin/sh", "-lc", "id -un"],
        "rawCommand": "id -un",
        "cwd": "/tmp",
        "agentId": "main",
        "sessionKey": "agent:main:x",
        "env": { "LANG": "C" },
    })
}

fn plan() -> Value {
    json!({
        "argv": ["/bin/sh", "-lc", "id -un"],
        "cwd": "/tmp",
        "commandText": "/bin/sh -lc \"id -un\"",
        "commandPreview": "id -un",
        "agentId": "main",
        "sessionKey": "agent:main:x",
    })
}

/// Asks about the run, and lets another operator allow it.
fn allowed(asker: &mut Wire, approver: &mut Wire, node: &str, id: &str) {
    let question = json!({
        "id": id,
        "host": "node",
        "nodeId": node,
        "systemRunPlan": plan(),
        "env": { "LANG": "C" },
        "twoPhase": true,
    });
    let request = asker.send("exec.approval.request", &question);
    assert_eq!(asker.answer(&request).unwrap()["status"], "accepted");
    let shown = approver.event("exec.approval.requested");
    assert_eq!(shown["id"], id);
    assert_eq!(shown["request"]["systemRunPlan"], plan());
    assert_eq!(shown["request"].get("requestedByDeviceId"), None);
    // Before the decision it allows nothing.
    let mut early = run();
    early["approved"] = true.into();
    early["runId"] = id.into();
    let call = invoke(node, "system.run", &early, &format!("{id} early"));
    let error = asker.refused("node.invoke", &call);
    assert_eq!(error["details"]["code"], "APPROVAL_REQUIRED");
    approver.ok(
        "exec.approval.resolve",
        &json!({ "id": id, "decision": "allow-once" }),
    );
    assert_eq!(asker.answer(&request).unwrap()["decision"], "allow-once");
}

fn gateway_with_node(machine: &Machine) -> (Gateway, Wire, Wire, String) {
    machine.start();
    let gateway = Gateway::start(machine);
    let mut admin = gateway.admin();
    let key = identity(9);
    let node = gateway.node(&key, "lab", &["system.run"]);
    approve(&mut admin);
    (gateway, admin, node, key.device_id())
}

#[test]
fn an_approved_run_that_was_changed_is_refused_and_the_right_one_runs_once() {
    let machine = Machine::new();
    let (gateway, mut admin, mut node, id) = gateway_with_node(&machine);
    let mut asker = gateway.admin();
    let approval = "7d9fd6f0-0000-4000-8000-000000000001";
    allowed(&mut asker, &mut admin, &id, approval);

    let mut right = run();
    right["approved"] = true.into();
    right["runId"] = approval.into();
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut run = right.clone();
        change(&mut run);
        run
    };
    let mismatch = "APPROVAL_REQUEST_MISMATCH";
    let mutations: Vec<(Value, &str)> = vec![
        (
            changed(&|run| {
                run["command"][2] = "id -gn".into();
                run["rawCommand"] = "id -gn".into();
            }),
            mismatch,
        ),
        (
            changed(&|run| run["rawCommand"] = "id".into()),
            "RAW_COMMAND_MISMATCH",
        ),
        (changed(&|run| run["cwd"] = "/".into()), mismatch),
        (changed(&|run| run["cwd"] = Value::Null), mismatch),
        (changed(&|run| run["agentId"] = "other".into()), mismatch),
        (
            changed(&|run| run["sessionKey"] = "agent:main:y".into()),
            mismatch,
        ),
        (
            changed(&|run| run["env"]["LANG"] = "D".into()),
            "APPROVAL_ENV_MISMATCH",
        ),
        (
            changed(&|run| run["env"] = json!({})),
            "APPROVAL_ENV_MISMATCH",
        ),
        (
            changed(&|run| {
                run["systemRunPlan"] = plan();
                run["systemRunPlan"]["cwd"] = "/".into();
            }),
            mismatch,
        ),
        (
            changed(&|run| {
                run.as_object_mut().unwrap().remove("runId");
            }),
            "MISSING_RUN_ID",
        ),
        // Not by the beginning of its id either.
        (
            changed(&|run| run["runId"] = "7d9fd6f0".into()),
            "UNKNOWN_APPROVAL_ID",
        ),
        (
            changed(&|run| run["runId"] = "nothing".into()),
            "UNKNOWN_APPROVAL_ID",
        ),
    ];
    for (number, (run, code)) in mutations.iter().enumerate() {
        let call = invoke(&id, "system.run", run, &format!("mutation {number}"));
        let error = asker.refused("node.invoke", &call);
        assert_eq!(error["details"]["code"], *code, "{run}");
        assert_eq!(error["code"], "INVALID_REQUEST");
    }
    // The words of a decision are no decision: they need the record too.
    let claimed = changed(&|run| {
        run["approved"] = Value::Null;
        run["approvalDecision"] = "allow-always".into();
        run["runId"] = "nothing".into();
    });
    let error = asker.refused(
        "node.invoke",
        &invoke(&id, "system.run", &claimed, "claimed"),
    );
    assert_eq!(error["details"]["code"], "UNKNOWN_APPROVAL_ID");

    let call = asker.send("node.invoke", &invoke(&id, "system.run", &right, "right"));
    let invocation = node.invocation();
    let sent = &invocation["params"];
    assert_eq!(
        (&sent["approved"], &sent["approvalDecision"], &sent["runId"]),
        (&json!(true), &json!("allow-once"), &json!(approval))
    );
    assert_eq!(sent["systemRunPlan"], plan());
    assert_eq!(sent["command"], plan()["argv"]);
    assert_eq!(sent["rawCommand"], plan()["commandText"]);
    assert_eq!(sent["env"], json!({ "LANG": "C" }));
    node.give(&invocation, &ran("unread\n"));
    asker.answer(&call).unwrap();

    let again = invoke(&id, "system.run", &right, "again");
    let error = asker.refused("node.invoke", &again);
    assert_eq!(error["details"]["code"], "APPROVAL_REQUIRED");
    // It is put down behind the answer.
    eventually("its end is in the audit", || {
        let log = machine.ok(&["audit", "log", "--json", "--kind", "run-ended"]);
        log.stdout.contains(approval)
    });
}

#[test]
fn a_question_whose_text_is_not_its_command_is_not_asked() {
    let machine = Machine::new();
    let (gateway, mut admin, _node, id) = gateway_with_node(&machine);
    for lie in ["commandText", "commandPreview"] {
        let mut question = json!({ "host": "node", "nodeId": id, "systemRunPlan": plan() });
        question["systemRunPlan"][lie] = "ls".into();
        let error = gateway.admin().refused("exec.approval.request", &question);
        assert_eq!(error["details"]["code"], "RAW_COMMAND_MISMATCH", "{lie}");
    }
    assert_eq!(admin.ok("exec.approval.list", &json!({})), json!([]));
}

#[test]
fn an_approval_is_for_one_node_and_for_who_asked() {
    let machine = Machine::new();
    let (gateway, mut admin, _node, id) = gateway_with_node(&machine);
    let other = identity(10);
    let _other = gateway.node(&other, "other", &["system.run"]);
    approve(&mut admin);
    let mut asker = gateway.admin();
    let approval = "7d9fd6f0-0000-4000-8000-000000000002";
    allowed(&mut asker, &mut admin, &id, approval);
    let mut run = run();
    run["approved"] = true.into();
    run["runId"] = approval.into();
    let call = invoke(&other.device_id(), "system.run", &run, "1");
    let error = asker.refused("node.invoke", &call);
    assert_eq!(error["details"]["code"], "APPROVAL_NODE_MISMATCH");
    // A device did not ask this.
    let mut device = gateway.device(&identity(11), &["operator.write"]);
    let error = device.refused("node.invoke", &invoke(&id, "system.run", &run, "2"));
    assert_eq!(error["details"]["code"], "APPROVAL_CLIENT_MISMATCH");
    // What a device asked, another one does not use, nor does one without a device.
    let scopes = ["operator.write", "operator.approvals"];
    let mut device = gateway.device(&identity(12), &scopes);
    let approval = "7d9fd6f0-0000-4000-8000-000000000003";
    allowed(&mut device, &mut admin, &id, approval);
    run["runId"] = approval.into();
    let error = asker.refused("node.invoke", &invoke(&id, "system.run", &run, "3"));
    assert_eq!(error["details"]["code"], "APPROVAL_DEVICE_MISMATCH");
}
