//! What a program finds that speaks HTTP and the protocol: no browser is needed for it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;
use testkit::Machine;
use testkit::ws::{EVERYTHING, Gateway};

use super::{Agent, marker, refusals, refused_with};

/// Status line, headers and body of one request.
fn get(gateway: &Gateway, path: &str, lines: &[&str]) -> String {
    send(gateway, "GET", path, lines, "")
}

fn send(gateway: &Gateway, method: &str, path: &str, lines: &[&str], body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
    let own = format!("Host: 127.0.0.1:{}", gateway.port);
    let has_host = lines.iter().any(|line| line.starts_with("Host:"));
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !has_host {
        request += &format!("{own}\r\n");
    }
    for line in lines {
        request += &format!("{line}\r\n");
    }
    request += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let head = answer.split("\r\n\r\n").next()?;
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then_some(value)
    })
}

const PAGES: &[&str] = &[
    "/",
    "/inbox",
    "/approve/zsphx",
    "/sessions",
    "/sessions/calm-reef",
    "/nodes",
    "/policy",
    "/audit",
    "/sandbox",
    "/settings",
    "/health",
];

#[test]
fn every_page_is_one_document_without_data_and_with_strict_headers() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let first = get(&gateway, "/", &[]);
    let (_, document) = first.split_once("\r\n\r\n").unwrap();
    for page in PAGES {
        let answer = get(&gateway, page, &[]);
        assert!(answer.starts_with("HTTP/1.1 200"), "{page}: {answer}");
        assert_eq!(answer.split_once("\r\n\r\n").unwrap().1, document, "{page}");
        let policy = header(&answer, "content-security-policy").unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types interlock",
        ] {
            assert!(
                policy.split("; ").any(|found| found == part),
                "{page}: {part} in {policy}"
            );
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("cache-control", "no-store"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
            ("referrer-policy", "no-referrer"),
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
        ] {
            assert_eq!(header(&answer, name), Some(value), "{page}: {name}");
        }
        assert!(
            header(&answer, "permissions-policy")
                .unwrap()
                .contains("camera=()")
        );
        assert_eq!(header(&answer, "set-cookie"), None);
        assert_eq!(header(&answer, "content-encoding"), None);
        assert_eq!(header(&answer, "access-control-allow-origin"), None);
    }
    // What is secret is not in it, whatever the query says.
    let asked = get(&gateway, &format!("/?token={}", gateway.token), &[]);
    assert_eq!(asked.split_once("\r\n\r\n").unwrap().1, document);
    assert!(!asked.contains(&gateway.token));
}

#[test]
fn files_are_kept_for_ever_under_a_path_that_names_their_content() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let document = get(&gateway, "/", &[]);
    let paths: Vec<&str> = document
        .split('"')
        .filter(|part| part.starts_with("/ui/"))
        .collect();
    assert!(paths.len() >= 5, "{document}");
    for path in &paths {
        let answer = get(&gateway, path, &[]);
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        assert_eq!(
            header(&answer, "cache-control"),
            Some("public, max-age=31536000, immutable")
        );
        assert_eq!(header(&answer, "x-content-type-options"), Some("nosniff"));
        assert_eq!(
            header(&answer, "cross-origin-resource-policy"),
            Some("same-origin")
        );
    }
    for path in [
        "/ui/000000000000/app.js",
        "/ui/x/../app.js",
        "/ui/",
        "/ui/x",
        "/ui/x/y/z",
        "/ui/proof/",
    ] {
        let answer = get(&gateway, path, &[]);
        assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
    }
    let odd = get(&gateway, "/ui/proof/a%20b", &[]);
    assert!(odd.starts_with("HTTP/1.1 400"), "{odd}");
}

/// S-09: a name that merely resolves to this machine is not its name.
#[test]
fn names_of_other_machines_get_no_page_and_no_file() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let document = get(&gateway, "/", &[]);
    let file = document
        .split('"')
        .find(|part| part.ends_with("/app.js"))
        .unwrap()
        .to_owned();
    let mut paths: Vec<&str> = PAGES.to_vec();
    paths.extend([
        file.as_str(),
        "/ui/proof/abc",
        "/sw.js",
        "/push/answer",
        "/hooks/approvals",
        "/ca.crt",
    ]);
    let mut tried = 0_u64;
    for path in paths {
        for hosts in [
            &["Host: evil.example"][..],
            &["Host: 127.0.0.1.evil.example"],
            &["Host: 127.0.0.1", "Host: evil.example"],
            &["Host: 127.0.0.1", "Host: 127.0.0.1"],
        ] {
            let answer = get(&gateway, path, hosts);
            assert!(
                answer.starts_with("HTTP/1.1 403"),
                "{path} {hosts:?}: {answer}"
            );
            tried += 1;
        }
    }
    // The first is in the audit at once. A flood of them is two records, and its number.
    let first = refused_with(&machine, "HOST_FOREIGN");
    assert_eq!(first["path"], "/");
    assert_eq!(first["host"], "evil.example");
    assert_eq!(first["from"], "127.0.0.1");
    let secret = "/inbox?token=do-not-record";
    get(&gateway, secret, &["Origin: http://evil.example"]);
    let origin = refused_with(&machine, "ORIGIN_FOREIGN");
    assert_eq!(origin["path"], "/inbox");
    assert_eq!(origin["origin"], "http://evil.example");
    gateway.stop();
    let all: Vec<_> = refusals(&machine);
    assert!(
        !all.iter()
            .any(|one| one.to_string().contains("do-not-record"))
    );
    let hosts: Vec<_> = all
        .iter()
        .filter(|one| one["code"] == "HOST_FOREIGN")
        .collect();
    assert_eq!(hosts.len(), 2, "{hosts:#?}");
    let repeated: u64 = hosts
        .iter()
        .filter_map(|one| one["repeated"].as_u64())
        .sum();
    assert_eq!(repeated + 1, tried, "{hosts:#?}");
}

/// S-10: simple requests of other origins change nothing.
#[test]
fn simple_requests_of_other_origins_are_refused_before_anything_is_read() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    for path in [
        "/tools/invoke",
        "/push/answer",
        "/hooks/approvals",
        "/approve/zsphx",
        "/ui/proof/abc",
    ] {
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
        ] {
            let lines = [
                "Origin: http://evil.example",
                &format!("Content-Type: {kind}"),
            ];
            let answer = send(&gateway, "POST", path, &lines, "decision=allow-once");
            assert!(
                answer.starts_with("HTTP/1.1 403"),
                "{path} {kind}: {answer}"
            );
        }
    }
    // It is recorded as what it is, and not as an attempt of the owner.
    let record = refused_with(&machine, "ORIGIN_FOREIGN");
    assert_eq!(record["origin"], "http://evil.example");
    assert!(record["client"].is_null() && record["device"].is_null());
}

#[test]
fn a_switch_turns_the_pages_off_and_lets_other_origins_connect() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&["config", "set", "gateway.controlUi.enabled", "false"]);
    machine.ok(&[
        "config",
        "set",
        "gateway.controlUi.allowedOrigins",
        "[\"https://box.example\"]",
    ]);
    let gateway = machine.gateway();
    for page in PAGES {
        let answer = get(&gateway, page, &[]);
        assert!(answer.starts_with("HTTP/1.1 404"), "{page}: {answer}");
    }
    let upgrade = |origin: &str| {
        let lines = [
            origin,
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ];
        let mut stream = TcpStream::connect(("127.0.0.1", gateway.port)).unwrap();
        let host = format!("Host: 127.0.0.1:{}", gateway.port);
        let request = format!("GET / HTTP/1.1\r\n{host}\r\n{}\r\n\r\n", lines.join("\r\n"));
        stream.write_all(request.as_bytes()).unwrap();
        let mut said = [0; 12];
        stream.read_exact(&mut said).unwrap();
        String::from_utf8_lossy(&said).into_owned()
    };
    assert_eq!(upgrade("Origin: https://box.example"), "HTTP/1.1 101");
    assert_eq!(upgrade("Origin: https://box.example.evil"), "HTTP/1.1 403");
    assert_eq!(upgrade("Origin: http://box.example"), "HTTP/1.1 403");
}

/// A code is given to the owner at the Unix socket, and opens nothing but a page of this machine.
#[test]
fn codes_are_for_pages_of_this_machine_only() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut far = gateway.connect(EVERYTHING);
    assert_eq!(
        far.refused("ui.code", &json!({}))["details"]["code"],
        "LOCAL_ONLY"
    );
    let mut reader = gateway.connect_locally(&["operator.read"]);
    assert_eq!(
        reader.refused("ui.code", &json!({}))["details"]["code"],
        "MISSING_SCOPE"
    );
    let mut near = gateway.connect_locally(EVERYTHING);
    let minted = near.ok("ui.code", &json!({}));
    let code = minted["code"].as_str().unwrap();
    assert_eq!(minted["url"], format!("http://127.0.0.1:{}/", gateway.port));
    // A program that is no page shows it in vain.
    let mut program = gateway.open();
    let mut connect = gateway.operator(EVERYTHING);
    connect.auth = serde_json::from_value(json!({ "bootstrapToken": code })).unwrap();
    let identity = interlock_wire_identity();
    let refused = program.introduce(connect, Some(&identity)).unwrap_err();
    assert_eq!(refused["details"]["code"], "UI_CODE_INVALID", "{refused:#}");
    let log = std::fs::read_to_string(&gateway.log).unwrap();
    assert!(!log.contains(code), "{log}");
}

fn interlock_wire_identity() -> interlock_wire::identity::DeviceIdentity {
    interlock_wire::identity::DeviceIdentity::generate().unwrap()
}

/// S-06, by the protocol: a page allows only what it was shown whole.
#[test]
fn a_page_allows_nothing_without_the_ticket_of_that_view() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let mut page = gateway.connect(EVERYTHING);
    page.ok("ui.open", &json!({ "view": "inbox" }));
    let (file, command) = marker(&machine, "ran");
    let id = agent.ask(&machine, &command);
    let other = agent.ask(&machine, "git push origin main");
    // A page gets rows, and no event that would count as shown.
    let patch = page.event("ui.patch", |patch| {
        patch["ops"][0]["html"]
            .as_str()
            .is_some_and(|html| html.contains(&id))
    });
    assert_eq!(patch["topic"], "approvals");
    let decide =
        |ticket: serde_json::Value| json!({ "id": id, "decision": "allow-once", "ticket": ticket });
    let without = page.refused(
        "exec.approval.resolve",
        &json!({ "id": id, "decision": "allow-once" }),
    );
    assert_eq!(without["details"]["code"], "TICKET_REQUIRED", "{without:#}");
    // Reading it as other clients do is no view.
    page.ok("exec.approval.get", &json!({ "id": id }));
    let read = page.refused(
        "exec.approval.resolve",
        &json!({ "id": id, "decision": "allow-session" }),
    );
    assert_eq!(read["details"]["code"], "TICKET_REQUIRED");
    // Nor does the method of newer clients know another way.
    page.ok("approval.get", &json!({ "id": id }));
    let newer = page.refused(
        "approval.resolve",
        &json!({ "id": id, "kind": "exec", "decision": "allow-once" }),
    );
    assert_eq!(newer["details"]["code"], "TICKET_REQUIRED", "{newer:#}");
    let opened = page.ok(
        "ui.open",
        &json!({ "view": "approval", "params": { "id": other } }),
    );
    let wrong = opened["tickets"][&other].clone();
    assert!(wrong.is_string(), "{opened:#}");
    let refused = page.refused("exec.approval.resolve", &decide(wrong.clone()));
    assert_eq!(refused["details"]["code"], "TICKET_WRONG", "{refused:#}");
    // The ticket of another viewer does not count either.
    let mut second = gateway.connect(EVERYTHING);
    let seen = second.ok(
        "ui.open",
        &json!({ "view": "approval", "params": { "id": id } }),
    );
    let refused = page.refused(
        "exec.approval.resolve",
        &decide(seen["tickets"][&id].clone()),
    );
    assert_eq!(refused["details"]["code"], "TICKET_WRONG");
    let many = json!({ "items": [{ "id": id, "planDigest": "0", "ticket": wrong }], "decision": "allow-once" });
    let many = page.ok("exec.approval.resolveMany", &many);
    assert_eq!(many["results"][0]["ok"], false, "{many:#}");
    assert_eq!(many["results"][0]["code"], "TICKET_WRONG");
    assert!(!file.exists());
    for code in ["TICKET_REQUIRED", "TICKET_WRONG"] {
        let record = refused_with(&machine, code);
        assert_eq!(record["approvalId"], id.as_str(), "{record:#}");
        assert_eq!(record["transport"], "ws");
    }
    let opened = page.ok(
        "ui.open",
        &json!({ "view": "approval", "params": { "id": id } }),
    );
    page.ok(
        "exec.approval.resolve",
        &decide(opened["tickets"][&id].clone()),
    );
    testkit::eventually("it ran", || file.exists());
    // Its end comes as a patch, and the card has no buttons any more.
    page.event("ui.patch", |patch| {
        patch["ops"][0]["html"]
            .as_str()
            .is_some_and(|html| html.contains("allowed once"))
    });
    let ended = page.ok(
        "ui.open",
        &json!({ "view": "approval", "params": { "id": id } }),
    );
    assert!(ended["tickets"][&id].is_null());
    assert!(
        !ended["html"]
            .as_str()
            .unwrap()
            .contains("data-act=\"allow\"")
    );
}

/// S-18: without the scope an id is worth nothing, be it there or not.
#[test]
fn without_the_scope_an_approval_can_be_neither_opened_nor_decided() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "ran");
    let id = agent.ask(&machine, &command);
    let mut reader = gateway.connect(&["operator.read"]);
    for reference in [
        &id,
        &id[..8],
        &id.to_uppercase(),
        "00000000-0000-4000-8000-000000000000",
        "zsphx",
    ] {
        let open = json!({ "view": "approval", "params": { "id": reference } });
        let refused = reader.refused("ui.open", &open);
        assert_eq!(refused["message"], "missing scope: operator.approvals");
        let decide = json!({ "id": reference, "decision": "allow-once" });
        assert_eq!(
            reader.refused("exec.approval.resolve", &decide)["message"],
            "missing scope: operator.approvals"
        );
        let many = json!({ "items": [{ "id": reference, "planDigest": "x" }], "decision": "deny" });
        assert_eq!(
            reader.refused("exec.approval.resolveMany", &many)["message"],
            "missing scope: operator.approvals"
        );
    }
    assert_eq!(
        reader.refused("ui.open", &json!({ "view": "inbox" }))["message"],
        "missing scope: operator.approvals"
    );
    assert_eq!(
        reader.refused("ui.open", &json!({ "view": "audit" }))["message"],
        "missing scope: operator.admin"
    );
    let record = refused_with(&machine, "MISSING_SCOPE");
    assert_eq!(record["method"], "exec.approval.resolve");
    assert!(!file.exists());
}

/// S-29: what is secret does not leave the gateway by a page.
#[test]
fn no_view_contains_a_secret_of_the_config() {
    let machine = Machine::new();
    machine.start();
    machine.ok(&[
        "config",
        "set",
        "gateway.wake.url",
        "https://user:hunter2secret@box.example/wake?key=sk-live-77",
    ]);
    let gateway = machine.gateway();
    let mut page = gateway.connect(EVERYTHING);
    for view in [
        "settings", "health", "nodes", "policy", "audit", "sessions", "inbox",
    ] {
        let opened = page.ok("ui.open", &json!({ "view": view })).to_string();
        for secret in ["hunter2secret", "sk-live-77", gateway.token.as_str()] {
            assert!(!opened.contains(secret), "{view}");
        }
    }
    let read = page.ok("config.get", &json!({}));
    assert!(!read.to_string().contains("hunter2secret"));
    // The mask written back stands for the value that is there.
    let raw = read["raw"].as_str().unwrap();
    page.ok(
        "config.set",
        &json!({ "raw": raw, "baseHash": read["hash"] }),
    );
    let kept = std::fs::read_to_string(machine.config()).unwrap();
    assert!(kept.contains("hunter2secret"), "{kept}");
}

/// S-01, S-04 by the protocol: a view holds text, and what cannot be seen is spelled out.
#[test]
fn views_hold_hostile_text_as_text() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let mut page = gateway.connect(EVERYTHING);
    let hostile = "git log '<img src=x onerror=\"window.pwn=1\"><script>pwn=2</script>' '\"><svg onload=pwn=3>' '</code>' '\u{202e}\u{2066}\u{200b}\u{ad}\u{feff}\u{a0}'";
    let id = agent.ask(&machine, hostile);
    for view in [
        json!({ "view": "inbox" }),
        json!({ "view": "approval", "params": { "id": id } }),
        json!({ "view": "audit" }),
        json!({ "view": "policy", "params": { "command": hostile } }),
    ] {
        let html = page.ok("ui.open", &view)["html"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(html.contains("&lt;script&gt;"), "{view}");
        for forbidden in [
            "<script",
            "<img",
            "onload=pwn=3>'",
            "</code>'",
            "\u{202e}",
            "\u{2066}",
            "\u{200b}",
            "\u{ad}",
            "\u{feff}",
        ] {
            assert!(!html.contains(forbidden), "{view}: {forbidden:?}");
        }
    }
}

/// S-18, the rest: agents, the caller itself, and a page without a device learn nothing of an id.
#[test]
fn s18_an_id_tells_a_caller_without_the_scope_nothing() {
    let machine = Machine::new();
    let gateway = machine.gateway();
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "ran");
    let id = agent.ask(&machine, &command);
    let short = machine.pending()[0]["shortId"].as_str().unwrap().to_owned();
    let unknown = "00000000-0000-4000-8000-000000000000";
    let references = [
        &id,
        &id[..8],
        &short,
        &id.to_uppercase(),
        unknown,
        "zzzzz",
        "0000",
    ];
    // A caller that may ask and not decide, on its own connection.
    let mut caller = gateway.connect(&["operator.read", "operator.write"]);
    let args = json!({ "command": "git push origin own", "workdir": machine.work() });
    let call = json!({ "name": "exec", "args": args, "approvalWaitMs": 0 });
    let own = super::approval_id(&caller.ok("tools.invoke", &call));
    let mut refusals = Vec::new();
    for reference in references.into_iter().chain([own.as_str()]) {
        for (method, params) in [
            ("exec.approval.get", json!({ "id": reference })),
            ("exec.approval.waitDecision", json!({ "id": reference })),
            ("exec.approval.askAgain", json!({ "id": reference })),
            (
                "exec.approval.resolve",
                json!({ "id": reference, "decision": "allow-once" }),
            ),
            ("approval.get", json!({ "id": reference })),
            (
                "approval.resolve",
                json!({ "id": reference, "kind": "exec", "decision": "deny" }),
            ),
        ] {
            refusals.push(caller.refused(method, &params).to_string());
        }
    }
    refusals.sort();
    refusals.dedup();
    assert_eq!(refusals.len(), 1, "{refusals:#?}");
    assert!(refusals[0].contains("missing scope: operator.approvals"));
    // The token of an agent is no way in.
    let token = machine.ok(&["agents", "token", "main"]).stdout;
    let mut client = gateway.open();
    let identity = interlock_wire_identity();
    let connect = testkit::ws::operator(token.trim(), EVERYTHING);
    client.introduce(connect, Some(&identity)).unwrap_err();
    refused_with(&machine, "AUTH_TOKEN_MISMATCH");
    // The document of a page is the same for every id, and holds none.
    let pages = references.map(|reference| {
        let answer = get(&gateway, &format!("/approve/{reference}"), &[]);
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    });
    assert!(
        pages
            .iter()
            .all(|page| *page == pages[0] && !page.contains(&id))
    );
    // An id that is there takes no other time than one that is not: the scope is looked at first.
    let mut median = |reference: &str| {
        let params = json!({ "id": reference, "decision": "deny" });
        let mut times: Vec<_> = (0..101)
            .map(|_| {
                let begun = std::time::Instant::now();
                caller.refused("exec.approval.resolve", &params);
                begun.elapsed()
            })
            .collect();
        times.sort();
        times[50]
    };
    println!(
        "{:?} for an id, {:?} for none",
        median(&id),
        median(unknown)
    );
    assert_eq!(machine.pending().len(), 2);
    assert!(!file.exists());
}
