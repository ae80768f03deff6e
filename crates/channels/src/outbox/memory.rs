//! What is remembered of each chat while the gateway runs: its recent prompts, the message for several
//! approvals, and when it takes the next one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::channel::MessageRef;

/// More approvals than this in that time are one message.
pub(super) const MOST_SINGLE: usize = 3;
const GROUP_WINDOW: Duration = Duration::from_secs(10);

/// A chat that takes nothing for longer than this is not waited for: its messages are due later.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// What is remembered of each chat while the gateway runs.
#[derive(Debug, Default)]
pub(crate) struct ChatMemory(Mutex<HashMap<String, ChatRecent>>);

#[derive(Debug, Default)]
struct ChatRecent {
    /// When prompts came for it.
    asked: Vec<Instant>,
    /// The message for several approvals that is still added to.
    group: Option<ChatGroup>,
    /// Nothing is sent before.
    free_at: Option<Instant>,
}

#[derive(Debug, Clone)]
pub(super) struct ChatGroup {
    pub(super) at: MessageRef,
    /// Ids of approvals that it lists.
    pub(super) members: Vec<String>,
}

impl ChatMemory {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, ChatRecent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes one more approval for a chat; whether it goes into a message for several.
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

    /// Returns when the chat may get its next message.
    pub(super) async fn until_free(&self, target: &str) {
        let free_at = self.lock().get(target).and_then(|recent| recent.free_at);
        if let Some(at) = free_at {
            tokio::time::sleep_until(at.into()).await;
        }
    }

    /// How long a chat that was asked to wait has to wait. The pause between two messages is none of this.
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
