//! The pages of the Control UI that a connection has open.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use interlock_wire::results::{UiPatch, UiPatchOp};
use interlock_wire::{Event, event};

use super::Client;

/// The topic of approvals, which every page follows.
pub const APPROVALS: &str = "approvals";

/// Topics of one connection at most.
const MOST_TOPICS: usize = 64;

/// What a connection follows, with the number of the last patch of each topic. None: it has opened no
/// page.
#[derive(Debug, Default)]
pub struct PageTopics(Mutex<Option<HashMap<String, u64>>>);

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

    /// Sends a patch, if the topic is followed. Its number is given while the queue is held, so that
    /// patches arrive in their order.
    pub fn send(&self, client: &Client, topic: &str, ops: &[UiPatchOp], change: Option<i64>) {
        let mut topics = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seq) = topics.as_mut().and_then(|topics| topics.get_mut(topic)) else {
            return;
        };
        *seq += 1;
        let patch = UiPatch {
            topic: topic.to_owned(),
            seq: *seq,
            ops: ops.to_vec(),
            pending_change: change,
        };
        if let Ok(event) = Event::new(event::UI_PATCH, &patch) {
            client.tell(&event);
        }
    }
}
