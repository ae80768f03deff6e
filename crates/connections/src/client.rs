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

/// Approvals that a connection is remembered to have been shown.
const MAX_SHOWN: usize = 100_000;

/// Who a client is, as the handshake found.
#[derive(Debug)]
pub struct KnownClient {
    pub connection: String,
    pub role: Role,
    pub scopes: Scopes,
    pub device: Option<String>,
    /// The stored token that it came with: when that is revoked, the connection ends.
    pub token_id: Option<String>,
    pub program: Program,
    /// Surfaces that it has, or what a node offers.
    pub caps: Vec<String>,
    pub commands: Vec<String>,
    pub permissions: BTreeMap<String, bool>,
    pub path_env: Option<String>,
    pub address: Option<std::net::IpAddr>,
    pub connected_at_ms: u64,
}

/// One operator or node: who it is, which never changes, and what has gone between it and the gateway.
#[derive(Debug)]
pub struct Client {
    known: KnownClient,
    out: Arc<Outbox>,
    /// Cancelled when the connection is to end, whatever still waits to be sent.
    ending: CancellationToken,
    /// The number of the last event that went to many. Held until its text is in the queue: numbers
    /// come in their order.
    seq: Mutex<u64>,
    heard_at_ms: AtomicU64,
    shown: Mutex<HashSet<String>>,
    /// Why a node was heard of last, as it said.
    seen_reason: Mutex<&'static str>,
    /// The pages of the Control UI that it has open.
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

    /// Why the client was heard of last.
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

    /// Its name as other clients see it.
    pub fn name(&self) -> &str {
        self.program
            .display_name
            .as_deref()
            .unwrap_or(&self.program.id)
    }

    /// Where it comes from, as people are shown it.
    pub fn remote_ip(&self) -> Option<String> {
        remote_ip(self.address)
    }

    /// By what the program is known again on another connection: its device, else the token that it shows
    /// and its own name. Without a device it comes from this machine (`handshake`).
    pub fn reader(&self) -> String {
        match &self.device {
            Some(device) => format!("device:{device}"),
            None => {
                let token = self.token_id.as_deref().unwrap_or("shared");
                format!("token:{token}:{}", self.program.id)
            }
        }
    }

    /// The id by which lists of senders name it: its device, else the token that it shows. What it calls
    /// itself is not proven.
    pub fn sender_id(&self) -> &str {
        let shared = "operator";
        let known = self.device.as_deref().or(self.token_id.as_deref());
        known.unwrap_or(shared)
    }

    /// As a surface that approvals are shown on.
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

    /// Sent from here, if it can be sent at once.
    pub fn answer(&self, response: &Response) {
        self.must_send(response.to_text(), Outbox::send);
    }

    /// An event for this connection alone.
    pub fn tell(&self, event: &Event) {
        self.must_send(event.text_with(None), Outbox::leave);
    }

    /// The same, sent from here if it can be sent at once.
    pub fn tell_now(&self, event: &Event) {
        self.must_send(event.text_with(None), Outbox::send);
    }

    /// An event for many. One that a slow client has no room for is left out; its number is used up,
    /// so that the client can tell.
    pub fn broadcast(&self, event: &Event) {
        let mut seq = self.seq.lock().unwrap_or_else(PoisonError::into_inner);
        *seq += 1;
        let text = event.text_with(Some(*seq));
        if self.out.has_room(text.len()) {
            self.out.leave(Outgoing::Text(text));
        }
    }

    /// Ends the connection: what waits is still sent, for as long as last words may take. One that
    /// takes nothing any more is cut then.
    pub fn close(&self, close: Close) {
        self.out.leave(Outgoing::Close(close));
        self.ending.cancel();
    }

    /// Asks for a sign of life, unless one is owed already.
    pub fn ping(&self) {
        if !self.out.pulse.is_owed() {
            self.out.leave(Outgoing::Ping);
        }
    }

    pub fn heard(&self, now_ms: u64) {
        self.heard_at_ms.store(now_ms, Ordering::Relaxed);
        self.out.pulse.heard();
    }

    /// How long it owes something.
    pub fn silence(&self, now_ms: u64) -> Duration {
        self.out.pulse.silence(now_ms)
    }

    pub fn heard_at_ms(&self) -> u64 {
        self.heard_at_ms.load(Ordering::Relaxed)
    }

    /// What waits to be sent to it.
    pub fn buffered_bytes(&self) -> usize {
        self.out.bytes()
    }

    /// Nothing is sent to it any more.
    pub fn is_gone(&self) -> bool {
        self.out.is_over()
    }

    /// Its connection is about to end, or has.
    pub fn is_ending(&self) -> bool {
        self.ending.is_cancelled() || self.is_gone()
    }

    /// What must arrive: a client that has no room for it is too slow to go on with.
    fn must_send(&self, text: String, send: impl FnOnce(&Outbox, Outgoing)) {
        if self.out.has_room(text.len()) {
            send(&self.out, Outgoing::Text(text));
        } else {
            self.close(Close::slow_consumer());
        }
    }
}

/// An address as people are shown it; none for this machine.
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
