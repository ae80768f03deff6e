//! What foreign gateways of both releases are told of plans, denials and the document.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use testkit::gateway_stand_in::{NEWER, OLDER, Pair, approved};

const ASK_ON_MISS: &str =
    r#"{ "version": 1, "defaults": { "security": "allowlist", "ask": "on-miss" } }"#;
const ASK_OFF: &str = r#"{ "version": 1, "defaults": { "security": "allowlist", "ask": "off" },
    "agents": { "*": { "allowlist": [{ "pattern": "/**/true" }] } } }"#;
const MISS: &str = "SYSTEM_RUN_DENIED: allowlist miss";

fn text(text: &str) -> Value {
    json!({ "command": ["/bin/sh", "-lc", text], "rawCommand": text, "agentId": "main" })
}

/// The entries that the gateway reads in the document of the agent.
fn told(pair: &mut Pair) -> Vec<Value> {
    let shown = pair.link.invoke("system.execApprovals.get", &json!({}));
    let file = shown.ok().payload["file"].clone();
    let list = file["agents"]["main"]["allowlist"].as_array();
    list.cloned().unwrap_or_default()
}

fn is_told(entry: &Value) -> bool {
    entry["pattern"].as_str().unwrap().starts_with("=command:")
}

/// What *always* comes to: asked once, stored, and from then on told to the gateway and not asked.
fn always(version: &'static str) {
    let mut pair = Pair::of_release(version, ASK_ON_MISS);
    let plan = pair.link.plan(&text("id -un"));
    assert!(told(&mut pair).is_empty());
    let mut call = approved(&plan, "approval-1");
    call["approvalDecision"] = "allow-always".into();
    pair.link.run(&call).ok();
    // Stored is one entry, for these arguments in this directory.
    let stored = pair.machine.ok(&["approvals", "get", "--json"]).stdout;
    assert!(!stored.contains("=command:"), "{stored}");
    assert!(stored.contains("sha256:cwd-argv:v1:"), "{stored}");
    assert!(!told(&mut pair).iter().any(is_told));

    // The next call: prepared, and now allowed. The document says so in the words of the reference:
    // the beginning of the SHA-256 of the text that the plan calls the command.
    let plan = pair.link.plan(&text("id -un"));
    let entries = told(&mut pair);
    let only: Vec<&Value> = entries.iter().filter(|one| is_told(one)).collect();
    let command = plan["commandText"].as_str().unwrap();
    let hash = testkit::gateway_stand_in::sha256_hex(command.as_bytes());
    assert_eq!(only.len(), 1, "{entries:#?}");
    assert_eq!(only[0]["pattern"], format!("=command:{}", &hash[..16]));
    assert_eq!(only[0]["source"], "allow-always");
    let call = json!({ "command": plan["argv"], "systemRunPlan": plan, "approved": false,
        "agentId": "main", "runId": "second" });
    pair.link.run(&call).ok();

    // Other arguments, and another directory, are another question.
    pair.link.plan(&text("id -gn"));
    let elsewhere = json!({ "command": ["/bin/sh", "-lc", "id -un"], "rawCommand": "id -un",
        "agentId": "main", "cwd": "/" });
    pair.link.plan(&elsewhere);
    assert_eq!(told(&mut pair).iter().filter(|one| is_told(one)).count(), 0);
    let call = json!({ "command": ["/bin/sh", "-lc", "id -un"], "agentId": "main", "cwd": "/" });
    let required = "SYSTEM_RUN_DENIED: approval required";
    pair.link.run(&call).denied(required, "approval-required");
}

#[test]
fn always_saves_the_next_question_of_an_older_gateway() {
    always(OLDER);
}

#[test]
fn always_saves_the_next_question_of_a_newer_gateway() {
    always(NEWER);
}

#[test]
fn a_gateway_reads_and_writes_the_part_of_the_document_that_it_knows() {
    let document = r#"{ "version": 1,
        "defaults": { "security": "allowlist", "ask": "on-miss", "deny": [{ "pattern": "/usr/bin/dd" }] },
        "agents": { "main": { "allowlist": [
            { "pattern": "/**/id", "args": ["-un"] }, { "pattern": "/usr/bin/whoami", "note": "mine" } ] } } }"#;
    for version in [OLDER, NEWER] {
        let mut pair = Pair::of_release(version, document);
        pair.link.plan(&text("id -un"));
        let shown = pair.link.invoke("system.execApprovals.get", &json!({}));
        let shown = shown.ok().payload;
        // No property that the reference would refuse the document for.
        let list = &shown["file"]["agents"]["main"]["allowlist"];
        assert_eq!(
            list[0],
            json!({ "pattern": "/usr/bin/whoami" }),
            "{shown:#}"
        );
        assert!(is_told(&list[1]), "{shown:#}");
        let defaults = json!({ "security": "allowlist", "ask": "on-miss" });
        assert_eq!(shown["file"]["defaults"], defaults, "{shown:#}");
        // The command line of the reference reads the document, adds an entry and writes all of it.
        let mut file = shown["file"].clone();
        let entries = file["agents"]["main"]["allowlist"].as_array_mut().unwrap();
        entries.push(json!({ "id": "x", "pattern": "/usr/bin/uname" }));
        let set = json!({ "file": file, "baseHash": shown["hash"] });
        pair.link.invoke("system.execApprovals.set", &set).ok();
        let stored = pair.machine.ok(&["approvals", "get", "--json"]).json();
        let stored = &stored["document"];
        let patterns: Vec<&str> = stored["agents"]["main"]["allowlist"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["pattern"].as_str().unwrap())
            .collect();
        assert_eq!(
            patterns,
            ["/**/id", "/usr/bin/whoami", "/usr/bin/uname"],
            "{stored:#}"
        );
        let main = &stored["agents"]["main"]["allowlist"];
        assert_eq!(
            (&main[0]["args"], &main[1]["note"]),
            (&json!(["-un"]), &json!("mine"))
        );
        assert_eq!(
            stored["defaults"]["deny"][0]["pattern"], "/usr/bin/dd",
            "{stored:#}"
        );
    }
}

#[test]
fn nothing_is_told_of_what_only_an_open_policy_allows() {
    let open = r#"{ "version": 1, "defaults": { "security": "full", "ask": "off" } }"#;
    let mut pair = Pair::of_release(OLDER, open);
    pair.link.plan(&text("id -un"));
    assert!(told(&mut pair).is_empty());
}

#[test]
fn a_newer_gateway_gets_policy_and_coverage_with_a_plan_and_sends_the_snapshot_back() {
    let document = r#"{ "version": 1,
        "defaults": { "security": "allowlist", "ask": "on-miss", "askFallback": "deny" },
        "agents": { "main": { "allowlist": [
            { "pattern": "/usr/bin/uname" }, { "pattern": "/usr/bin/env", "argPattern": "^x$" } ] } } }"#;
    let mut pair = Pair::of_release(NEWER, document);
    let mut call = text("id -un");
    call["security"] = "full".into();
    call["ask"] = "off".into();
    call["env"] = json!({ "NO_COLOR": "1" });
    let prepared = pair.link.invoke("system.run.prepare", &call).ok().payload;
    assert_eq!(
        prepared["execPolicy"],
        json!({ "security": "allowlist", "ask": "on-miss" })
    );
    let coverage = &prepared["allowAlwaysCoverage"];
    assert_eq!(coverage["complete"], true, "{prepared:#}");
    let pattern = coverage["patterns"][0]["argPattern"].as_str().unwrap();
    assert!(pattern.starts_with("sha256:cwd-argv:v1:"), "{prepared:#}");
    let plan = &prepared["plan"];
    let mut snapshot = plan["policySnapshot"].clone();
    assert_eq!(
        snapshot,
        json!({
            "security": "allowlist", "ask": "on-miss", "askFallback": "deny", "autoAllowSkills": false,
            "allowlistRules": [
                { "pattern": "/usr/bin/env", "argPattern": "^x$" }, { "pattern": "/usr/bin/uname" } ],
        })
    );
    // A gateway may order the rules otherwise; it is the same plan.
    snapshot["allowlistRules"].as_array_mut().unwrap().reverse();
    let mut reordered = plan.clone();
    reordered["policySnapshot"] = snapshot.clone();
    pair.link.run_approved(&reordered, "reordered").ok();
    // Another snapshot, or none, is another plan.
    let mismatch = "SYSTEM_RUN_DENIED: execution plan mismatch";
    snapshot["security"] = "full".into();
    let mut other = plan.clone();
    other["policySnapshot"] = snapshot;
    let done = pair.link.run_approved(&other, "other");
    done.denied(mismatch, "execution-plan-miss");
    other.as_object_mut().unwrap().remove("policySnapshot");
    let done = pair.link.run_approved(&other, "without");
    done.denied(mismatch, "execution-plan-miss");
    // What could not be kept is not offered.
    let prepared = pair
        .link
        .invoke("system.run.prepare", &text("id | cat > x"));
    let prepared = prepared.ok().payload;
    let nothing = json!({ "complete": false, "patterns": [] });
    assert_eq!(prepared["allowAlwaysCoverage"], nothing);
    // Blocked variables are said before an approver is asked.
    let mut call = text("id -un");
    call["env"] = json!({ "LD_PRELOAD": "x" });
    let done = pair.link.invoke("system.run.prepare", &call);
    assert_eq!(done.code, "INVALID_REQUEST", "{done:#?}");
    assert!(done.message.contains("LD_PRELOAD"), "{done:#?}");
}

#[test]
fn an_older_gateway_gets_nothing_that_it_does_not_know() {
    let mut pair = Pair::of_release(OLDER, ASK_ON_MISS);
    let prepared = pair.link.invoke("system.run.prepare", &text("id -un"));
    let prepared = prepared.ok().payload;
    let names: Vec<&String> = prepared.as_object().unwrap().keys().collect();
    assert_eq!(names, ["plan"], "{prepared:#}");
    assert!(prepared["plan"].get("policySnapshot").is_none());
}

#[test]
fn a_plan_that_no_approval_can_allow_is_refused_before_an_approver_is_asked() {
    for version in [OLDER, NEWER] {
        let mut pair = Pair::of_release(version, ASK_OFF);
        let done = pair.link.invoke("system.run.prepare", &text("id -un"));
        done.refused("INVALID_REQUEST", MISS);
        assert!(done.events.is_empty(), "{done:#?}");
        // What the gateway would like to ask about is no matter of an approval here.
        let mut call = text("id -un");
        call["security"] = "allowlist".into();
        call["ask"] = "on-miss".into();
        let done = pair.link.invoke("system.run.prepare", &call);
        done.refused("INVALID_REQUEST", MISS);
        pair.link.plan(&text("true"));
    }
    let denies = r#"{ "version": 1, "defaults": { "security": "deny" } }"#;
    let mut pair = Pair::of_release(NEWER, denies);
    let done = pair.link.invoke("system.run.prepare", &text("true"));
    done.refused("INVALID_REQUEST", "SYSTEM_RUN_DISABLED: security=deny");
    let rule = r#"{ "version": 1, "defaults": { "security": "full", "ask": "on-miss",
        "deny": [{ "pattern": "/**/id", "reason": "not here" }] } }"#;
    let mut pair = Pair::of_release(NEWER, rule);
    let done = pair.link.invoke("system.run.prepare", &text("id"));
    assert_eq!(done.code, "INVALID_REQUEST", "{done:#?}");
    assert!(done.message.starts_with("SYSTEM_RUN_DENIED: "), "{done:#?}");
}

#[test]
fn a_run_that_took_too_long_has_an_exit_code_for_newer_gateways_only() {
    let open = r#"{ "version": 1, "defaults": { "security": "full", "ask": "off" } }"#;
    for (version, code) in [(OLDER, Value::Null), (NEWER, json!(124))] {
        let mut pair = Pair::of_release(version, open);
        let late = json!({ "command": ["/bin/sh", "-lc", "sleep 600"], "timeoutMs": 300 });
        let late = pair.link.run(&late).ok();
        assert_eq!(late.payload["timedOut"], true, "{late:#?}");
        assert_eq!(late.payload["exitCode"], code, "{late:#?}");
        assert_eq!(late.events[0].1["exitCode"], code, "{late:#?}");
    }
}
