//! Sends and edits the messages that are due according to the store, one chat at a time.
//!
//! The store is the truth: a sent message is marked with the platform's ids, and a message without
//! a mark is sent again. A restart loses nothing. It repeats a message only if it falls between the
//! platform's answer and the mark, on a platform without idempotency keys.

use std::sync::Arc;
use std::time::Duration;

use interlock_approvals::{PendingApproval, RecordedOutcome};
use interlock_store::{ApprovalDecision, ChatWork, ClaimState, Delivery, DeliveryState};
use sha2::{Digest as _, Sha256};

use crate::channel::{
    ChannelKind, ChatChannel, ChatFailure, MessageEdit, MessageRef, NewMessage, ReadFrom,
};
use crate::desk::ApprovalDesk;
use crate::message::{self, ChatMessage};
use crate::rights::{ChatRights, target_rights};
use crate::settings::{ChatTarget, chat_approvals, taken_decisions, takes_decisions};

mod marks;
mod memory;

pub(crate) use marks::fall_back_if_failed;
use marks::wanted_pause;
pub(crate) use memory::ChatMemory;
use memory::{ChatGroup, MOST_SINGLE};

/// One chat that has work, and everything that its work needs.
#[derive(Debug, Clone)]
pub(crate) struct ChatSender {
    pub(crate) desk: Arc<dyn ApprovalDesk>,
    pub(crate) channel: Arc<dyn ChatChannel>,
    pub(crate) target: ChatTarget,
    pub(crate) memory: Arc<ChatMemory>,
    /// The name under which the account's cursor is stored. `None` if the account is not read.
    pub(crate) cursor_name: Option<String>,
}

impl ChatSender {
    /// Does the work of one chat in order. If the platform asks for a pause, the rest of the work
    /// waits for it.
    pub(crate) async fn work(self, all: Vec<ChatWork>) {
        if let Some(pause) = self.memory.wanted_pause(&self.target.name) {
            return self.postpone(all, pause).await;
        }
        // Messages that are tried again were counted at their first try.
        let tried = all.iter().filter(|work| work.is_queued && work.tries > 0);
        let are_many = tried.count() > MOST_SINGLE;
        let mut grouped: Vec<ChatWork> = Vec::new();
        // A message for several approvals is edited once for all of them that ended.
        let mut edited: Vec<String> = Vec::new();
        let mut rest = all.into_iter();
        while let Some(work) = rest.next() {
            let is_shown = work.is_group
                && work
                    .message
                    .as_ref()
                    .is_some_and(|message| edited.contains(message));
            let pause = if work.is_queued {
                self.ask(work, are_many, &mut grouped).await
            } else if is_shown {
                self.note_end(work, Ok(())).await
            } else {
                edited.extend(work.message.clone().filter(|_| work.is_group));
                self.show_end(&work).await
            };
            if let Some(pause) = pause {
                grouped.extend(rest);
                return self.postpone(grouped, pause).await;
            }
        }
        if !grouped.is_empty() {
            self.send_group(grouped).await;
        }
    }

    /// Sends a prompt. Returns the pause that the platform asks for, if any.
    async fn ask(
        &self,
        work: ChatWork,
        are_many: bool,
        grouped: &mut Vec<ChatWork>,
    ) -> Option<Duration> {
        let approval = self.wanted(&work).await?;
        // Programs receive each approval as a message of its own.
        let is_for_people = self.target.kind != ChannelKind::Webhook;
        let is_one_of_many = match work.tries {
            0 => is_for_people && self.memory.note_asked(&self.target.name),
            _ => is_for_people && are_many,
        };
        if is_one_of_many {
            grouped.push(work);
            return None;
        }
        let (sender, asked) = (self.clone(), approval.clone());
        let (mut message, mut is_whole) = blocking(move || sender.prompt(&asked)).await?;
        let mut key = key(&approval.id, &self.target.name, "asked");
        let sent = match self.begin_reading().await {
            Ok(()) => {
                let sent = self.send_in_turn(&message, &key).await;
                if is_for_people && matches!(sent, Err(ChatFailure::Refused(_))) {
                    let (sender, asked) = (self.clone(), approval.clone());
                    message = blocking(move || sender.prompt_without_text(&asked)).await?;
                    is_whole = false;
                    key = self::key(&approval.id, &self.target.name, "asked without text");
                    self.send_in_turn(&message, &key).await
                } else {
                    sent
                }
            }
            Err(failure) => Err(failure),
        };
        let at = sent.as_ref().ok().cloned();
        let pause = self.note_sent(&work, sent, is_whole, false).await;
        if let Some(at) = at {
            let (at, message, key) = (&at, &message, key.as_str());
            let of = MessageEdit { at, message, key };
            self.channel.send_buttons(of).await;
        }
        pause
    }

    /// Sends a message as soon as the chat accepts the next one.
    async fn send_in_turn(
        &self,
        message: &ChatMessage,
        key: &str,
    ) -> Result<MessageRef, ChatFailure> {
        self.memory.until_free(&self.target.name).await;
        let target = &self.target;
        let new = NewMessage {
            target,
            message,
            key,
        };
        let sent = self.channel.send(new).await;
        self.memory.pause(&self.target.name, self.channel.pause());
        // A message whose ids the store cannot hold would be sent again forever.
        sent.and_then(|at| match at.check() {
            Ok(()) => Ok(at),
            Err(error) => Err(ChatFailure::Refused(error.to_string())),
        })
    }

    /// Edits a message as soon as the chat accepts the next one. If the platform refuses an agent's
    /// text, the rest is shown without it.
    async fn edit_in_turn(
        &self,
        at: &MessageRef,
        mut message: ChatMessage,
        key: &str,
    ) -> Result<(), ChatFailure> {
        loop {
            self.memory.until_free(&self.target.name).await;
            let edit = MessageEdit {
                at,
                message: &message,
                key,
            };
            let done = self.channel.edit(edit).await;
            self.memory.pause(&self.target.name, self.channel.pause());
            if message.block.is_empty() || !matches!(done, Err(ChatFailure::Refused(_))) {
                return done;
            }
            message.block.clear();
        }
    }

    /// Stores a cursor of the account before its first prompt, so that no answer to the prompt is
    /// older.
    async fn begin_reading(&self) -> Result<(), ChatFailure> {
        let Some(name) = self.cursor_name.clone() else {
            return Ok(());
        };
        let (desk, known) = (Arc::clone(&self.desk), name.clone());
        let known = blocking(move || desk.store().chat_cursor(&known)).await;
        if !matches!(known, Some(Ok(None))) {
            return Ok(());
        }
        let now = ReadFrom {
            cursor: None,
            approvers: &[],
        };
        let begun = self.channel.updates(now).await?.cursor;
        let desk = Arc::clone(&self.desk);
        blocking(move || begun.map(|begun| desk.store().begin_chat_cursor(&name, &begun))).await;
        Ok(())
    }

    /// Returns the approval of a queued message, if it must still be sent.
    async fn wanted(&self, work: &ChatWork) -> Option<PendingApproval> {
        let (sender, work) = (self.clone(), work.clone());
        blocking(move || {
            let store = sender.desk.store();
            let (id, name) = (&work.approval_id, &sender.target.name);
            let dropped = |why: &str| {
                tracing::debug!(id, name, why, "a chat message is not sent");
                let _ = store.chat_dropped(id, name);
                fall_back_if_failed(sender.desk.as_ref(), id);
            };
            let approval = match sender.desk.approval(id) {
                Ok(approval) => approval,
                Err(error) => {
                    let now = now_ms();
                    let _ = store.chat_not_sent(id, name, None, &error.to_string(), now);
                    return None;
                }
            };
            if approval.ended.is_some() {
                dropped("it has ended");
                return None;
            }
            if !sender.target.wants(&approval.agent, &approval.session_key) {
                dropped("the target does not want it");
                return None;
            }
            let is_seen = |one: &Delivery| one.state == DeliveryState::Seen;
            if sender.target.after_ms > 0 && approval.deliveries.iter().any(is_seen) {
                dropped("it was seen elsewhere");
                return None;
            }
            if work.tries == 0 {
                let queued = Delivery {
                    surface: name.clone(),
                    state: DeliveryState::Queued,
                    at_ms: now_ms(),
                    detail: None,
                };
                let _ = store.record_delivery(id, &queued);
            }
            Some(approval)
        })
        .await
        .flatten()
    }

    fn prompt(&self, approval: &PendingApproval) -> (ChatMessage, bool) {
        let (rights, link) = (self.rights(approval), self.approval_page(&approval.id));
        message::prompt(self.channel.as_ref(), approval, rights, link)
    }

    fn prompt_without_text(&self, approval: &PendingApproval) -> ChatMessage {
        let (rights, link) = (self.rights(approval), self.approval_page(&approval.id));
        message::without_text(approval, rights, link)
    }

    fn rights(&self, approval: &PendingApproval) -> ChatRights {
        let mut rights = target_rights(self.desk.as_ref(), self.target.kind, approval);
        if !self.channel.takes_typed(&self.target) {
            rights.buttons_only();
        }
        rights
    }

    /// Whether an approval in a message for several can be denied by typing.
    fn denies_by_typing(&self) -> bool {
        let (kind, deny) = (self.target.kind, ApprovalDecision::Deny.as_str());
        let config = self.desk.config();
        self.channel.takes_typed(&self.target)
            && config
                .as_ref()
                .map(|file| file.config())
                .is_some_and(|config| {
                    takes_decisions(config, kind)
                        && taken_decisions(config, kind)
                            .is_none_or(|all| all.iter().any(|one| one == deny))
                })
    }

    fn approval_page(&self, id: &str) -> Option<String> {
        self.desk.page(&format!("approve/{id}"))
    }

    /// Sends one message for all of these approvals and those that it already lists.
    async fn send_group(&self, new: Vec<ChatWork>) {
        let name = self.target.name.clone();
        let mut members = self
            .memory
            .group(&name)
            .map_or_else(Vec::new, |group| group.members);
        members.extend(new.iter().map(|work| work.approval_id.clone()));
        let known = self.memory.group(&name).map(|group| group.at);
        let sent = self.show_group(&members, known.as_ref()).await;
        if let Ok(at) = &sent {
            let at = at.clone();
            self.memory.set_group(&name, ChatGroup { at, members });
        }
        if let Some(pause) = wanted_pause(&sent) {
            return self.postpone(new, pause).await;
        }
        for work in &new {
            self.note_sent(work, sent.clone(), false, true).await;
        }
    }

    /// Sends or edits a message for several approvals.
    async fn show_group(
        &self,
        members: &[String],
        known: Option<&MessageRef>,
    ) -> Result<MessageRef, ChatFailure> {
        let (sender, ids) = (self.clone(), members.to_vec());
        let made = blocking(move || {
            let read = ids.iter().filter_map(|id| {
                let approval = sender.desk.approval(id).ok()?;
                let outcome = sender.outcome(id);
                Some((approval, outcome))
            });
            let all: Vec<_> = read.collect();
            let denies = sender.denies_by_typing();
            message::group(sender.channel.as_ref(), &all, denies, sender.desk.page(""))
        });
        let Some(mut message) = made.await else {
            return Err(ChatFailure::Passing("the gateway stops".to_owned()));
        };
        let key = key(&members.join(","), &self.target.name, &message.title);
        if let Some(at) = known {
            let edited = self.edit_in_turn(at, message, &key).await;
            return edited.map(|()| at.clone());
        }
        let sent = self.send_in_turn(&message, &key).await;
        if !matches!(sent, Err(ChatFailure::Refused(_))) {
            return sent;
        }
        message.block.clear();
        let key = self::key(&key, "", "without text");
        self.send_in_turn(&message, &key).await
    }

    /// Edits a message after its approval or its run has ended. Returns the pause that the platform
    /// asks for, if any.
    async fn show_end(&self, work: &ChatWork) -> Option<Duration> {
        let (Some(chat), Some(message)) = (work.chat.clone(), work.message.clone()) else {
            return None;
        };
        let at = MessageRef { chat, message };
        let done = if work.is_group {
            let (sender, place) = (self.clone(), at.clone());
            let members = blocking(move || {
                let rows = sender
                    .desk
                    .store()
                    .chat_messages_at(&place.chat, &place.message);
                let rows = rows.unwrap_or_default().into_iter();
                rows.map(|row| row.approval_id).collect::<Vec<_>>()
            });
            let members = members.await.unwrap_or_default();
            self.show_group(&members, Some(&at)).await.map(|_| ())
        } else {
            self.edit_end(work, &at).await
        };
        self.note_end(work.clone(), done).await
    }

    async fn edit_end(&self, work: &ChatWork, at: &MessageRef) -> Result<(), ChatFailure> {
        let (sender, id) = (self.clone(), work.approval_id.clone());
        let made = blocking(move || {
            let approval = sender.desk.approval(&id).ok()?;
            let ended = approval.ended.clone()?;
            let outcome = sender.outcome(&id);
            let link = sender.approval_page(&id);
            let channel = sender.channel.as_ref();
            let message = message::ended(channel, &approval, &ended, outcome.as_ref(), link);
            let config = sender.desk.config()?;
            let own = chat_approvals(config.config(), sender.target.kind);
            let is_removed = own.is_some_and(|own| own.cleanup_after_resolve == Some(true));
            Some((message, is_removed))
        });
        // If the approval cannot be read any more, there is nothing to show.
        let Some(Some((message, is_removed))) = made.await else {
            return Ok(());
        };
        let level = format!("end{}", work.wanted);
        let key = key(&work.approval_id, &self.target.name, &level);
        match (is_removed, work.shown) {
            (true, 0) => {
                self.memory.until_free(&self.target.name).await;
                let removed = self.channel.remove(at, &key).await;
                self.memory.pause(&self.target.name, self.channel.pause());
                removed
            }
            (true, _) => Ok(()),
            (false, _) => self.edit_in_turn(at, message, &key).await,
        }
    }

    /// Returns the recorded outcome of the run that an approval allowed.
    fn outcome(&self, id: &str) -> Option<RecordedOutcome> {
        match self.desk.store().approval(id).ok()?.claim?.state {
            ClaimState::Finished { outcome, .. } => Some(*outcome),
            ClaimState::Unfinished | ClaimState::Unknown { .. } => None,
        }
    }
}

/// Returns a key that is always the same for the same message, even after a restart.
fn key(subject: &str, target: &str, what: &str) -> String {
    let mut hash = Sha256::new();
    for part in [subject, target, what] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    digest[..16].iter().fold(String::new(), |mut text, byte| {
        text.push_str(&format!("{byte:02x}"));
        text
    })
}

fn now_ms() -> i64 {
    interlock_approvals::clock::now()
}

/// Runs work that may wait for the disk. Returns `None` if the process is ending.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fourth_approval_in_ten_seconds_is_grouped() {
        let memory = ChatMemory::default();
        let grouped: Vec<bool> = (0..5).map(|_| memory.note_asked("a")).collect();
        assert_eq!(grouped, [false, false, false, true, true]);
        assert!(!memory.note_asked("b"), "another chat counts for itself");
    }

    #[test]
    fn keys_differ_by_what_they_are_for() {
        let one = key("a", "b", "asked");
        assert_eq!(one, key("a", "b", "asked"));
        for other in [
            key("ab", "", "asked"),
            key("a", "b", "end1"),
            key("a", "c", "asked"),
        ] {
            assert_ne!(one, other);
        }
    }
}
