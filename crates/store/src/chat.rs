//! Messages about approvals: the outbox, the sent messages, and how far each account has read.
//!
//! A row is written in the same transaction as its approval, for every target that the gateway has
//! published. So no approval is stored without its messages, whichever process requests it. Rows
//! are removed with their approval.

use rusqlite::{Row, params};

use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::limits;
use crate::pending::{Delivery, DeliveryState};

/// How long after the end of an approval its messages are edited.
const END_SHOWN_MS: i64 = 24 * 60 * 60 * 1000;

/// The number of tries after which a target that does not answer counts as failed.
const TRIES_OF_FAILED: i64 = 3;

/// How long a single-use id is kept. This must be longer than any signature stays valid.
const ONCE_KEPT_MS: i64 = 60 * 60 * 1000;

/// A message that the gateway has to send or edit now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatWork {
    pub approval_id: String,
    pub target: String,
    /// Whether the message was not sent yet.
    pub is_queued: bool,
    pub tries: u32,
    /// Whether the approval has ended. A queued message is then not sent any more.
    pub has_ended: bool,
    /// What the message shows: 0 the request, 1 the end of the approval, 2 the outcome of the run.
    pub shown: u8,
    /// What the message should show, in the same numbers as `shown`.
    pub wanted: u8,
    /// Whether nothing changes after `wanted`.
    pub is_final: bool,
    pub chat: Option<String>,
    pub message: Option<String>,
    pub is_group: bool,
}

/// A message that was sent or waits to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessageRow {
    pub approval_id: String,
    pub target: String,
    /// Whether the message showed the whole view, so that the approval may be allowed by it.
    pub offers_allow: bool,
    /// Whether the message stands for several approvals.
    pub is_group: bool,
}

/// Where the platform keeps a sent message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentChatMessage<'a> {
    pub chat: &'a str,
    pub message: &'a str,
    pub offers_allow: bool,
    pub is_group: bool,
}

impl SentChatMessage<'_> {
    /// A place that is empty, or longer than any platform's, is not stored.
    pub fn check(self) -> Result<(), StoreError> {
        limits::CHAT_PLACE.check(self.chat)?;
        limits::CHAT_PLACE.check(self.message)
    }
}

/// How messages to one target fare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatTargetStatus {
    pub target: String,
    pub queued: u64,
    pub sent: u64,
    pub failed: u64,
}

impl Store {
    /// Publishes the targets in force, each with its delay before sending. New approvals from now
    /// on are queued for these targets. Returns whether anything changed.
    pub fn set_chat_targets(&self, targets: &[(String, u64)]) -> Result<bool, StoreError> {
        let mut wanted: Vec<(String, i64)> = targets
            .iter()
            .map(|(name, after)| (name.clone(), i64::try_from(*after).unwrap_or(i64::MAX)))
            .collect();
        wanted.sort();
        wanted.dedup_by(|one, other| one.0 == other.0);
        let known = self.read(|sql| {
            let statement = "SELECT name, after_ms FROM chat_target ORDER BY name";
            sql.all(statement, [], |row| Ok((row.get(0)?, row.get(1)?)))
        })?;
        if wanted == known {
            return Ok(false);
        }
        self.change(|change| {
            change.sql.execute("DELETE FROM chat_target", [])?;
            for (name, after_ms) in &wanted {
                limits::SURFACE.check(name)?;
                change.sql.execute(
                    "INSERT INTO chat_target (name, after_ms) VALUES (?1, ?2)",
                    params![name, after_ms],
                )?;
            }
            Ok::<_, StoreError>(true)
        })
    }

    /// Returns the messages to send or edit now, oldest first.
    pub fn chat_work(&self, now_ms: i64, most: usize) -> Result<Vec<ChatWork>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.read(|sql| {
            sql.all(
                "SELECT * FROM (SELECT approval.id AS approval_id, target, m.state, tries,
                        ending IS NOT NULL AS has_ended, shown,
                        CASE WHEN ending IS NULL THEN 0
                            WHEN c.state IS NOT NULL AND c.state <> 'unfinished' THEN 2
                            ELSE 1 END AS wanted,
                        coalesce(ending NOT LIKE '%allow%' AND ending <> 'lease', 0)
                            OR c.state <> 'unfinished' AS is_final,
                        chat, message, is_group, due_at_ms, number
                    FROM chat_message AS m JOIN approval USING (number)
                        LEFT JOIN run_claim AS c ON c.id = approval.id
                    WHERE due_at_ms IS NOT NULL AND due_at_ms <= ?1)
                 WHERE state = 'queued' OR wanted > shown
                 ORDER BY due_at_ms, number LIMIT ?2",
                params![now_ms, most],
                |row| {
                    Ok(ChatWork {
                        approval_id: row.get(0)?,
                        target: row.get(1)?,
                        is_queued: row.get::<_, String>(2)? == "queued",
                        tries: row.get(3)?,
                        has_ended: row.get(4)?,
                        shown: row.get(5)?,
                        wanted: row.get(6)?,
                        is_final: row.get::<_, Option<bool>>(7)?.unwrap_or(false),
                        chat: row.get(8)?,
                        message: row.get(9)?,
                        is_group: row.get(10)?,
                    })
                },
            )
        })
    }

    /// Whether any message may have to be sent or edited, now or later.
    pub fn has_chat_work(&self) -> Result<bool, StoreError> {
        self.read(|sql| {
            let statement =
                "SELECT EXISTS (SELECT 1 FROM chat_message WHERE due_at_ms IS NOT NULL)";
            sql.one(statement, [], |row| row.get(0))
        })
    }

    /// Records that the platform accepted a message, together with the delivery.
    pub fn chat_sent(
        &self,
        approval_id: &str,
        target: &str,
        sent: SentChatMessage<'_>,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        sent.check()?;
        self.change(|change| {
            change.sql.execute(
                "UPDATE chat_message SET state = 'sent', due_at_ms = ?3, tries = 0, chat = ?4,
                    message = ?5, offers_allow = ?6, is_group = ?7
                 WHERE target = ?2 AND number = (SELECT number FROM approval WHERE id = ?1)",
                params![
                    approval_id,
                    target,
                    now_ms,
                    sent.chat,
                    sent.message,
                    sent.offers_allow,
                    sent.is_group
                ],
            )?;
            change.record_delivery(
                approval_id,
                &receipt(target, DeliveryState::Sent, now_ms, None),
            )?;
            Ok(())
        })
    }

    /// Records that a message could not be sent. It is tried again at `again_at_ms`, or never if
    /// the platform refused it.
    pub fn chat_not_sent(
        &self,
        approval_id: &str,
        target: &str,
        again_at_ms: Option<i64>,
        why: &str,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        self.change(|change| {
            change.sql.execute(
                "UPDATE chat_message SET tries = tries + 1, due_at_ms = ?3,
                    state = CASE WHEN ?3 IS NULL THEN 'failed' ELSE state END
                 WHERE target = ?2 AND number = (SELECT number FROM approval WHERE id = ?1)",
                params![approval_id, target, again_at_ms],
            )?;
            change.record_delivery(
                approval_id,
                &receipt(target, DeliveryState::Failed, now_ms, Some(why)),
            )?;
            Ok(())
        })
    }

    /// A message waits until a platform takes it; it did not fail. An end is shown for a day, also where
    /// the platform never takes it.
    pub fn chat_postponed(
        &self,
        approval_id: &str,
        target: &str,
        until_ms: i64,
    ) -> Result<(), StoreError> {
        self.change(|change| {
            change.sql.execute(
                "UPDATE chat_message SET due_at_ms = CASE WHEN state <> 'queued' AND ?3 >
                    ?4 + (SELECT coalesce(ended_at_ms, ?3) FROM approval WHERE id = ?1)
                    THEN NULL ELSE ?3 END
                 WHERE target = ?2 AND number = (SELECT number FROM approval WHERE id = ?1)",
                params![approval_id, target, until_ms, END_SHOWN_MS],
            )?;
            Ok(())
        })
    }

    /// Records what a message shows now.
    pub fn chat_shown(
        &self,
        approval_id: &str,
        target: &str,
        level: u8,
        is_final: bool,
    ) -> Result<(), StoreError> {
        self.change(|change| {
            change.sql.execute(
                "UPDATE chat_message SET shown = ?3, tries = 0,
                    due_at_ms = CASE WHEN ?4 THEN NULL ELSE due_at_ms END
                 WHERE target = ?2 AND number = (SELECT number FROM approval WHERE id = ?1)",
                params![approval_id, target, level, is_final],
            )?;
            Ok(())
        })
    }

    /// Records that an edit failed. It is tried again at `again_at_ms`, for a day after the end of
    /// the approval.
    pub fn chat_not_edited(
        &self,
        approval_id: &str,
        target: &str,
        again_at_ms: i64,
    ) -> Result<(), StoreError> {
        self.change(|change| {
            change.sql.execute(
                "UPDATE chat_message SET tries = tries + 1, due_at_ms = CASE WHEN ?3 >
                    ?4 + (SELECT coalesce(ended_at_ms, ?3) FROM approval WHERE id = ?1)
                    THEN NULL ELSE ?3 END
                 WHERE target = ?2 AND number = (SELECT number FROM approval WHERE id = ?1)",
                params![approval_id, target, again_at_ms, END_SHOWN_MS],
            )?;
            Ok(())
        })
    }

    /// A message does not show the whole view any more, so nothing can be allowed by it.
    pub fn chat_not_whole(&self, approval_id: &str, target: &str) -> Result<(), StoreError> {
        self.change(|change| {
            change.sql.execute(
                "UPDATE chat_message SET offers_allow = 0
                 WHERE target = ?2 AND number = (SELECT number FROM approval WHERE id = ?1)",
                params![approval_id, target],
            )?;
            Ok(())
        })
    }

    /// A message is not sent: the target does not want it, or the approval ended before.
    pub fn chat_dropped(&self, approval_id: &str, target: &str) -> Result<(), StoreError> {
        self.change(|change| {
            change.sql.execute(
                "DELETE FROM chat_message
                 WHERE target = ?2 AND number = (SELECT number FROM approval WHERE id = ?1)",
                params![approval_id, target],
            )?;
            Ok(())
        })
    }

    /// Returns the approvals that a message of a platform is about. A message can stand for several
    /// approvals.
    pub fn chat_messages_at(
        &self,
        chat: &str,
        message: &str,
    ) -> Result<Vec<ChatMessageRow>, StoreError> {
        self.read(|sql| {
            sql.all(
                "SELECT approval.id, target, offers_allow, is_group
                 FROM chat_message JOIN approval USING (number)
                 WHERE message = ?2 AND chat = ?1 AND chat_message.state = 'sent' ORDER BY number",
                [chat, message],
                message_row,
            )
        })
    }

    /// Returns the sent messages about an approval, in all chats.
    pub fn chat_messages_of(&self, approval_id: &str) -> Result<Vec<ChatMessageRow>, StoreError> {
        self.read(|sql| {
            sql.all(
                "SELECT approval.id, target, offers_allow, is_group
                 FROM chat_message JOIN approval USING (number)
                 WHERE approval.id = ?1 AND chat_message.state = 'sent' ORDER BY target",
                [approval_id],
                message_row,
            )
        })
    }

    /// Returns the messages about an approval that a chat received.
    pub fn chat_message_in(
        &self,
        approval_id: &str,
        chat: &str,
    ) -> Result<Vec<ChatMessageRow>, StoreError> {
        self.read(|sql| {
            sql.all(
                "SELECT approval.id, target, offers_allow, is_group
                 FROM chat_message JOIN approval USING (number)
                 WHERE approval.id = ?1 AND chat = ?2 AND chat_message.state = 'sent'",
                [approval_id, chat],
                message_row,
            )
        })
    }

    /// Whether an account is about to send a message, of one approval or of any: its platform may know it
    /// before the store does.
    pub fn has_chat_queued(
        &self,
        approval_id: Option<&str>,
        account: &str,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        self.read(|sql| {
            sql.one(
                "SELECT EXISTS (SELECT 1 FROM chat_message JOIN approval USING (number)
                    WHERE state = 'queued' AND due_at_ms <= ?2 AND ending IS NULL
                        AND (?1 IS NULL OR approval.id = ?1)
                        AND (target = ?3 OR substr(target, 1, length(?3) + 1) = ?3 || ':'))",
                params![approval_id, now_ms, account],
                |row| row.get(0),
            )
        })
    }

    /// Whether every target of an approval failed. `false` if the approval has no targets.
    pub fn has_chat_failed(&self, approval_id: &str) -> Result<bool, StoreError> {
        self.read(|sql| {
            sql.one(
                "SELECT count(*) > 0 AND min(m.state = 'failed' OR m.state = 'queued' AND tries >= ?2)
                 FROM chat_message AS m JOIN approval USING (number) WHERE approval.id = ?1",
                params![approval_id, TRIES_OF_FAILED],
                |row| Ok(row.get::<_, Option<bool>>(0)?.unwrap_or(false)),
            )
        })
    }

    /// Returns the state of the messages to each target, for all stored approvals.
    pub fn chat_status(&self) -> Result<Vec<ChatTargetStatus>, StoreError> {
        self.read(|sql| {
            sql.all(
                "SELECT target, sum(state = 'queued'), sum(state = 'sent'), sum(state = 'failed')
                 FROM chat_message GROUP BY target ORDER BY target",
                [],
                |row| {
                    let count = |at| row.get::<_, i64>(at).map(i64::unsigned_abs);
                    Ok(ChatTargetStatus {
                        target: row.get(0)?,
                        queued: count(1)?,
                        sent: count(2)?,
                        failed: count(3)?,
                    })
                },
            )
        })
    }

    /// Returns how far an account has read, as the platform expresses it.
    pub fn chat_cursor(&self, account: &str) -> Result<Option<String>, StoreError> {
        self.read(|sql| {
            let statement = "SELECT cursor FROM chat_cursor WHERE account = ?1";
            sql.optional(statement, [account], |row| row.get(0))
        })
    }

    /// Stores where an account begins to read, unless it has begun already.
    pub fn begin_chat_cursor(&self, account: &str, cursor: &str) -> Result<(), StoreError> {
        limits::SURFACE.check(account)?;
        limits::CHAT_CURSOR.check(cursor)?;
        self.change(|change| {
            change.sql.execute(
                "INSERT INTO chat_cursor (account, cursor) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                [account, cursor],
            )?;
            Ok(())
        })
    }

    pub fn set_chat_cursor(&self, account: &str, cursor: &str) -> Result<(), StoreError> {
        limits::SURFACE.check(account)?;
        limits::CHAT_CURSOR.check(cursor)?;
        self.change(|change| {
            change.sql.execute(
                "INSERT OR REPLACE INTO chat_cursor (account, cursor) VALUES (?1, ?2)",
                [account, cursor],
            )?;
            Ok(())
        })
    }

    /// Uses up a single-use id. Returns `false` if it was used before.
    pub fn use_chat_id(&self, id: &str, now_ms: i64) -> Result<bool, StoreError> {
        limits::SURFACE.check(id)?;
        self.change(|change| {
            change.sql.execute(
                "DELETE FROM chat_once WHERE at_ms < ?1",
                [now_ms.saturating_sub(ONCE_KEPT_MS)],
            )?;
            let added = change.sql.execute(
                "INSERT INTO chat_once (id, at_ms) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                params![id, now_ms],
            )?;
            Ok(added > 0)
        })
    }
}

impl Change<'_> {
    /// Queues the messages of a new approval. Call this in the change that creates the approval.
    pub(crate) fn queue_chat_messages(&self, number: i64, now_ms: i64) -> Result<(), StoreError> {
        let targets: Vec<(String, i64)> = self.sql.all(
            "SELECT name, after_ms FROM chat_target ORDER BY name",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        for (target, after_ms) in targets {
            self.sql.execute(
                "INSERT INTO chat_message (number, target, state, due_at_ms)
                 VALUES (?1, ?2, 'queued', ?3)",
                params![number, target, now_ms.saturating_add(after_ms)],
            )?;
        }
        Ok(())
    }
}

fn message_row(row: &Row<'_>) -> rusqlite::Result<ChatMessageRow> {
    Ok(ChatMessageRow {
        approval_id: row.get(0)?,
        target: row.get(1)?,
        offers_allow: row.get(2)?,
        is_group: row.get(3)?,
    })
}

fn receipt(target: &str, state: DeliveryState, at_ms: i64, why: Option<&str>) -> Delivery {
    Delivery {
        surface: target.to_owned(),
        state,
        at_ms,
        detail: why.map(|why| why.chars().take(200).collect()),
    }
}
