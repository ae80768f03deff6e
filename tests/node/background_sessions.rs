//! A real gateway and real Interlock nodes: sessions that go on there, whichever process is killed
//! meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod kills;

use std::fs;

use serde_json::{Value, json};
use testkit::mcp::{StdioClient, tool_call};
use testkit::node_pair::*;
use testkit::{Machine, eventually, is_alive, written, written_pid};

#[test]
fn a_session_on_a_node_is_handled_as_one_of_the_gateway() {
    for there in machines() {
        let pair = Pair::new(there);
        let running = pair.exec(&json!({
            "command": "echo ready; while read line; do echo \"got $line\"; done; echo end",
            "background": true, "stdin": "pipe",
        }));
        assert_eq!(running["status"], "running", "{running}");
        assert_eq!(running["host"], "node");
        assert_eq!(running["nodeId"], pair.node_id.as_str());
        let id = running["sessionId"].as_str().unwrap().to_owned();
        let tag = &pair.node_id[..12];
        assert!(id.ends_with(&format!("@{tag}")), "{id}");
        let row = pair.listed(&id).expect("it is listed");
        assert_eq!(
            (&row["status"], &row["nodeId"], &row["agentId"]),
            (&json!("running"), &json!(pair.node_id), &json!("main")),
            "{row}"
        );
        assert_eq!(row["stdinWritable"], true);

        let mut seen = String::new();
        let poll = json!({ "action": "poll", "sessionId": id, "timeout": 10_000 });
        while !seen.contains("ready") {
            let polled = pair.process(&poll);
            assert_eq!(polled["sessionId"], id.as_str(), "{polled}");
            seen.push_str(polled["output"]["text"].as_str().unwrap());
        }
        let written = pair.process(&json!({
            "action": "write", "sessionId": id, "data": "one\n",
        }));
        assert_eq!(written["bytes"], 4, "{written}");
        while !seen.contains("got one") {
            let polled = pair.process(&poll);
            seen.push_str(polled["output"]["text"].as_str().unwrap());
        }
        let log = pair.of("log", &id);
        assert_eq!(log["text"], "ready\ngot one\n", "{log}");
        // It has no terminal, and says so by the same code as here.
        assert_eq!(pair.of("screen", &id)["code"], "NO_TERMINAL");
        assert_eq!(pair.of("clear", &id)["code"], "SESSION_RUNNING");

        // Others do not know of it.
        let other = pair.call("other", "process", &json!({ "action": "list" }));
        assert_eq!(other["details"]["sessions"], json!([]), "{other}");
        let log = json!({ "action": "log", "sessionId": id });
        let stolen = pair.call("other", "process", &log);
        assert_eq!(stolen["details"]["code"], "SESSION_NOT_FOUND", "{stolen}");

        let eof = json!({ "action": "write", "sessionId": id, "eof": true });
        pair.process(&eof);
        eventually("its end", || {
            pair.listed(&id).unwrap()["status"] == "completed"
        });
        assert_eq!(pair.listed(&id).unwrap()["exitCode"], 0);
        let removed = pair.of("remove", &id);
        assert_eq!(removed["removed"], true, "{removed}");
        assert_eq!(pair.listed(&id), None);
        assert_eq!(pair.of("log", &id)["code"], "SESSION_NOT_FOUND");
    }
}

#[test]
fn a_run_goes_to_the_background_after_its_time_and_its_session_is_told_of_the_end() {
    let pair = Pair::new(Machine::new());
    let quick = pair.exec(&json!({ "command": "echo quick", "yieldMs": 30_000 }));
    assert_eq!(
        (&quick["status"], &quick["aggregated"], &quick["exitCode"]),
        (&json!("completed"), &json!("quick\n"), &json!(0)),
        "{quick}"
    );
    // A result that was received whole leaves nothing behind.
    eventually("nothing is kept", || {
        pair.process(&json!({ "action": "list" }))["sessions"] == json!([])
    });
    let slow = pair.exec(&json!({
        "command": "echo first; until [ -e go ]; do sleep 0.02; done; echo last; exit 3",
        "yieldMs": 300,
    }));
    assert_eq!(slow["status"], "running", "{slow}");
    let id = slow["sessionId"].as_str().unwrap();
    fs::write(pair.work("go"), "").unwrap();
    let text = pair.told("Exec finished");
    assert!(text.contains(&format!("session={id}, code 3)")), "{text}");
    assert!(text.contains("last"), "{text}");
    let polled = pair.of("poll", id);
    assert_eq!(
        (&polled["status"], &polled["exitCode"]),
        (&json!("completed"), &json!(3)),
        "{polled}"
    );
}

#[test]
fn a_program_on_a_terminal_of_a_node_is_driven_by_keys() {
    for there in machines() {
        let pair = Pair::new(there);
        let running = pair.exec(&json!({
            "command": "/bin/sh", "pty": true, "background": true,
        }));
        assert_eq!(running["status"], "running", "{running}");
        let id = running["sessionId"].as_str().unwrap();
        let screen = |words: &str| {
            let mut rows = Vec::new();
            eventually(words, || {
                let screen = pair.of("screen", id);
                rows = screen["rows"].as_array().cloned().unwrap_or_default();
                let mut rows = rows.iter().filter_map(Value::as_str);
                // Behind the prompt, where the keys were faster than the shell.
                rows.any(|row| row.split_whitespace().last() == Some(words))
            });
        };
        let keys = pair.process(&json!({
            "action": "send-keys", "sessionId": id, "literal": "echo $((40+2))", "keys": ["Enter"],
        }));
        assert_eq!(keys["warnings"], json!([]), "{keys}");
        screen("42");
        pair.process(&json!({
            "action": "paste", "sessionId": id, "text": "echo $((5*5))", "bracketed": false,
        }));
        pair.of("submit", id);
        screen("25");
        // A key that ends what runs in front, and not the session.
        pair.process(&json!({
            "action": "send-keys", "sessionId": id,
            "literal": "sh -c 'echo $((3*3)); exec sleep 600'", "keys": ["Enter"],
        }));
        screen("9");
        pair.process(&json!({
            "action": "send-keys", "sessionId": id, "keys": ["C-c"],
        }));
        pair.process(&json!({
            "action": "send-keys", "sessionId": id, "literal": "echo $((6*6))", "keys": ["Enter"],
        }));
        screen("36");
        let killed = pair.of("kill", id);
        assert_eq!(killed["status"], "killed", "{killed}");
        assert_eq!(pair.listed(id).unwrap()["status"], "killed");
    }
}

#[test]
fn a_time_limit_ends_the_run_on_the_node_in_the_background_too() {
    let pair = Pair::new(Machine::new());
    let command = "echo $$ > pid; sleep 600 & wait";
    let result = pair.exec(&json!({ "command": command, "timeout": 1, "yieldMs": 60_000 }));
    assert_eq!(
        (&result["status"], &result["timedOut"]),
        (&json!("failed"), &json!(true)),
        "{result}"
    );
    assert!(!is_alive(&written_pid(&pair.work("pid"))));
    fs::remove_file(pair.work("pid")).unwrap();
    let running = pair.exec(&json!({ "command": command, "timeout": 1, "background": true }));
    let id = running["sessionId"].as_str().unwrap();
    eventually("its time is over", || {
        pair.listed(id).unwrap()["timedOut"] == true
    });
    assert!(!is_alive(&written_pid(&pair.work("pid"))));
}

#[test]
fn a_cancelled_call_ends_the_run_on_the_node_and_no_other() {
    let pair = Pair::new(Machine::new());
    let behind = pair.background("echo $$ > behind; exec sleep 600");
    let behind_pid = written_pid(&pair.work("behind"));
    // In the conversation that the other run belongs to.
    let flags = ["--session-key", "main"];
    let mut client = StdioClient::begin(&pair.here, &flags, &json!({}));
    let id = client.ask(tool_call(
        0,
        "exec",
        &json!({
            "command": "echo $$ > front; sleep 600 & wait", "host": "node", "yieldMs": 120_000,
        }),
    ));
    let pid = written_pid(&pair.work("front"));
    client.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": id, "reason": "enough" } }),
    );
    // As long as a caller waits for it, it is not listed as a background session; then it is ended.
    eventually("the run is ended", || !is_alive(&pid));
    assert!(is_alive(&behind_pid));
    // The same sessions by this transport: as a tool, and as resources.
    eventually("only the other one runs", || {
        let listed = client.call("process", &json!({ "action": "list" }));
        let sessions = listed["structuredContent"]["sessions"].as_array().unwrap();
        let mut running = sessions.iter().filter(|one| one["status"] == "running");
        let first = running.next().map(|one| one["sessionId"].clone());
        first == Some(json!(behind)) && running.next().is_none()
    });
    let uri = format!("interlock://sessions/{behind}/log");
    let read = client.ask(json!({
        "jsonrpc": "2.0", "id": 0, "method": "resources/read", "params": { "uri": uri },
    }));
    let read = client.answer(read);
    assert_eq!(read["result"]["contents"][0]["uri"], uri.as_str(), "{read}");
}

/// One call cancelled while its node is away is ended when that is back.
#[test]
fn a_run_that_was_cancelled_while_its_node_was_away_is_ended_when_it_is_back() {
    let mut pair = Pair::new(Machine::new());
    let mut client = StdioClient::begin(&pair.here, &[], &json!({}));
    let id = client.ask(tool_call(
        0,
        "exec",
        &json!({
            "command": "echo $$ > front; exec sleep 600", "host": "node", "yieldMs": 120_000,
        }),
    ));
    let pid = written_pid(&pair.work("front"));
    pair.node.signal("-KILL");
    eventually("the node is gone", || {
        !is_connected(&pair.here, &pair.node_id)
    });
    client.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": { "requestId": id } }),
    );
    // Told, while the connection of the client goes on.
    let listed = client.call("process", &json!({ "action": "list" }));
    assert!(
        listed["structuredContent"]["sessions"].is_array(),
        "{listed}"
    );
    assert!(is_alive(&pid));
    pair.node = start_node(&pair.there, pair.port, &pair.token);
    eventually("the run is ended", || !is_alive(&pid));
}

#[test]
fn what_a_session_on_a_node_writes_is_streamed_and_goes_on_after_the_node_was_killed() {
    let (here, there) = (Machine::new(), Machine::new());
    here.leave_to_nodes();
    there.start();
    there.ok(&["exec-policy", "preset", "yolo"]);
    let gateway = here.gateway();
    let mut node = start_node(&there, gateway.port, &gateway.token);
    let node_id = approve(&here, &[]);
    let mut operator = gateway.connect(&["operator.admin"]);
    let call = json!({ "name": "exec", "args": {
        "command": COUNT, "host": "node", "background": true,
    } });
    let started = operator.ok("tools.invoke", &call);
    let id = started["output"]["details"]["sessionId"].as_str();
    let id = id.unwrap_or_else(|| panic!("{started}")).to_owned();
    operator.ok("process.subscribe", &json!({ "sessionId": id }));
    let (mut text, mut offset) = (String::new(), 0);
    let mut read_on = |operator: &mut testkit::ws::WsClient, text: &mut String| {
        let event = operator.event("process.output", |_| true);
        assert_eq!(event["offset"], offset, "{event}");
        assert_eq!(event["missedBytes"], 0);
        offset = event["nextOffset"].as_u64().unwrap();
        text.push_str(event["text"].as_str().unwrap());
    };
    while !text.contains("\n3\n") {
        read_on(&mut operator, &mut text);
    }
    let tasks = operator.ok("tasks.get", &json!({ "taskId": id }));
    assert_eq!(tasks["task"]["status"], "running", "{tasks}");
    node.signal("-KILL");
    let behind = text.len();
    let _node = start_node(&there, gateway.port, &gateway.token);
    eventually("the node is back", || is_connected(&here, &node_id));
    while text.len() < behind + 20 {
        read_on(&mut operator, &mut text);
    }
    fs::write(there.work().join("stop"), "").unwrap();
    let ended = operator.event("process.ended", |_| true);
    assert_eq!(
        (&ended["status"], &ended["exitCode"]),
        (&json!("completed"), &json!(7)),
        "{ended}"
    );
    let all = operator.ok("process.log", &json!({ "sessionId": id, "offset": 0 }));
    let all = all["text"].as_str().unwrap();
    assert!(all.starts_with(&text), "{text}");
    // Each number once, and in order.
    let numbers: Vec<usize> = all.lines().map(|line| line.parse().unwrap()).collect();
    let expected: Vec<usize> = (1..=numbers.len()).collect();
    assert_eq!(numbers, expected);
}

/// What a person allowed runs as a session too, and once.
#[test]
fn an_approved_run_goes_to_the_background_on_the_node() {
    let pair = Pair::new(Machine::new());
    pair.there.ok(&["exec-policy", "preset", "cautious"]);
    let script = pair.there.script(
        "work/deploy.sh",
        "#!/bin/sh\necho deployed >> deployed\nuntil [ -e stop ]; do sleep 0.02; done\nexit 5\n",
    );
    let command = script.display().to_string();
    let running = std::thread::scope(|scope| {
        let call = scope.spawn(|| pair.exec(&json!({ "command": command, "yieldMs": 200 })));
        let mut asked = String::new();
        eventually("a question", || {
            pair.here.pending_ids().first().is_some_and(|id| {
                asked.clone_from(id);
                true
            })
        });
        pair.here.ok(&["approvals", "approve", &asked]);
        call.join().unwrap()
    });
    assert_eq!(running["status"], "running", "{running}");
    let id = running["sessionId"].as_str().unwrap();
    written(&pair.work("deployed"));
    assert_eq!(pair.listed(id).unwrap()["status"], "running");
    fs::write(pair.work("stop"), "").unwrap();
    let text = pair.told("Exec finished");
    assert!(text.contains("code 5)"), "{text}");
    assert_eq!(
        fs::read_to_string(pair.work("deployed")).unwrap(),
        "deployed\n"
    );
}

/// Not what its document alone would say: the node joins its own config with it.
#[test]
fn the_policy_of_a_node_is_shown_as_it_holds_there() {
    let pair = Pair::new(Machine::new());
    pair.there
        .ok(&["config", "set", "tools.exec.security", "allowlist"]);
    let shown = pair
        .here
        .ok(&["approvals", "get", "--node", &pair.node_id, "--json"])
        .json();
    let security = &shown["effective"]["main"]["security"]["effective"];
    assert_eq!(
        (&security["value"], &security["source"]),
        (&json!("allowlist"), &json!("config")),
        "{shown}"
    );
    pair.here.ok(&["config", "set", "tools.exec.host", "node"]);
    let shown = pair.here.ok(&["exec-policy", "show", "--json"]).json();
    let node = &shown["agents"]["main"]["node"];
    assert_eq!(
        node["policy"]["security"]["effective"]["value"], "allowlist",
        "{shown}"
    );
    // What this gateway adds is a layer there, and both together are what holds.
    pair.here.ok(&["exec-policy", "set", "--ask", "always"]);
    let shown = pair.here.ok(&["exec-policy", "show", "--json"]).json();
    let main = &shown["agents"]["main"];
    let layer = json!({ "security": "full", "ask": "always", "denyRules": 0 });
    assert_eq!(main["gatewayLayer"], layer, "{shown:#}");
    let joined = json!({
        "security": "allowlist", "ask": "always", "atLeast": false, "joinedBy": "node",
    });
    assert_eq!(main["joined"], joined, "{shown:#}");
    let text = pair.here.ok(&["exec-policy", "show"]).stdout;
    for line in [
        "one more layer: security full, ask always, no deny rules",
        "together security allowlist, ask always (the node joins both)",
    ] {
        assert!(text.contains(line), "{text}");
    }
    pair.here.ok(&["exec-policy", "set", "--ask", "off"]);
    let refused = pair.exec(&json!({ "command": "/usr/bin/id" }));
    assert_eq!(refused["status"], "denied", "{refused}");
}

#[test]
fn what_runs_on_a_node_that_was_removed_is_not_known_here_any_more() {
    let mut pair = Pair::new(Machine::new());
    let id = pair.background("echo $$ > pid; exec sleep 600");
    let pid = written_pid(&pair.work("pid"));
    pair.node.signal("-KILL");
    eventually("it is known to be out of reach", || {
        pair.listed(&id)
            .is_some_and(|row| row["status"] == "unreachable")
    });
    pair.here.ok(&["nodes", "remove", &pair.node_id]);
    let text = pair.told("Exec finished");
    assert!(text.contains("outcome unknown"), "{text}");
    assert_eq!(pair.listed(&id), None);
    // It belongs to its own machine, where it can be seen and ended.
    assert!(is_alive(&pid));
    let own = pair.there.ok(&["process", "list", "--json"]).json();
    let name = own["sessions"][0]["sessionId"].as_str().unwrap();
    assert_eq!(Some(name), id.split('@').next());
    pair.there.ok(&["process", "kill", name]);
    assert!(!is_alive(&pid));
}

/// A person at the gateway's machine handles what runs on a node as what runs there.
#[test]
fn the_command_line_handles_sessions_on_nodes() {
    let pair = Pair::new(Machine::new());
    let running = pair.exec(&json!({
        "command": "echo ready; read line; echo \"got $line\"; sleep 600",
        "background": true, "pty": true,
    }));
    let id = running["sessionId"].as_str().unwrap().to_owned();
    let here = &pair.here;
    let listed = here.ok(&["process", "list"]).stdout;
    assert!(listed.contains(&id), "{listed}");
    let listed = here.ok(&["process", "list", "--json"]).json();
    assert_eq!(listed["sessions"][0]["nodeId"], pair.node_id.as_str());
    here.know_agents(&["other"]);
    let of_other = here.ok(&["process", "list", "--agent", "other", "--json"]);
    assert_eq!(of_other.json()["sessions"], json!([]));
    // The beginning of its name is enough.
    let name = id.split('@').next().unwrap();
    eventually("its first line", || {
        let log = here.ok(&["process", "log", name]).stdout;
        log.contains("ready")
    });
    here.ok(&["process", "send-keys", &id, "--literal", "one", "Enter"]);
    let mut seen = String::new();
    let mut offset = 0;
    eventually("its answer", || {
        let offset_text = offset.to_string();
        let poll = ["process", "poll", &id, "--timeout", "1000", "--json"];
        let polled = here
            .ok(&[&poll[..], &["--offset", &offset_text]].concat())
            .json();
        assert_eq!(polled["sessionId"], id.as_str(), "{polled}");
        seen += polled["output"]["text"].as_str().unwrap();
        offset = polled["nextOffset"].as_u64().unwrap();
        seen.contains("got one")
    });
    let screen = here.ok(&["process", "screen", &id]).stdout;
    assert!(screen.contains("got one"), "{screen}");
    let attached = here.run(&["process", "attach", &id]);
    assert!(attached.stderr.contains("ATTACH_ON_NODE"), "{attached:#?}");
    let running = here.run(&["process", "clear", &id]);
    assert!(running.stderr.contains("SESSION_RUNNING"), "{running:#?}");
    here.ok(&["process", "kill", &id]);
    here.ok(&["process", "clear", &id]);
    let gone = here.run(&["process", "log", &id]);
    assert!(gone.stderr.contains("SESSION_NOT_FOUND"), "{gone:#?}");
    assert_ne!(gone.code, 0);
}
