//! Lists of many: every one says how many there are and how to go on, and leaves none out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use serde_json::{Value, json};
use testkit::Machine;
use testkit::ws::{EVERYTHING, WsClient, now_ms};

/// What an agent gets without asking for more, at most.
const PAGE_BYTES: usize = 8 * 1024;

fn name(number: usize) -> String {
    let letter =
        |place: u32| char::from(b'a' + u8::try_from(number / 26_usize.pow(place) % 26).unwrap());
    format!("calm-{}{}{}", letter(2), letter(1), letter(0))
}

/// So many sessions of the agent `main`, one every millisecond; the newest has number 0.
fn leave_sessions(machine: &Machine, many: usize, change: &Value) {
    let newest = now_ms() - 60_000;
    for number in 0..many {
        let started = newest - u64::try_from(number).unwrap();
        machine.leave_session(&name(number), started, change);
    }
}

fn ids(page: &Value) -> Vec<String> {
    let sessions = page["sessions"].as_array().unwrap();
    let id = |one: &Value| one["sessionId"].as_str().unwrap().to_owned();
    sessions.iter().map(id).collect()
}

/// The answer of the tool to an agent, whole.
fn list(client: &mut WsClient, arguments: &Value) -> Value {
    let mut args = json!({ "action": "list" });
    args.as_object_mut()
        .unwrap()
        .extend(arguments.as_object().unwrap().clone());
    let call = json!({ "name": "process", "args": args });
    client.ok("tools.invoke", &call)["output"].take()
}

#[test]
fn an_agent_gets_sessions_page_by_page_and_each_of_them_once() {
    let machine = Machine::unguarded();
    machine.know_agents(&["main", "ops"]);
    leave_sessions(&machine, 300, &json!({}));
    let others = json!({ "/session/agentId": "ops" });
    machine.leave_session("other-agent", now_ms() - 1_000, &others);
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let mut seen: Vec<String> = Vec::new();
    let mut cursor = json!({});
    loop {
        let page = list(&mut client, &cursor);
        assert!(
            page.to_string().len() <= PAGE_BYTES,
            "{}",
            page.to_string().len()
        );
        let details = &page["details"];
        let removed = u64::try_from(seen.len().min(1)).unwrap();
        assert_eq!(
            details["total"],
            300 + removed,
            "one came, and one more went"
        );
        seen.extend(ids(details));
        let Some(next) = details["nextCursor"].as_str() else {
            break;
        };
        let text = page["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(&format!("cursor {next}")), "{text}");
        cursor = json!({ "cursor": next });
        // The list stays whole while sessions come and go in front of the page.
        let state = machine.state().join("sessions");
        if state.join("calm-new").exists() {
            continue;
        }
        machine.leave_session("calm-new", now_ms(), &json!({}));
        machine.leave_session("calm-newer", now_ms(), &json!({}));
        fs::remove_dir_all(state.join(&seen[0])).unwrap();
    }
    let expected: Vec<String> = (0..300).map(name).collect();
    assert_eq!(seen, expected);
    let limited = list(&mut client, &json!({ "limit": 200 }));
    assert_eq!(ids(&limited["details"]).len(), 200);
    for wrong in ["soon", "1.a b", "x.calm-aaa"] {
        let call = json!({ "name": "process", "args": { "action": "list", "cursor": wrong } });
        let refused = client.call("tools.invoke", &call);
        assert!(format!("{refused:?}").contains("cursor"), "{refused:?}");
    }
}

#[test]
fn a_long_command_does_not_fill_the_page_of_an_agent() {
    let machine = Machine::unguarded();
    let long = "\u{1b}".repeat(50_000);
    let change = json!({ "/session/command": long, "/session/title": long, "/session/cwd": long });
    leave_sessions(&machine, 5, &change);
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let page = list(&mut client, &json!({}));
    assert!(
        page.to_string().len() <= PAGE_BYTES,
        "{}",
        page.to_string().len()
    );
    assert_eq!(page["details"]["total"], 5);
    assert_eq!(ids(&page["details"])[0], name(0));
}

#[test]
fn operators_page_through_sessions_by_method_and_by_command() {
    let machine = Machine::unguarded();
    leave_sessions(&machine, 450, &json!({}));
    let without_gateway = machine
        .ok(&["process", "list", "--json", "--limit", "3"])
        .json();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let first = client.ok("process.list", &json!({}));
    assert_eq!((ids(&first).len(), &first["total"]), (200, &json!(450)));
    let next = json!({ "cursor": first["nextCursor"], "limit": 1_000 });
    let rest = client.ok("process.list", &next);
    assert_eq!(rest["nextCursor"], Value::Null);
    let all: Vec<String> = ids(&first).into_iter().chain(ids(&rest)).collect();
    assert_eq!(all, (0..450).map(name).collect::<Vec<_>>());
    let one = client.ok("process.list", &json!({ "prefix": name(7) }));
    assert_eq!((ids(&one), &one["total"]), (vec![name(7)], &json!(1)));
    let wrong = client.refused("process.list", &json!({ "cursor": "7" }));
    assert_eq!(wrong["details"]["code"], "CURSOR_INVALID", "{wrong}");
    // The same through the command, with a gateway and without one.
    let page = machine
        .ok(&["process", "list", "--json", "--limit", "3"])
        .json();
    assert_eq!(ids(&page), ids(&without_gateway));
    assert_eq!(
        (&page["total"], &page["nextCursor"]),
        (&json!(450), &without_gateway["nextCursor"])
    );
    let cursor = page["nextCursor"].as_str().unwrap();
    let shown = machine.ok(&["process", "list", "--limit", "2", "--cursor", cursor]);
    assert!(shown.stdout.starts_with(&name(3)), "{}", shown.stdout);
    assert_eq!(shown.stdout.lines().count(), 2);
    let note = "2 of 450 sessions, the newest first; go on with --cursor ";
    assert!(shown.stderr.contains(note), "{}", shown.stderr);
    let of_agent = machine.ok(&["process", "list", "--agent", "main", "--limit", "1"]);
    assert!(
        of_agent.stderr.contains("1 of 450 sessions"),
        "{}",
        of_agent.stderr
    );
    machine
        .run(&["process", "list", "--cursor", "x"])
        .refused(1, "CURSOR_INVALID");
    let tasks = client.ok(
        "tasks.list",
        &json!({ "limit": 500, "status": "completed" }),
    );
    assert_eq!(
        (&tasks["count"], &tasks["total"]),
        (&json!(450), &json!(450))
    );
    let tasks = client.ok("tasks.list", &json!({ "limit": 100 }));
    let next = json!({ "limit": 100, "cursor": tasks["nextCursor"] });
    let tasks = client.ok("tasks.list", &next);
    assert_eq!(
        (&tasks["tasks"][0]["id"], &tasks["total"]),
        (&json!(name(100)), &json!(450))
    );
    // The id of a task is a place too, for clients that kept one.
    let by_id = client.ok("tasks.list", &json!({ "cursor": name(99), "limit": 1 }));
    assert_eq!(by_id["tasks"][0]["id"], name(100));
}

#[test]
fn pending_approvals_are_counted_and_none_is_left_out() {
    const MANY: u64 = 620;
    let machine = Machine::unguarded();
    machine.write_config("{ tools: { exec: { maxPending: 10000 } } }");
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    // Without another one that could decide there would be no approvals.
    let mut decider = gateway.connect(EVERYTHING);
    for number in 0..MANY {
        let question = json!({
            "command": format!("make {number}"), "cwd": "/tmp", "twoPhase": true,
            "timeoutMs": 600_000 + number,
        });
        client.ok("exec.approval.request", &question);
    }
    let id = |one: &Value| one["id"].as_str().unwrap().to_owned();
    let whole = client.ok("exec.approval.list", &json!({}));
    let whole: Vec<String> = whole.as_array().unwrap().iter().map(id).collect();
    assert_eq!(u64::try_from(whole.len()).unwrap(), MANY);
    for params in [json!({ "limit": 250 }), json!({ "summary": true })] {
        let mut seen = Vec::new();
        let mut cursor = Value::Null;
        loop {
            let mut params = params.clone();
            if !cursor.is_null() {
                params["cursor"] = cursor;
            }
            let page = client.ok("exec.approval.list", &params);
            assert_eq!(page["total"], MANY);
            seen.extend(page["approvals"].as_array().unwrap().iter().map(id));
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        assert_eq!(seen, whole, "{params}");
    }
    // A decision in front of the page moves nothing behind it.
    let first = client.ok("exec.approval.list", &json!({ "limit": 10 }));
    let decision = json!({ "id": whole[3], "decision": "deny" });
    decider.ok("exec.approval.list", &json!({ "limit": 10 }));
    decider.ok("exec.approval.resolve", &decision);
    let next = json!({ "limit": 10, "cursor": first["nextCursor"] });
    let next = client.ok("exec.approval.list", &next);
    assert_eq!(
        (id(&next["approvals"][0]), &next["total"]),
        (whole[10].clone(), &json!(MANY - 1))
    );
    let wrong = client.refused("exec.approval.list", &json!({ "cursor": "x" }));
    assert_eq!(wrong["details"]["code"], "CURSOR_INVALID", "{wrong}");
    // The command.
    let page = machine.ok(&["approvals", "pending", "--json"]).json();
    assert_eq!(page["total"], MANY - 1);
    assert_eq!(page["approvals"].as_array().unwrap().len(), 200);
    let cursor = page["nextCursor"].as_str().unwrap();
    let shown = machine.ok(&["approvals", "pending", "--limit", "1", "--cursor", cursor]);
    assert!(shown.stdout.contains("make 201"), "{}", shown.stdout);
    let note = format!("1 of {} that wait; go on with --cursor ", MANY - 1);
    assert!(shown.stderr.contains(&note), "{}", shown.stderr);
    machine
        .run(&["approvals", "pending", "--cursor", "x"])
        .refused(2, "CURSOR_INVALID");
}

/// Records are moved away by the owner, on the owner's machine: a client cannot have them moved.
#[test]
fn a_client_cannot_set_how_long_audit_records_stay() {
    let machine = Machine::unguarded();
    machine.write_config("{}");
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let hash = client.ok("config.get", &json!({}))["hash"].clone();
    let patch = json!({ "raw": "{ audit: { retention: 1 } }", "baseHash": hash });
    let refused = client.refused("config.patch", &patch);
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("audit.retention"), "{refused}");
    assert!(message.contains("on its own machine only"), "{refused}");
    machine.ok(&["config", "set", "audit.retention", "30"]);
    let read = client.ok("config.get", &json!({}));
    assert_eq!(read["config"]["audit"]["retention"], 30);
}

/// Sessions beyond the first page of the protocol have a page too.
#[test]
fn the_control_ui_shows_every_session_and_says_what_it_leaves_out() {
    let machine = Machine::unguarded();
    leave_sessions(&machine, 1_100, &json!({}));
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let page = client.ok("ui.open", &json!({ "view": "sessions" }));
    let html = page["html"].as_str().unwrap();
    assert_eq!(html.matches("id=\"session-").count(), 100);
    assert!(
        html.contains(&format!("session-{}\"", name(0))),
        "the newest are shown"
    );
    assert!(html.contains("1000 older ones are not shown"), "{html}");
    let oldest = json!({ "view": "session", "params": { "id": name(1_099) } });
    let page = client.ok("ui.open", &oldest);
    assert!(page["html"].as_str().unwrap().contains(&name(1_099)));
}
