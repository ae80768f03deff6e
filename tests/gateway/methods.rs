//! The methods of the gateway, called as clients call them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use interlock_wire::method::{METHODS, MethodAccess};
use serde_json::{Value, json};
use testkit::Machine;
use testkit::ws::{EVERYTHING, WsClient};

fn exec(client: &mut WsClient, session: &str, command: &str) -> Value {
    let call = json!({
        "name": "exec",
        "args": { "command": command },
        "sessionKey": session,
    });
    client.ok("tools.invoke", &call)["output"]["details"].take()
}

fn background(client: &mut WsClient, command: &str) -> String {
    let args = json!({ "command": command, "background": true, "stdin": "pipe" });
    let call = json!({ "name": "exec", "args": args });
    let answer = client.ok("tools.invoke", &call);
    let id = answer["output"]["details"]["sessionId"].as_str();
    id.unwrap_or_else(|| panic!("{answer:#}")).to_owned()
}

#[test]
fn every_method_of_operators_is_there_by_both_doors() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut clients = [
        gateway.connect(EVERYTHING),
        gateway.connect_locally(EVERYTHING),
    ];
    for client in &mut clients {
        for method in METHODS {
            let for_operators = matches!(
                method.access,
                MethodAccess::Operator(_) | MethodAccess::Anyone
            );
            // Those of nodes have tests of their own.
            if !for_operators || method.name.contains("node") {
                continue;
            }
            if let Err(error) = client.call(method.name, &json!({})) {
                let message = error["message"].as_str().unwrap();
                assert!(!message.contains("unknown method"), "{message}");
            }
        }
        let status = client.ok("status", &json!({}));
        assert_eq!(status["approvals"]["pending"], 0);
        assert_eq!(status["configPath"], machine.config().display().to_string());
        let presence = client.ok("system-presence", &json!({}));
        assert!(
            presence
                .as_array()
                .unwrap()
                .iter()
                .any(|one| one["host"] == "a test")
        );
        let agents = client.ok("agents.list", &json!({}));
        assert_eq!(agents["agents"][0]["id"], "main");
        let tools = client.ok(
            "tools.effective",
            &json!({ "sessionKey": "agent:main:main" }),
        );
        assert_eq!(tools["groups"][0]["tools"][0]["id"], "exec");
    }
}

#[test]
fn tools_are_called_once_for_a_key_and_only_those_that_are_offered() {
    let machine = Machine::unguarded();
    machine.write_config("{ tools: { deny: ['process'] } }");
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let call = json!({
        "name": "exec",
        "args": { "command": "echo again >> made; cat made", "workdir": machine.work() },
        "idempotencyKey": "k1",
    });
    let first = client.ok("tools.invoke", &call);
    assert_eq!(first["ok"], true, "{first:#}");
    assert_eq!(first["output"]["details"]["aggregated"], "again\n");
    assert_eq!(client.ok("tools.invoke", &call), first);
    let denied = client.ok(
        "tools.invoke",
        &json!({ "name": "process", "args": { "action": "list" } }),
    );
    assert_eq!(denied["ok"], false);
    assert_eq!(denied["error"]["code"], "not_found");
    let wrong = client.ok(
        "tools.invoke",
        &json!({ "name": "exec", "args": { "comand": "x" } }),
    );
    assert_eq!(wrong["error"]["details"]["field"], "comand", "{wrong:#}");
    let unknown = client.refused(
        "tools.invoke",
        &json!({ "name": "exec", "agentId": "missing" }),
    );
    assert_eq!(unknown["message"], "unknown agent `missing`");
}

#[test]
fn a_session_that_is_set_to_something_stricter_stays_so_across_a_restart() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let key = "agent:main:strict";
    assert_eq!(exec(&mut client, key, "true")["status"], "completed");
    let patched = client.ok(
        "sessions.patch",
        &json!({ "key": key, "execSecurity": "deny" }),
    );
    assert_eq!(patched["entry"]["execSecurity"], "deny");
    client.event("sessions.changed", |event| event["sessionKey"] == key);
    assert_eq!(exec(&mut client, key, "true")["status"], "denied");
    assert_eq!(
        exec(&mut client, "agent:main:other", "true")["status"],
        "completed"
    );
    gateway.stop();

    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    assert_eq!(exec(&mut client, key, "true")["status"], "denied");
    let listed = client.ok("sessions.list", &json!({}));
    let sessions = listed["sessions"].as_array().unwrap();
    let row = sessions.iter().find(|row| row["key"] == key).unwrap();
    assert_eq!(row["execSecurity"], "deny");
    let say = |text: &str| json!({ "sessionKey": key, "text": text });
    let shown = client.ok("sessions.directive", &say("/exec"));
    assert_eq!(
        shown["text"],
        "exec: host=default security=deny ask=default node=default; elevated=default"
    );
    client.ok("sessions.directive", &say("/exec security=default"));
    assert_eq!(exec(&mut client, key, "true")["status"], "completed");
    client.ok("sessions.directive", &say("/exec host=sandbox"));
    assert_eq!(
        exec(&mut client, key, "true")["code"],
        "SANDBOX_UNAVAILABLE"
    );
    let wrong = client.refused("sessions.directive", &say("/exec host=moon"));
    assert_eq!(wrong["details"]["code"], "DIRECTIVE_INVALID");
    let records = client.ok(
        "audit.list",
        &json!({ "kind": "policy-write", "sessionKey": key }),
    );
    let settings: Vec<&Value> = records["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| &record["body"]["settings"])
        .collect();
    assert_eq!(
        settings,
        [
            &json!({ "host": "sandbox" }),
            &json!({}),
            &json!({ "security": "deny" })
        ]
    );
    assert_eq!(client.ok("audit.verify", &json!({}))["intact"], true);
}

#[test]
fn a_looser_session_does_not_loosen_the_document_of_the_host() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    machine.write_config("{ tools: { exec: { approvalWaitMs: 0 } } }");
    let mut client = gateway.connect(EVERYTHING);
    let loose = json!({ "key": "agent:main:main", "execSecurity": "full", "execAsk": "off" });
    client.ok("sessions.patch", &loose);
    let details = exec(&mut client, "agent:main:main", "rg x");
    assert_eq!(details["status"], "approval-pending", "{details:#}");
}

#[test]
fn only_those_who_may_set_a_session() {
    let machine = Machine::unguarded();
    machine.write_config("{ commands: { ownerAllowFrom: ['slack:U1'] } }");
    let gateway = machine.gateway();
    let mut writer = gateway.connect(&["operator.write"]);
    let say = |text: &str| json!({ "sessionKey": "agent:main:main", "text": text });
    writer.ok("sessions.directive", &say("/exec"));
    let refused = writer.refused("sessions.directive", &say("/exec ask=always"));
    assert_eq!(refused["message"], "missing scope: operator.admin");
    let mut admin = gateway.connect(EVERYTHING);
    let typed = |text: &str, sender: &str| json!({ "sessionKey": "agent:main:main", "text": text, "sender": sender });
    admin.ok("sessions.directive", &typed("/exec ask=always", "slack:U1"));
    let refused = admin.refused("sessions.directive", &typed("/exec ask=off", "slack:U2"));
    assert_eq!(refused["details"]["code"], "NOT_AUTHORIZED");
    let refused = admin.refused("sessions.directive", &say("/elevated full"));
    assert_eq!(
        refused["message"],
        "elevated is not allowed: it is not enabled (tools.elevated.enabled)"
    );
}

#[test]
fn the_config_is_written_with_its_comments_and_never_over_the_change_of_another() {
    let machine = Machine::unguarded();
    machine.write_config("{\n  // why\n  tools: { exec: { timeoutSec: 60 } },\n  gateway: { wake: { url: 'http://u:hunter2@127.0.0.1:1/' } },\n}\n");
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let got = client.ok("config.get", &json!({}));
    assert_eq!(got["valid"], true);
    assert!(!got.to_string().contains("hunter2"), "{got:#}");
    let hash = got["hash"].as_str().unwrap().to_owned();

    let patch = json!({ "raw": "{ tools: { exec: { timeoutSec: 90 } } }" });
    let refused = client.refused("config.patch", &patch);
    assert_eq!(
        refused["message"],
        "config base hash required; re-run config.get and retry"
    );
    let mut patch = patch;
    patch["baseHash"] = hash.as_str().into();
    let done = client.ok("config.patch", &patch);
    assert_eq!(done["changed"], json!(["tools.exec.timeoutSec"]));
    let text = fs::read_to_string(machine.config()).unwrap();
    assert!(
        text.contains("// why") && text.contains("timeoutSec: 90"),
        "{text}"
    );
    let refused = client.refused("config.patch", &patch);
    assert_eq!(
        refused["message"],
        "config changed since last load; re-run config.get and retry"
    );
    // Three changes in a minute.
    let limited = client.refused("config.patch", &patch);
    assert_eq!(
        (limited["code"].as_str(), limited["retryable"].as_bool()),
        (Some("UNAVAILABLE"), Some(true))
    );

    let mut other = gateway.connect(EVERYTHING);
    let got = other.ok("config.get", &json!({}));
    let set = |raw: &str| json!({ "raw": raw, "baseHash": got["hash"] });
    let wrong = other.refused("config.set", &set("{\n  tools: { exce: {} },\n}"));
    let issue = &wrong["details"]["issues"][0];
    assert_eq!(
        (issue["line"].as_u64(), issue["column"].as_u64()),
        (Some(2), Some(12)),
        "{wrong:#}"
    );
    // What was hidden is put back.
    let raw = got["raw"].as_str().unwrap().replace("90", "91");
    other.ok("config.set", &set(&raw));
    let text = fs::read_to_string(machine.config()).unwrap();
    assert!(text.contains("hunter2") && text.contains("91"), "{text}");
    let schema = other.ok("config.schema", &json!({}));
    assert!(schema["schema"]["properties"]["tools"].is_object());
    let records = other.ok("audit.list", &json!({ "kind": "policy-write", "limit": 1 }));
    assert_eq!(records["events"][0]["body"]["who"], "a test");
    assert!(records["nextCursor"].is_string());
}

/// A client that could name a program for the gateway to start could run anything unjudged.
#[test]
fn what_the_gateway_starts_is_not_changed_from_afar() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let raw = "{ gateway: { wake: { command: ['/bin/sh', '-c', 'touch marker'] } } }";
    for method in ["config.patch", "config.set"] {
        let hash = client.ok("config.get", &json!({}))["hash"].clone();
        let refused = client.refused(method, &json!({ "raw": raw, "baseHash": hash }));
        assert_eq!(refused["details"]["code"], "CONFIG_LOCAL_ONLY", "{refused}");
    }
    let config = client.ok("config.get", &json!({}));
    assert!(!config["raw"].to_string().contains("marker"), "{config}");
}

#[test]
fn a_config_that_cannot_be_used_changes_nothing_until_it_can() {
    let machine = Machine::unguarded();
    machine.write_config("{ tools: { exec: { security: 'deny' } } }");
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let key = "agent:main:main";
    assert_eq!(exec(&mut client, key, "true")["status"], "denied");
    machine.write_config("{ tools: { exec: { security: 'none' } } }");
    assert_eq!(exec(&mut client, key, "true")["status"], "denied");
    let got = client.ok("config.get", &json!({}));
    assert_eq!(got["valid"], false);
    assert_eq!(got["issues"][0]["line"], 1);
    assert_eq!(got["config"]["tools"]["exec"]["security"], "deny");
    let said = || fs::read_to_string(&gateway.log).unwrap();
    assert_eq!(said().matches("stays in force").count(), 1, "{}", said());
    let lines = client.ok("logs.tail", &json!({}));
    assert!(lines["lines"].to_string().contains("stays in force"));
    machine.write_config("{}");
    assert_eq!(exec(&mut client, key, "true")["status"], "completed");
}

#[test]
fn output_is_sent_as_it_comes_to_who_asked_for_it() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let mut other = gateway.connect(EVERYTHING);
    let id = background(&mut client, "printf 'grüße '; cat; echo end; exit 3");
    let session = json!({ "sessionId": id });
    client.ok("process.subscribe", &session);
    let mut text = String::new();
    let mut offset = 0;
    while !text.ends_with("grüße ") {
        let event = client.event("process.output", |_| true);
        assert_eq!(event["offset"], offset);
        offset = event["nextOffset"].as_u64().unwrap();
        text.push_str(event["text"].as_str().unwrap());
    }
    let tasks = client.ok("tasks.list", &json!({ "status": "running" }));
    assert_eq!(tasks["tasks"][0]["taskId"], id.as_str());
    client.ok(
        "process.write",
        &json!({ "sessionId": id, "data": "hello\n", "eof": true }),
    );
    let ended = client.event("process.ended", |_| true);
    assert_eq!(
        (ended["status"].as_str(), ended["exitCode"].as_u64()),
        (Some("completed"), Some(3))
    );
    let rest = client.ok(
        "process.poll",
        &json!({ "sessionId": id, "offset": offset }),
    );
    assert_eq!(rest["output"]["text"], "hello\nend\n");
    let log = other.ok("process.log", &session);
    assert_eq!(log["text"], "grüße hello\nend\n");
    // A later subscription gets all of it.
    other.ok("process.subscribe", &json!({ "sessionId": id }));
    let event = other.event("process.output", |_| true);
    assert_eq!(event["text"], "grüße hello\nend\n");
    other.event("process.ended", |_| true);
    let unknown = client.refused("process.subscribe", &json!({ "sessionId": "no-such" }));
    assert_eq!(
        unknown["details"]["code"], "SESSION_NOT_FOUND",
        "{unknown:#}"
    );
}

#[test]
fn an_operator_can_do_with_sessions_what_agents_can() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let id = background(&mut client, "cat; exec sleep 600");
    let act = |action: &str| json!({ "args": { "action": action, "sessionId": id } });
    let mut written = act("write");
    written["args"]["data"] = "one\n".into();
    assert_eq!(client.ok("process.perform", &written)["bytes"], 4);
    let without = client.refused("process.perform", &act("screen"));
    assert_eq!(without["details"]["code"], "NO_TERMINAL", "{without:#}");
    let mut reader = gateway.connect(&["operator.read"]);
    let refused = reader.refused("process.perform", &act("kill"));
    assert_eq!(refused["details"]["code"], "MISSING_SCOPE", "{refused:#}");
    let wrong = client.refused("process.perform", &act("destroy"));
    assert!(
        wrong["message"].as_str().unwrap().contains("action"),
        "{wrong:#}"
    );
    assert_eq!(
        client.ok("process.perform", &act("kill"))["sessionId"],
        id.as_str()
    );
    client.ok("process.perform", &act("clear"));
    let gone = client.refused("process.perform", &act("log"));
    assert_eq!(gone["details"]["code"], "SESSION_NOT_FOUND", "{gone:#}");
}

#[test]
fn a_client_that_does_not_read_is_brought_to_the_newest_output_and_told_what_it_missed() {
    const BYTES: u64 = 8_000_000;
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    // Less waits in a Unix socket than in a connection of TCP.
    let mut slow = gateway.connect_locally(EVERYTHING);
    let mut quick = gateway.connect(EVERYTHING);
    let id = background(&mut quick, &format!("read x; yes | head -c {BYTES}"));
    slow.ok("process.subscribe", &json!({ "sessionId": id }));
    quick.ok("process.subscribe", &json!({ "sessionId": id }));
    quick.ok("process.write", &json!({ "sessionId": id, "data": "go\n" }));
    // While another one gets all of it, this one reads nothing.
    quick.event("process.ended", |_| true);
    let (mut shown, mut missed, mut next) = (0, 0, 0);
    while next < BYTES {
        let event = slow.event("process.output", |_| true);
        missed += event["missedBytes"].as_u64().unwrap();
        assert_eq!(event["offset"], shown + missed);
        shown += event["text"].as_str().unwrap().len() as u64;
        next = event["nextOffset"].as_u64().unwrap();
        assert_eq!(shown + missed, next);
    }
    assert!(missed > 0, "{shown} of {BYTES} bytes were shown");
    slow.event("process.ended", |ended| ended["nextOffset"] == BYTES);
}

#[test]
fn tasks_are_background_sessions_and_end_when_they_are_cancelled() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let id = background(&mut client, "exec sleep 600");
    let got = client.ok("tasks.get", &json!({ "taskId": id }));
    assert_eq!(got["task"]["status"], "running");
    let cancelled = client.ok("tasks.cancel", &json!({ "taskId": id }));
    assert_eq!(cancelled["cancelled"], true);
    assert_eq!(cancelled["task"]["status"], "cancelled");
    assert_eq!(
        client.ok("tasks.cancel", &json!({ "taskId": id }))["cancelled"],
        false
    );
    assert_eq!(
        client.ok("tasks.get", &json!({ "taskId": "no-such" }))["found"],
        false
    );
}
