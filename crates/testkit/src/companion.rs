//! A foreign companion. It implements the protocol of `docs/approval-socket.md` from that page
//! alone.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Machine, eventually};

pub struct Companion {
    listener: UnixListener,
    token: String,
}

impl Companion {
    pub fn listen(machine: &Machine) -> Self {
        let place = machine
            .ok(&["approvals", "socket", "--token", "--json"])
            .json();
        let path = place["path"].as_str().unwrap();
        assert_eq!(
            path,
            machine
                .state()
                .join("exec-approvals.sock")
                .to_str()
                .unwrap()
        );
        let _ = std::fs::remove_file(path);
        Self {
            listener: UnixListener::bind(path).unwrap(),
            token: place["token"].as_str().unwrap().to_owned(),
        }
    }

    pub fn with_token(mut self, token: &str) -> Self {
        token.clone_into(&mut self.token);
        self
    }

    /// Accepts a host's connection, before any message.
    pub fn accept(&self) -> UnixStream {
        let (stream, _) = self.listener.accept().unwrap();
        let patience = Duration::from_mins(1);
        stream.set_read_timeout(Some(patience)).unwrap();
        stream
    }

    /// Accepts the next prompt, up to and including its request.
    pub fn asked(&self) -> Prompt {
        let stream = self.accept();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let own = "0123456789abcdef".repeat(4);
        writeln!(&stream, "{}", json!({ "protocol": 1, "nonce": own })).unwrap();
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let hello: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(hello["protocol"], 1);
        let mut prompt = Prompt {
            stream,
            reader,
            token: self.token.clone(),
            companion_nonce: own,
            host_nonce: hello["nonce"].as_str().unwrap().to_owned(),
            request_hash: String::new(),
            sent: 0,
            received: 0,
            request: Value::Null,
        };
        assert_eq!(prompt.host_nonce.len(), 64);
        prompt.request = prompt.hear().unwrap();
        assert_eq!(prompt.request["type"], "request");
        prompt
    }
}

/// One connection of a host.
pub struct Prompt {
    stream: UnixStream,
    reader: BufReader<UnixStream>,
    token: String,
    companion_nonce: String,
    host_nonce: String,
    request_hash: String,
    sent: u64,
    received: u64,
    pub request: Value,
}

impl Prompt {
    pub fn approval(&self) -> &Value {
        &self.request["approval"]
    }

    /// Returns the next message of the host, or `None` if it closed the connection.
    pub fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        // A connection that is closed with unread data in it is reset.
        if self.reader.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        let envelope: Value = serde_json::from_str(&line).unwrap();
        let body = envelope["body"].as_str().unwrap();
        if self.request_hash.is_empty() {
            self.request_hash = hex(&Sha256::digest(body));
        }
        let time = envelope["timestampMs"].as_u64().unwrap();
        let mac = self.mac("host", self.received, time, body);
        if self.token.len() == 64 {
            assert_eq!(envelope["mac"], mac.as_str());
        }
        self.received += 1;
        Some(serde_json::from_str(body).unwrap())
    }

    /// Returns the line of a message without sending it.
    pub fn line(&mut self, message: &Value, time: u64) -> String {
        let body = message.to_string();
        let mac = self.mac("companion", self.sent, time, &body);
        self.sent += 1;
        json!({ "body": body, "timestampMs": time, "mac": mac }).to_string()
    }

    pub fn say(&mut self, message: &Value) {
        let line = self.line(message, now_ms());
        self.say_line(&line);
    }

    pub fn say_line(&self, line: &str) {
        let _ = writeln!(&self.stream, "{line}");
    }

    /// Decides about the approval.
    pub fn answer(&mut self, decision: &str) -> Value {
        let answer = self.words(decision);
        self.say(&answer);
        self.hear().unwrap()
    }

    pub fn words(&self, decision: &str) -> Value {
        json!({
            "type": "answer",
            "id": self.approval()["id"],
            "planDigest": self.approval()["planDigest"],
            "decision": decision,
            "decider": "a test",
        })
    }

    fn mac(&self, side: &str, number: u64, time: u64, body: &str) -> String {
        let text = format!(
            "interlock-approval-socket-v1\n{side}\n{number}\n{}\n{}\n{time}\n{}\n{}\n",
            self.companion_nonce,
            self.host_nonce,
            self.request_hash,
            hex(&Sha256::digest(body)),
        );
        let mut mac = Hmac::<Sha256>::new_from_slice(self.token.as_bytes()).unwrap();
        mac.update(text.as_bytes());
        hex(&mac.finalize().into_bytes())
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

pub fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.unwrap().as_millis()).unwrap()
}

/// Returns the state and the detail of every delivery to companions.
pub fn deliveries(machine: &Machine) -> Vec<(String, String)> {
    let database = machine.database();
    let mut found = database
        .prepare(
            "SELECT state, ifnull(detail, '') FROM approval_delivery
             WHERE surface = 'companion' ORDER BY at_ms, state",
        )
        .unwrap();
    let rows = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

pub fn states(machine: &Machine) -> Vec<String> {
    deliveries(machine)
        .into_iter()
        .map(|(state, _)| state)
        .collect()
}

/// Checks that the delivery failed for a reason that contains this text, and that it decided
/// nothing.
#[track_caller]
pub fn failed(machine: &Machine, why: &str) {
    let is_said = |(state, detail): &(String, String)| state == "failed" && detail.contains(why);
    eventually(why, || deliveries(machine).iter().any(is_said));
    assert!(!machine.work().join("marker").exists());
    assert_eq!(machine.pending().len(), 1);
}

/// Removes all deliveries, as if nothing had been delivered.
pub fn forget_deliveries(machine: &Machine) {
    let database = machine.database();
    database
        .execute("DELETE FROM approval_delivery", [])
        .unwrap();
}
