//! The memory of each chat while the gateway runs: its recent prompts, the message for several
//! approvals, and when the chat accepts the next message.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::channel::MessageRef;

/// If more approvals than this arrive within the window, they share one message.
pub(super) const MOST_SINGLE: usize = 3;
const GROUP_WINDOW: Duration = Duration::from_secs(10);

/// The longest wait for a chat. If it accepts nothing for longer, its messages become due later.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The memory of all chats while the gateway runs.
#[derive(Debug, Default)]
pub(crate) struct ChatMemory(Mutex<HashMap<String, ChatRecent>>);

#[derive(Debug, Default)]
struct ChatRecent {
    /// When the chat's recent prompts came.
    asked: Vec<Instant>,
    /// The message for several approvals to which more are still added.
    group: Option<ChatGroup>,
    /// The time before which nothing is sent.
    free_at: Option<Instant>,
}

#[derive(Debug, Clone)]
pub(super) struct ChatGroup {
    pub(super) at: MessageRef,
    /// The ids of the approvals that the message lists.
    pub(super) members: Vec<String>,
}

impl ChatMemory {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, ChatRecent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes one more approval for a chat. Returns whether it joins a message for several.
    pub(super) fn note_asked(&self, target: &str) -> bool {
        let mut all = self.lock();
        let recent = all.entry(target.to_owned()).or_default();
        let now = Instant::now();
        recent
            .asked
            .retain(|at| now.duration_since(*at) < GROUP_WINDOW);
        recent.asked.push(now);
        if recent.asked.len() <= MOST_SINGLE {
            recent.group = None;
            return false;
        }
        true
    }

    pub(super) fn group(&self, target: &str) -> Option<ChatGroup> {
        self.lock().get(target)?.group.clone()
    }

    pub(super) fn set_group(&self, target: &str, group: ChatGroup) {
        self.lock().entry(target.to_owned()).or_default().group = Some(group);
    }

    /// Waits until the chat may receive its next message.
    pub(super) async fn until_free(&self, target: &str) {
        let free_at = self.lock().get(target).and_then(|recent| recent.free_at);
        if let Some(at) = free_at {
            tokio::time::sleep_until(at.into()).await;
        }
    }

    /// Returns the remaining pause that a platform asked for. The usual pause between two messages
    /// does not count.
    pub(super) fn wanted_pause(&self, target: &str) -> Option<Duration> {
        let free_at = self.lock().get(target)?.free_at?;
        let left = free_at.saturating_duration_since(Instant::now());
        (left > LONGEST_WAIT).then_some(left)
    }

    pub(super) fn pause(&self, target: &str, pause: Duration) {
        let mut all = self.lock();
        all.entry(target.to_owned()).or_default().free_at = Some(Instant::now() + pause);
    }
}
