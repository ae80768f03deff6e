//! An agent asks only so much, and what an approver gives has an end.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::json;
use testkit::Machine;
use testkit::ws::{EVERYTHING, WsClient};

fn asking(most: u64) -> Machine {
    let machine = Machine::new();
    machine.write_config(&format!(
        "{{ tools: {{ exec: {{ maxPending: {most}, approvalWaitMs: 1 }} }} }}"
    ));
    machine.start();
    machine
}

#[test]
fn an_agent_has_only_so_many_approvals_that_wait() {
    let machine = asking(3);
    let ids: Vec<String> = (0..3)
        .map(|number| machine.put_down(&["--", &format!("touch {number}")]))
        .collect();
    let full = |machine: &Machine, agent: &str| {
        machine.run(&["exec", "--no-wait", "--agent", agent, "--", "touch more"])
    };
    let refused = full(&machine, "main");
    refused.refused(1, "APPROVAL_TOO_MANY");
    assert!(
        refused.stderr.contains("interlock approvals pending"),
        "{refused:#?}"
    );
    assert_eq!(machine.pending().len(), 3);
    // What is refused is in the audit as such.
    let log = machine.ok(&["audit", "log", "--json", "--kind", "verdict"]);
    assert!(log.stdout.contains("APPROVAL_TOO_MANY"), "{}", log.stdout);
    machine.ok(&["audit", "verify"]);
    // Each agent has its own.
    machine.ok(&[
        "config",
        "set",
        "agents.list",
        "[{ id: 'main' }, { id: 'other' }]",
    ]);
    assert!(!full(&machine, "other").stderr.contains("APPROVAL_TOO_MANY"));
    // One that was decided makes room; so does one whose time is up.
    machine.ok(&["approvals", "deny", &ids[0]]);
    machine.put_down(&["--", "touch again"]);
    full(&machine, "main").refused(1, "APPROVAL_TOO_MANY");
    let over = "UPDATE approval SET expires_at_ms = 1 WHERE id = ?1";
    machine.database().execute(over, [&ids[1]]).unwrap();
    machine.put_down(&["--", "touch at last"]);
}

#[test]
fn every_way_to_ask_is_bounded() {
    let machine = asking(2);
    let gateway = machine.gateway();
    let (mut client, mut approver) = (gateway.connect(EVERYTHING), gateway.connect(EVERYTHING));
    let exec = |client: &mut WsClient, number: u32| {
        let args = json!({ "command": format!("touch {number}") });
        let call = json!({ "name": "exec", "args": args });
        client.ok("tools.invoke", &call)["output"]["details"].take()
    };
    // A client that runs things by itself, a call of the tool, and both again.
    let question = json!({ "command": "make deploy", "cwd": "/tmp", "twoPhase": true });
    let first = client.send("exec.approval.request", &question).unwrap();
    approver.event("exec.approval.requested", |_| true);
    assert_eq!(exec(&mut client, 1)["status"], "approval-pending");
    let refused = exec(&mut client, 2);
    assert_eq!(refused["code"], "APPROVAL_TOO_MANY", "{refused}");
    assert!(
        refused["remedy"]
            .as_str()
            .unwrap()
            .contains("decide or withdraw")
    );
    let refused = client.refused("exec.approval.request", &question);
    assert_eq!(refused["details"]["code"], "APPROVAL_TOO_MANY", "{refused}");
    drop(first);
}

#[test]
fn a_lease_lasts_at_most_thirty_days() {
    let machine = asking(100);
    let id = machine.put_down(&["--", "touch leased"]);
    let refused = machine.run(&["approvals", "approve", "--for", "31d", &id]);
    assert_eq!(refused.code, 1, "{refused:#?}");
    assert!(
        refused.stderr.contains("error[LEASE_TOO_LONG]"),
        "{refused:#?}"
    );
    assert!(refused.stderr.contains("30 days"), "{refused:#?}");
    // Nothing was decided by it.
    assert_eq!(machine.pending().len(), 1);
    machine.ok(&["approvals", "approve", "--for", "30d", &id]);
    // Over the wire, too.
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let id = machine.put_down(&["--", "touch other"]);
    client.ok("exec.approval.get", &json!({ "id": id }));
    let month = 31_u64 * 24 * 60 * 60 * 1000;
    let lease = json!({ "id": id, "decision": "lease", "expiresInMs": month });
    let refused = client.refused("exec.approval.resolve", &lease);
    assert_eq!(refused["details"]["reason"], "LEASE_TOO_LONG", "{refused}");
}
