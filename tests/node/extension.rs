//! What an Interlock node offers to an Interlock gateway, and to no other: the gateway here claims
//! what it likes, and the node decides.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use testkit::gateway_stand_in::{Pair, Results};
use testkit::{Machine, eventually, is_alive, written, written_pid};

const OWNER: &str = "the secret of one gateway, which is long enough";
const OTHER: &str = "the secret of another gateway, as long as that";

fn order(text: &str, run_id: &str) -> Value {
    json!({
        "owner": OWNER,
        "run": {
            "command": ["/bin/sh", "-lc", text], "rawCommand": text, "runId": run_id,
            "agentId": "main", "sessionKey": "agent:main:main",
        },
    })
}

fn process(owner: &str, agent: Option<&str>, arguments: &Value) -> Value {
    json!({
        "owner": owner, "agentId": agent, "sessionKey": "agent:main:main", "arguments": arguments,
    })
}

/// The document of a machine that lets nothing run by itself.
const ASKS: &str = r#"{"version":1,"defaults":{"security":"allowlist","ask":"on-miss"},
    "agents":{"main":{"allowlist":[{"pattern":"/usr/bin/uname"}]}}}"#;
const DENIES: &str = r#"{"version":1,"defaults":{"security":"deny"},"agents":{}}"#;

fn with_document(document: &str) -> Pair {
    let machine = Machine::new();
    machine.start();
    let set = machine.set_document(document);
    assert_eq!(set.code, 0, "{set:#?}");
    Pair::interlock(machine)
}

#[test]
fn a_foreign_gateway_gets_none_of_it() {
    let mut pair = Pair::open();
    for command in [
        "interlock.run",
        "interlock.read",
        "interlock.end",
        "interlock.process",
        "interlock.policy",
    ] {
        let done = pair.link.invoke(command, &order("true", "run-1"));
        done.refused("UNAVAILABLE", "command not supported");
    }
}

/// Its session is told what the answer says: the event would say the same again.
#[test]
fn the_answer_reports_the_end_of_a_run_if_a_caller_waits_for_it() {
    let mut pair = Pair::interlock(Machine::unguarded());
    let done = pair.link.run_text("echo out; exit 3").ok();
    assert_eq!(done.payload["exitCode"], 3);
    assert_eq!(done.payload["stdout"], "out\n");
    assert!(done.events.is_empty(), "{done:#?}");
    assert_eq!(pair.link.order, ["node.invoke.result"]);

    for results in [Results::Ignored, Results::Refused] {
        pair.link.results = results;
        pair.link.order.clear();
        let done = pair.link.run_text("echo late; exit 4").ok();
        assert!(done.events.is_empty(), "{done:#?}");
        let (name, told) = pair.link.event();
        assert_eq!(name, "exec.finished");
        assert_eq!(
            (&told["exitCode"], &told["output"]),
            (&json!(4), &json!("late"))
        );
        assert_eq!(pair.link.order, ["node.invoke.result", "node.event"]);
    }
    // That was all of it.
    pair.link.results = Results::Taken;
    pair.link.run_text("true").ok();
    assert_eq!(pair.link.order.len(), 3);
}

/// The answer for a gateway that went away has no caller.
#[test]
fn the_end_of_a_run_that_outlived_its_connection_is_told_by_an_event() {
    let mut pair = Pair::interlock(Machine::unguarded());
    let go_on = pair.machine.work().join("go-on");
    let text = format!(
        "while [ ! -e {} ]; do sleep 0.01; done; echo over",
        go_on.display()
    );
    let call = json!({ "command": ["/bin/sh", "-lc", text], "rawCommand": text });
    pair.link
        .begin("long", "system.run", &Value::String(call.to_string()));
    drop(pair.link);
    std::fs::write(&go_on, "").unwrap();
    let mut link = pair.stand_in.welcome();
    link.results = Results::Ignored;
    let done = link.end("long").ok();
    assert_eq!(done.payload["stdout"], "over\n");
    assert_eq!(link.event().0, "exec.finished");
}

#[test]
fn a_run_is_read_from_any_place_on_and_only_by_whom_it_belongs_to() {
    let mut pair = Pair::interlock(Machine::unguarded());
    let text = "printf 'grüße\\n'; until [ -e stop ]; do sleep 0.02; done; echo end; exit 4";
    let started = pair
        .link
        .invoke("interlock.run", &order(text, "run-1"))
        .ok();
    let session = started.payload["sessionId"].as_str().unwrap().to_owned();
    let read = |owner: &str, offset: u64| json!({ "owner": owner, "runId": "run-1", "offset": offset, "waitMs": 20_000, "maxBytes": 4 });
    // No character is cut in two: a piece ends before it.
    let mut seen = String::new();
    let mut offset = 0;
    while seen != "grüße\n" {
        let done = pair
            .link
            .invoke("interlock.read", &read(OWNER, offset))
            .ok();
        let piece = &done.payload["piece"];
        assert_eq!(piece["offset"], offset, "{piece}");
        offset = piece["nextOffset"].as_u64().unwrap();
        seen.push_str(piece["text"].as_str().unwrap());
        assert_eq!(done.payload["standing"]["status"], "running");
    }
    assert_eq!(offset, 8);
    // A gateway that does not know the secret sees no session.
    let done = pair.link.invoke("interlock.read", &read(OTHER, 0));
    assert_eq!(done.code, "SESSION_NOT_FOUND", "{done:?}");
    let listed = process(OTHER, None, &json!({ "action": "list" }));
    let listed = pair.link.invoke("interlock.process", &listed).ok();
    assert_eq!(listed.payload["sessions"], json!([]));
    for action in ["log", "poll", "kill", "remove", "submit"] {
        let stolen = process(
            OTHER,
            Some("main"),
            &json!({ "action": action, "sessionId": session }),
        );
        let done = pair.link.invoke("interlock.process", &stolen);
        assert_eq!(done.code, "SESSION_NOT_FOUND", "{action}: {done:?}");
    }
    for secret in ["", "short"] {
        let done = pair.link.invoke("interlock.read", &read(secret, 0));
        assert_eq!(done.code, "INVALID_REQUEST", "{done:?}");
    }
    std::fs::write(pair.machine.work().join("stop"), "").unwrap();
    let whole = json!({ "owner": OWNER, "runId": "run-1", "waitMs": 20_000, "showChars": 100 });
    let done = pair.link.invoke("interlock.read", &whole).ok();
    assert_eq!(done.payload["standing"]["exitCode"], 4, "{done:?}");
    assert_eq!(done.payload["shown"]["text"], "grüße\nend\n");
}

#[test]
fn a_run_that_is_over_soon_is_told_whole_and_any_other_is_a_session() {
    let mut pair = Pair::interlock(Machine::unguarded());
    let waited = |text: &str, run_id: &str| {
        let mut order = order(text, run_id);
        order["waitMs"] = 1_000.into();
        order["showChars"] = 20.into();
        order
    };
    let brief = waited("printf 'gr\u{fc}\u{df}e\\n'; exit 4", "run-1");
    let done = pair.link.invoke("interlock.run", &brief).ok();
    let ended = &done.payload["ended"];
    assert_eq!(ended["standing"]["exitCode"], 4, "{done:?}");
    assert_eq!(ended["shown"]["text"], "gr\u{fc}\u{df}e\n");
    // The gateway has taken it: there is no session, and it is known how it ended.
    let read = |run_id: &str| json!({ "owner": OWNER, "runId": run_id, "showChars": 100_000, "waitMs": 20_000 });
    eventually("the transcript is forgotten", || {
        let done = pair.link.invoke("interlock.read", &read("run-1"));
        done.code == "SESSION_NOT_FOUND"
    });
    let end = json!({ "owner": OWNER, "runId": "run-1", "how": "cancel" });
    eventually("the end is on the record", || {
        let done = pair.link.invoke("interlock.end", &end).ok();
        done.payload["state"] == "over" && done.payload["outcome"]["exitCode"] == 4
    });
    let again = pair.link.invoke("interlock.run", &brief);
    assert!(again.message.contains("used already"), "{again:?}");
    let done = pair
        .link
        .invoke("interlock.run", &waited("kill -9 $$", "run-2"))
        .ok();
    assert_eq!(done.payload["ended"]["standing"]["signal"], 9, "{done:?}");
    // More than is to be shown, and longer than is waited for: read as any session.
    let long = waited("printf '%030d' 7", "run-3");
    let done = pair.link.invoke("interlock.run", &long).ok();
    assert!(done.payload["ended"].is_null(), "{done:?}");
    let done = pair.link.invoke("interlock.read", &read("run-3")).ok();
    assert_eq!(done.payload["shown"]["totalBytes"], 30, "{done:?}");
    let slow = waited("until [ -e stop ]; do sleep 0.02; done; echo end", "run-4");
    let done = pair.link.invoke("interlock.run", &slow).ok();
    assert!(done.payload["ended"].is_null(), "{done:?}");
    std::fs::write(pair.machine.work().join("stop"), "").unwrap();
    let done = pair.link.invoke("interlock.read", &read("run-4")).ok();
    assert_eq!(done.payload["shown"]["text"], "end\n", "{done:?}");
}

#[test]
fn sessions_of_the_machine_itself_are_none_of_the_gateways_business_nor_the_other_way_round() {
    let mut pair = Pair::interlock(Machine::unguarded());
    let own = pair.machine.ok(&[
        "exec",
        "--agent",
        "main",
        "--background",
        "--json",
        "--",
        "exec sleep 600",
    ]);
    let own = own.json()["sessionId"].as_str().unwrap().to_owned();
    let started = pair
        .link
        .invoke("interlock.run", &order("exec sleep 600", "run-1"))
        .ok();
    let ordered = started.payload["sessionId"].as_str().unwrap().to_owned();
    for agent in [Some("main"), None] {
        let list = process(OWNER, agent, &json!({ "action": "list" }));
        let listed = pair.link.invoke("interlock.process", &list).ok();
        let sessions = listed.payload["sessions"].as_array().unwrap();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        assert_eq!(sessions[0]["sessionId"], ordered.as_str());
        let write = process(OWNER, agent, &json!({ "action": "kill", "sessionId": own }));
        let done = pair.link.invoke("interlock.process", &write);
        assert_eq!(done.code, "SESSION_NOT_FOUND", "{done:?}");
    }
    let listed = pair
        .machine
        .ok(&["process", "list", "--agent", "main", "--json"])
        .json();
    let sessions = listed["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 1, "{listed}");
    assert_eq!(sessions[0]["sessionId"], own.as_str());
}

#[test]
fn the_document_decides_whatever_the_gateway_wants_of_the_run() {
    let mut pair = with_document(ASKS);
    for extra in [
        json!({}),
        json!({ "pty": true }),
        json!({ "stdinPipe": true }),
    ] {
        let mut run = order("id > made", "run-asked");
        for (name, value) in extra.as_object().unwrap() {
            run[name] = value.clone();
        }
        let done = pair.link.invoke("interlock.run", &run);
        done.refused("SYSTEM_RUN_DENIED", "SYSTEM_RUN_DENIED: approval required");
        // That a person approved is nothing without a plan of this machine.
        run["run"]["approved"] = true.into();
        run["run"]["systemRunPlan"] = json!({
            "argv": run["run"]["command"], "cwd": null,
            "commandText": "/bin/sh -lc \"id > made\"", "commandPreview": "id > made",
            "agentId": "main", "sessionKey": "agent:main:main",
        });
        let done = pair.link.invoke("interlock.run", &run);
        done.refused(
            "SYSTEM_RUN_DENIED",
            "SYSTEM_RUN_DENIED: execution plan mismatch",
        );
    }
    let mut pair = with_document(DENIES);
    let mut run = order("id > made", "run-denied");
    run["run"]["approved"] = true.into();
    let done = pair.link.invoke("interlock.run", &run);
    done.refused("SYSTEM_RUN_DENIED", "SYSTEM_RUN_DISABLED: security=deny");
    assert!(!pair.machine.work().join("made").exists());
}

#[test]
fn a_run_id_is_used_once_and_one_that_was_given_up_is_never_used() {
    let mut pair = Pair::interlock(Machine::unguarded());
    let text = "echo ran >> ran";
    pair.link
        .invoke("interlock.run", &order(text, "run-1"))
        .ok();
    let done = pair.link.invoke("interlock.run", &order(text, "run-1"));
    assert!(done.message.contains("not run again"), "{done:?}");
    // Nor by the other way to run something.
    let done = pair.link.run(&order(text, "run-1")["run"]);
    assert!(done.message.contains("not run again"), "{done:?}");
    let end = json!({ "owner": OWNER, "runId": "run-2", "how": "cancel" });
    let done = pair.link.invoke("interlock.end", &end).ok();
    assert_eq!(done.payload["state"], "never");
    let done = pair.link.invoke("interlock.run", &order(text, "run-2"));
    assert!(done.message.contains("not run again"), "{done:?}");
    assert_eq!(written(&pair.machine.work().join("ran")), "ran\n");
    // After the session was forgotten, it is still known how the run ended.
    let read = json!({ "owner": OWNER, "runId": "run-1", "waitMs": 20_000 });
    let done = pair.link.invoke("interlock.read", &read).ok();
    assert_eq!(done.payload["standing"]["status"], "completed");
    let forget = json!({ "owner": OWNER, "runId": "run-1", "how": "forget" });
    pair.link.invoke("interlock.end", &forget).ok();
    let end = json!({ "owner": OWNER, "runId": "run-1", "how": "cancel" });
    let done = pair.link.invoke("interlock.end", &end).ok();
    assert_eq!(done.payload["state"], "over", "{done:?}");
    assert_eq!(done.payload["outcome"]["exitCode"], 0, "{done:?}");
}

#[test]
fn cancelling_ends_a_run_with_all_below_it() {
    let mut pair = Pair::interlock(Machine::unguarded());
    let text = "sh -c 'echo $$ > below; exec sleep 600' & echo $$ > above; wait";
    pair.link
        .invoke("interlock.run", &order(text, "run-1"))
        .ok();
    let above = written_pid(&pair.machine.work().join("above"));
    let below = written_pid(&pair.machine.work().join("below"));
    let end = json!({ "owner": OWNER, "runId": "run-1", "how": "cancel" });
    let done = pair.link.invoke("interlock.end", &end).ok();
    assert_eq!(done.payload["state"], "done");
    assert!(!is_alive(&above));
    eventually("all of it", || !is_alive(&below));
}

#[test]
fn the_policy_is_told_as_it_is_with_the_config_of_the_node() {
    let machine = Machine::new();
    machine.write_config("{ tools: { exec: { ask: 'always' } } }");
    machine.start();
    let mut pair = Pair::interlock(machine);
    let asked = json!({ "agentId": "main" });
    let done = pair.link.invoke("interlock.policy", &asked).ok();
    let policy = &done.payload["policy"];
    assert_eq!(policy["ask"]["effective"]["value"], "always", "{policy}");
    assert_eq!(
        policy["security"]["effective"]["value"], "allowlist",
        "{policy}"
    );
    let (_, hash) = pair.machine.document();
    assert_eq!(done.payload["documentHash"], hash.as_str());
}

/// Where the owner of the machine does not let an agent handle sessions, no gateway handles them
/// for it.
#[test]
fn a_machine_that_denies_process_to_an_agent_says_so_and_its_runs_are_waited_for() {
    let machine = Machine::unguarded();
    machine.write_config("{ tools: { deny: ['process'] } }");
    let mut pair = Pair::interlock(machine);
    let started = pair
        .link
        .invoke("interlock.run", &order("echo done; exit 2", "run-1"))
        .ok();
    assert_eq!(started.payload["handlesSessions"], false);
    let read = json!({ "owner": OWNER, "runId": "run-1", "waitMs": 20_000, "showChars": 100 });
    let done = pair.link.invoke("interlock.read", &read).ok();
    assert_eq!(done.payload["standing"]["exitCode"], 2, "{done:?}");
    assert_eq!(done.payload["shown"]["text"], "done\n");
    let list = process(OWNER, Some("main"), &json!({ "action": "list" }));
    let done = pair.link.invoke("interlock.process", &list);
    assert_eq!(done.code, "TOOL_DENIED", "{done:?}");
}
