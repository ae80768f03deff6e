//! The pages of the Control UI that a connection has open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use interlock_wire::results::UiPatchOp;
use interlock_wire::{Event, event};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::client::Client;

/// The topic of approvals, which every page follows.
pub const APPROVALS: &str = "approvals";

/// The most topics of one connection.
const MOST_TOPICS: usize = 64;

/// The topics that a connection follows, with the number of the last patch of each. `None` if the
/// connection has opened no page.
#[derive(Debug, Default)]
pub struct PageTopics(Mutex<Option<HashMap<String, u64>>>);

/// A [`UiPatch`](interlock_wire::results::UiPatch) whose changes are serialized once for all
/// connections that follow the topic. Only the number differs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SharedPatch<'a> {
    topic: &'a str,
    seq: u64,
    ops: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    pending_change: Option<i64>,
}

/// Sends one change to the connections that follow its topic.
pub fn send_patch(clients: &[Arc<Client>], topic: &str, ops: &[UiPatchOp], change: Option<i64>) {
    let Ok(ops) = serde_json::value::to_raw_value(ops) else {
        return;
    };
    for client in clients {
        client.topics.send(client, topic, &ops, change);
    }
}

impl PageTopics {
    /// Follows a topic, and returns the number of its last patch.
    pub fn follow(&self, topic: &str) -> u64 {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let topics = topics.get_or_insert_default();
        if topics.len() >= MOST_TOPICS && !topics.contains_key(topic) {
            topics.retain(|name, _| name == APPROVALS);
        }
        *topics.entry(topic.to_owned()).or_default()
    }

    pub fn leave(&self, topic: &str) -> bool {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_left = topic != APPROVALS;
        has_left
            && topics
                .as_mut()
                .is_some_and(|topics| topics.remove(topic).is_some())
    }

    pub fn follows(&self, topic: &str) -> bool {
        let topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        topics
            .as_ref()
            .is_some_and(|topics| topics.contains_key(topic))
    }

    /// Whether this connection is a page.
    pub fn has_page(&self) -> bool {
        let topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        topics.is_some()
    }

    /// Sends a patch if the connection follows the topic. The number is assigned while the lock is
    /// held, so that patches arrive in order.
    fn send(&self, client: &Client, topic: &str, ops: &RawValue, change: Option<i64>) {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seq) = topics.as_mut().and_then(|topics| topics.get_mut(topic)) else {
            return;
        };
        *seq += 1;
        let patch = SharedPatch {
            topic,
            seq: *seq,
            ops,
            pending_change: change,
        };
        if let Ok(event) = Event::new(event::UI_PATCH, &patch) {
            client.tell(&event);
        }
    }
}
