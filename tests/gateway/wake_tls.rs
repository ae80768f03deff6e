//! Wake calls over TLS: signed, and only to whom the address names.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::tls::Certified;
use testkit::ws::EVERYTHING;
use testkit::{Machine, eventually};

/// Where wake calls go.
struct Hook {
    listener: TcpListener,
    certified: Certified,
}

impl Hook {
    fn new(names: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Self {
            listener,
            certified: Certified::for_names(names),
        }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    fn fingerprint(&self) -> String {
        let digest = Sha256::digest(&self.certified.certificate);
        digest.iter().fold(String::new(), |mut text, byte| {
            text.push_str(&format!("{byte:02x}"));
            text
        })
    }

    fn accept(&self) -> TcpStream {
        let accepted = RefCell::new(None);
        eventually("a call comes", || {
            *accepted.borrow_mut() = self.listener.accept().ok();
            accepted.borrow().is_some()
        });
        let (stream, _) = accepted.into_inner().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_mins(1)))
            .unwrap();
        stream
    }

    /// Takes a call: its first line, and its body.
    fn take(&self) -> (String, Value) {
        let mut reader = BufReader::new(self.certified.accept(self.accept()));
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            match line.trim_end() {
                "" => break,
                line => head.push(line.to_owned()),
            }
        }
        let length = head
            .iter()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        let signed = |line: &String| line.starts_with("x-interlock-signature: sha256=");
        assert!(head.iter().any(signed), "{head:?}");
        let answer = b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n";
        reader.get_mut().write_all(answer).unwrap();
        reader.get_mut().flush().unwrap();
        (head.remove(0), serde_json::from_slice(&body).unwrap())
    }

    /// Takes a call by a client that does not accept this certificate: nothing is sent.
    fn shows_in_vain(&self) {
        let mut stream = self.certified.accept(self.accept());
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert_eq!(said, b"", "something was said");
    }
}

/// Starts a gateway with this `gateway.wake`, and lets a background run end that wakes its session.
fn wake(machine: &Machine, wake: &Value, variables: &[(&str, &str)]) -> testkit::ws::Gateway {
    machine.write_config(&json!({ "gateway": { "wake": wake } }).to_string());
    let gateway = machine.gateway_as(&["--port", "0"], variables);
    let mut client = gateway.connect(EVERYTHING);
    let go = machine.work().join("go");
    let command = format!("until [ -e {} ]; do sleep 0.01; done; exit 4", go.display());
    let call = json!({ "name": "exec", "args": { "command": command, "background": true } });
    let answer = client.ok("tools.invoke", &call);
    assert_eq!(
        answer["output"]["details"]["status"], "running",
        "{answer:#}"
    );
    fs::write(go, "").unwrap();
    gateway
}

/// Why a call was given up.
fn given_up(machine: &Machine) -> String {
    let detail = RefCell::new(String::new());
    eventually("the failure is recorded", || {
        let log = machine.ok(&["audit", "log", "--kind", "delivery", "--json"]);
        let log = log.json();
        let records = log["records"].as_array().unwrap();
        let failed = records
            .iter()
            .find(|record| record["body"]["state"] == "failed");
        if let Some(failed) = failed {
            assert_eq!(failed["body"]["surface"], "wake:url");
            detail.replace(failed["body"]["detail"].as_str().unwrap().to_owned());
        }
        failed.is_some()
    });
    detail.into_inner()
}

#[test]
fn a_certificate_that_this_machine_trusts_is_told() {
    let machine = Machine::unguarded();
    let hook = Hook::new(&["localhost"]);
    let roots = machine.file("home/roots.pem", hook.certified.authority_pem());
    let url = format!("https://localhost:{}/hook?x=1", hook.port());
    let roots = [("SSL_CERT_FILE", roots.to_str().unwrap())];
    let _gateway = wake(&machine, &json!({ "url": url }), &roots);
    let (line, body) = hook.take();
    assert_eq!(line, "POST /hook?x=1 HTTP/1.1");
    assert_eq!(body["event"]["kind"], "exec-finished", "{body:#}");
}

#[test]
fn a_pinned_certificate_gets_the_event_under_any_authority() {
    let machine = Machine::unguarded();
    let hook = Hook::new(&["another-name.example"]);
    let url = format!("https://127.0.0.1:{}/", hook.port());
    let config = json!({ "url": url, "tlsFingerprint": hook.fingerprint() });
    let _gateway = wake(&machine, &config, &[]);
    assert_eq!(hook.take().1["event"]["kind"], "exec-finished");
}

#[test]
fn no_other_host_gets_anything() {
    // Signed by an unknown authority; for another name; another one than the pinned one.
    let stranger = Hook::new(&["localhost"]);
    let other_name = Hook::new(&["other.example"]);
    let other_pin = Hook::new(&["localhost"]);
    let elsewhere = Hook::new(&["localhost"]);
    let url = |hook: &Hook| format!("https://localhost:{}/", hook.port());
    let pinned = json!({ "url": url(&other_pin), "tlsFingerprint": stranger.fingerprint() });
    for (hook, authority, config, expected) in [
        (
            &stranger,
            &elsewhere,
            json!({ "url": url(&stranger) }),
            "not trusted",
        ),
        (
            &other_name,
            &other_name,
            json!({ "url": url(&other_name) }),
            "not trusted",
        ),
        (
            &other_pin,
            &other_pin,
            pinned,
            "another certificate than the pinned one",
        ),
    ] {
        let machine = Machine::unguarded();
        let roots = machine.file("home/roots.pem", authority.certified.authority_pem());
        let roots = [("SSL_CERT_FILE", roots.to_str().unwrap())];
        let _gateway = wake(&machine, &config, &roots);
        for _ in 0..3 {
            hook.shows_in_vain();
        }
        let detail = given_up(&machine);
        assert!(detail.contains(expected), "{detail}");
    }
}

#[test]
fn a_pin_without_tls_is_a_mistake_that_is_told_and_not_sent() {
    let machine = Machine::unguarded();
    let hook = Hook::new(&["localhost"]);
    let url = format!("http://127.0.0.1:{}/", hook.port());
    let config = json!({ "url": url, "tlsFingerprint": hook.fingerprint() });
    let _gateway = wake(&machine, &config, &[]);
    let detail = given_up(&machine);
    assert!(detail.contains("gateway.wake.url is not https"), "{detail}");
    assert!(hook.listener.accept().is_err(), "a call came");
}
