//! The operator of a node decides, through the approval socket of that machine, about runs that a
//! foreign gateway sends without an approval.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use testkit::companion::{Companion, Prompt};
use testkit::gateway_stand_in::{NEWER, OLDER, Pair};

const ASK_ON_MISS: &str =
    r#"{ "version": 1, "defaults": { "security": "allowlist", "ask": "on-miss" } }"#;
const ASK_ALWAYS: &str =
    r#"{ "version": 1, "defaults": { "security": "allowlist", "ask": "always" } }"#;
const REQUIRED: &str = "SYSTEM_RUN_DENIED: approval required";

fn call(text: &str, run_id: &str) -> Value {
    json!({ "command": ["/bin/sh", "-lc", text], "rawCommand": text, "runId": run_id,
        "agentId": "main", "timeoutMs": 60_000 })
}

/// Sends a run, and gives what the operator is shown of it.
fn ask(pair: &mut Pair, companion: &Companion, params: &Value) -> Prompt {
    pair.link.begin_within("i", "system.run", params, 60_000);
    let mut prompt = companion.asked();
    assert_eq!(prompt.request["waits"], true, "{:#}", prompt.request);
    prompt.say(&json!({ "type": "shown" }));
    prompt
}

#[test]
fn the_operator_of_the_node_allows_or_denies_what_a_foreign_gateway_sends() {
    for version in [OLDER, NEWER] {
        let mut pair = Pair::of_release(version, ASK_ON_MISS);
        let companion = Companion::listen(&pair.machine);
        let mut prompt = ask(&mut pair, &companion, &call("echo asked", "run-1"));
        let approval = prompt.approval();
        assert_eq!(approval["command"], "echo asked", "{approval:#}");
        assert!(
            approval.to_string().contains("ended after 1"),
            "the time limit: {approval:#}"
        );
        assert_eq!(prompt.answer("allow-once")["ok"], true);
        let done = pair.link.end("i").ok();
        assert_eq!(done.payload["stdout"], "asked\n", "{done:#?}");
        assert_eq!(done.events[0].0, "exec.finished");
        assert_eq!(done.events[0].1["runId"], "run-1");
        // The same run is not run again, and is not asked about again.
        let used = "SYSTEM_RUN_DENIED: run id was used already; it is not run again";
        pair.link
            .begin_within("i", "system.run", &call("echo asked", "run-1"), 60_000);
        pair.link.end("i").refused("UNAVAILABLE", used);

        let mut prompt = ask(&mut pair, &companion, &call("echo denied > made", "run-2"));
        assert_eq!(prompt.answer("deny")["ok"], true);
        let done = pair.link.end("i");
        assert_eq!(done.code, "SYSTEM_RUN_DENIED", "{done:#?}");
        assert!(
            done.message.contains("denied by a test (companion"),
            "{done:#?}"
        );
        assert_eq!(done.events[0].0, "exec.denied");
        assert_eq!(done.events[0].1["reason"], "approval-required");
        assert!(!pair.machine.work().join("made").exists());
    }
}

#[test]
fn what_the_operator_always_allows_is_not_asked_again() {
    let mut pair = Pair::of_release(OLDER, ASK_ON_MISS);
    let companion = Companion::listen(&pair.machine);
    let mut prompt = ask(&mut pair, &companion, &call("id -un", "run-1"));
    assert_eq!(prompt.answer("allow-always")["ok"], true);
    pair.link.end("i").ok();
    drop(companion);
    pair.link.run(&call("id -un", "run-2")).ok();
    pair.link
        .run(&call("id -gn", "run-3"))
        .denied(REQUIRED, "approval-required");
}

#[test]
fn a_plan_of_the_node_is_asked_about_too_where_no_approver_of_the_gateway_was() {
    let mut pair = Pair::of_release(NEWER, ASK_ALWAYS);
    let companion = Companion::listen(&pair.machine);
    let mut params = call("echo planned", "run-1");
    let plan = pair.link.plan(&params);
    params["systemRunPlan"] = plan;
    params["approved"] = false.into();
    let mut prompt = ask(&mut pair, &companion, &params);
    assert_eq!(prompt.answer("allow-once")["ok"], true);
    assert_eq!(pair.link.end("i").ok().payload["stdout"], "planned\n");
    // Without a plan, `ask=always` is refused.
    let done = pair.link.run(&call("echo unplanned", "run-2"));
    done.denied(REQUIRED, "approval-required");
}

#[test]
fn without_a_decision_in_time_nothing_runs_and_nothing_is_left_to_decide() {
    let mut pair = Pair::of_release(OLDER, ASK_ON_MISS);
    let companion = Companion::listen(&pair.machine);
    pair.link
        .begin_within("i", "system.run", &call("echo late > made", "run-1"), 3_000);
    let mut prompt = companion.asked();
    prompt.say(&json!({ "type": "received" }));
    pair.link.end("i").denied(REQUIRED, "approval-required");
    let mut last = Value::Null;
    while let Some(said) = prompt.hear() {
        last = said;
    }
    assert_eq!(last["type"], "ended", "{last:#}");
    let pending = pair.machine.ok(&["approvals", "pending", "--json"]).json();
    assert_eq!(pending["approvals"], json!([]), "{pending:#}");
    assert!(!pair.machine.work().join("made").exists());
    // A gateway that waits for less than it takes to answer is not waited for.
    pair.link
        .begin_within("i", "system.run", &call("id", "run-2"), 1_000);
    pair.link.end("i").denied(REQUIRED, "approval-required");
}

#[test]
fn an_interlock_gateway_asks_its_own_approvers() {
    let machine = testkit::Machine::new();
    machine.start();
    assert_eq!(machine.set_document(ASK_ON_MISS).code, 0);
    let mut pair = Pair::interlock(machine);
    let _companion = Companion::listen(&pair.machine);
    let done = pair.link.run(&call("id", "run-1"));
    done.denied(REQUIRED, "approval-required");
}
