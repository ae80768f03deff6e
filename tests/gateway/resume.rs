//! Questions that outlive the gateway which asked them: what is allowed runs by itself, once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use testkit::ws::{EVERYTHING, Gateway};
use testkit::{Machine, eventually};

/// Where people are asked about everything, and callers are sent away at once.
fn machine() -> Machine {
    let machine = Machine::open();
    machine.ok(&["exec-policy", "set", "--ask", "always"]);
    machine.ok(&["config", "set", "tools.exec.approvalWaitMs", "0"]);
    machine
}

/// The id of the question.
fn ask(gateway: &Gateway, command: &str) -> String {
    let call = json!({ "name": "exec", "args": { "command": command, "env": { "MARK": "kept" } } });
    let answer = gateway.connect(EVERYTHING).ok("tools.invoke", &call);
    let details = &answer["output"]["details"];
    assert_eq!(details["status"], "approval-pending", "{answer}");
    details["approvalId"].as_str().unwrap().to_owned()
}

/// Asked by a gateway, and allowed when it is gone.
fn allowed_without_gateway(machine: &Machine, command: &str) -> String {
    let mut gateway = machine.gateway();
    let id = ask(&gateway, command);
    gateway.kill();
    machine.ok(&["approvals", "approve", &id]);
    id
}

/// Whether the session was told of this, in these words.
fn is_told(machine: &Machine, id: &str, words: &str) -> bool {
    let of = ["events", "--session", "agent:main:main", "--json"];
    let events = machine.ok(&of).json();
    let all = events["events"].as_array().unwrap().clone();
    all.iter()
        .map(Value::to_string)
        .any(|event| event.contains(id) && event.contains(words))
}

/// How many commands have really run.
fn ran(machine: &Machine) -> usize {
    let ended = machine.ok(&["audit", "log", "--kind", "run-ended", "--json"]);
    let records = ended.json()["records"].as_array().unwrap().clone();
    let exited = |record: &&Value| record["body"].to_string().contains("\"exited\"");
    records.iter().filter(exited).count()
}

#[test]
fn what_is_allowed_after_a_restart_runs_by_itself_and_is_told() {
    let machine = machine();
    let made = |name: &str| machine.work().join(name);
    let touch = |name: &str| format!("touch {}", made(name).display());
    let mut first = machine.gateway();
    let [alone, later, denied] = ["alone", "later", "denied"].map(|name| ask(&first, &touch(name)));
    let said = ask(&first, "printenv MARK");
    first.kill();
    drop(first);
    // No gateway is there to run it.
    machine.ok(&["approvals", "approve", &alone]);
    let next = machine.gateway();
    eventually("the run that was allowed before", || made("alone").exists());
    machine.ok(&["approvals", "deny", &denied]);
    machine.ok(&["approvals", "approve", &later]);
    machine.ok(&["approvals", "approve", &said]);
    eventually("the run that is allowed now", || made("later").exists());
    for id in [&alone, &later] {
        eventually("its end", || is_told(&machine, id, "Exec finished"));
    }
    eventually("what it wrote", || is_told(&machine, &said, "kept"));
    assert!(!made("denied").exists());
    // Each of them ran once, and what is asked anew is another question.
    assert_eq!(ran(&machine), 3);
    drop(next);
    let last = machine.gateway();
    ask(&last, &touch("alone"));
    assert_eq!(ran(&machine), 3);
}

#[test]
fn what_became_stricter_meanwhile_is_not_run_and_its_session_is_told() {
    let machine = machine();
    let file = machine.work().join("made");
    let id = allowed_without_gateway(&machine, &format!("touch {}", file.display()));
    machine.ok(&["exec-policy", "preset", "deny-all"]);
    let _next = machine.gateway();
    eventually("the refusal", || is_told(&machine, &id, "approval-drift"));
    assert_eq!((file.exists(), ran(&machine)), (false, 0));
}

#[test]
fn what_drifted_meanwhile_is_not_run() {
    let machine = machine();
    let script = machine.script("job.sh", "#!/bin/sh\ntouch ran\n");
    let id = allowed_without_gateway(&machine, &format!("sh {}", script.display()));
    machine.script("job.sh", "#!/bin/sh\ntouch something-else\n");
    let _next = machine.gateway();
    eventually("the refusal", || is_told(&machine, &id, "approval-drift"));
    assert_eq!(ran(&machine), 0);
}

#[test]
fn an_allowed_plan_is_not_run_when_the_gateway_comes_too_late() {
    let machine = machine();
    let file = machine.work().join("made");
    let id = allowed_without_gateway(&machine, &format!("touch {}", file.display()));
    let sql = "UPDATE approval SET expires_at_ms = expires_at_ms - 3600000 WHERE id = ?1";
    assert_eq!(machine.database().execute(sql, [&id]).unwrap(), 1);
    let _next = machine.gateway();
    eventually("the refusal", || is_told(&machine, &id, "approval-drift"));
    assert_eq!((file.exists(), ran(&machine)), (false, 0));
}
