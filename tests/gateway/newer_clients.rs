//! What clients of the newer release call, and what they read in the answers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use interlock_wire::identity::DeviceIdentity;
use interlock_wire::{Connect, Secret};
use serde_json::{Value, json};
use testkit::Machine;
use testkit::ws::{EVERYTHING, Gateway, WsClient};

/// A command line: one device, which connects anew for every request.
struct CommandLine<'a> {
    gateway: &'a Gateway,
    identity: DeviceIdentity,
}

impl<'a> CommandLine<'a> {
    fn new(gateway: &'a Gateway) -> Self {
        let identity = DeviceIdentity::generate().unwrap();
        Self { gateway, identity }
    }

    fn call(&self, method: &str, params: &Value) -> Result<Value, Value> {
        let mut client = self.gateway.open();
        let operator = self.gateway.operator(EVERYTHING);
        client.introduce(operator, Some(&self.identity)).unwrap();
        client.call(method, params)
    }

    #[track_caller]
    fn ok(&self, method: &str, params: &Value) -> Value {
        let answer = self.call(method, params);
        answer.unwrap_or_else(|error| panic!("{method}: {error:#}"))
    }
}

/// Asks about a command, and gives the id of the approval.
fn ask(client: &mut WsClient, id: &str, command: &str) -> Result<String, Value> {
    let question = json!({ "id": id, "command": command, "twoPhase": true });
    let request = client.send("exec.approval.request", &question).unwrap();
    let accepted = client.answer(&request).unwrap()?;
    assert_eq!(accepted["status"], "accepted", "{accepted:#}");
    Ok(accepted["id"].as_str().unwrap().to_owned())
}

fn names(value: &Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

#[test]
fn a_command_line_reads_and_decides_on_connections_of_its_own() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let mut asker = gateway.connect(EVERYTHING);
    // Watches, so that there is a surface to ask.
    let mut watcher = gateway.connect(EVERYTHING);
    let id = ask(
        &mut asker,
        "4f1c2f3e-0000-4000-8000-000000000001",
        "rm -rf /tmp/x",
    )
    .unwrap();
    watcher.event("exec.approval.requested", |asked| {
        asked["id"] == id.as_str()
    });
    let line = CommandLine::new(&gateway);
    let resolve = |line: &CommandLine<'_>, decision: &str| {
        let params = json!({ "id": id, "kind": "exec", "decision": decision });
        line.call("approval.resolve", &params)
    };
    // What the device has not read it does not decide.
    let error = resolve(&line, "allow-once").unwrap_err();
    assert_eq!(
        error["details"]["reason"], "APPROVAL_NOT_SHOWN",
        "{error:#}"
    );
    for other in ["plugin.approval.list", "openclaw.approval.list"] {
        assert_eq!(line.ok(other, &json!({})), json!([]));
    }
    let listed = line.ok("exec.approval.list", &json!({}));
    assert_eq!(listed[0]["id"], id.as_str(), "{listed:#}");
    let found = line.ok("approval.get", &json!({ "id": id }));
    let approval = &found["approval"];
    // Exactly the properties that the reference's own validator lets through.
    assert_eq!(
        names(approval),
        [
            "id",
            "status",
            "presentation",
            "urlPath",
            "createdAtMs",
            "expiresAtMs"
        ],
        "{found:#}"
    );
    assert_eq!(approval["status"], "pending");
    let shown = &approval["presentation"];
    assert_eq!(
        (&shown["kind"], &shown["commandText"]),
        (&json!("exec"), &json!("rm -rf /tmp/x"))
    );
    assert_eq!(
        shown["allowedDecisions"],
        json!(["allow-once", "allow-always", "deny"])
    );
    assert!(
        shown["warningText"]
            .as_str()
            .unwrap()
            .contains("rm -rf /tmp/x"),
        "{shown:#}"
    );

    // A command line without a device is known by its token and its name.
    let mut bare = gateway.open();
    bare.introduce(gateway.operator(EVERYTHING), None).unwrap();
    let params = json!({ "id": id, "kind": "exec", "decision": "deny" });
    let error = bare.refused("approval.resolve", &params);
    assert_eq!(
        error["details"]["reason"], "APPROVAL_NOT_SHOWN",
        "{error:#}"
    );

    // Another device has not read it, and a wrong word decides nothing.
    let error = resolve(&CommandLine::new(&gateway), "deny").unwrap_err();
    assert_eq!(
        error["details"]["reason"], "APPROVAL_NOT_SHOWN",
        "{error:#}"
    );
    for wrong in [
        json!({ "id": id, "kind": "exec", "decision": "maybe" }),
        json!({ "id": id, "kind": "plugin", "decision": "deny" }),
        json!({ "id": id, "kind": "exec", "decision": "allow-always", "grantExpiresInDays": 3 }),
        json!({ "id": id, "kind": "exec", "decision": "deny",
            "reviewer": { "channel": "x", "accountId": "y", "senderId": "z" } }),
        json!({ "id": "no-such-approval", "kind": "exec", "decision": "deny" }),
    ] {
        let error = line.call("approval.resolve", &wrong).unwrap_err();
        assert_eq!(error["code"], "INVALID_REQUEST", "{wrong}: {error:#}");
    }
    let settled = resolve(&line, "deny").unwrap();
    assert_eq!(settled["applied"], true, "{settled:#}");
    let ended = &settled["approval"];
    assert_eq!(
        (&ended["status"], &ended["decision"], &ended["reason"]),
        (&json!("denied"), &json!("deny"), &json!("user")),
        "{settled:#}"
    );
    assert_eq!(
        ended["resolver"],
        json!({ "kind": "runtime", "id": "a test" })
    );
    let told = watcher.event("exec.approval.resolved", |told| told["id"] == id.as_str());
    assert_eq!(told["decision"], "deny");
    // The first decision stays.
    let again = resolve(&line, "allow-once").unwrap();
    assert_eq!(again["applied"], false, "{again:#}");
    assert_eq!(again["approval"]["decision"], "deny");
    let second = ask(&mut asker, "4f1c2f3e-0000-4000-8000-000000000002", "uname").unwrap();
    let bare = |method: &str, params: &Value| {
        let mut client = gateway.open();
        let operator = gateway.operator(EVERYTHING);
        client.introduce(operator, None).unwrap();
        client.ok(method, params)
    };
    bare("exec.approval.list", &json!({}));
    let decision = json!({ "id": second, "kind": "exec", "decision": "allow-once" });
    let settled = bare("approval.resolve", &decision);
    assert_eq!(settled["approval"]["status"], "allowed", "{settled:#}");
    let missing = line
        .call("approval.get", &json!({ "id": "no-such-approval" }))
        .unwrap_err();
    assert_eq!(missing["message"], "approval not found");
}

#[test]
fn what_has_ended_can_be_looked_back_at_in_pages() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let mut asker = gateway.connect(EVERYTHING);
    let mut decider = gateway.connect(EVERYTHING);
    let ids: Vec<String> = (0..5)
        .map(|number| {
            let id = ask(&mut asker, &format!("question-{number}"), "uname").unwrap();
            decider.event("exec.approval.requested", |asked| {
                asked["id"] == id.as_str()
            });
            id
        })
        .collect();
    for id in &ids[..4] {
        let decision = json!({ "id": id, "decision": "allow-once" });
        decider.ok("exec.approval.resolve", &decision);
    }
    let page = decider.ok("approval.history", &json!({ "limit": 3 }));
    let of = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items
            .map(|one| one["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        of(&page),
        ["question-3", "question-2", "question-1"],
        "{page:#}"
    );
    let cursor = page["nextCursor"].clone();
    let rest = decider.ok("approval.history", &json!({ "limit": 3, "cursor": cursor }));
    assert_eq!(of(&rest), ["question-0"], "{rest:#}");
    assert!(rest.get("nextCursor").is_none(), "{rest:#}");
    let none = decider.ok("approval.history", &json!({ "kind": "plugin" }));
    assert_eq!(none, json!({ "items": [] }));
    let error = decider.refused("approval.history", &json!({ "cursor": "x" }));
    assert_eq!(error["code"], "INVALID_REQUEST", "{error:#}");
    let error = decider.refused("approval.history", &json!({ "limit": 101 }));
    assert_eq!(error["code"], "INVALID_REQUEST", "{error:#}");
}

#[test]
fn grants_are_listed_and_taken_back() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    assert_eq!(
        client.ok("exec.approval.grants.list", &json!({})),
        json!({ "grants": [] })
    );
    let id = machine.put_down(&["--", "touch marker"]);
    machine.ok(&["approvals", "approve", "--session", &id]);
    let listed = client.ok("exec.approval.grants.list", &json!({ "limit": 10 }));
    let grant = &listed["grants"][0];
    assert_eq!(
        names(grant),
        [
            "grantId",
            "mintedByApprovalId",
            "agentId",
            "cronJobId",
            "cronJobName",
            "command",
            "cwd",
            "createdAtMs",
            "expiresAtMs",
            "revokedAtMs",
            "revokedBy",
            "lastUsedAtMs",
            "useCount"
        ],
        "{listed:#}"
    );
    assert_eq!(grant["mintedByApprovalId"], id.as_str());
    assert_eq!(listed.get("total"), None);
    // A list that leaves something out says how many there are, and goes on.
    let second = machine.put_down(&["--", "touch another"]);
    machine.ok(&["approvals", "approve", "--session", &second]);
    let mut minted = Vec::new();
    for offset in 0..2 {
        let asked = json!({ "limit": 1, "offset": offset });
        let page = client.ok("exec.approval.grants.list", &asked);
        assert_eq!(page["total"], 2, "{page:#}");
        assert_eq!(page["grants"].as_array().unwrap().len(), 1, "{page:#}");
        minted.push(page["grants"][0]["mintedByApprovalId"].clone());
    }
    minted.sort_by_key(ToString::to_string);
    let mut both = vec![json!(id), json!(second)];
    both.sort_by_key(ToString::to_string);
    assert_eq!(minted, both);
    let other = client.ok("exec.approval.grants.list", &json!({}))["grants"].clone();
    let other = other.as_array().unwrap().iter();
    let other = other.filter(|one| one["mintedByApprovalId"] == second.as_str());
    for one in other {
        client.ok(
            "exec.approval.grants.revoke",
            &json!({ "grantId": one["grantId"] }),
        );
    }
    assert_eq!(
        (&grant["agentId"], &grant["command"]),
        (&json!("main"), &json!("touch marker"))
    );
    assert_eq!(grant["cronJobId"], "agent:main:main");
    let whole = grant["grantId"].as_str().unwrap();
    let revoke = |client: &mut WsClient, id: &str| {
        client.ok("exec.approval.grants.revoke", &json!({ "grantId": id }))["outcome"].clone()
    };
    // By its whole id only.
    assert_eq!(revoke(&mut client, &whole[..8]), "not-found");
    assert_eq!(revoke(&mut client, whole), "revoked");
    assert_eq!(revoke(&mut client, whole), "not-found");
    assert_eq!(
        client.ok("exec.approval.grants.list", &json!({})),
        json!({ "grants": [] })
    );
}

#[test]
fn ids_of_clients_may_be_long_and_have_capitals_and_are_found_by_their_beginning() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let mut asker = gateway.connect(EVERYTHING);
    let mut decider = gateway.connect(EVERYTHING);
    let long = format!("Run:{}", "A1-_.".repeat(24));
    for id in [
        "4F1C2F3E-AAAA-4000-8000-0000000000FF",
        "4f1c2f3e-bbbb",
        &long,
    ] {
        assert_eq!(ask(&mut asker, id, "uname").unwrap(), id);
        decider.event("exec.approval.requested", |asked| asked["id"] == id);
        assert_eq!(
            decider.ok("exec.approval.get", &json!({ "id": id }))["id"],
            id
        );
    }
    let found =
        |decider: &mut WsClient, id: &str| decider.call("exec.approval.get", &json!({ "id": id }));
    for (beginning, whole) in [
        ("4F1C2F3E-A", "4F1C2F3E-AAAA-4000-8000-0000000000FF"),
        ("4f1c2f3e-b", "4f1c2f3e-bbbb"),
        ("Run:A1", &long),
    ] {
        let read = found(&mut decider, beginning);
        let read = read.unwrap_or_else(|error| panic!("{beginning}: {error:#}"));
        assert_eq!(read["id"], whole, "{read:#}");
    }
    // A beginning that two have, be it in another case, names neither.
    ask(&mut asker, "4f1c2f3e-bbcc", "uname").unwrap();
    for nothing in [
        "4f1c2f3e-bb",
        "4F1C2F3E",
        "run",
        "4f1",
        "Run:%",
        &"x".repeat(200),
    ] {
        let error = found(&mut decider, nothing).unwrap_err();
        assert!(error["message"].is_string(), "{nothing}: {error:#}");
    }
    decider.ok(
        "exec.approval.resolve",
        &json!({ "id": "Run:A1", "decision": "deny" }),
    );
    // An id must not look like the short id of another approval, nor be too long or odd.
    for wrong in [
        "abcde",
        "ABCDE",
        &"x".repeat(129),
        "a/b",
        "a b",
        ".",
        "..",
        "plugin:x",
    ] {
        let error = ask(&mut asker, wrong, "uname").unwrap_err();
        assert_eq!(error["code"], "INVALID_REQUEST", "{wrong}: {error:#}");
    }
}

#[test]
fn a_connection_that_comes_late_hears_nothing_of_answered_approvals() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    for round in 0..5 {
        // By other processes, whose records the gateway reads a moment later.
        let id = machine.put_down(&["--", &format!("touch marker-{round}")]);
        machine.ok(&["approvals", "deny", &id]);
        let mut late = gateway.connect(EVERYTHING);
        let next = machine.put_down(&["--", &format!("touch other-{round}")]);
        let first = late.event("exec.approval.requested", |_| true);
        assert_eq!(first["id"], next.as_str(), "{first:#}");
        machine.ok(&["approvals", "deny", &next]);
        let ended = late.event("exec.approval.resolved", |_| true);
        assert_eq!(ended["id"], next.as_str(), "{ended:#}");
    }
}

#[test]
fn a_wrong_token_of_a_device_is_said_to_be_wrong_whatever_comes_with_it() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let identity = DeviceIdentity::generate().unwrap();
    let mut client = gateway.open();
    client
        .introduce(gateway.operator(EVERYTHING), Some(&identity))
        .unwrap();
    let with = |token: Option<&str>, device_token: Option<&str>| -> Connect {
        let mut connect = gateway.operator(EVERYTHING);
        let auth = connect.auth.as_mut().unwrap();
        auth.token = token.map(Secret::new);
        auth.device_token = device_token.map(Secret::new);
        connect
    };
    for (token, device_token, code) in [
        (
            Some("wrong"),
            Some("wrong too"),
            "AUTH_DEVICE_TOKEN_MISMATCH",
        ),
        (None, Some("wrong"), "AUTH_DEVICE_TOKEN_MISMATCH"),
        (Some("wrong"), None, "AUTH_TOKEN_MISMATCH"),
        (None, None, "AUTH_TOKEN_MISSING"),
    ] {
        let mut client = gateway.open();
        let refused = client.introduce(with(token, device_token), Some(&identity));
        let error = refused.unwrap_err();
        assert_eq!(
            error["details"]["code"], code,
            "{token:?} {device_token:?}: {error:#}"
        );
    }
}

#[test]
fn a_node_of_the_reference_says_that_it_is_there() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let identity = DeviceIdentity::generate().unwrap();
    let mut node = gateway.open();
    node.introduce(gateway.node("lab", &["system.which"]), Some(&identity))
        .unwrap();
    let mut operator = gateway.connect(EVERYTHING);
    let mut say = |payload: &str| {
        let event = json!({ "event": "node.presence.alive", "payloadJSON": payload });
        node.ok("node.event", &event)
    };
    let mut reason = || operator.ok("node.list", &json!({}))["nodes"][0]["lastSeenReason"].clone();
    assert_eq!(reason(), "connect");
    let taken =
        json!({ "ok": true, "event": "node.presence.alive", "handled": true, "reason": "updated" });
    assert_eq!(say(r#"{"trigger":"silent_push"}"#), taken);
    assert_eq!(reason(), "silent_push");
    assert_eq!(say(r#"{"trigger":"made up"}"#), taken);
    assert_eq!(reason(), "background");
    let odd = say("[]");
    assert_eq!(
        (&odd["handled"], &odd["reason"]),
        (&json!(false), &json!("invalid_payload"))
    );
    assert_eq!(reason(), "background");
}

#[test]
fn a_run_that_took_too_long_has_an_exit_code_for_newer_clients_only() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let identity = DeviceIdentity::generate().unwrap();
    let mut node = gateway.open();
    let connect = gateway.node("lab", &["system.run"]);
    node.introduce(connect, Some(&identity)).unwrap();
    let mut operator = gateway.connect(EVERYTHING);
    let waiting = operator.ok("node.pair.list", &json!({}));
    let request = json!({ "requestId": waiting["pending"][0]["requestId"] });
    operator.ok("node.pair.approve", &request);
    for (version, code) in [
        ("2026.5.19", Value::Null),
        ("2026.9.6", json!(124)),
        ("1", Value::Null),
    ] {
        let mut connect = gateway.operator(EVERYTHING);
        version.clone_into(&mut connect.client.version);
        let mut client = gateway.open();
        let own = DeviceIdentity::generate().unwrap();
        client.introduce(connect, Some(&own)).unwrap();
        let call = json!({
            "nodeId": identity.device_id(), "command": "system.run", "idempotencyKey": version,
            "params": { "command": ["sleep", "9"], "timeoutMs": 1 },
        });
        let sent = client.send("node.invoke", &call).unwrap();
        let invocation = node.event("node.invoke.request", |_| true);
        // As nodes of the older release say it.
        let result = json!({ "timedOut": true, "success": false, "stdout": "", "stderr": "", "error": null });
        let answer = json!({
            "id": invocation["id"], "nodeId": identity.device_id(), "ok": true,
            "payloadJSON": result.to_string(),
        });
        node.ok("node.invoke.result", &answer);
        let told = client.answer(&sent).unwrap().unwrap();
        assert_eq!(told["payload"]["exitCode"], code, "{version}: {told:#}");
        let text: Value = serde_json::from_str(told["payloadJSON"].as_str().unwrap()).unwrap();
        assert_eq!(text, told["payload"], "{version}");
    }
}
