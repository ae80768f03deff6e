//! A connection that was welcomed.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlock_wire::hello::MAX_BUFFERED_BYTES;
use interlock_wire::params::Client as Program;
use interlock_wire::{Close, Event, Response, Role, Scopes};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_util::sync::CancellationToken;

/// What waits for all clients together. A client for which it would become more is too slow.
const MAX_BUFFERED_IN_ALL: usize = 512 * 1024 * 1024;

/// Approvals that a connection is remembered to have been shown.
const MAX_SHOWN: usize = 100_000;

/// What the writer of a connection is told.
#[derive(Debug)]
pub(super) enum Outgoing {
    Text(Utf8Bytes),
    Ping,
    Close(Close),
}

/// One operator or node.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) connection: String,
    pub(crate) role: Role,
    pub(crate) scopes: Scopes,
    pub(crate) device: Option<String>,
    pub(crate) program: Program,
    /// Surfaces that it has, or what a node offers.
    pub(crate) caps: Vec<String>,
    pub(crate) commands: Vec<String>,
    pub(crate) permissions: BTreeMap<String, bool>,
    pub(crate) path_env: Option<String>,
    pub(crate) address: Option<std::net::IpAddr>,
    pub(crate) connected_at_ms: u64,
    out: mpsc::UnboundedSender<Outgoing>,
    buffered: Arc<AtomicUsize>,
    buffered_in_all: Arc<AtomicUsize>,
    ending: CancellationToken,
    /// The number of the last event that went to many. Held until its text is in the queue: numbers
    /// come in their order.
    seq: Mutex<u64>,
    heard_at_ms: AtomicU64,
    pub(super) pulse: Arc<Pulse>,
    shown: Mutex<HashSet<String>>,
}

/// What a client is made of, besides what it said of itself.
pub(super) struct Line {
    pub(super) out: mpsc::UnboundedSender<Outgoing>,
    pub(super) buffered: Arc<AtomicUsize>,
    pub(super) buffered_in_all: Arc<AtomicUsize>,
    /// Cancelled when the connection is to end, whatever still waits to be sent.
    pub(super) ending: CancellationToken,
    pub(super) pulse: Arc<Pulse>,
}

/// Whether a client is alive: since when it owes something, as seen by who writes to it. Time in which this
/// gateway had no time for it does not count.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// When it was asked for a sign of life that has not come; 0 if it owes none.
    asked_at_ms: AtomicU64,
    /// Since when something is being sent that it does not take; 0 if nothing is.
    sending_since_ms: AtomicU64,
}

impl Pulse {
    fn is_owed(&self) -> bool {
        self.asked_at_ms.load(Ordering::Relaxed) != 0
    }

    pub(super) fn asks(&self, now_ms: u64) {
        self.asked_at_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(super) fn sends(&self, now_ms: u64) {
        self.sending_since_ms.store(now_ms, Ordering::Relaxed);
    }

    pub(super) fn sent(&self) {
        self.sending_since_ms.store(0, Ordering::Relaxed);
    }

    /// How long it owes something.
    pub(super) fn silence(&self, now_ms: u64) -> Duration {
        let since = |time: &AtomicU64| match time.load(Ordering::Relaxed) {
            0 => 0,
            time => now_ms.saturating_sub(time),
        };
        let longest = since(&self.asked_at_ms).max(since(&self.sending_since_ms));
        Duration::from_millis(longest)
    }
}

/// Who a client is, as the handshake found.
pub(super) struct Known {
    pub(super) connection: String,
    pub(super) role: Role,
    pub(super) scopes: Scopes,
    pub(super) device: Option<String>,
    pub(super) program: Program,
    pub(super) caps: Vec<String>,
    pub(super) commands: Vec<String>,
    pub(super) permissions: BTreeMap<String, bool>,
    pub(super) path_env: Option<String>,
    pub(super) address: Option<std::net::IpAddr>,
    pub(super) now_ms: u64,
}

impl Client {
    pub(super) fn new(known: Known, line: Line) -> Self {
        Self {
            connection: known.connection,
            role: known.role,
            scopes: known.scopes,
            device: known.device,
            program: known.program,
            caps: known.caps,
            commands: known.commands,
            permissions: known.permissions,
            path_env: known.path_env,
            address: known.address,
            connected_at_ms: known.now_ms,
            out: line.out,
            buffered: line.buffered,
            buffered_in_all: line.buffered_in_all,
            ending: line.ending,
            seq: Mutex::default(),
            heard_at_ms: AtomicU64::new(known.now_ms),
            pulse: line.pulse,
            shown: Mutex::default(),
        }
    }

    /// How others are told of it.
    pub(crate) fn name(&self) -> &str {
        self.program
            .display_name
            .as_deref()
            .unwrap_or(&self.program.id)
    }

    /// Where it comes from, as people are shown it.
    pub(crate) fn remote_ip(&self) -> Option<String> {
        crate::pairing::remote_ip(self.address)
    }

    /// As a surface that approvals are shown on.
    pub(crate) fn surface(&self) -> String {
        format!("ws:{}", self.connection)
    }

    /// Remembers that an approval was sent to this connection.
    pub(crate) fn show(&self, approval: &str) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.len() < MAX_SHOWN {
            shown.insert(approval.to_owned());
        }
    }

    pub(crate) fn was_shown(&self, approval: &str) -> bool {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.contains(approval)
    }

    pub(crate) fn answer(&self, response: &Response) {
        self.must_send(response.to_text());
    }

    /// An event for this connection alone.
    pub(crate) fn tell(&self, event: &Event) {
        self.must_send(event.text_with(None));
    }

    /// An event for many. One that a slow client has no room for is left out; its number is used up,
    /// so that the client can tell.
    pub(super) fn broadcast(&self, event: &Event) {
        let mut seq = self.seq.lock().unwrap_or_else(PoisonError::into_inner);
        *seq += 1;
        let text = event.text_with(Some(*seq));
        if self.has_room(text.len()) {
            self.push(text);
        }
    }

    /// Ends the connection: what waits is still sent, for as long as last words may take. One that
    /// takes nothing any more is cut then.
    pub(crate) fn close(&self, close: Close) {
        let _ = self.out.send(Outgoing::Close(close));
        self.ending.cancel();
    }

    /// Asks for a sign of life, unless one is owed already.
    pub(super) fn ping(&self) {
        if !self.pulse.is_owed() {
            let _ = self.out.send(Outgoing::Ping);
        }
    }

    pub(super) fn heard(&self, now_ms: u64) {
        self.heard_at_ms.store(now_ms, Ordering::Relaxed);
        self.pulse.asked_at_ms.store(0, Ordering::Relaxed);
    }

    pub(crate) fn heard_at_ms(&self) -> u64 {
        self.heard_at_ms.load(Ordering::Relaxed)
    }

    /// What waits to be sent to it.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.buffered.load(Ordering::Relaxed)
    }

    /// Nobody sends anything to it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.out.is_closed()
    }

    /// What must arrive: a client that has no room for it is too slow to go on with.
    fn must_send(&self, text: String) {
        if self.has_room(text.len()) {
            self.push(text);
        } else {
            self.close(Close::slow_consumer());
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        let own = self.buffered.load(Ordering::Relaxed);
        let all = self.buffered_in_all.load(Ordering::Relaxed);
        own.saturating_add(bytes) <= MAX_BUFFERED_BYTES
            && all.saturating_add(bytes) <= MAX_BUFFERED_IN_ALL
    }

    fn push(&self, text: String) {
        let bytes = text.len();
        self.buffered.fetch_add(bytes, Ordering::Relaxed);
        self.buffered_in_all.fetch_add(bytes, Ordering::Relaxed);
        if self.out.send(Outgoing::Text(text.into())).is_err() {
            // It is gone, and what waited for it too.
            self.buffered_in_all.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}
