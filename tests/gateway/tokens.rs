//! Tokens are printed once and kept as hashes; each opens what its role is for, and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use interlock_wire::Secret;
use interlock_wire::identity::DeviceIdentity;
use interlock_wire::params::{Auth, Connect};
use serde_json::{Value, json};
use testkit::mcp::{Reply, raw};
use testkit::ws::{Came, EVERYTHING, Gateway, WsClient, operator};
use testkit::{Machine, eventually};

fn call(gateway: &Gateway, secret: &str, request: &str, body: &Value) -> Reply {
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let text = format!(
        "{request} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
         Authorization: Bearer {secret}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    raw(gateway.port, text.as_bytes())
}

/// The status of a call that only operators may make, by a program of the machine's owner.
fn metrics(machine: &Machine, gateway: &Gateway, secret: &str) -> u16 {
    let url = format!("http://127.0.0.1:{}/metrics", gateway.port);
    let header = format!("Authorization: Bearer {secret}");
    let called = machine
        .other_program("/usr/bin/curl")
        .args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            &header,
            &url,
        ])
        .output()
        .unwrap();
    String::from_utf8(called.stdout).unwrap().parse().unwrap()
}

/// Fails if any file below holds the text.
fn assert_nowhere(directory: &Path, text: &str) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            assert_nowhere(&entry.path(), text);
        } else if kind.is_file() {
            let content = fs::read(entry.path()).unwrap();
            let holds = content
                .windows(text.len())
                .any(|part| part == text.as_bytes());
            assert!(!holds, "{} holds the token", entry.path().display());
        }
    }
}

#[test]
fn an_operator_token_is_printed_once_and_kept_nowhere() {
    for machine in [Some(Machine::new()), Machine::of_ordinary_user()]
        .into_iter()
        .flatten()
    {
        machine.start();
        let gateway = machine.gateway();
        let minted = machine.ok(&["gateway", "token", "--new"]);
        let token = minted.stdout.trim();
        assert!(token.starts_with("interlock-operator-"), "{minted:?}");
        assert!(!minted.stderr.contains(token), "{minted:?}");
        assert_eq!(metrics(&machine, &gateway, token), 200);
        assert_eq!(metrics(&machine, &gateway, &format!("{token}0")), 401);
        assert_nowhere(machine.root(), token);
        let listed = machine.ok(&["gateway", "token"]);
        assert!(!listed.stdout.contains(token), "{listed:?}");
        let audit = machine.ok(&["audit", "log", "--json"]).stdout;
        assert!(
            audit.contains("role-token-added") && !audit.contains(token),
            "{audit}"
        );
    }
}

#[test]
fn a_revoked_token_is_worth_nothing_and_its_connections_end() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let minted = machine.ok(&["gateway", "token", "--new", "--json"]).json();
    let (token, id) = (
        minted["token"].as_str().unwrap(),
        minted["id"].as_str().unwrap(),
    );
    let mut client = WsClient::dial(gateway.port).unwrap();
    client.introduce(operator(token, EVERYTHING), None).unwrap();
    let mut other = gateway.connect(EVERYTHING);
    let ids = |flags: &[&str]| {
        machine
            .ok(&[&["gateway", "token", "--json"], flags].concat())
            .json()
    };
    assert_eq!(ids(&[])["tokens"].as_array().unwrap().len(), 2);
    machine
        .run(&["gateway", "token", "--revoke", "no-such-id"])
        .refused(1, "TOKEN_NOT_FOUND");
    // A token of another role is not found by its id.
    machine
        .run(&["nodes", "enroll", "--revoke", id])
        .refused(1, "TOKEN_NOT_FOUND");
    machine.ok(&["gateway", "token", "--revoke", id]);
    assert_eq!(metrics(&machine, &gateway, token), 401);
    let closed = client.end();
    assert!(matches!(closed, Came::Closed(4001, _)), "{closed:?}");
    other.ok("health", &json!({}));
    assert_eq!(ids(&[])["tokens"].as_array().unwrap().len(), 1);
}

#[test]
fn the_plain_token_of_an_earlier_version_is_taken_over_and_removed() {
    for machine in [Some(Machine::new()), Machine::of_ordinary_user()]
        .into_iter()
        .flatten()
    {
        machine.start();
        let token = "Xk2-an-operator-token-of-an-earlier-version";
        let file = machine.state().join("gateway.token");
        machine.write_private(&file, &format!("{token}\n"));
        machine.write_private(&machine.state().join("gateway.new-0123"), token);
        let gateway = machine.gateway();
        assert_eq!(metrics(&machine, &gateway, token), 200);
        assert!(!file.exists());
        assert_nowhere(machine.root(), token);
        let log = fs::read_to_string(&gateway.log).unwrap();
        let lines = log
            .lines()
            .filter(|line| line.contains("kept as a hash now"));
        assert_eq!(lines.count(), 1, "{log}");
        gateway.stop();
        let gateway = machine.gateway();
        assert_eq!(metrics(&machine, &gateway, token), 200);
        let log = fs::read_to_string(&gateway.log).unwrap();
        assert_eq!(log.matches("kept as a hash now").count(), 1, "{log}");
    }
}

#[test]
fn a_plain_token_that_others_could_read_is_removed_and_worth_nothing() {
    let machine = Machine::new();
    machine.start();
    let token = "Xk2-an-operator-token-that-others-could-read";
    let file = machine.state().join("gateway.token");
    fs::write(&file, token).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let gateway = machine.gateway();
    assert!(!file.exists());
    assert_eq!(metrics(&machine, &gateway, token), 401);
}

#[test]
fn an_operator_token_in_the_config_is_refused_and_a_file_is_taken_over_by_hand() {
    let machine = Machine::new();
    machine.start();
    let token = "Xk2-an-operator-token-in-a-file-of-its-own";
    let file = machine.root().join("home/own.token");
    machine.write_private(&file, token);
    let shown = file.display();
    for config in [
        format!("{{ gateway: {{ auth: {{ token: '{token}' }} }} }}"),
        format!("{{ gateway: {{ auth: {{ tokenFile: '{shown}' }} }} }}"),
    ] {
        machine.write_config(&config);
        let refused = machine.run(&["gateway", "run", "--port", "0"]);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(
            refused.stderr.contains("interlock gateway token --"),
            "{refused:?}"
        );
        assert!(!refused.stderr.contains(token), "{refused:?}");
    }
    machine.write_config("{}");
    machine.ok(&["gateway", "token", "--import", file.to_str().unwrap()]);
    let gateway = machine.gateway();
    assert_eq!(metrics(&machine, &gateway, token), 200);
}

#[test]
fn the_first_start_says_how_to_mint_a_token_and_shows_none() {
    let machine = Machine::new();
    machine.start();
    let mut child = machine
        .command(&["gateway", "run", "--port", "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    while !said.contains("token --new") {
        assert_ne!(
            std::io::BufRead::read_line(&mut out, &mut said).unwrap(),
            0,
            "{said}"
        );
    }
    let _ = child.kill();
    let _ = child.wait();
    assert!(said.contains("http://127.0.0.1:"), "{said}");
    assert!(said.contains("interlock gateway token --new"), "{said}");
    assert!(said.contains("interlock agents token main"), "{said}");
    assert!(!said.contains("gateway.token"), "{said}");
    assert!(!machine.state().join("gateway.token").exists());
}

#[test]
fn a_node_token_lets_a_node_connect_and_opens_nothing_else() {
    let machine = Machine::new();
    machine.start();
    let gateway = machine.gateway();
    let token = machine.node_token();
    assert!(token.starts_with("interlock-node-"), "{token}");
    let exec = json!({ "tool": "exec", "args": { "command": "true" } });
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "x", "version": "1" } } });
    for (request, body) in [
        ("GET /metrics", &Value::Null),
        ("POST /tools/invoke", &exec),
        ("POST /mcp", &initialize),
    ] {
        let reply = call(&gateway, &token, request, body);
        assert_eq!(reply.status, 403, "{request}: {reply:?}");
        assert!(reply.body.contains("TOKEN_ROLE"), "{request}: {reply:?}");
    }
    for device in [None, Some(DeviceIdentity::generate().unwrap())] {
        let mut client = WsClient::dial(gateway.port).unwrap();
        let refused = client.introduce(operator(&token, EVERYTHING), device.as_ref());
        assert_eq!(refused.unwrap_err()["details"]["code"], "TOKEN_ROLE");
    }
    let node = Connect {
        role: Some("node".to_owned()),
        scopes: Some(vec!["operator.admin".to_owned()]),
        ..operator(&token, &[])
    };
    let mut client = WsClient::dial(gateway.port).unwrap();
    let device = DeviceIdentity::generate().unwrap();
    client.introduce(node, Some(&device)).unwrap();
    for method in [
        "exec.approval.list",
        "tools.invoke",
        "node.list",
        "exec.approvals.get",
    ] {
        let refused = client.refused(method, &json!({}));
        assert!(
            refused["message"]
                .as_str()
                .unwrap()
                .contains("unauthorized role"),
            "{refused}"
        );
    }
    // The token of the device that it got is a node's too.
    let own = client.hello["auth"]["deviceToken"]
        .as_str()
        .unwrap()
        .to_owned();
    let connect = Connect {
        auth: Some(Auth {
            device_token: Some(Secret::new(own)),
            ..Auth::default()
        }),
        ..operator("", EVERYTHING)
    };
    let mut client = WsClient::dial(gateway.port).unwrap();
    assert!(client.introduce(connect, Some(&device)).is_err());
    // Wrong guesses of the operator's secret are not forgiven to the holder of a node's token.
    assert_nowhere(machine.root(), &token);
}

#[test]
fn a_node_joins_with_a_token_of_its_role() {
    let machines = [
        Some((Machine::new(), Machine::new())),
        Machine::of_ordinary_user().zip(Machine::of_ordinary_user()),
    ];
    for (here, there) in machines.into_iter().flatten() {
        here.start();
        there.start();
        let gateway = here.gateway();
        let token = here.node_token();
        let port = gateway.port.to_string();
        let mut node = there
            .command(&["node", "run", "--host", "127.0.0.1", "--port", &port])
            .env("OPENCLAW_GATEWAY_TOKEN", &token)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let nodes = || here.ok(&["nodes", "status", "--json"]).json();
        eventually("the node waits for approval of its commands", || {
            nodes()["pending"]
                .as_array()
                .is_some_and(|pending| pending.len() == 1)
        });
        let listed = here.ok(&["nodes", "enroll", "--list", "--json"]).json();
        let id = listed["tokens"][0]["id"].as_str().unwrap();
        here.ok(&["nodes", "enroll", "--revoke", id]);
        // It comes again with the token of its device.
        eventually("the node is connected", || {
            let nodes = nodes();
            let mut all = nodes["nodes"].as_array().into_iter().flatten();
            all.any(|node| node["connected"] == true)
        });
        node.kill().unwrap();
        node.wait().unwrap();
    }
}
