//! What sessions are told, and how their agents are woken.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use testkit::ws::{EVERYTHING, WsClient};
use testkit::{Machine, eventually, written};

/// A background run that ends after the answer to its call, so that this does not tell of its end.
fn ends_later(machine: &Machine, client: &mut WsClient, code: u8) -> String {
    let go = machine.work().join("go");
    let command = format!(
        "until [ -e {} ]; do sleep 0.01; done; exit {code}",
        go.display()
    );
    let args = json!({ "command": command, "background": true });
    let answer = client.ok("tools.invoke", &json!({ "name": "exec", "args": args }));
    fs::write(go, "").unwrap();
    let id = answer["output"]["details"]["sessionId"].as_str();
    id.unwrap_or_else(|| panic!("{answer:#}")).to_owned()
}

/// The key of the state directory: 64 hexadecimal digits.
fn wake_key(machine: &Machine) -> Vec<u8> {
    let text = std::fs::read_to_string(machine.state().join("wake.key")).unwrap();
    let digits: Vec<u32> = text
        .trim()
        .chars()
        .map(|digit| digit.to_digit(16).unwrap())
        .collect();
    assert_eq!(digits.len(), 64);
    digits
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

#[test]
fn sessions_are_told_and_watched_and_their_events_wake_by_a_signed_call() {
    let machine = Machine::unguarded();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = machine.script(
        "wake.sh",
        "#!/bin/sh\necho \"$INTERLOCK_EVENT_KIND $INTERLOCK_EVENT_SESSION\" > \"$HOME/woken\"\n",
    );
    machine.write_config(&format!(
        "{{ gateway: {{ wake: {{ url: 'http://127.0.0.1:{port}/hook?x=1', command: ['{}'] }} }} }}",
        script.display()
    ));
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    let id = ends_later(&machine, &mut client, 4);
    // The first try fails, the second one does not.
    refuse(&listener);
    let (headers, body) = accept(&listener);
    let header = |name: &str| {
        let prefix = format!("{name}: ");
        let found = headers.iter().find_map(|line| line.strip_prefix(&prefix));
        found.unwrap_or_else(|| panic!("{headers:?}")).to_owned()
    };
    assert_eq!(headers[0], "POST /hook?x=1 HTTP/1.1");
    let mut mac = Hmac::<Sha256>::new_from_slice(&wake_key(&machine)).unwrap();
    mac.update(format!("{}.{body}", header("x-interlock-timestamp")).as_bytes());
    let bytes = mac.finalize().into_bytes();
    let expected = bytes.iter().fold(String::new(), |mut out, byte| {
        out.push_str(&format!("{byte:02x}"));
        out
    });
    assert_eq!(
        header("x-interlock-signature"),
        format!("sha256={expected}")
    );
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(told["event"]["details"]["session"], id.as_str(), "{told:#}");
    assert_eq!(
        header("x-interlock-event-id"),
        told["event"]["id"].to_string()
    );

    let event = client.event("session.event", |_| true);
    assert_eq!(event, told["event"]);
    assert_eq!(
        written(&machine.root().join("home/woken")),
        "exec-finished agent:main:main\n"
    );
    // To watch is not to be told.
    let listed = machine
        .ok(&["events", "--session", "agent:main:main", "--json"])
        .json();
    assert_eq!(listed["events"][0]["deliveredAtMs"], Value::Null);
    let call = json!({ "name": "exec", "args": { "command": "true" } });
    let answer = client.ok("tools.invoke", &call);
    let events = &answer["output"]["details"]["events"];
    assert_eq!(events[0]["kind"], "exec-finished", "{answer:#}");
}

/// Takes a call and answers that it is not the time for it.
fn refuse(listener: &TcpListener) {
    answer(listener, "503 Service Unavailable");
}

fn accept(listener: &TcpListener) -> (Vec<String>, String) {
    answer(listener, "204 No Content")
}

/// The lines of the head, and the body.
fn answer(listener: &TcpListener, status: &str) -> (Vec<String>, String) {
    listener.set_nonblocking(true).unwrap();
    let accepted = RefCell::new(None);
    eventually("a call comes", || {
        *accepted.borrow_mut() = listener.accept().ok();
        accepted.borrow().is_some()
    });
    let (stream, _) = accepted.into_inner().unwrap();
    stream.set_nonblocking(false).unwrap();
    let mut reader = BufReader::new(&stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        head.push(line.to_owned());
    }
    let length = head
        .iter()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    (&stream)
        .write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes())
        .unwrap();
    (head, String::from_utf8(body).unwrap())
}

#[test]
fn a_wake_call_that_fails_for_good_is_in_the_audit() {
    let machine = Machine::unguarded();
    machine.write_config("{ gateway: { wake: { command: ['/bin/false'] } } }");
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    ends_later(&machine, &mut client, 5);
    client.event("session.event", |_| true);
    let failed = |body: &Value| body["surface"] == "wake:command" && body["state"] == "failed";
    eventually("the failure is recorded", || {
        let log = machine
            .ok(&["audit", "log", "--kind", "delivery", "--json"])
            .json();
        let records = log["records"].as_array().unwrap();
        records.iter().any(|record| failed(&record["body"]))
    });
}

#[test]
fn a_line_of_an_operator_waits_for_its_session() {
    let machine = Machine::unguarded();
    let gateway = machine.gateway();
    let mut client = gateway.connect(EVERYTHING);
    client.ok(
        "system-event",
        &json!({ "text": "look at the build", "sessionKey": "agent:main:x" }),
    );
    let shown = machine.ok(&["events", "--session", "agent:main:x"]);
    assert!(shown.stdout.contains("note look at the build"), "{shown:?}");
    let call =
        json!({ "name": "exec", "args": { "command": "true" }, "sessionKey": "agent:main:x" });
    let answer = client.ok("tools.invoke", &call);
    assert_eq!(
        answer["output"]["details"]["events"][0]["text"],
        "look at the build"
    );
}
