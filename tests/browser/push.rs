//! Web Push: the message that a push server of the test gets, its decryption by the browser's own
//! cryptography, and the denial that comes back.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interlock_wire::identity::DeviceIdentity;
use serde_json::{Value, json};
use testkit::browser::{Browser, Screen};
use testkit::mcp::Reply;
use testkit::tls::Certified;
use testkit::ws::{EVERYTHING, Gateway, now_ms};
use testkit::{Machine, eventually};

use super::{Agent, marker};

/// The keys of a browser, from the example of RFC 8291.
const PUBLIC: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const PRIVATE: &str = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

/// One message as the push server got it.
struct Pushed {
    head: String,
    body: Vec<u8>,
}

impl Pushed {
    fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut lines = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        lines.next().map_or("", |(_, value)| value)
    }

    fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

/// A push server with TLS, which takes every message but those for `/gone`.
fn push_server(machine: &Machine) -> (u16, Receiver<Pushed>) {
    let certified = Certified::for_names(&["127.0.0.1"]);
    std::fs::write(
        machine.root().join("push-ca.pem"),
        certified.authority_pem(),
    )
    .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
            let mut stream = certified.accept(stream);
            let mut all = Vec::new();
            let mut buffer = [0; 4096];
            let end = |all: &[u8]| all.windows(4).position(|four| four == b"\r\n\r\n");
            let whole = loop {
                if let Some(at) = end(&all) {
                    let head = String::from_utf8_lossy(&all[..at]).into_owned();
                    let length = head.lines().find_map(|line| {
                        line.to_lowercase()
                            .strip_prefix("content-length: ")?
                            .parse()
                            .ok()
                    });
                    let length: usize = length.unwrap_or(0);
                    if all.len() >= at + 4 + length {
                        break Some(Pushed {
                            head,
                            body: all[at + 4..at + 4 + length].to_vec(),
                        });
                    }
                }
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => break None,
                    Ok(read) => all.extend_from_slice(&buffer[..read]),
                }
            };
            let Some(pushed) = whole else { continue };
            let status = if pushed.path() == "/gone" {
                "410 Gone"
            } else {
                "201 Created"
            };
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(answer.as_bytes());
            let _ = stream.flush();
            let _ = sender.send(pushed);
        }
    });
    (port, receiver)
}

/// Decrypts a message with the browser's own cryptography: none of Interlock's code, and none of its
/// libraries, has a part in it.
fn decrypt(browser: &Browser, pushed: &Pushed) -> Value {
    let point = URL_SAFE_NO_PAD.decode(PUBLIC).unwrap();
    let (x, y) = (
        URL_SAFE_NO_PAD.encode(&point[1..33]),
        URL_SAFE_NO_PAD.encode(&point[33..]),
    );
    let body = URL_SAFE_NO_PAD.encode(&pushed.body);
    let program = format!(
        "(async () => {{ \
         const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0)); \
         const join = (...all) => new Uint8Array(all.flatMap((one) => Array.from(typeof one === 'string' ? new TextEncoder().encode(one) : one))); \
         const body = bytes('{body}'), auth = bytes('{AUTH}'), own = bytes('{PUBLIC}'); \
         const salt = body.slice(0, 16), idLength = body[20], server = body.slice(21, 21 + idLength), record = body.slice(21 + idLength); \
         const key = await crypto.subtle.importKey('jwk', {{ kty: 'EC', crv: 'P-256', d: '{PRIVATE}', x: '{x}', y: '{y}' }}, {{ name: 'ECDH', namedCurve: 'P-256' }}, false, ['deriveBits']); \
         const peer = await crypto.subtle.importKey('raw', server, {{ name: 'ECDH', namedCurve: 'P-256' }}, false, []); \
         const shared = await crypto.subtle.deriveBits({{ name: 'ECDH', public: peer }}, key, 256); \
         const hkdf = async (secret, salt, info, length) => new Uint8Array(await crypto.subtle.deriveBits({{ name: 'HKDF', hash: 'SHA-256', salt, info }}, await crypto.subtle.importKey('raw', secret, 'HKDF', false, ['deriveBits']), length * 8)); \
         const material = await hkdf(shared, auth, join('WebPush: info\\0', own, server), 32); \
         const content = await hkdf(material, salt, join('Content-Encoding: aes128gcm\\0'), 16); \
         const nonce = await hkdf(material, salt, join('Content-Encoding: nonce\\0'), 12); \
         const aes = await crypto.subtle.importKey('raw', content, 'AES-GCM', false, ['decrypt']); \
         const plain = new Uint8Array(await crypto.subtle.decrypt({{ name: 'AES-GCM', iv: nonce }}, aes, record)); \
         const end = plain.lastIndexOf(2); \
         return {{ padded: plain.length, text: new TextDecoder().decode(plain.slice(0, end)) }} }})()"
    );
    let read = browser.wait_for(&program);
    assert_eq!(read["value"]["padded"], 1024, "{read}");
    serde_json::from_str(read["value"]["text"].as_str().unwrap()).unwrap()
}

/// Whether the signature of the gateway is good, by the browser's own cryptography.
fn is_signed(browser: &Browser, pushed: &Pushed, origin: &str) -> bool {
    let authorization = pushed.header("authorization");
    let (token, key) = authorization
        .strip_prefix("vapid t=")
        .and_then(|rest| rest.split_once(", k="))
        .unwrap_or_else(|| panic!("{authorization}"));
    let claims = token.split('.').nth(1).unwrap();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    assert_eq!(claims["aud"], origin);
    let program = format!(
        "(async () => {{ \
         const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0)); \
         const [head, claims, signature] = '{token}'.split('.'); \
         const key = await crypto.subtle.importKey('raw', bytes('{key}'), {{ name: 'ECDSA', namedCurve: 'P-256' }}, false, ['verify']); \
         return crypto.subtle.verify({{ name: 'ECDSA', hash: 'SHA-256' }}, key, bytes(signature), new TextEncoder().encode(`${{head}}.${{claims}}`)) }})()"
    );
    browser.wait_for(&program)["value"] == true
}

/// A machine whose gateway may send to the test's own server.
fn with_server() -> (Machine, Gateway, u16, Receiver<Pushed>) {
    let machine = Machine::new();
    machine.start();
    let (port, pushed) = push_server(&machine);
    let named = format!("[\"https://127.0.0.1:{port}\"]");
    machine.ok(&["config", "set", "push.endpoints", &named]);
    let trusted = machine.root().join("push-ca.pem");
    let trusted = trusted.to_str().unwrap();
    let gateway = machine.gateway_as(&["--port", "0"], &[("SSL_CERT_FILE", trusted)]);
    (machine, gateway, port, pushed)
}

fn answer(gateway: &Gateway, body: &Value) -> Reply {
    let body = body.to_string();
    let request = format!(
        "POST /push/answer HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        gateway.port,
        body.len()
    );
    testkit::mcp::raw(gateway.port, request.as_bytes())
}

/// What a device would send.
fn signed(identity: &DeviceIdentity, message: &Value, decision: &str, at: u64) -> Value {
    let part = |name: &str| message[name].as_str().unwrap().to_owned();
    let (id, digest, nonce) = (part("id"), part("digest"), part("nonce"));
    let text = format!("interlock-push|{id}|{digest}|{decision}|{nonce}|{at}");
    json!({
        "deviceId": identity.device_id(), "id": id, "digest": digest, "decision": decision,
        "nonce": nonce, "signedAt": at, "signature": identity.sign_text(&text),
    })
}

#[test]
fn a_phone_is_notified_and_denies_from_its_lock_screen() {
    let (machine, gateway, port, pushed) = with_server();
    let Some(browser) = Browser::inside(&machine, Screen::Phone) else {
        return;
    };
    let origin = gateway.page("");
    browser.cdp(
        "Browser.grantPermissions",
        &json!({ "origin": origin, "permissions": ["notifications"] }),
    );
    // The browser's own push service is on the internet: the test stands in for it, and for nothing else.
    let stand_in = format!(
        "PushManager.prototype.subscribe = async function (options) {{ window.asked = options; return {{ toJSON: () => ({{ endpoint: 'https://127.0.0.1:{port}/phone', keys: {{ p256dh: '{PUBLIC}', auth: '{AUTH}' }} }}) }} }}"
    );
    browser.cdp(
        "Page.addScriptToEvaluateOnNewDocument",
        &json!({ "source": stand_in }),
    );
    browser.go(&gateway.page("/settings"));
    browser.click("#push-on");
    browser.until("it is on", "document.getElementById('push-test')");
    assert_eq!(browser.js("window.asked.userVisibleOnly"), true);
    assert_eq!(browser.js("window.asked.applicationServerKey.length"), 65);
    browser.window_shot("push-390");
    browser.click("#push-test");
    let test = pushed.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(decrypt(&browser, &test)["kind"], "test");
    // An approval that is seen or decided at once is no reason to ring.
    let mut agent = Agent::new(&gateway);
    let early = agent.ask(&machine, "git push origin early");
    machine.ok(&["approvals", "deny", &early]);
    let (file, command) = marker(&machine, "stung");
    let id = agent.ask(&machine, &format!("/usr/bin/env {command}"));
    let asked = pushed.recv_timeout(Duration::from_secs(30)).unwrap();
    assert_eq!(asked.path(), "/phone");
    for (name, value) in [
        ("content-encoding", "aes128gcm"),
        ("urgency", "high"),
        ("content-type", "application/octet-stream"),
    ] {
        assert_eq!(asked.header(name), value);
    }
    let left: u64 = asked.header("ttl").parse().unwrap();
    assert!((1..=1800).contains(&left), "{left}");
    assert_eq!(asked.header("topic").len(), 32);
    let service = format!("https://127.0.0.1:{port}");
    assert!(is_signed(&browser, &asked, &service));
    assert!(!String::from_utf8_lossy(&asked.body).contains("stung"));
    let message = decrypt(&browser, &asked);
    assert_eq!(message["id"], id.as_str());
    let body = message["body"].as_str().unwrap();
    assert!(body.starts_with("main on gateway asks to run "), "{body}");
    assert!(!body.contains("stung"), "{body}");
    // The worker shows it with two buttons, and denies by the second.
    browser.until(
        "the worker",
        "navigator.serviceWorker.getRegistration().then((one) => Boolean(one?.active))",
    );
    // A worker that is just starting may miss one; the same message again replaces its notification.
    let mut shown = Value::Null;
    eventually("the notification", || {
        browser.deliver_push(&gateway.page(""), &message);
        shown = browser.wait_for("new Promise((done) => setTimeout(done, 500)).then(() => navigator.serviceWorker.getRegistration()).then((one) => one.getNotifications()).then((all) => all.map((one) => [one.title, one.body, one.actions.map((act) => act.action)]))");
        shown = shown["value"].clone();
        shown.as_array().is_some_and(|all| !all.is_empty())
    });
    assert_eq!(
        shown,
        json!([["Interlock: approval", body, ["review", "deny"]]])
    );
    browser.in_worker("registration.getNotifications().then(([one]) => { try { self.dispatchEvent(new NotificationEvent('notificationclick', { notification: one, action: 'deny' })) } catch {} })");
    let denied = || {
        machine
            .ok(&["audit", "log", "--kind", "decision", "--json"])
            .stdout
            .contains("push:Chrome on Linux")
    };
    eventually("it is denied", denied);
    assert!(!file.exists());
    // The end replaces the notification.
    let ended = pushed.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(ended.header("topic"), asked.header("topic"));
    let ended = decrypt(&browser, &ended);
    assert_eq!(ended["kind"], "ended");
    assert_eq!(ended["body"], "Denied by Chrome on Linux");
    let records = machine
        .ok(&["audit", "log", "--kind", "delivery", "--json"])
        .stdout;
    assert!(records.contains("push:Chrome on Linux"), "{records}");
    browser.go(&gateway.page("/settings"));
    browser.click("#push-off");
    browser.until("it is off", "document.getElementById('push-on')");
}

/// S-26: what a push decision is refused for.
#[test]
fn s26_a_push_decision_counts_once_for_its_own_message() {
    let (machine, gateway, port, pushed) = with_server();
    let Some(browser) = Browser::inside(&machine, Screen::Laptop) else {
        return;
    };
    let device = |name: &str, scopes: &[&str]| {
        let identity = DeviceIdentity::generate().unwrap();
        let mut client = gateway.open();
        let mut connect = gateway.operator(scopes);
        connect.client.display_name = Some(name.to_owned());
        client.introduce(connect, Some(&identity)).unwrap();
        (identity, client)
    };
    let (ada, mut phone) = device("Ada's phone", EVERYTHING);
    let (reader, mut other) = device("a reader", &["operator.read"]);
    let subscription = |path: &str| json!({ "endpoint": format!("https://127.0.0.1:{port}{path}"), "p256dh": PUBLIC, "auth": AUTH });
    assert_eq!(
        other.refused("push.subscribe", &subscription("/reader"))["message"],
        "missing scope: operator.approvals"
    );
    // S-27, for push: other addresses are never called.
    for endpoint in [
        "http://127.0.0.1:1/x",
        "https://127.0.0.1:1/x",
        "https://[::1]/x",
        "https://169.254.169.254/x",
        "https://10.0.0.1/x",
        "https://evil.example/x",
    ] {
        let wrong = json!({ "endpoint": endpoint, "p256dh": PUBLIC, "auth": AUTH });
        let refused = phone.refused("push.subscribe", &wrong);
        assert_eq!(refused["details"]["code"], "PUSH_ENDPOINT", "{endpoint}");
    }
    let broken = json!({ "endpoint": format!("https://127.0.0.1:{port}/x"), "p256dh": "AAAA", "auth": AUTH });
    phone.refused("push.subscribe", &broken);
    phone.ok("push.subscribe", &subscription("/ada"));
    let mut agent = Agent::new(&gateway);
    let (file, command) = marker(&machine, "first");
    let first = agent.ask(&machine, &command);
    let second = agent.ask(&machine, "git push origin main");
    let mut messages = Vec::new();
    for _ in 0..2 {
        let message = pushed.recv_timeout(Duration::from_secs(30)).unwrap();
        messages.push(decrypt(&browser, &message));
    }
    let of = |id: &str| messages.iter().find(|one| one["id"] == id).unwrap().clone();
    let (message, other_message) = (of(&first), of(&second));
    let mut crossed = message.clone();
    crossed["nonce"] = other_message["nonce"].clone();
    let mut altered = message.clone();
    altered["digest"] = other_message["digest"].clone();
    let now = now_ms();
    let mut unsigned = signed(&ada, &message, "deny", now);
    unsigned["decision"] = json!("allow-once");
    for (body, code) in [
        (unsigned, "PUSH_SIGNATURE"),
        (signed(&ada, &message, "allow-once", now), "PUSH_DECISION"),
        (signed(&ada, &message, "deny", now - 120_000), "PUSH_TIME"),
        (signed(&ada, &message, "deny", now + 120_000), "PUSH_TIME"),
        (signed(&ada, &crossed, "deny", now), "PUSH_NONCE"),
        (signed(&ada, &altered, "deny", now), "PUSH_NONCE"),
        (signed(&reader, &message, "deny", now), "PUSH_DEVICE"),
    ] {
        let reply = answer(&gateway, &body);
        assert_eq!(reply.status, 403, "{reply:?}");
        assert!(reply.body.contains(code), "{code}: {reply:?}");
        let record = super::refused_with(&machine, code);
        assert_eq!(record["transport"], "push", "{record:#}");
        assert_eq!(record["approvalId"], first.as_str());
    }
    assert_eq!(machine.pending().len(), 2);
    let good = signed(&ada, &message, "deny", now_ms());
    let reply = answer(&gateway, &good);
    assert_eq!(reply.status, 200, "{reply:?}");
    let replayed = answer(&gateway, &good);
    assert_eq!(replayed.status, 403, "{replayed:?}");
    assert!(!file.exists());
    assert_eq!(machine.pending().len(), 1);
    // A device that was removed decides nothing, and its subscription is gone with it.
    let mut admin = gateway.connect(EVERYTHING);
    admin.ok(
        "device.pair.remove",
        &json!({ "deviceId": ada.device_id() }),
    );
    let late = answer(&gateway, &signed(&ada, &other_message, "deny", now_ms()));
    assert!(
        late.status == 403 && late.body.contains("PUSH_DEVICE"),
        "{late:?}"
    );
    assert_eq!(machine.pending().len(), 1);
    // A subscription that its service knows no more is forgotten.
    let (_, mut gone) = device("gone", EVERYTHING);
    gone.ok("push.subscribe", &subscription("/gone"));
    let tested = gone.ok("push.test", &json!({}));
    assert!(tested["problem"].is_string(), "{tested}");
    assert_eq!(gone.ok("push.key", &json!({}))["subscribed"], false);
}
