//! Who is killed meanwhile changes nothing for a run.

use std::fs;

use serde_json::{Value, json};

use testkit::mcp::raw;
use testkit::node_pair::*;
use testkit::{Machine, eventually, written};

#[test]
fn a_session_outlives_the_node_that_was_killed_and_is_found_again() {
    for there in machines() {
        let mut pair = Pair::new(there);
        let id = pair.background(COUNT);
        written(&pair.work("starts"));
        pair.node.signal("-KILL");
        eventually("it is known to be out of reach", || {
            pair.listed(&id)
                .is_some_and(|row| row["status"] == "unreachable")
        });
        assert_eq!(pair.of("log", &id)["code"], "NODE_NOT_CONNECTED");
        pair.node = start_node(&pair.there, pair.port, &pair.token);
        pair.node_is_back();
        eventually("it goes on", || {
            pair.listed(&id)
                .is_some_and(|row| row["status"] == "running")
        });
        let lines = |pair: &Pair| pair.of("log", &id)["totalLines"].as_u64().unwrap();
        let before = lines(&pair);
        eventually("it writes on", || lines(&pair) > before);
        fs::write(pair.work("stop"), "").unwrap();
        let text = pair.told("Exec finished");
        assert!(text.contains("code 7)"), "{text}");
        assert_eq!(
            fs::read_to_string(pair.work("starts")).unwrap(),
            "started\n"
        );
    }
}

#[test]
fn a_session_that_ended_while_the_node_was_away_is_told_when_it_is_back() {
    let mut pair = Pair::new(Machine::new());
    let id = pair.background(COUNT);
    written(&pair.work("starts"));
    pair.node.signal("-KILL");
    fs::write(pair.work("stop"), "").unwrap();
    pair.node = start_node(&pair.there, pair.port, &pair.token);
    let text = pair.told("Exec finished");
    assert!(text.contains(&format!("session={id}, code 7)")), "{text}");
    let log = pair.of("log", &id);
    assert_eq!(
        (&log["status"], &log["exitCode"]),
        (&json!("completed"), &json!(7))
    );
    assert_eq!(
        fs::read_to_string(pair.work("starts")).unwrap(),
        "started\n"
    );
}

#[test]
fn a_session_on_a_node_outlives_the_gateway_that_was_killed() {
    let mut pair = Pair::new(Machine::new());
    let id = pair.background(COUNT);
    written(&pair.work("starts"));
    pair.gateway.signal("-KILL");
    let (gateway, port) = start_gateway(&pair.here, pair.port);
    pair.gateway = gateway;
    assert_eq!(port, pair.port);
    pair.node_is_back();
    eventually("it is found again", || {
        pair.listed(&id)
            .is_some_and(|row| row["status"] == "running")
    });
    let killed = pair.of("kill", &id);
    assert_eq!(killed["status"], "killed", "{killed}");
    let text = pair.told("Exec finished");
    assert!(text.contains(&format!("session={id}")), "{text}");
    assert_eq!(
        fs::read_to_string(pair.work("starts")).unwrap(),
        "started\n"
    );
}

/// A call that waited when its gateway died becomes a session, which ends as it ends.
#[test]
fn a_run_in_the_foreground_is_a_session_for_the_next_gateway() {
    let mut pair = Pair::new(Machine::new());
    let (port, token) = (pair.port, pair.token.clone());
    let calling = std::thread::spawn(move || {
        let call = json!({ "tool": "exec", "args": {
            "command": COUNT, "host": "node", "yieldMs": 60_000,
        } });
        let body = call.to_string();
        let request = format!(
            "POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
             Authorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
        let mut answer = String::new();
        let _ = std::io::Read::read_to_string(&mut stream, &mut answer);
        answer
    });
    written(&pair.work("starts"));
    pair.gateway.signal("-KILL");
    assert_eq!(
        calling.join().unwrap(),
        "",
        "a dead gateway gives no answer"
    );
    pair.gateway = start_gateway(&pair.here, pair.port).0;
    pair.node_is_back();
    let mut id = String::new();
    eventually("it is a session", || {
        let all = pair.process(&json!({ "action": "list" }));
        let one = &all["sessions"][0]["sessionId"];
        one.as_str().unwrap_or_default().clone_into(&mut id);
        !id.is_empty()
    });
    fs::write(pair.work("stop"), "").unwrap();
    let text = pair.told("Exec finished");
    assert!(text.contains(&format!("session={id}, code 7)")), "{text}");
    assert_eq!(
        fs::read_to_string(pair.work("starts")).unwrap(),
        "started\n"
    );
}

/// A call goes on waiting while its node is away, and gets the result.
#[test]
fn a_call_that_waits_gets_its_result_although_the_node_was_killed() {
    let mut pair = Pair::new(Machine::new());
    let result = std::thread::scope(|scope| {
        let (port, token) = (pair.port, pair.token.clone());
        let calling = scope.spawn(move || {
            let call = json!({ "tool": "exec", "args": {
                "command": COUNT, "host": "node", "yieldMs": 60_000,
            } });
            let body = call.to_string();
            let request = format!(
                "POST /tools/invoke HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
                 Authorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            raw(port, request.as_bytes())
        });
        written(&pair.work("starts"));
        pair.node.signal("-KILL");
        fs::write(pair.work("stop"), "").unwrap();
        pair.node = start_node(&pair.there, pair.port, &pair.token);
        calling.join().unwrap()
    });
    let answer: Value = serde_json::from_str(&result.body).unwrap();
    let details = &answer["result"]["details"];
    assert_eq!(
        (&details["status"], &details["exitCode"]),
        (&json!("completed"), &json!(7)),
        "{answer}"
    );
    assert!(details["aggregated"].as_str().unwrap().starts_with("1\n"));
    assert_eq!(
        fs::read_to_string(pair.work("starts")).unwrap(),
        "started\n"
    );
}
