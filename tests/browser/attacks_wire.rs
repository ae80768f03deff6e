//! Attacks beyond the public table, by HTTP and the protocol: tickets that travel, names and origins that almost fit,
//! odd methods, parameters that are too much.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};
use testkit::Machine;
use testkit::ws::{EVERYTHING, Gateway, WsClient};

use super::{Agent, marker, refused_with};

/// One request as it stands, and all of the answer.
fn raw(gateway: &Gateway, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
    let patience = std::time::Duration::from_secs(30);
    stream.set_read_timeout(Some(patience)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    // A connection that was to be upgraded stays open: the head of the answer says enough.
    while let Ok(count @ 1..) = stream.read(&mut part) {
        answer.extend_from_slice(&part[..count]);
        let is_head = answer.windows(4).any(|part| part == b"\r\n\r\n");
        if is_head && request.contains("Upgrade: ") {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

const UPGRADE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn open(page: &mut WsClient, id: &str) -> Value {
    page.ok(
        "ui.open",
        &json!({ "view": "approval", "params": { "id": id } }),
    )
}

fn decide(id: &str, decision: &str, ticket: &Value) -> Value {
    json!({ "id": id, "decision": decision, "ticket": ticket })
}

/// S-09, at the socket and by forms that almost fit.
#[test]
fn hosts_that_almost_fit_get_nothing() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let port = gateway.port;
    for host in [
        "evil.example".to_owned(),
        format!("127.0.0.1.evil.example:{port}"),
        format!("127.0.0.1:{port}.evil.example"),
        format!("evil.example@127.0.0.1:{port}"),
        format!("127.0.0.1:{port}@evil.example"),
        format!("127.0.0.1:{port}, evil.example"),
        format!("localhost.evil.example:{port}"),
        "127.0.0.1:99999".to_owned(),
        "127.0.0.1:".to_owned() + "0".repeat(4000).as_str(),
        "[::1".to_owned(),
        "[fe80::1%25eth0]evil".to_owned(),
        "127.0.0.1\tevil.example".to_owned(),
        "xn--127-0-0-1-evil.example".to_owned(),
    ] {
        for (path, upgrade) in [
            ("/", ""),
            ("/", UPGRADE),
            ("/sw.js", ""),
            ("/manifest.webmanifest", ""),
        ] {
            let close = if upgrade.is_empty() {
                "Connection: close\r\n"
            } else {
                ""
            };
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{close}{upgrade}\r\n");
            let answer = raw(&gateway, &request);
            let status = answer.get(9..12).unwrap_or_default();
            assert!(
                ["400", "403"].contains(&status),
                "{host} {path} {}: {answer}",
                upgrade.is_empty()
            );
        }
    }
    // A target that names another host does not outdo the header, nor the header the target.
    for (target, host) in [
        ("http://evil.example/inbox", format!("127.0.0.1:{port}")),
        (
            &*format!("http://127.0.0.1:{port}/inbox"),
            "evil.example".to_owned(),
        ),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = raw(&gateway, &request);
        let status = answer.get(9..12).unwrap_or_default();
        assert!(
            ["400", "403"].contains(&status),
            "{target} {host}: {answer}"
        );
    }
    // HTTP/1.1 without a name at all.
    let none = raw(&gateway, "GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(!none.starts_with("HTTP/1.1 200"), "{none}");
    refused_with(&machine, "HOST_FOREIGN");
}

/// S-08, by forms that almost fit, and with the tricks of subprotocols.
#[test]
fn origins_that_almost_fit_open_no_socket() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let port = gateway.port;
    let other = port ^ 1;
    for origin in [
        "Origin: null".to_owned(),
        "Origin: ".to_owned(),
        "Origin: *".to_owned(),
        "Origin: file://".to_owned(),
        format!("Origin: http://127.0.0.1:{other}"),
        "Origin: http://127.0.0.1".to_owned(),
        format!("Origin: http://127.0.0.1:{port}.evil.example"),
        format!("Origin: http://127.0.0.1:{port}@evil.example"),
        format!("Origin: http://user@127.0.0.1:{port}"),
        format!("Origin: http://127.0.0.1:{port}/"),
        format!("Origin: ws://127.0.0.1:{port}"),
        format!("Origin: http://127.0.0.1:{port} http://evil.example"),
        format!("Origin: http://127.0.0.1:{port}\r\nOrigin: http://evil.example"),
        format!("Origin: http://evil.example\r\nOrigin: http://127.0.0.1:{port}"),
        format!("Origin: null\r\nSec-WebSocket-Protocol: http://127.0.0.1:{port}"),
        format!("Origin: http://evil.example\r\nX-Forwarded-Host: 127.0.0.1:{port}"),
        format!("Origin: http://evil.example\r\nReferer: http://127.0.0.1:{port}/inbox"),
    ] {
        let request =
            format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{origin}\r\n{UPGRADE}\r\n");
        let answer = raw(&gateway, &request);
        let status = answer.get(9..12).unwrap_or_default();
        assert!(["400", "403"].contains(&status), "{origin}: {answer}");
    }
    let record = refused_with(&machine, "ORIGIN_FOREIGN");
    assert!(record["device"].is_null(), "{record:#}");
    // Its own page is let through, and no subprotocol that it did not ask for is chosen.
    let own = format!(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\nSec-WebSocket-Protocol: evil\r\n{UPGRADE}\r\n"
    );
    let answer = raw(&gateway, &own);
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    assert!(
        !answer.to_lowercase().contains("sec-websocket-protocol"),
        "{answer}"
    );
}

/// Methods that a page has no use for show no data, allow no other origin, and change nothing.
#[test]
fn odd_methods_and_preflights_get_nothing() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let port = gateway.port;
    for path in [
        "/",
        "/inbox",
        "/approve/zsphx",
        "/sw.js",
        "/push/answer",
        "/hooks/approvals",
        "/tools/invoke",
    ] {
        for method in [
            "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "PATCH", "CONNECT", "PROPFIND",
        ] {
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nX-Secret: mirror-me\r\n\
                 Access-Control-Request-Method: POST\r\nContent-Length: 0\r\n\r\n"
            );
            let answer = raw(&gateway, &request);
            let head = answer
                .split("\r\n\r\n")
                .next()
                .unwrap_or_default()
                .to_lowercase();
            assert!(
                !head.contains("access-control-allow"),
                "{method} {path}: {answer}"
            );
            assert!(!answer.contains("mirror-me"), "{method} {path}: {answer}");
            if method != "HEAD" {
                assert!(
                    !answer.starts_with("HTTP/1.1 200"),
                    "{method} {path}: {answer}"
                );
            }
        }
    }
    // The worker may control its own pages only.
    let worker = raw(
        &gateway,
        &format!("GET /sw.js HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"),
    );
    assert!(worker.starts_with("HTTP/1.1 200"), "{worker}");
    assert!(
        !worker.to_lowercase().contains("service-worker-allowed"),
        "{worker}"
    );
}

#[test]
fn a_ticket_is_good_for_one_device_one_plan_and_the_policy_of_the_moment() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "ran");
    let id = agent.ask(&machine, &command);
    let mut page = gateway.connect(EVERYTHING);
    let mut thief = gateway.connect(EVERYTHING);
    thief.ok("ui.open", &json!({ "view": "inbox" }));
    let ticket = open(&mut page, &id)["tickets"][&id].clone();
    let text = ticket.as_str().unwrap();
    // Another device; and forms that are not it.
    let refused = thief.refused("exec.approval.resolve", &decide(&id, "allow-once", &ticket));
    assert_eq!(refused["details"]["code"], "TICKET_WRONG", "{refused:#}");
    for wrong in [
        json!(text.to_uppercase()),
        json!(&text[..text.len() - 1]),
        json!(format!("{text}=")),
        json!(format!(" {text}")),
        json!("a".repeat(1000)),
    ] {
        let refused = page.refused("exec.approval.resolve", &decide(&id, "allow-once", &wrong));
        let code = refused["details"]["code"].as_str().unwrap_or_default();
        assert!(
            ["TICKET_WRONG", "TICKET_REQUIRED"].contains(&code),
            "{refused:#}"
        );
    }
    for wrong in [
        json!(""),
        json!(1),
        json!({}),
        json!([ticket.clone()]),
        json!(true),
    ] {
        page.refused("exec.approval.resolve", &decide(&id, "allow-once", &wrong));
    }
    // It does not carry a plan that was not shown.
    let mut other_plan = decide(&id, "allow-once", &ticket);
    other_plan["planDigest"] = json!("0".repeat(64));
    page.refused("exec.approval.resolve", &other_plan);
    assert!(!file.exists());
    refused_with(&machine, "TICKET_WRONG");
    // The owner forbids it between the view and the press: it is not run.
    machine.ok(&["deny", "add", "touch"]);
    let _ = page.call("exec.approval.resolve", &decide(&id, "allow-once", &ticket));
    // What became of it is recorded: a run that did not start.
    let ended = || {
        let log = machine.ok(&["audit", "log", "--kind", "run-ended", "--json"]);
        let records = log.json()["records"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let of_it = records
            .iter()
            .find(|one| one["body"].to_string().contains(&id));
        of_it.map(|record| record["body"].to_string())
    };
    testkit::eventually("it is refused", || ended().is_some());
    let ended = ended().unwrap();
    assert!(!ended.contains("\"exitCode\":0"), "{ended}");
    assert!(machine.pending().is_empty());
    assert!(!file.exists());
}

#[test]
fn a_removed_device_keeps_neither_its_tickets_nor_its_views() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "ran");
    let id = agent.ask(&machine, &command);
    let identity = interlock_wire::identity::DeviceIdentity::generate().unwrap();
    let mut page = gateway.open();
    page.introduce(gateway.operator(EVERYTHING), Some(&identity))
        .unwrap();
    let ticket = open(&mut page, &id)["tickets"][&id].clone();
    let mut admin = gateway.connect(EVERYTHING);
    let device = json!({ "deviceId": identity.device_id() });
    admin.ok("device.pair.remove", &device);
    // Its connection is closed, and takes nothing with it.
    page.end();
    // Nor is the ticket worth anything to another device that holds it.
    admin.ok("ui.open", &json!({ "view": "inbox" }));
    let refused = admin.refused("exec.approval.resolve", &decide(&id, "allow-once", &ticket));
    assert_eq!(refused["details"]["code"], "TICKET_WRONG");
    assert!(!file.exists());
    assert_eq!(machine.pending().len(), 1);
}

#[test]
fn views_take_no_parameters_that_are_too_much_or_of_others() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let id = agent.ask(&machine, "git push origin main");
    let mut page = gateway.connect(EVERYTHING);
    let many: Vec<String> = (0..20_000).map(|number| format!("{id}-{number}")).collect();
    for params in [
        json!({ "view": "approval", "params": { "id": "../../etc/passwd" } }),
        json!({ "view": "approval", "params": { "id": "%" } }),
        json!({ "view": "approval", "params": { "id": "' OR 1=1 --" } }),
        json!({ "view": "approval", "params": { "id": "" } }),
        json!({ "view": "approval", "params": { "id": ["a"] } }),
        json!({ "view": "approval" }),
        json!({ "view": "__proto__", "params": {} }),
        json!({ "view": "constructor" }),
        json!({ "view": "session", "params": { "id": "../../../etc" } }),
        json!({ "view": "inbox\u{0}" }),
        json!({ "view": "x".repeat(100_000) }),
    ] {
        let refused = page.refused("ui.open", &params);
        assert!(refused["message"].is_string(), "{params}: {refused:#}");
    }
    // A number that no list has, and ids that are not there, are an empty page and a plain card.
    let far = json!({ "view": "inbox", "params": { "offset": u64::MAX } });
    let opened = page.ok("ui.open", &far);
    assert!(
        !opened["html"].as_str().unwrap().contains("class=\"row"),
        "{opened:#}"
    );
    let equal = json!({ "view": "approval", "params": { "id": id, "equal": many } });
    if let Ok(opened) = page.call("ui.open", &equal) {
        let tickets = opened["tickets"].as_object().unwrap();
        assert_eq!(tickets.len(), 1, "{tickets:?}");
    }
    // The gateway still answers others.
    assert!(
        gateway
            .connect(EVERYTHING)
            .call("health", &json!({}))
            .is_ok()
    );
    assert_eq!(machine.pending().len(), 1);
}

/// A key that stands twice could be one thing to a check and another to the deed.
#[test]
fn keys_that_stand_twice_are_refused() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let port = gateway.port;
    for (path, body) in [
        (
            "/push/answer",
            r#"{"id":"a","decision":"deny","decision":"allow-once"}"#,
        ),
        (
            "/tools/invoke",
            r#"{"tool":"exec","args":{"command":"true","command":"touch x"}}"#,
        ),
    ] {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
            gateway.token,
            body.len()
        );
        let answer = raw(&gateway, &request);
        assert!(answer.starts_with("HTTP/1.1 4"), "{path}: {answer}");
        if path == "/tools/invoke" {
            assert!(answer.contains("DUPLICATE_KEY"), "{path}: {answer}");
        }
    }
    assert!(machine.pending().is_empty());
}

/// A code and a phone's code get a device in once, however many ask at the same time.
#[test]
fn a_code_that_is_tried_by_many_lets_one_in() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let minted = gateway
        .connect_locally(EVERYTHING)
        .ok("ui.code", &json!({}));
    let code = minted["code"].as_str().unwrap();
    let mut let_in = 0;
    for origin in 0..6 {
        let mut program = gateway.open();
        let mut connect = gateway.operator(EVERYTHING);
        connect.auth = serde_json::from_value(json!({ "bootstrapToken": code })).unwrap();
        let identity = interlock_wire::identity::DeviceIdentity::generate().unwrap();
        let came = program.introduce(connect, Some(&identity));
        assert!(came.is_err() || origin == 0, "{came:?}");
        let_in += usize::from(came.is_ok());
    }
    // These are programs and no pages of this gateway: none of them gets in.
    assert_eq!(let_in, 0);
    refused_with(&machine, "UI_CODE_INVALID");
}
