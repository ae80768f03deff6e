//! Marks in the store how sends and edits ended, and when they are tried again.

use std::time::Duration;

use interlock_store::{ChatWork, SentChatMessage, StoreError};

use super::{ChatSender, blocking, now_ms};
use crate::channel::{ChatFailure, MessageRef};
use crate::desk::ApprovalDesk;

/// The pause before the next try doubles from the first value to the last.
const FIRST_PAUSE_MS: i64 = 1_000;
const LONGEST_PAUSE_MS: i64 = 60_000;

impl ChatSender {
    /// Postpones the work of a chat whose platform accepts nothing for this time.
    pub(super) async fn postpone(&self, all: Vec<ChatWork>, pause: Duration) {
        self.memory.pause(&self.target.name, pause);
        let sender = self.clone();
        blocking(move || {
            let pause = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
            let until = now_ms().saturating_add(pause);
            let (store, name) = (sender.desk.store(), &sender.target.name);
            for work in &all {
                if let Err(error) = store.chat_postponed(&work.approval_id, name, until) {
                    tracing::warn!(%error, name, "a chat message was not postponed");
                }
            }
        })
        .await;
    }

    /// Marks how a send ended. Returns the pause that the platform asks for, if any.
    pub(super) async fn note_sent(
        &self,
        work: &ChatWork,
        sent: Result<MessageRef, ChatFailure>,
        offers_allow: bool,
        is_group: bool,
    ) -> Option<Duration> {
        let pause = wanted_pause(&sent);
        let (sender, work) = (self.clone(), work.clone());
        blocking(move || {
            let noted = sender.write_sent(&work, &sent, offers_allow, is_group);
            if let Err(error) = noted {
                tracing::warn!(%error, target = sender.target.name, "a chat message was not marked");
            }
        })
        .await;
        pause
    }

    fn write_sent(
        &self,
        work: &ChatWork,
        sent: &Result<MessageRef, ChatFailure>,
        offers_allow: bool,
        is_group: bool,
    ) -> Result<(), StoreError> {
        let store = self.desk.store();
        let (id, name, now) = (&work.approval_id, &self.target.name, now_ms());
        match sent {
            Ok(at) => {
                let sent = SentChatMessage {
                    chat: &at.chat,
                    message: &at.message,
                    offers_allow,
                    is_group,
                };
                store.chat_sent(id, name, sent, now)?;
            }
            Err(ChatFailure::Busy { after }) => {
                let after = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
                return store.chat_postponed(id, name, now.saturating_add(after));
            }
            Err(ChatFailure::Passing(why)) => {
                let again = now + pause_ms(work.tries);
                store.chat_not_sent(id, name, Some(again), why, now)?;
            }
            Err(ChatFailure::Refused(why)) => {
                store.chat_not_sent(id, name, None, why, now)?;
            }
        }
        self.desk.receipts_changed(id);
        if sent.is_err() {
            fall_back_if_failed(self.desk.as_ref(), id);
        }
        Ok(())
    }

    /// Marks how an edit ended. Returns the pause that the platform asks for, if any.
    pub(super) async fn note_end(
        &self,
        work: ChatWork,
        done: Result<(), ChatFailure>,
    ) -> Option<Duration> {
        let pause = wanted_pause(&done);
        let sender = self.clone();
        blocking(move || {
            let noted = sender.write_end(&work, &done);
            if let Err(error) = noted {
                tracing::warn!(%error, target = sender.target.name, "an edit was not marked");
            }
        })
        .await;
        pause
    }

    fn write_end(&self, work: &ChatWork, done: &Result<(), ChatFailure>) -> Result<(), StoreError> {
        let store = self.desk.store();
        let (id, name) = (&work.approval_id, &self.target.name);
        match done {
            Ok(()) => store.chat_shown(id, name, work.wanted, work.is_final),
            // The message is gone or may not be edited, so another try is useless.
            Err(ChatFailure::Refused(why)) => {
                tracing::warn!(id, name, why, "a chat message cannot be edited");
                store.chat_shown(id, name, work.wanted, true)
            }
            Err(ChatFailure::Busy { after }) => {
                let after = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
                store.chat_postponed(id, name, now_ms().saturating_add(after))
            }
            Err(ChatFailure::Passing(_)) => {
                store.chat_not_edited(id, name, now_ms() + pause_ms(work.tries))
            }
        }
    }
}

/// Lets `askFallback` decide if every target of an approval failed and no other surface shows it,
/// because no approver could answer. Callers must call this whenever a target can no longer show
/// it.
pub(crate) fn fall_back_if_failed(desk: &dyn ApprovalDesk, id: &str) {
    let all_failed = desk.store().has_chat_failed(id).unwrap_or(false);
    let Some(approval) = all_failed.then(|| desk.approval(id).ok()).flatten() else {
        return;
    };
    if approval.ended.is_none() && !desk.is_shown_elsewhere(&approval) {
        desk.fall_back(id);
    }
}

pub(super) fn wanted_pause<T>(done: &Result<T, ChatFailure>) -> Option<Duration> {
    match done {
        Err(ChatFailure::Busy { after }) => Some(*after),
        _ => None,
    }
}

fn pause_ms(tries: u32) -> i64 {
    let doubled = FIRST_PAUSE_MS
        .checked_shl(tries.min(16))
        .unwrap_or(LONGEST_PAUSE_MS);
    doubled.min(LONGEST_PAUSE_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_a_second_to_a_minute() {
        let pauses: Vec<i64> = (0..8).map(pause_ms).collect();
        let expected = [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000];
        assert_eq!(pauses, expected);
        assert_eq!(pause_ms(u32::MAX), 60_000);
    }
}
