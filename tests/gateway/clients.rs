//! What clients of the gateway may count on when they, or their owners, make mistakes or many calls.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use testkit::Machine;
use testkit::ws::{EVERYTHING, WsClient};

fn exec(client: &mut WsClient, command: &str) -> Value {
    let call = json!({ "name": "exec", "args": { "command": command } });
    client.ok("tools.invoke", &call)["output"]["details"].take()
}

#[test]
fn a_document_whose_words_are_misspelt_is_refused_and_changes_nothing() {
    let machine = Machine::unguarded();
    machine.ok(&[
        "exec-policy",
        "set",
        "--security",
        "allowlist",
        "--ask",
        "off",
    ]);
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let before = client.ok("exec.approvals.get", &json!({}));
    for file in [
        json!({ "version": 1, "defaults": { "security": "alowlist", "ask": "off" } }),
        json!({ "version": 1, "defaults": { "secutity": "allowlist", "ask": "off" } }),
    ] {
        let set = json!({ "file": file, "baseHash": before["hash"] });
        let error = client.refused("exec.approvals.set", &set);
        assert_eq!(error["details"]["code"], "DOCUMENT_INVALID", "{error:#}");
    }
    assert_eq!(client.ok("exec.approvals.get", &json!({})), before);
    let run = exec(&mut client, "/usr/bin/uname");
    assert_eq!(run["status"], "denied", "{run:#}");
}

/// The reference's clients read when an entry was used, and write back what they have read.
#[test]
fn the_document_says_when_an_entry_was_used_and_a_use_is_no_change_of_it() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["approvals", "allowlist", "add", "/usr/bin/uname"]);
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let get = |client: &mut WsClient| client.ok("exec.approvals.get", &json!({}));
    let entry = |document: &Value| document["file"]["agents"]["*"]["allowlist"][0].clone();
    let before = get(&mut client);
    assert!(entry(&before)["lastUsedAt"].is_null(), "{before:#}");
    assert_eq!(exec(&mut client, "uname -s")["status"], "completed");
    let used = get(&mut client);
    assert_eq!(used["hash"], before["hash"]);
    assert!(entry(&used)["lastUsedAt"].as_u64() > Some(1_000_000_000_000));
    assert_eq!(entry(&used)["lastUsedCommand"], "uname -s");
    assert_eq!(entry(&used)["lastResolvedPath"], "/usr/bin/uname");
    // Used once more: what was read before can be written back all the same, and is no other one.
    assert_eq!(exec(&mut client, "uname -r")["status"], "completed");
    let set = json!({ "file": used["file"], "baseHash": used["hash"] });
    let written = client.ok("exec.approvals.set", &set);
    assert_eq!(written["hash"], before["hash"]);
    assert_eq!(entry(&written)["lastUsedCommand"], "uname -r");
    // A client does not make a use up.
    let mut forged = written["file"].clone();
    forged["agents"]["*"]["allowlist"][0]["lastUsedCommand"] = "rm -rf /".into();
    forged["agents"]["*"]["allowlist"][0]["lastUsedAt"] = 9_000_000_000_000_u64.into();
    let set = json!({ "file": forged, "baseHash": written["hash"] });
    let written = client.ok("exec.approvals.set", &set);
    assert_eq!(written["hash"], before["hash"]);
    assert_eq!(entry(&written)["lastUsedCommand"], "uname -r");
}

#[track_caller]
fn assert_exec_is_closed(machine: &Machine) {
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let call = json!({ "name": "exec", "args": { "command": "true" } });
    let answer = client.ok("tools.invoke", &call);
    assert_eq!(answer["error"]["code"], "not_found", "{answer:#}");
}

#[test]
fn groups_count_where_the_gateway_closes_tools() {
    let machine = Machine::unguarded();
    machine.write_config("{ gateway: { tools: { deny: ['group:Runtime'] } } }");
    assert_exec_is_closed(&machine);
}

#[test]
fn an_agent_under_its_old_name_is_held_to_its_config() {
    let machine = Machine::unguarded();
    machine.write_config("{ agents: { list: [{ id: 'default', tools: { deny: ['exec'] } }] } }");
    assert_exec_is_closed(&machine);
}

#[test]
fn clients_are_told_that_the_gateway_goes_before_they_are_closed() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut clients = [gateway.connect(EVERYTHING), gateway.connect(EVERYTHING)];
    gateway.stop();
    for client in &mut clients {
        let told = client.event("shutdown", |_| true);
        assert_eq!(told["reason"], "gateway stopping");
        assert_eq!(
            client.end(),
            testkit::ws::Came::Closed(1012, "service restart".to_owned())
        );
    }
}

#[test]
fn a_client_with_many_calls_that_wait_is_still_heard() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let (mut asker, mut decider) = (gateway.connect(EVERYTHING), gateway.connect(EVERYTHING));
    let question = json!({ "command": "make deploy", "cwd": "/tmp" });
    let request = asker.send("exec.approval.request", &question).unwrap();
    let shown = decider.event("exec.approval.requested", |_| true);
    let by_id = json!({ "id": shown["id"] });
    let waiting: Vec<String> = (0..200)
        .map(|_| decider.send("exec.approval.waitDecision", &by_id).unwrap())
        .collect();
    decider.ok("health", &json!({}));
    let deny = json!({ "id": shown["id"], "decision": "deny" });
    decider.ok("exec.approval.resolve", &deny);
    for id in waiting {
        assert_eq!(decider.answer(&id).unwrap().unwrap()["decision"], "deny");
    }
    assert_eq!(asker.answer(&request).unwrap().unwrap()["decision"], "deny");
    // The request came without a session.
    let events = machine.ok(&["events", "--session", "agent:main:main", "--json"]);
    assert_eq!(events.json()["events"], json!([]), "{events:#?}");
}

#[test]
fn a_change_that_needs_a_restart_says_so_however_it_is_written() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let mut patch = |raw: &str| {
        let hash = client.ok("config.get", &json!({}))["hash"].take();
        client.ok("config.patch", &json!({ "raw": raw, "baseHash": hash }))
    };
    let port = patch("{ gateway: { port: 4000, nodes: { denyCommands: ['x'] } } }");
    assert_eq!(
        port["changed"],
        json!(["gateway.nodes.denyCommands", "gateway.port"])
    );
    assert_eq!(port["restartRequired"], true);
    let nodes = patch("{ gateway: { nodes: { denyCommands: ['y'] } } }");
    assert_eq!(nodes["restartRequired"], false, "{nodes:#}");
}

#[test]
fn programs_of_skills_are_allowed_by_name_where_the_document_says_so() {
    let machine = Machine::unguarded();
    machine.write_config("{ skills: { bins: ['uname'] } }");
    let document = |skills: bool| {
        format!(
            "{{ version: 1, defaults: {{ security: 'allowlist', ask: 'off', autoAllowSkills: {skills} }} }}"
        )
    };
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    for (skills, command, status) in [
        (true, "uname", "completed"),
        (true, "/usr/bin/uname", "denied"),
        (true, "id", "denied"),
        (false, "uname", "denied"),
    ] {
        machine.set_document(&document(skills));
        let run = exec(&mut client, command);
        assert_eq!(run["status"], status, "{command} {skills}: {run:#}");
    }
}

#[test]
fn the_agent_that_is_marked_as_the_default_is_meant_when_none_is_named() {
    let machine = Machine::unguarded();
    machine.write_config(
        "{ agents: { list: [{ id: 'Worker', default: true, tools: { deny: ['apply_patch'] } }] } }",
    );
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let defaults = &client.hello["snapshot"]["sessionDefaults"];
    assert_eq!(defaults["defaultAgentId"], "worker");
    assert_eq!(defaults["mainSessionKey"], "agent:worker:main");
    assert_eq!(client.ok("agents.list", &json!({}))["defaultId"], "worker");
    let mut call = json!({ "name": "apply_patch", "args": {} });
    let unnamed = client.ok("tools.invoke", &call);
    assert_eq!(unnamed["error"]["code"], "not_found", "{unnamed:#}");
    call["agentId"] = "main".into();
    let named = client.ok("tools.invoke", &call);
    assert_ne!(named["error"]["code"], "not_found", "{named:#}");
}

#[test]
fn a_call_that_is_sent_again_with_its_key_asks_no_second_question() {
    let machine = Machine::unguarded();
    machine.ok(&["exec-policy", "set", "--ask", "always"]);
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let call = json!({
        "name": "exec",
        "args": { "command": "true" },
        "idempotencyKey": "k",
        "approvalWaitMs": 0,
    });
    let asked = client.ok("tools.invoke", &call)["output"]["details"].take();
    assert_eq!(asked["status"], "approval-pending", "{asked:#}");
    let again = client.ok("tools.invoke", &call)["output"]["details"].take();
    assert_eq!(again["approvalId"], asked["approvalId"], "{again:#}");
}

/// The run would have another environment than the one that was shown. This one is too large to be
/// left to a later gateway, and so runs only for who sends it again.
#[test]
fn an_approval_that_does_not_fit_any_more_is_no_reason_to_refuse() {
    let machine = Machine::unguarded();
    machine.ok(&["exec-policy", "set", "--ask", "always"]);
    let args = json!({ "command": "true", "env": { "LARGE": "x".repeat(70_000) } });
    let call = json!({ "name": "exec", "args": args, "approvalWaitMs": 0 });
    let ask = |level: &str| {
        let gateway = machine.gateway_as(&["--port", "0"], &[("SHLVL", level)]);
        let mut client = gateway.connect(EVERYTHING);
        client.ok("tools.invoke", &call)["output"]["details"].take()
    };
    let asked = ask("1");
    assert_eq!(asked["status"], "approval-pending", "{asked:#}");
    machine.ok(&[
        "approvals",
        "approve",
        asked["approvalId"].as_str().unwrap(),
    ]);
    let other = ask("2");
    assert_eq!(other["status"], "approval-pending", "{other:#}");
    assert_ne!(other["approvalId"], asked["approvalId"]);
    assert_eq!(ask("1")["status"], "completed");
}
