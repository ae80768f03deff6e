//! Records refused attempts in the audit: pages of other sites, wrong names of this machine, wrong
//! secrets, and decisions that do not count.
//!
//! A flood must neither fill the audit nor hide in it. The first attempt of each kind from one
//! place is recorded at once. Further attempts within a minute are counted, and one record states
//! their number. Places and kinds beyond [`MOST_PLACES`] are counted together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName, header};
use interlock_access::{PEER_IN_RUN, PEER_UNIDENTIFIED, RefusedCaller, TOKEN_ROLE};
use interlock_connections::Client;
use interlock_dispatch::work::blocking;
use interlock_host::now_ms;
use interlock_store::{AuditKind, StoreError};
use interlock_wire::{Request, WireError};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use crate::gateway::Gateway;

/// How long attempts of one kind from one place are counted together.
const WINDOW: Duration = Duration::from_mins(1);

/// The time between two checks for counts whose window is over.
const LOOK: Duration = Duration::from_secs(5);

/// The most kinds and places that are counted separately in one window.
const MOST_PLACES: usize = 64;

/// The longest text that a record repeats from an attempt.
const MOST_CHARACTERS: usize = 200;

/// Methods that decide, or change the rules for decisions. A call by a client without the scope is
/// recorded.
const DECIDING: &[&str] = &[
    "exec.approval.resolve",
    "exec.approval.resolveMany",
    "approval.resolve",
    "exec.approval.askAgain",
    "exec.approvals.set",
    "exec.approvals.node.set",
    "config.set",
    "config.patch",
    "device.pair.approve",
    "node.pair.approve",
    "sandbox.recreate",
    "sandbox.prune",
];

/// Methods that decide about an approval. Every refusal of them is recorded.
const DECISIONS: &[&str] = &["exec.approval.resolve", "approval.resolve"];

/// A caller without a proof, or one that waits for its pairing, has not tried anything.
const NO_ATTEMPT: &[&str] = &[
    "AUTH_TOKEN_MISSING",
    "AUTH_PASSWORD_MISSING",
    "PAIRING_REQUIRED",
];

/// Why and where an attempt was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RefusedPlace {
    code: String,
    /// `http`, `ws`, `push` or `hooks`.
    transport: &'static str,
    /// The address, or the client.
    from: String,
}

/// Attempts of one kind from one place.
#[derive(Debug)]
struct CountedAttempts {
    begun: Instant,
    begun_ms: u64,
    /// The number of attempts after the first, which has a record of its own.
    repeated: u64,
}

/// The records that are to be written, and the counts.
#[derive(Debug, Default)]
struct AttemptLog {
    counted: HashMap<RefusedPlace, CountedAttempts>,
    /// Attempts of kinds and places beyond [`MOST_PLACES`].
    others: Option<CountedAttempts>,
    records: Vec<Value>,
}

/// All refused attempts.
#[derive(Debug, Default)]
pub struct RefusedAttempts {
    log: Mutex<AttemptLog>,
    added: Notify,
}

impl RefusedAttempts {
    /// Notes a request that another site caused, or that names another machine. Its query is never
    /// repeated, because it may contain a secret.
    pub fn note_foreign(&self, code: &str, address: &str, headers: &HeaderMap, path: &str) {
        let text = |name: HeaderName| {
            let values = headers.get_all(name).iter();
            let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
            cut(&values.collect::<Vec<_>>().join(", "))
        };
        let details = json!({
            "path": cut(path),
            "host": text(header::HOST),
            "origin": text(header::ORIGIN),
        });
        self.note("http", code, address, details);
    }

    /// Notes an HTTP caller that failed to authenticate. A caller that presented nothing has not
    /// tried anything.
    pub fn note_caller(&self, refused: &RefusedCaller, address: &str) {
        let code = match refused {
            RefusedCaller::Missing => return,
            RefusedCaller::Wrong => "AUTH_WRONG",
            RefusedCaller::UnknownRun | RefusedCaller::InRun => PEER_IN_RUN,
            RefusedCaller::Unidentified(_) => PEER_UNIDENTIFIED,
            RefusedCaller::NodeToken => TOKEN_ROLE,
            RefusedCaller::Limited(_) => "AUTH_RATE_LIMITED",
        };
        self.note("http", code, address, json!({}));
    }

    /// Notes a WebSocket client that was not welcomed.
    pub fn note_connect(&self, error: &WireError, address: &str) {
        let code = error.detail_code();
        if let Some(code) = code.filter(|code| !NO_ATTEMPT.contains(code)) {
            self.note("ws", code, address, json!({}));
        }
    }

    /// Notes a decision that does not count, from a phone, a program or a notification. What the
    /// sender named is repeated as it was written, cut to a limit.
    pub fn note_decision(&self, transport: &'static str, code: &str, address: &str, named: &Value) {
        let named = named.as_object().into_iter().flatten();
        let details = named.map(|(key, value)| {
            let text = value.as_str().unwrap_or_default();
            (key.clone(), cut(text).into())
        });
        self.note(transport, code, address, Value::Object(details.collect()));
    }

    /// Notes a client that may not do what it requested. Nothing else of its request is repeated.
    pub fn note_call(
        &self,
        client: &Client,
        method: &str,
        error: &WireError,
        approval: Option<&str>,
    ) {
        let code = error.detail_code().unwrap_or(error.code.as_str());
        let mut details = json!({ "method": cut(method), "client": cut(client.name()) });
        if let Some(approval) = approval {
            details["approvalId"] = cut(approval).into();
        }
        let from = match (&client.device, client.address) {
            (Some(device), _) => format!("device {device}"),
            (None, Some(address)) => address.to_string(),
            (None, None) => "unix socket".to_owned(),
        };
        self.note("ws", code, &from, details);
    }

    fn note(&self, transport: &'static str, code: &str, from: &str, details: Value) {
        let place = RefusedPlace {
            code: cut(code),
            transport,
            from: cut(from),
        };
        if self.lock().add(place, details, Instant::now()) {
            self.added.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, AttemptLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a call of this method by a client without the scope is recorded.
pub fn is_deciding(method: &str) -> bool {
    DECIDING.contains(&method)
}

/// Whether every refusal of this method is recorded.
pub fn is_decision(method: &str) -> bool {
    DECISIONS.contains(&method)
}

/// Returns the id of the approval that a request names.
pub fn named_approval(request: &Request) -> Option<String> {
    let params = request.params.as_ref()?.get();
    let params: Value = serde_json::from_str(params).ok()?;
    Some(params.get("id")?.as_str()?.to_owned())
}

impl AttemptLog {
    /// Counts an attempt. Returns whether a record is to be written now.
    fn add(&mut self, place: RefusedPlace, details: Value, now: Instant) -> bool {
        let one = || CountedAttempts {
            begun: now,
            begun_ms: now_ms(),
            repeated: 0,
        };
        if let Some(counted) = self.counted.get_mut(&place) {
            counted.repeated += 1;
            return false;
        }
        if self.counted.len() >= MOST_PLACES {
            self.others.get_or_insert_with(one).repeated += 1;
            return false;
        }
        self.records.push(record(&place, details));
        self.counted.insert(place, one());
        true
    }

    /// Takes the records that are to be written: new ones, and the counts whose window is over. The
    /// last call takes all counts.
    fn take(&mut self, now: Instant, is_last: bool) -> Vec<Value> {
        let is_over = |counted: &CountedAttempts| {
            is_last || now.saturating_duration_since(counted.begun) >= WINDOW
        };
        let mut records = std::mem::take(&mut self.records);
        for (place, counted) in self.counted.extract_if(|_, counted| is_over(counted)) {
            if counted.repeated > 0 {
                let more = json!({ "repeated": counted.repeated, "sinceMs": counted.begun_ms });
                records.push(record(&place, more));
            }
        }
        if let Some(others) = self.others.take_if(|others| is_over(others)) {
            records.push(json!({
                "code": "MANY",
                "from": "further places",
                "repeated": others.repeated,
                "sinceMs": others.begun_ms,
            }));
        }
        records
    }
}

fn record(place: &RefusedPlace, details: Value) -> Value {
    let mut body = match details {
        Value::Object(details) => details,
        _ => Map::new(),
    };
    body.insert("code".to_owned(), place.code.as_str().into());
    body.insert("transport".to_owned(), place.transport.into());
    body.insert("from".to_owned(), place.from.as_str().into());
    Value::Object(body)
}

fn cut(text: &str) -> String {
    text.chars().take(MOST_CHARACTERS).collect()
}

/// Writes records of refused attempts until the gateway ends, and then those that are still
/// counted.
pub async fn follow(gateway: Arc<Gateway>) {
    let stop = gateway.dispatcher.stop.clone();
    loop {
        let is_last = tokio::select! {
            () = gateway.refused.added.notified() => false,
            () = tokio::time::sleep(LOOK) => false,
            () = stop.cancelled() => true,
        };
        let writer = Arc::clone(&gateway);
        let written = blocking(move || write(&writer, is_last)).await;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "refused attempts were not recorded"),
            // The gateway stops, and its last thread has ended.
            Err(_) => return,
        }
        if is_last {
            return;
        }
    }
}

fn write(gateway: &Gateway, is_last: bool) -> Result<(), StoreError> {
    let records = gateway.refused.lock().take(Instant::now(), is_last);
    if records.is_empty() {
        return Ok(());
    }
    let at = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    gateway.dispatcher.host.store().change(|change| {
        for record in &records {
            change.append(AuditKind::Refusal, record, at)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(code: &str, from: &str) -> RefusedPlace {
        RefusedPlace {
            code: code.to_owned(),
            transport: "http",
            from: from.to_owned(),
        }
    }

    #[test]
    fn a_flood_is_two_records_and_its_number() {
        let (mut log, now) = (AttemptLog::default(), Instant::now());
        assert!(log.add(place("A", "1"), json!({ "path": "/x" }), now));
        for _ in 0..1_000 {
            assert!(!log.add(place("A", "1"), json!({ "path": "/y" }), now));
        }
        let first = json!({ "code": "A", "transport": "http", "from": "1", "path": "/x" });
        assert_eq!(log.take(now, false), [first]);
        assert_eq!(log.take(now + WINDOW / 2, false), Vec::<Value>::new());
        let counted = log.take(now + WINDOW, false);
        assert_eq!(counted.len(), 1);
        assert_eq!(counted[0]["repeated"], 1_000);
        // A new window begins with a record of its own.
        assert!(log.add(place("A", "1"), json!({}), now + WINDOW));
    }

    #[test]
    fn many_places_are_bounded_and_none_is_lost() {
        let (mut log, now) = (AttemptLog::default(), Instant::now());
        for number in 0..10_000 {
            log.add(place("A", &number.to_string()), json!({}), now);
        }
        let records = log.take(now, true);
        assert_eq!(records.len(), MOST_PLACES + 1);
        let others = u64::try_from(10_000 - MOST_PLACES).unwrap();
        assert_eq!(records[MOST_PLACES]["repeated"], others);
    }
}
