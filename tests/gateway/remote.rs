//! Client commands follow `gateway.remote`: to the pinned gateway, with its token, or not at all.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Read as _;
use std::net::TcpListener;
use std::time::Duration;

use crate::remote_machines::{client, served};
use serde_json::json;
use testkit::Machine;
use testkit::node_pair::start_gateway;

#[test]
fn commands_go_to_the_gateway_that_the_config_names() {
    let (here, _gateway, port, fingerprint) = served();
    let token = here.operator_token();
    let url = format!("wss://127.0.0.1:{port}");
    let there = client(
        &token,
        &json!({ "url": url, "tlsFingerprint": fingerprint }),
    );
    // A device that is known there only.
    let listed = there.ok(&["devices", "list", "--json"]).json();
    let own = there.ok(&["nodes", "list", "--json"]).json();
    assert_eq!(own["nodes"], json!([]));
    assert_eq!(
        listed["paired"].as_array().unwrap().len(),
        1,
        "the client itself: {listed:#}"
    );
    assert_eq!(
        here.ok(&["devices", "list", "--json"]).json()["paired"],
        listed["paired"]
    );
    // No gateway was started here for it.
    assert!(there.spawned_gateways().is_empty());
    // A gateway of its own goes before.
    let (_own, _) = start_gateway(&there, 0);
    let listed = there.ok(&["devices", "list", "--json"]).json();
    assert_eq!(listed["paired"], json!([]));
}

#[test]
fn a_wrong_token_or_none_opens_nothing() {
    let (_here, _gateway, port, fingerprint) = served();
    let url = format!("wss://127.0.0.1:{port}");
    let remote = json!({ "url": url, "tlsFingerprint": fingerprint });
    let wrong = client("interlock-operator-wrong", &remote);
    let run = wrong.run(&["nodes", "list"]);
    run.refused(1, "GATEWAY_REFUSED");
    assert!(!run.stderr.contains("interlock-operator-wrong"), "{run:#?}");
    // Without a secret the address is only that of this machine's own gateway.
    let none = Machine::new();
    none.start();
    none.ok(&["config", "set", "gateway.remote", &remote.to_string()]);
    none.run(&["nodes", "list", "--no-spawn"])
        .refused(1, "GATEWAY_NOT_RUNNING");
}

#[test]
fn another_certificate_gets_no_token() {
    let (here, _gateway, port, _) = served();
    let token = here.operator_token();
    let url = format!("wss://127.0.0.1:{port}");
    let other = "ab".repeat(32);
    let there = client(&token, &json!({ "url": url, "tlsFingerprint": other }));
    let run = there.run(&["nodes", "list"]);
    run.refused(1, "GATEWAY_UNREACHABLE");
    assert!(run.stderr.contains("another certificate"), "{run:#?}");
    // Nor does one that is not pinned.
    let there = client(&token, &json!({ "url": url }));
    there
        .run(&["nodes", "list"])
        .refused(1, "FINGERPRINT_MISSING");
    assert!(here.ok(&["devices", "list", "--json"]).json()["paired"] == json!([]));
}

#[test]
fn plain_text_goes_only_where_no_one_else_reads_it() {
    for (url, code) in [
        ("ws://203.0.113.7:18789", "PLAINTEXT_REFUSED"),
        ("ws://gateway.example", "PLAINTEXT_REFUSED"),
        ("ws://user@127.0.0.1:1", "GATEWAY_URL_INVALID"),
        ("ws://127.0.0.1:1/path", "GATEWAY_URL_INVALID"),
        ("ws://127.0.0.1:port", "GATEWAY_URL_INVALID"),
    ] {
        let there = client("secret-token", &json!({ "url": url }));
        let run = there.run(&["nodes", "list"]);
        run.refused(1, code);
        assert!(!run.stderr.contains("secret-token"), "{run:#?}");
    }
    let machine = Machine::new();
    machine.start();
    let (_gateway, port) = start_gateway(&machine, 0);
    let token = machine.operator_token();
    let there = client(&token, &json!({ "url": format!("ws://127.0.0.1:{port}") }));
    there.ok(&["nodes", "list"]);
    // A fingerprint means TLS, whatever the address says: the token does not leave in plain text.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut bytes = vec![0; 64 * 1024];
        let count = stream.read(&mut bytes).unwrap_or_default();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    });
    let pinned =
        json!({ "url": format!("ws://127.0.0.1:{port}"), "tlsFingerprint": "ab".repeat(32) });
    let there = client("secret-token", &pinned);
    assert_eq!(there.run(&["nodes", "list"]).code, 1);
    assert!(!heard.join().unwrap().contains("secret-token"));
}

#[test]
fn a_run_does_not_reach_a_gateway_elsewhere_as_an_operator() {
    let (here, _gateway, port, fingerprint) = served();
    let token = here.operator_token();
    let url = format!("wss://127.0.0.1:{port}");
    let there = client(
        &token,
        &json!({ "url": url, "tlsFingerprint": fingerprint }),
    );
    there.switch_shield_off();
    there.ok(&["--local", "exec-policy", "preset", "yolo"]);
    for command in [
        "nodes list",
        "status",
        "approvals pending",
        "approvals approve kmnpz",
        "approvals deny kmnpz",
        "approvals watch --plain",
        "approvals get",
        "deny list",
        "audit log",
        "process list",
        "exec -- id",
        "mcp",
    ] {
        // A file, because exec refuses a text that decides approvals before it runs.
        let text = format!(
            "#!/bin/sh\n{} --state-dir {} {command} < /dev/null\n",
            crate::BINARY,
            there.state().display()
        );
        let script = there.script("try", &text);
        let script = script.to_str().unwrap();
        let run = there.run(&["--local", "exec", "--no-wait", "--", script]);
        assert_ne!(run.code, 0, "{command}: {run:#?}");
        assert!(
            run.stderr.contains("DECISION_FROM_RUN"),
            "{command}: {run:#?}"
        );
        assert!(!run.stderr.contains(&token), "{command}: {run:#?}");
    }
    // None of it came to the gateway: the device of that machine is not known there.
    let known = here.ok(&["devices", "list", "--json"]).json();
    assert_eq!(known["paired"], json!([]), "{known:#}");
}
