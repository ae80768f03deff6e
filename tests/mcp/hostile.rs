//! Callers of `/mcp` who mean harm, or whose programs are broken.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::json;
use testkit::Machine;
use testkit::mcp::{Gateway, StdioClient, initialize, modern, output, raw, tool_call};

#[test]
fn a_session_is_its_openers_alone() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let mut own = gateway.client(&gateway.token(&[]));
    own.initialize("2025-11-25", &json!({}));
    let operator = machine.operator_token();
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    // Another token of the same agent, and a caller that may do everything else.
    for token in [gateway.token(&[]), operator] {
        let mut other = own.clone();
        other.token = token;
        assert_eq!(other.send(&list).status, 404);
        for method in ["DELETE", "GET"] {
            assert_eq!(
                raw(gateway.port, &other.request(method, &[], b"")).status,
                404
            );
        }
    }
    for id in [
        "nonsense",
        "../../x",
        "00000000-0000-0000-0000-000000000000",
        "\u{7f}",
    ] {
        let mut guessing = own.clone();
        guessing.session = Some(id.to_owned());
        assert!(matches!(guessing.send(&list).status, 400 | 404), "{id}");
    }
    assert_eq!(own.send(&list).status, 200);
    let ended = raw(gateway.port, &own.request("DELETE", &[], b""));
    assert_eq!(ended.status, 202);
    assert_eq!(own.send(&list).status, 404);
}

#[test]
fn sessions_that_no_client_ends_do_not_pile_up() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let token = gateway.token(&[]);
    let mut clients = Vec::new();
    for _ in 0..70 {
        let mut client = gateway.client(&token);
        client.initialize("2025-11-25", &json!({}));
        clients.push(client);
    }
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    let living = clients
        .iter()
        .filter(|client| client.send(&list).status == 200);
    assert_eq!(living.count(), 64);
    assert_eq!(clients[0].send(&list).status, 404);
    assert_eq!(clients[69].send(&list).status, 200);
}

#[test]
fn who_has_no_secret_or_comes_from_another_site_stays_outside() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let own = gateway.client(&gateway.token(&[])).newest();
    let body = modern(
        tool_call(1, "exec", &json!({ "command": "true" })),
        &json!({}),
    );
    let body = body.to_string();
    let mut stranger = own.clone();
    stranger.token = "interlock-agent-00".to_owned();
    assert_eq!(
        raw(
            gateway.port,
            &stranger.request("POST", &[], body.as_bytes())
        )
        .status,
        401
    );
    for header in ["Origin: http://evil.example", "Host: evil.example"] {
        let text = String::from_utf8(own.request("POST", &[], body.as_bytes())).unwrap();
        let text = text.replacen("Accept:", &format!("{header}\r\nAccept:"), 1);
        assert_eq!(raw(gateway.port, text.as_bytes()).status, 403, "{header}");
    }
    // A token that is revoked ends the session that it opened.
    let mut client = own.clone();
    client.version = None;
    client.initialize("2025-11-25", &json!({}));
    let tokens = machine.ok(&["agents", "list", "--json"]).json();
    let id = tokens["agents"][0]["tokens"][0]["id"].as_str().unwrap();
    machine.ok(&["agents", "revoke", id]);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    assert_eq!(client.send(&list).status, 401);
}

#[test]
fn broken_and_huge_messages_are_refused_and_the_gateway_lives() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let client = gateway.client(&gateway.token(&[]));
    let huge = vec![b'a'; 3 * 1024 * 1024];
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    let rows: &[(&[u8], &[u16])] = &[
        (b"", &[400, 415, 422]),
        (b"{", &[400, 415, 422]),
        (b"\xff\xfe", &[400, 415, 422]),
        (b"null", &[400, 415, 422]),
        (b"[]", &[400, 415, 422]),
        (b"{\"jsonrpc\":\"1.0\"}", &[400, 415, 422]),
        (&deep, &[400, 415, 422]),
        (&huge, &[413]),
    ];
    for (body, statuses) in rows {
        let reply = raw(gateway.port, &client.request("POST", &[], body));
        assert!(
            statuses.contains(&reply.status),
            "{} {:?}",
            reply.status,
            &body[..body.len().min(20)]
        );
    }
    // Says that it is small, and is not.
    let mut lying = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n".to_vec();
    lying.extend_from_slice(
        format!(
            "Authorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n\r\n300000\r\n",
            client.token
        )
        .as_bytes(),
    );
    lying.extend_from_slice(&huge);
    lying.extend_from_slice(b"\r\n0\r\n\r\n");
    assert_eq!(raw(gateway.port, &lying).status, 413);
    for (method, status) in [("PUT", 405), ("PATCH", 405), ("GET", 400), ("DELETE", 400)] {
        let reply = raw(gateway.port, &client.request(method, &[], b""));
        assert_eq!(reply.status, status, "{method}");
    }
    // An argument that is deep, or holds what no shell takes.
    let newest = client.clone().newest();
    for command in ["\u{0}", "a\u{202e}b"] {
        let result = newest.call("exec", &json!({ "command": command, "ask": "off" }));
        assert!(result["structuredContent"]["status"].is_string());
    }
    assert_eq!(
        newest.call("exec", &json!({ "command": "echo up" }))["isError"],
        false
    );
}

#[test]
fn other_paths_lead_nowhere() {
    let machine = Machine::unguarded();
    let gateway = Gateway::start(&machine);
    let client = gateway.client(&gateway.token(&[]));
    for path in [
        "/mcp/",
        "/mcp/../metrics",
        "//mcp",
        "/mcp/stdio/x",
        "/mcp%2fstdio",
    ] {
        let request = String::from_utf8(client.request("GET", &[], b"")).unwrap();
        let request = request.replacen("/mcp ", &format!("{path} "), 1);
        let reply = raw(gateway.port, request.as_bytes());
        assert!(
            matches!(reply.status, 403 | 404),
            "{path}: {}",
            reply.status
        );
    }
    // The path of `interlock mcp` is for it alone, and proves callers as `/mcp` does.
    let plain = String::from_utf8(client.request("GET", &[], b"")).unwrap();
    let plain = plain.replacen("/mcp ", "/mcp/stdio ", 1);
    assert_eq!(raw(gateway.port, plain.as_bytes()).status, 426);
    let upgrade = |request: Vec<u8>| {
        let request = String::from_utf8(request).unwrap();
        let request = request.replacen("/mcp ", "/mcp/stdio ", 1).replacen(
            "Connection: close",
            "Connection: Upgrade\r\nUpgrade: interlock-mcp",
            1,
        );
        let request = request.replacen("Accept:", "Connection: close\r\nAccept:", 1);
        raw(gateway.port, request.as_bytes()).status
    };
    let stranger = gateway.client("wrong");
    assert_eq!(upgrade(stranger.request("GET", &[], b"")), 401);
    // An agent's token is that agent's, and no page of another site leads here.
    let other = client.request("GET", &[("X-Interlock-Agent", "other")], b"");
    assert_eq!(upgrade(other), 403);
    let site = client.request("GET", &[("Origin", "https://example.com")], b"");
    assert_eq!(upgrade(site), 403);
}

#[test]
fn a_client_on_stdio_that_writes_nonsense_is_answered_or_left_alone() {
    let machine = Machine::unguarded();
    let mut client = StdioClient::begin(&machine, &[], &json!({}));
    for nonsense in [
        "{",
        "[]",
        "null",
        "\u{fffd}",
        "{\"jsonrpc\":\"2.0\",\"method\":1}",
    ] {
        client.send_text(nonsense);
    }
    client.send_text(&"x".repeat(3 * 1024 * 1024));
    let result = client.call("exec", &json!({ "command": "echo here" }));
    assert_eq!(output(&result), "here");
    // A second `initialize` changes no identity.
    client.send(&initialize("2025-11-25", &json!({ "elicitation": {} })));
    let result = client.call("exec", &json!({ "command": "echo still" }));
    assert_eq!(output(&result), "still");
}

/// A connection as `interlock mcp` makes it, and the first line of the answer.
fn stdio_connection(machine: &Machine) -> (std::os::unix::net::UnixStream, String) {
    use std::io::{BufRead as _, BufReader, Write as _};
    let path = machine.state().join("gateway.sock");
    let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
    let request = "GET /mcp/stdio HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: interlock-mcp\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut status = String::new();
    BufReader::new(&stream).read_line(&mut status).unwrap();
    (stream, status)
}

#[test]
fn so_many_clients_by_stdio_are_served_at_once_and_the_next_one_is_told() {
    let machine = Machine::unguarded();
    let _gateway = Gateway::start(&machine);
    let mut open = Vec::new();
    for number in 0..256 {
        let (stream, status) = stdio_connection(&machine);
        assert!(status.starts_with("HTTP/1.1 101"), "{number}: {status}");
        open.push(stream);
    }
    let (_, status) = stdio_connection(&machine);
    assert!(status.starts_with("HTTP/1.1 503"), "{status}");
    let run = machine.run(&["--no-spawn", "mcp"]);
    assert_eq!(run.code, 1, "{run:#?}");
    assert!(run.stderr.contains("too many MCP clients"), "{run:#?}");
    // A place is free again when one of them has left.
    drop(open.pop());
    testkit::eventually("a place is free", || {
        stdio_connection(&machine).1.starts_with("HTTP/1.1 101")
    });
}
