//! What a caller sends comes in time and says everything once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::Machine;
use testkit::mcp::{Reply, StdioClient, raw};
use testkit::ws::{EVERYTHING, Gateway, Stream};

const PATIENCE: Duration = Duration::from_mins(3);

fn tcp(gateway: &Gateway) -> Box<dyn Stream> {
    let stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Box::new(stream)
}

fn unix(gateway: &Gateway) -> Box<dyn Stream> {
    let stream = UnixStream::connect(&gateway.socket).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Box::new(stream)
}

/// Sends the beginning, then a byte now and then; how long it took until the connection was closed.
fn trickle(mut stream: Box<dyn Stream>, beginning: &str, more: &str) -> Duration {
    let began = Instant::now();
    stream.write_all(beginning.as_bytes()).unwrap();
    let mut bytes = more.bytes().cycle();
    while stream.write_all(&[bytes.next().unwrap()]).is_ok() {
        assert!(began.elapsed() < PATIENCE, "never closed");
        std::thread::sleep(Duration::from_millis(200));
    }
    began.elapsed()
}

fn bearer(token: &str) -> String {
    format!(
        "Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    )
}

/// A name, a connection, what is sent at once, what is sent bit by bit, and how long that may take.
type Case<'a> = (
    &'a str,
    Box<dyn Stream>,
    String,
    &'a str,
    (Duration, Duration),
);

#[test]
fn headers_and_bodies_that_do_not_come_in_time_are_cut() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let token = gateway.token.clone();
    let agent = machine
        .ok(&["agents", "token", "main"])
        .stdout
        .trim()
        .to_owned();
    let body = |path: &str, token: &str| {
        let head = bearer(token);
        format!("POST {path} HTTP/1.1\r\n{head}Content-Length: 100000\r\n\r\n{{")
    };
    let chunked = format!(
        "POST /tools/invoke HTTP/1.1\r\n{}Transfer-Encoding: chunked\r\n\r\n",
        bearer(&token)
    );
    let headers = (Duration::from_secs(9), Duration::from_secs(40));
    let bodies = (Duration::from_secs(58), Duration::from_secs(100));
    let cases: Vec<Case<'_>> = vec![
        (
            "headers",
            tcp(&gateway),
            "GET /healthz HTTP/1.1\r\nX: ".to_owned(),
            "a",
            headers,
        ),
        (
            "headers, unix",
            unix(&gateway),
            "GET /healthz HTTP/1.1\r\nX: ".to_owned(),
            "a",
            headers,
        ),
        (
            "invoke",
            tcp(&gateway),
            body("/tools/invoke", &token),
            " ",
            bodies,
        ),
        (
            "invoke of an agent",
            tcp(&gateway),
            body("/tools/invoke", &agent),
            " ",
            bodies,
        ),
        ("mcp", tcp(&gateway), body("/mcp", &agent), " ", bodies),
        (
            "unix",
            unix(&gateway),
            body("/tools/invoke", ""),
            " ",
            bodies,
        ),
        ("chunked", tcp(&gateway), chunked, "1\r\n \r\n", bodies),
    ];
    std::thread::scope(|scope| {
        for (name, stream, beginning, more, (least, most)) in cases {
            scope.spawn(move || {
                let time = trickle(stream, &beginning, more);
                assert!(time > least && time < most, "{name}: {time:?}");
            });
        }
        // One that only waits hears it.
        let gateway = &gateway;
        scope.spawn(move || {
            for open in [tcp, unix] {
                let mut stream = open(gateway);
                stream
                    .write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n")
                    .unwrap();
                let mut said = String::new();
                stream.read_to_string(&mut said).unwrap();
                assert!(said.starts_with("HTTP/1.1 408"), "{said}");
                let (_, body) = said.split_once("\r\n\r\n").unwrap();
                let body: Value = serde_json::from_str(body).unwrap();
                assert_eq!(body["error"]["type"], "request_timeout");
            }
        });
        let (token, agent) = (token.as_str(), agent.as_str());
        for (path, token) in [("/tools/invoke", token), ("/mcp", agent)] {
            scope.spawn(move || {
                let mut stream = tcp(gateway);
                let head = bearer(token);
                let text = format!("POST {path} HTTP/1.1\r\n{head}Content-Length: 9\r\n\r\n{{");
                stream.write_all(text.as_bytes()).unwrap();
                let mut said = String::new();
                stream.read_to_string(&mut said).unwrap();
                assert!(said.starts_with("HTTP/1.1 408"), "{path}: {said}");
            });
        }
    });
    // A connection that is kept for further calls owes nothing in between.
    let mut stream = tcp(&gateway);
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        .unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert!(!said.contains("408"), "{said}");
}

#[test]
fn callers_that_do_not_finish_large_bodies_hold_a_bounded_number_of_them() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let head = bearer(&gateway.token);
    let begin = format!(
        "POST /tools/invoke HTTP/1.1\r\n{head}Content-Length: 2000000\r\n\r\n{{\"tool\": \"exec\""
    );
    let slow: Vec<Box<dyn Stream>> = (0..80)
        .map(|_| {
            let mut stream = tcp(&gateway);
            stream.write_all(begin.as_bytes()).unwrap();
            stream
        })
        .collect();
    // Those that find no place are told to come again.
    let large = format!(
        "{{\"tool\": \"exec\", \"args\": {{ \"command\": \"{}\" }} }}",
        "x".repeat(100_000)
    );
    testkit::eventually("no place is left for a large body", || {
        post(&gateway, "/tools/invoke", &large).status == 503
    });
    // A usual call needs none.
    let reply = post(
        &gateway,
        "/tools/invoke",
        r#"{"tool":"exec","args":{"command":"echo on"}}"#,
    );
    assert_eq!(reply.status, 200, "{reply:?}");
    drop(slow);
    testkit::eventually("the places are free again", || {
        post(&gateway, "/tools/invoke", &large).status != 503
    });
}

fn post(gateway: &Gateway, path: &str, body: &str) -> Reply {
    let head = bearer(&gateway.token);
    let text = format!(
        "POST {path} HTTP/1.1\r\n{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    raw(gateway.port, text.as_bytes())
}

#[test]
fn a_body_that_gives_a_key_twice_is_refused() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    for (path, body, key) in [
        (
            "/tools/invoke",
            r#"{"tool":"exec","tool":"process","args":{"command":"true"}}"#,
            "tool",
        ),
        (
            "/tools/invoke",
            r#"{"tool":"exec","args":{"command":"true","command":"false"}}"#,
            "command",
        ),
        (
            "/tools/invoke",
            r#"{"tool":"exec","args":{"command":"true","env":{"A":"1","\u0041":"2"}}}"#,
            "A",
        ),
        (
            "/mcp",
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","method":"tools/call","params":{}}"#,
            "method",
        ),
        (
            "/mcp",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec","arguments":{"command":"true","command":"false"}}}"#,
            "command",
        ),
    ] {
        let reply = post(&gateway, path, body);
        assert_eq!(reply.status, 400, "{body}: {reply:?}");
        let said: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(said["error"]["code"], "DUPLICATE_KEY", "{said}");
        assert_eq!(said["error"]["field"], key, "{said}");
    }
    let plain = r#"{"tool":"exec","args":{"command":"true","env":{"A":"1","B":"1"}}}"#;
    assert_eq!(post(&gateway, "/tools/invoke", plain).status, 200);
}

#[test]
fn a_frame_that_gives_a_key_twice_is_refused_and_does_nothing() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let (document, hash) = machine.document();
    for (text, key) in [
        (r#"{"type":"req","id":"a","method":"health","method":"status"}"#.to_owned(), "method"),
        (r#"{"type":"req","id":"b","method":"tools.invoke","params":{"name":"exec","args":{"command":"true","command":"false"}}}"#.to_owned(), "command"),
        (
            format!(
                r#"{{"type":"req","id":"c","method":"exec.approvals.set","params":{{"baseHash":"{hash}","file":{{"version":1,"defaults":{{"security":"deny","security":"full"}}}}}}}}"#
            ),
            "security",
        ),
    ] {
        let id = serde_json::from_str::<Value>(&text).unwrap()["id"].clone();
        let frame = tungstenite::Message::text(text);
        client.socket.send(frame).unwrap();
        let error = client.answer(id.as_str().unwrap()).unwrap().unwrap_err();
        assert_eq!(error["details"]["code"], "DUPLICATE_KEY", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&format!("`{key}`")), "{message}");
    }
    assert_eq!(machine.document(), (document, hash));
    client.ok("health", &json!({}));
}

#[test]
fn a_document_or_a_config_that_gives_a_key_twice_is_refused() {
    let machine = Machine::new();
    machine.start();
    let run =
        machine.set_document("{ version: 1, defaults: { security: 'deny', security: 'full' } }");
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr.contains("security") && run.stderr.contains("twice"),
        "{run:?}"
    );
    machine.write_config("{ tools: { exec: { ask: 'always', ask: 'off' } } }");
    let run = machine.run(&["config", "validate"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr.contains("given twice") || run.stdout.contains("given twice"),
        "{run:?}"
    );
}

#[test]
fn a_line_of_an_mcp_client_that_gives_a_key_twice_is_answered_with_an_error() {
    let machine = Machine::unguarded();
    let mut client = StdioClient::start(&machine, &[]);
    client.send_text(
        r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1","version":"2"}}}"#,
    );
    let answer = client.receive();
    assert_eq!(answer["id"], 7, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("DUPLICATE_KEY") && message.contains("`version`"),
        "{message}"
    );
}

#[test]
fn callers_beyond_the_configured_connections_wait_until_one_has_gone() {
    let machine = Machine::new();
    machine.configure("{ gateway: { maxConnections: 16 } }");
    let gateway = machine.gateway();
    let mut clients: Vec<_> = (0..16).map(|_| gateway.connect(EVERYTHING)).collect();
    let mut caller = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
    let request = format!(
        "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n",
        gateway.port
    );
    caller.write_all(request.as_bytes()).unwrap();
    caller
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let waits = loop {
        match caller.read(&mut [0; 16]) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            waits => break waits.unwrap_err(),
        }
    };
    assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock);
    // The Unix socket has places of its own: the owner is not kept out.
    machine.ok(&["nodes", "list"]);
    drop(clients.pop());
    caller.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    caller.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}
