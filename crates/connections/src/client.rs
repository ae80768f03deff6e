//! A connection that was welcomed.

use std::collections::{BTreeMap, HashSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlock_wire::params::Client as Program;
use interlock_wire::{Close, Event, Response, Role, Scopes};
use tokio_util::sync::CancellationToken;

use crate::outbox::{Outbox, Outgoing};
use crate::page_topics::PageTopics;

/// The most shown approvals that a connection remembers.
const MAX_SHOWN: usize = 100_000;

/// The identity of a client, as the handshake established it.
#[derive(Debug)]
pub struct KnownClient {
    pub connection: String,
    pub role: Role,
    pub scopes: Scopes,
    pub device: Option<String>,
    /// The stored token with which the client connected. If it is revoked, the connection ends.
    pub token_id: Option<String>,
    pub program: Program,
    /// The surfaces that a client has, or the capabilities that a node offers.
    pub caps: Vec<String>,
    pub commands: Vec<String>,
    pub permissions: BTreeMap<String, bool>,
    pub path_env: Option<String>,
    pub address: Option<std::net::IpAddr>,
    pub connected_at_ms: u64,
}

/// One operator or node: its identity, which never changes, and the state of its connection.
#[derive(Debug)]
pub struct Client {
    known: KnownClient,
    out: Arc<Outbox>,
    /// Cancelled when the connection must end, even if messages still wait to be sent.
    ending: CancellationToken,
    /// The number of the last broadcast event. The lock is held until the event's text is in the
    /// queue, so that numbers arrive in order.
    seq: Mutex<u64>,
    heard_at_ms: AtomicU64,
    shown: Mutex<HashSet<String>>,
    /// Why a node reported itself last.
    seen_reason: Mutex<&'static str>,
    /// The pages of the Control UI that are open on this connection.
    pub topics: PageTopics,
}

impl Deref for Client {
    type Target = KnownClient;

    fn deref(&self) -> &KnownClient {
        &self.known
    }
}

impl Client {
    pub fn new(known: KnownClient, out: Arc<Outbox>, ending: CancellationToken) -> Self {
        Self {
            heard_at_ms: AtomicU64::new(known.connected_at_ms),
            known,
            out,
            ending,
            seq: Mutex::default(),
            shown: Mutex::default(),
            seen_reason: Mutex::new("connect"),
            topics: PageTopics::default(),
        }
    }

    /// Returns why the client reported itself last.
    pub fn seen_reason(&self) -> &'static str {
        *self
            .seen_reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_seen_reason(&self, reason: &'static str) {
        *self
            .seen_reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = reason;
    }

    /// Returns the name that other clients see.
    pub fn name(&self) -> &str {
        self.program
            .display_name
            .as_deref()
            .unwrap_or(&self.program.id)
    }

    /// Returns the client's address as people see it.
    pub fn remote_ip(&self) -> Option<String> {
        remote_ip(self.address)
    }

    /// Returns what identifies the program on another connection: its device, else the token that
    /// it presented and its own name. A client without a device connects from this machine
    /// (`handshake`).
    pub fn reader(&self) -> String {
        match &self.device {
            Some(device) => format!("device:{device}"),
            None => {
                let token = self.token_id.as_deref().unwrap_or("shared");
                format!("token:{token}:{}", self.program.id)
            }
        }
    }

    /// Returns the id by which lists of senders name the client: its device, else the token that it
    /// presented. The client's own name is not proven, so it is not used.
    pub fn sender_id(&self) -> &str {
        let shared = "operator";
        let known = self.device.as_deref().or(self.token_id.as_deref());
        known.unwrap_or(shared)
    }

    /// Returns the surface that approvals shown on this connection are recorded under.
    pub fn surface(&self) -> String {
        format!("ws:{}", self.connection)
    }

    /// Remembers that an approval was sent to this connection.
    pub fn show(&self, approval: &str) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.len() < MAX_SHOWN {
            shown.insert(approval.to_owned());
        }
    }

    pub fn was_shown(&self, approval: &str) -> bool {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.contains(approval)
    }

    /// Sends a response, from this thread if the socket accepts it at once.
    pub fn answer(&self, response: &Response) {
        self.must_send(response.to_text(), Outbox::send);
    }

    /// Queues an event for this connection alone.
    pub fn tell(&self, event: &Event) {
        self.must_send(event.text_with(None), Outbox::leave);
    }

    /// Sends an event for this connection alone, from this thread if the socket accepts it at once.
    pub fn tell_now(&self, event: &Event) {
        self.must_send(event.text_with(None), Outbox::send);
    }

    /// Queues an event for many clients. If a slow client has no room for it, the event is left
    /// out. Its number is used up, so that the client notices the gap.
    pub fn broadcast(&self, event: &Event) {
        let mut seq = self.seq.lock().unwrap_or_else(PoisonError::into_inner);
        *seq += 1;
        let text = event.text_with(Some(*seq));
        if self.out.has_room(text.len()) {
            self.out.leave(Outgoing::Text(text));
        }
    }

    /// Ends the connection. Messages that wait are still sent within the time for last words. After
    /// that, a client that reads nothing is cut off.
    pub fn close(&self, close: Close) {
        self.out.leave(Outgoing::Close(close));
        self.ending.cancel();
    }

    /// Asks the client to show that it is alive, unless such an answer is already due.
    pub fn ping(&self) {
        if !self.out.pulse.is_owed() {
            self.out.leave(Outgoing::Ping);
        }
    }

    pub fn heard(&self, now_ms: u64) {
        self.heard_at_ms.store(now_ms, Ordering::Relaxed);
        self.out.pulse.heard();
    }

    /// Returns how long an answer or a read by the client has been overdue.
    pub fn silence(&self, now_ms: u64) -> Duration {
        self.out.pulse.silence(now_ms)
    }

    pub fn heard_at_ms(&self) -> u64 {
        self.heard_at_ms.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that wait to be sent to the client.
    pub fn buffered_bytes(&self) -> usize {
        self.out.bytes()
    }

    /// Whether nothing more is sent to the client.
    pub fn is_gone(&self) -> bool {
        self.out.is_over()
    }

    /// Whether the connection has ended or is about to.
    pub fn is_ending(&self) -> bool {
        self.ending.is_cancelled() || self.is_gone()
    }

    /// Sends a message that must arrive. A client that has no room for it is too slow and is
    /// disconnected.
    fn must_send(&self, text: String, send: impl FnOnce(&Outbox, Outgoing)) {
        if self.out.has_room(text.len()) {
            send(&self.out, Outgoing::Text(text));
        } else {
            self.close(Close::slow_consumer());
        }
    }
}

/// Returns an address as people see it, or `None` for this machine.
pub fn remote_ip(address: Option<std::net::IpAddr>) -> Option<String> {
    let address = address.map(|address| address.to_canonical());
    let remote = address.filter(|address| !address.is_loopback());
    remote.map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::remote_ip;

    #[test]
    fn only_addresses_of_other_machines_are_shown() {
        let shown = |text: &str| remote_ip(Some(text.parse().unwrap()));
        assert_eq!(shown("10.0.0.7"), Some("10.0.0.7".to_owned()));
        assert_eq!(shown("::ffff:10.0.0.7"), Some("10.0.0.7".to_owned()));
        assert_eq!(shown("fd00::1"), Some("fd00::1".to_owned()));
        for local in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(shown(local), None, "{local}");
        }
        assert_eq!(remote_ip(None), None);
    }
}
