//! Clients of the WebSocket transport that send what they should not: they are refused with the
//! code that clients know, and no other client suffers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use interlock_wire::identity::DeviceIdentity;
use serde_json::{Value, json};
use testkit::ws::{Came, EVERYTHING, Gateway, WsClient, now_ms};
use testkit::{Machine, mcp};
use tungstenite::Message;

const MINUTES: u64 = 60_000;

fn deep(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

/// The answer to a request without its own client, and how the connection ends behind it.
fn refusal(client: &mut WsClient) -> (String, Came) {
    match client.next() {
        Came::Frame(frame) => {
            let said = frame["error"]["message"].as_str().unwrap_or_default();
            (said.to_owned(), client.end())
        }
        end => (String::new(), end),
    }
}

fn lives(gateway: &Gateway) {
    let mut operator = gateway.connect(EVERYTHING);
    assert_eq!(operator.ok("health", &json!({}))["ok"], true);
}

#[test]
fn a_client_that_does_not_begin_with_connect_is_refused() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let not_connect = "invalid handshake: first request must be connect";
    let request = |method: &str| json!({ "type": "req", "id": "1", "method": method }).to_string();
    let with_params =
        |params: &str| format!(r#"{{"type":"req","id":"1","method":"connect","params":{params}}}"#);
    let cases = [
        (String::from("hello"), "", 1000),
        (String::new(), "", 1000),
        (deep(10_000), "", 1008),
        (String::from("[]"), "", 1008),
        (
            String::from("{\"type\":\"event\",\"event\":\"tick\"}"),
            "",
            1008,
        ),
        (request("health"), not_connect, 1008),
        (request("tools.invoke"), not_connect, 1008),
        (with_params("7"), "invalid connect params", 1008),
        (with_params(&deep(100)), "invalid connect params", 1008),
        (
            with_params(&format!("\"{}\"", "x".repeat(70_000))),
            "",
            1009,
        ),
    ];
    for (text, message, code) in cases {
        let shown = &text[..text.len().min(80)];
        let mut client = gateway.open();
        client.socket.send(Message::text(text.as_str())).unwrap();
        let (said, end) = refusal(&mut client);
        assert!(said.starts_with(message), "{shown}: {said}");
        assert!(
            matches!(end, Came::Closed(closed, _) if closed == code),
            "{shown}: {end:?}"
        );
    }
    // More than a client may send before the handshake: it is not even looked at, and the client
    // learns why it is sent away.
    let mut client = gateway.open();
    let _ = client.socket.send(Message::text("x".repeat(4 << 20)));
    let end = client.end();
    assert!(matches!(end, Came::Closed(1009, _)), "{end:?}");
    // What is no message of the protocol is passed over.
    let mut client = gateway.open();
    client.socket.send(Message::binary(vec![0, 1, 2])).unwrap();
    let identity = DeviceIdentity::generate().unwrap();
    let operator = gateway.operator(EVERYTHING);
    client.introduce(operator, Some(&identity)).unwrap();
    let again = client.refused("connect", &json!(gateway.operator(EVERYTHING)));
    assert_eq!(again["code"], "INVALID_REQUEST", "{again}");
    lives(&gateway);
}

#[test]
fn a_welcomed_client_that_sends_nonsense_is_answered_passed_over_or_closed() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    for odd in [
        Message::text("{"),
        Message::text(""),
        Message::text("\u{0}"),
        Message::text(deep(200_000)),
        Message::binary(vec![b'{'; 70_000]),
        Message::Ping(vec![1; 125].into()),
        Message::Pong(vec![1; 125].into()),
    ] {
        client.socket.send(odd).unwrap();
    }
    // None of it is answered, and the connection is as it was.
    assert_eq!(client.ok("health", &json!({}))["ok"], true);
    for (frame, id) in [
        (json!({ "type": "req", "id": "a", "method": "" }), "a"),
        (
            json!({ "type": "req", "id": 7, "method": "health" }),
            "invalid",
        ),
        (json!({ "type": "res", "id": "b", "ok": true }), "b"),
        (
            json!({ "type": "req", "id": "c", "method": "health", "extra": 1 }),
            "c",
        ),
    ] {
        client
            .socket
            .send(Message::text(frame.to_string()))
            .unwrap();
        let error = client.answer(id).unwrap().unwrap_err();
        assert_eq!(error["code"], "INVALID_REQUEST", "{frame}: {error}");
    }
    let inside =
        json!({ "name": "exec", "args": serde_json::from_str::<Value>(&deep(100)).unwrap() });
    let error = client.refused("tools.invoke", &inside);
    assert_eq!(error["code"], "INVALID_REQUEST", "{error}");
    let error = client.refused("no.such.method", &json!({}));
    assert_eq!(error["code"], "INVALID_REQUEST", "{error}");
    let error = client.refused("health", &json!({ "unknown": 1 }));
    assert_eq!(error["code"], "INVALID_REQUEST", "{error}");
    // One message beyond the limit ends it.
    let _ = client.socket.send(Message::text("x".repeat(26 << 20)));
    let end = client.end();
    assert!(matches!(end, Came::Closed(1009, _)), "{end:?}");
    lives(&gateway);
}

/// Upgrades by hand, with these lines in the head, and gives the stream and the status line.
fn upgrade(gateway: &Gateway, path: &str, lines: &[&str]) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    let mut head = format!(
        "GET {path} HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    );
    if !lines.iter().any(|line| line.starts_with("Host:")) {
        head.push_str(&format!("Host: 127.0.0.1:{}\r\n", gateway.port));
    }
    for line in lines {
        head.push_str(line);
        head.push_str("\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        line.push(byte[0]);
    }
    (stream, String::from_utf8_lossy(&line).trim().to_owned())
}

#[test]
fn bytes_that_are_no_websocket_end_their_own_connection_only() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut other = gateway.connect(EVERYTHING);
    let cases: &[(&str, &[u8])] = &[
        ("a text that is not masked", b"\x81\x02{}"),
        ("bits that were not agreed on", b"\xf1\x80\0\0\0\0"),
        ("an unknown kind of frame", b"\x83\x80\0\0\0\0"),
        ("a text that is no UTF-8", b"\x81\x82\0\0\0\0\xff\xfe"),
        (
            "a part of a message that was not begun",
            b"\x80\x80\0\0\0\0",
        ),
        ("a ping in parts", b"\x09\x80\0\0\0\0"),
        (
            "a length beyond all limits",
            b"\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",
        ),
        ("plain HTTP", b"GET / HTTP/1.1\r\n\r\n"),
    ];
    for (what, bytes) in cases {
        let (mut stream, status) = upgrade(&gateway, "/", &[]);
        assert!(status.contains(" 101 "), "{status}");
        stream.write_all(bytes).unwrap();
        // Whatever is still said, it ends; a reset is an end too.
        let mut rest = Vec::new();
        if let Err(error) = stream.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{what}");
        }
        assert_eq!(other.ok("health", &json!({}))["ok"], true, "{what}");
    }
}

#[test]
fn pages_of_other_sites_and_odd_paths_get_no_connection() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let here = format!("Host: 127.0.0.1:{}", gateway.port);
    let own = format!("Origin: http://127.0.0.1:{}", gateway.port);
    let cases: &[(&str, &[&str], &str)] = &[
        ("/", &[], "101"),
        ("/", &[&here, &own], "101"),
        ("/", &["Origin: http://evil.example"], "403"),
        ("/", &["Origin: null"], "403"),
        ("/", &[&own, "Origin: http://evil.example"], "403"),
        ("/", &["Host: rebound.example"], "403"),
        ("/", &["Host: 127.0.0.1.rebound.example"], "403"),
        ("/", &["Host: 127.0.0.1", "Host: rebound.example"], "403"),
        ("http://rebound.example/", &["Host: rebound.example"], "403"),
        ("/x", &[], "404"),
        ("//", &[], "404"),
        ("/.", &[], "404"),
        ("/..", &[], "404"),
        ("/%2e%2e/", &[], "404"),
        ("/tools/..", &[], "404"),
        ("/%00", &[], "404"),
        ("/ws", &[], "404"),
    ];
    for (path, lines, status) in cases {
        let (_, said) = upgrade(&gateway, path, lines);
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status}")),
            "{path} {lines:?}: {said}"
        );
    }
    // Only the one path leads to the tools, and only with a token.
    let bearer = format!("Authorization: Bearer {}", gateway.token);
    let body = json!({ "tool": "exec", "args": { "command": "true" } }).to_string();
    for (path, status) in [
        ("/tools/invoke", 200),
        ("/tools/invoke/", 404),
        ("//tools/invoke", 404),
        ("/tools//invoke", 404),
        ("/./tools/invoke", 404),
        ("/x/../tools/invoke", 404),
        ("/tools%2finvoke", 404),
        ("/TOOLS/INVOKE", 404),
        ("/tools/invoke%00", 404),
        ("/tools/invoke;x", 404),
    ] {
        for (line, status) in [
            (bearer.as_str(), status),
            ("X: y", if status == 200 { 401 } else { status }),
        ] {
            let request = format!(
                "POST {path} HTTP/1.1\r\n{here}\r\n{line}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let reply = mcp::raw(gateway.port, request.as_bytes());
            assert_eq!(reply.status, status, "{path} {line}");
        }
    }
}

#[test]
fn a_proof_counts_once_for_its_connection_and_for_two_minutes() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let identity = DeviceIdentity::generate().unwrap();
    let operator = || gateway.operator(EVERYTHING);
    // An eavesdropper has heard all that this client sent.
    let mut first = gateway.open();
    let mut heard = operator();
    identity.prove(&mut heard, &first.nonce, now_ms());
    first.ok("connect", &json!(heard));
    let refused = |make: &dyn Fn(&str) -> Value| {
        let mut client = gateway.open();
        let connect = make(&client.nonce);
        let error = client.refused("connect", &connect);
        assert!(matches!(client.end(), Came::Closed(1008, _)), "{error}");
        error["details"]["code"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let replayed = refused(&|_| json!(heard));
    assert_eq!(replayed, "DEVICE_AUTH_NONCE_MISMATCH");
    let renamed = refused(&|nonce| {
        let mut connect = json!(heard);
        connect["device"]["nonce"] = nonce.into();
        connect
    });
    assert_eq!(renamed, "DEVICE_AUTH_SIGNATURE_INVALID");
    for skew in [-3 * MINUTES.cast_signed(), 3 * MINUTES.cast_signed()] {
        let expired = refused(&|nonce| {
            let mut connect = operator();
            let time = now_ms().saturating_add_signed(skew);
            identity.prove(&mut connect, nonce, time);
            json!(connect)
        });
        assert_eq!(expired, "DEVICE_AUTH_SIGNATURE_EXPIRED", "{skew}");
    }
    // A clock that is a minute off does not matter.
    for skew in [-MINUTES.cast_signed(), MINUTES.cast_signed()] {
        let mut client = gateway.open();
        let mut connect = operator();
        let time = now_ms().saturating_add_signed(skew);
        identity.prove(&mut connect, &client.nonce, time);
        client.ok("connect", &json!(connect));
    }
    // More than was signed.
    let more = refused(&|nonce| {
        let mut connect = gateway.operator(&["operator.read"]);
        identity.prove(&mut connect, nonce, now_ms());
        connect.scopes = operator().scopes;
        json!(connect)
    });
    assert_eq!(more, "DEVICE_AUTH_SIGNATURE_INVALID");
    let anybody = refused(&|nonce| {
        let mut connect = gateway.node("n", &["system.run"]);
        identity.prove(&mut connect, nonce, now_ms());
        connect.device = None;
        json!(connect)
    });
    assert_eq!(anybody, "DEVICE_IDENTITY_REQUIRED");
    assert_eq!(first.ok("health", &json!({}))["ok"], true);
}

#[test]
fn no_client_calls_what_its_role_and_scopes_do_not_hold() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let marker = machine.work().join("marker");
    let run = json!({
        "name": "exec", "args": { "command": format!("touch {}", marker.display()) },
    });
    let mut reader = gateway.connect(&["operator.read"]);
    for (method, params) in [
        ("tools.invoke", run.clone()),
        ("exec.approval.list", json!({})),
        ("device.pair.list", json!({})),
        ("audit.list", json!({})),
        ("node.invoke.result", json!({})),
        ("no.such.method", json!({})),
    ] {
        let error = reader.refused(method, &params);
        assert_eq!(error["code"], "INVALID_REQUEST", "{method}: {error}");
    }
    assert_eq!(reader.ok("health", &json!({}))["ok"], true);
    // Scopes that do not exist give nothing.
    let mut other = gateway.connect(&["operator.root", "*", "operator.ADMIN"]);
    other.refused("tools.invoke", &run);
    // A node may not do what operators do; one that goes on trying is closed.
    let mut node = gateway.open();
    let identity = DeviceIdentity::generate().unwrap();
    let connect = gateway.node("n", &["system.run"]);
    node.introduce(connect, Some(&identity)).unwrap();
    for _ in 0..10 {
        let id = node.send("tools.invoke", &run).unwrap();
        assert!(node.answer(&id).unwrap().is_err());
    }
    assert!(matches!(node.end(), Came::Closed(1008, _)));
    assert!(!marker.exists());
    lives(&gateway);
}

#[test]
fn a_patch_is_applied_by_the_name_of_its_tool() {
    let machine = Machine::unguarded();
    let workspace = machine.work().join("workspace");
    std::fs::create_dir(&workspace).unwrap();
    let directory = workspace.display().to_string();
    machine.ok(&["config", "set", "agents.defaults.workspace", &directory]);
    std::fs::write(workspace.join("a.txt"), "one\n").unwrap();
    let gateway = machine.gateway();
    let mut operator = gateway.connect(EVERYTHING);
    let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** Add File: b.txt\n+new\n*** End Patch";
    let call = |input: &str| json!({ "name": "apply_patch", "args": { "input": input } });
    let applied = operator.ok("tools.invoke", &call(patch));
    assert_eq!(applied["ok"], true, "{applied}");
    let text = |name: &str| std::fs::read_to_string(workspace.join(name)).unwrap();
    assert_eq!(
        (text("a.txt").as_str(), text("b.txt").as_str()),
        ("two\n", "new\n")
    );
    let outside = patch.replace("b.txt", "../c.txt");
    let refused = operator.call("tools.invoke", &call(&outside));
    assert!(!machine.work().join("c.txt").exists(), "{refused:?}");
    assert_eq!(text("a.txt"), "two\n");
}
