//! Webhooks and ntfy: S-25, and S-09 and S-10 for the paths of hooks.

use std::sync::{Arc, Mutex};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use testkit::chat::{ChatCall, HttpsServer};
use testkit::mcp::Reply;
use testkit::ws::now_ms;
use testkit::{Machine, eventually};

use super::{Chatting, merge, secret_file};

const OUT: &str = "secret-of-interlock";
const IN: &str = "secret-of-the-program";

fn signature(secret: &str, time: &str, id: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{time}.{id}.{body}").as_bytes());
    let bytes = mac.finalize().into_bytes();
    bytes.iter().fold("sha256=".to_owned(), |mut text, byte| {
        text.push_str(&format!("{byte:02x}"));
        text
    })
}

type Calls = Arc<Mutex<Vec<ChatCall>>>;

/// A gateway with a webhook, and the calls that it made.
fn chatting(change: &Value) -> (Chatting, Calls) {
    let machine = Machine::new();
    let calls = Calls::default();
    let kept = Arc::clone(&calls);
    let server = HttpsServer::start(&machine, move |call| {
        kept.lock().unwrap().push(call.clone());
        (200, json!({ "id": "n1" }))
    });
    let mut config = json!({ "channels": { "webhook": {
        "url": format!("{}/hook", server.url()), "allowPrivateNetwork": true,
        "secretFile": secret_file(&machine, "out.secret", OUT),
        "decisionSecretFile": secret_file(&machine, "in.secret", IN),
    } } });
    let change = change.to_string().replace("SERVER", &server.url());
    merge(&mut config, &serde_json::from_str(&change).unwrap());
    (Chatting::start(machine, &config), calls)
}

fn call_about(calls: &Calls, id: &str, kind: &str) -> ChatCall {
    let find = || {
        let calls = calls.lock().unwrap();
        let is_it = |call: &&ChatCall| call.json()["id"] == id && call.json()["type"] == kind;
        calls.iter().find(is_it).cloned()
    };
    eventually("the call comes", || find().is_some());
    find().unwrap()
}

fn decide(chat: &Chatting, secret: &str, time: &str, id: &str, body: &str) -> Reply {
    let signature = signature(secret, time, id, body);
    send(chat, time, id, &signature, body)
}

fn send(chat: &Chatting, time: &str, id: &str, signature: &str, body: &str) -> Reply {
    let headers = [
        ("Content-Type", "application/json"),
        ("x-interlock-timestamp", time),
        ("x-interlock-id", id),
        ("x-interlock-signature", signature),
    ];
    chat.post("/hooks/approvals", &headers, body)
}

fn code(reply: &Reply) -> String {
    let body: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    body["error"]["code"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn a_program_gets_signed_calls_and_decides_by_its_own_secret() {
    let (chat, calls) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("hooked");
    let call = call_about(&calls, &id, "approval.requested");
    assert_eq!(
        (call.method.as_str(), call.path.as_str()),
        ("POST", "/hook")
    );
    let (time, call_id) = (
        call.header("x-interlock-timestamp"),
        call.header("x-interlock-id"),
    );
    let signed = signature(OUT, time, call_id, &call.body);
    assert_eq!(call.header("x-interlock-signature"), signed);
    let asked = call.json();
    assert_eq!(
        asked["decisions"],
        json!(["allow-once", "allow-session", "allow-always", "deny"])
    );
    assert!(asked["text"].as_str().unwrap().contains("/usr/bin/touch"));
    let digest = asked["digest"].as_str().unwrap().to_owned();
    let now = now_ms();
    let body = json!({ "id": id, "digest": digest, "decision": "allow-once" }).to_string();
    // S-25, each with its reason.
    let old = (now - 6 * 60 * 1000).to_string();
    let ahead = (now + 6 * 60 * 1000).to_string();
    let time = now.to_string();
    assert_eq!(code(&decide(&chat, IN, &old, "a1", &body)), "HOOK_TIME");
    assert_eq!(code(&decide(&chat, IN, &ahead, "a2", &body)), "HOOK_TIME");
    assert_eq!(
        code(&decide(&chat, OUT, &time, "a3", &body)),
        "HOOK_SIGNATURE"
    );
    let signed = signature(IN, &time, "a4", &body);
    let altered = body.replace("allow-once", "allow-always");
    assert_eq!(
        code(&send(&chat, &time, "a4", &signed, &altered)),
        "HOOK_SIGNATURE"
    );
    assert_eq!(
        code(&send(&chat, &time, "a5", &signed, &body)),
        "HOOK_SIGNATURE"
    );
    // Interlock's own call, sent back as it was.
    let own = send(
        &chat,
        call.header("x-interlock-timestamp"),
        call_id,
        call.header("x-interlock-signature"),
        &call.body,
    );
    assert_eq!(code(&own), "HOOK_SIGNATURE");
    assert_eq!(chat.ending(&id), None);
    // The first of each kind is recorded, and those that follow are counted.
    eventually("the refusals are recorded", || {
        chat.refused_hooks() == ["HOOK_TIME", "HOOK_SIGNATURE"]
    });
    assert!(!file.exists());
}

#[test]
fn a_signed_decision_counts_once_and_for_its_approval_only() {
    let (chat, calls) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("first");
    let (_, other) = chat.ask_marker("other");
    let asked = call_about(&calls, &id, "approval.requested").json();
    let other_asked = call_about(&calls, &other, "approval.requested").json();
    let time = now_ms().to_string();
    // The digest of another approval.
    let mixed =
        json!({ "id": id, "digest": other_asked["digest"], "decision": "deny" }).to_string();
    assert_eq!(
        code(&decide(&chat, IN, &time, "b1", &mixed)),
        "APPROVAL_REQUEST_MISMATCH"
    );
    let unknown = json!({ "id": "no", "digest": "x", "decision": "deny" }).to_string();
    assert_eq!(
        code(&decide(&chat, IN, &time, "b2", &unknown)),
        "APPROVAL_NOT_FOUND"
    );
    let lease = json!({ "id": id, "digest": asked["digest"], "decision": "lease" }).to_string();
    assert_eq!(
        code(&decide(&chat, IN, &time, "b3", &lease)),
        "INVALID_REQUEST"
    );
    let body = json!({ "id": id, "digest": asked["digest"], "decision": "allow-once" }).to_string();
    let allowed = decide(&chat, IN, &time, "b4", &body);
    assert_eq!(allowed.status, 200, "{allowed:?}");
    assert_eq!(
        chat.until_ended(&id),
        ("allow-once".to_owned(), "webhook".to_owned())
    );
    eventually("it runs", || file.exists());
    assert_eq!(
        code(&decide(&chat, IN, &time, "b4", &body)),
        "HOOK_REPLAYED"
    );
    let late = json!({ "id": id, "digest": asked["digest"], "decision": "deny" }).to_string();
    assert_eq!(
        code(&decide(&chat, IN, &time, "b5", &late)),
        "APPROVAL_ALREADY_DECIDED"
    );
    // The end is a call, too.
    let ended = call_about(&calls, &id, "approval.ended").json();
    assert_eq!(ended["ended"]["ending"], "allow-once");
    assert_eq!(chat.ending(&other), None);
}

#[test]
fn hooks_of_other_sites_names_and_methods_are_refused() {
    let (chat, _) = chatting(&json!({}));
    for path in ["/hooks/approvals", "/hooks/ticket/deny.a.b"] {
        for host in ["evil.example", "127.0.0.1.evil.example"] {
            assert_eq!(
                chat.post(path, &[("Host", host)], "{}").status,
                403,
                "{path} {host}"
            );
        }
        let origin = [
            ("Origin", "http://evil.example"),
            ("Content-Type", "text/plain"),
        ];
        assert_eq!(chat.post(path, &origin, "{}").status, 403, "{path}");
        assert_eq!(
            chat.post(path, &[("Origin", "null")], "{}").status,
            403,
            "{path}"
        );
        let get = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n",
            chat.gateway.port
        );
        let reply = testkit::mcp::raw(chat.gateway.port, get.as_bytes());
        assert_eq!(reply.status, 405, "{path}: {reply:?}");
    }
    assert_eq!(
        chat.refused_hooks(),
        Vec::<String>::new(),
        "nothing is recorded as an attempt"
    );
}

#[test]
fn without_a_secret_of_its_own_a_webhook_decides_nothing() {
    let machine = Machine::new();
    let server = HttpsServer::start(&machine, |_| (200, json!({})));
    let secret = secret_file(&machine, "same.secret", OUT);
    let config = json!({ "channels": { "webhook": {
        "url": server.url(), "allowPrivateNetwork": true, "secretFile": secret,
        // The secret of Interlock's own calls is none for decisions.
        "decisionSecretFile": secret,
    } } });
    let chat = Chatting::start(machine, &config);
    let time = now_ms().to_string();
    assert_eq!(code(&decide(&chat, OUT, &time, "c1", "{}")), "HOOK_OFF");
    assert_eq!(code(&decide(&chat, "", &time, "c2", "{}")), "HOOK_OFF");
}

#[test]
fn a_notification_denies_by_a_ticket_that_is_good_once_and_allows_only_if_switched_on() {
    let (chat, calls) = chatting(&json!({ "channels": {
        "ntfy": { "url": "SERVER", "topic": "long-secret-topic", "allowPrivateNetwork": true },
    } }));
    let published = |id: &str| {
        let find = || {
            let calls = calls.lock().unwrap();
            let mut all = calls.iter().map(ChatCall::json);
            all.find(|body| body["topic"] == "long-secret-topic" && body.to_string().contains(id))
        };
        eventually("it is published", || find().is_some());
        // Before that, the gateway does not know of it.
        eventually("it is marked", || {
            let receipts = chat.receipts(id);
            receipts.iter().any(|(_, state, _)| state == "sent")
        });
        find().unwrap()
    };
    let (file, id) = chat.ask_marker("ntfy");
    let body = published(&id);
    let actions = body["actions"].as_array().unwrap();
    let labels: Vec<&str> = actions
        .iter()
        .map(|one| one["label"].as_str().unwrap())
        .collect();
    assert_eq!(labels, ["Review", "Deny"]);
    assert_eq!(actions[1]["method"], "POST");
    let url = actions[1]["url"].as_str().unwrap();
    let path = &url[url.find("/hooks/").unwrap()..];
    // Another decision with the same seal.
    let forged = path.replace("deny.", "allow-once.");
    assert_eq!(code(&chat.post(&forged, &[], "")), "TICKET_WRONG");
    assert_eq!(chat.ending(&id), None);
    let denied = chat.post(path, &[], "");
    assert_eq!(denied.status, 200, "{denied:?}");
    let ended = chat.until_ended(&id);
    assert_eq!(
        ended,
        ("deny".to_owned(), "ntfy:long-secret-topic".to_owned())
    );
    assert_eq!(code(&chat.post(path, &[], "")), "TICKET_USED");
    assert!(!file.exists());
    chat.machine
        .ok(&["config", "set", "channels.ntfy.allow", "true"]);
    let (file, id) = chat.ask_marker("ntfy-allow");
    let body = published(&id);
    let allow = &body["actions"][1];
    assert_eq!(allow["label"], "Allow once");
    let url = allow["url"].as_str().unwrap();
    let allowed = chat.post(&url[url.find("/hooks/").unwrap()..], &[], "");
    assert_eq!(allowed.status, 200, "{allowed:?}");
    eventually("it runs", || file.exists());
}
