//! Events that a session has yet to receive: a queue that outlives its writers and readers.
//!
//! An event is written in the transaction of the change that it reports. It waits until the session
//! is marked as notified. Events that are dropped before their delivery are counted.

use std::collections::BTreeMap;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{Row, params};
use serde_json::Value;

use crate::change::{Change, Sql};
use crate::database::Store;
use crate::error::StoreError;
use crate::json::{self, canonical};
use crate::limits::{self, MAX_EVENTS, MAX_PAGE, MAX_SESSION_EVENTS};

const HOUR_MS: i64 = 60 * 60 * 1000;

/// How long a delivered event is kept, for readers that look back.
pub const EVENT_KEPT_WHEN_DELIVERED_MS: i64 = 24 * HOUR_MS;

/// How long an undelivered event is kept.
pub const EVENT_KEPT_MS: i64 = 7 * 24 * HOUR_MS;

/// Events of all sessions are counted with every so many new ones.
const LOOK_EVERY: i64 = 256;

/// Sessions whose dropped events are counted, at most.
const MAX_DROPPED: i64 = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// An approved run takes long.
    Running,
    Finished,
    /// A run was requested and did not run.
    Denied,
    /// A message from an operator to the session.
    Note,
}

impl EventKind {
    pub const ALL: [Self; 4] = [Self::Running, Self::Finished, Self::Denied, Self::Note];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "exec-running",
            Self::Finished => "exec-finished",
            Self::Denied => "exec-denied",
            Self::Note => "note",
        }
    }
}

impl FromSql for EventKind {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let word = value.as_str()?;
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == word);
        found.ok_or(FromSqlError::InvalidType)
    }
}

/// A new event for the queue.
#[derive(Debug, Clone, Copy)]
pub struct NewEvent<'a> {
    pub session_key: &'a str,
    pub agent: &'a str,
    pub kind: EventKind,
    /// The id of the run, or of the approval if the event is about an approval.
    pub run_id: &'a str,
    /// The text for the agent.
    pub text: &'a str,
    /// The same content for programs.
    pub payload: &'a Value,
    /// Whether the event wakes the session.
    pub wakes: bool,
    pub now_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionEvent {
    /// Ids grow with time and are never reused.
    pub id: i64,
    pub session_key: String,
    pub agent: String,
    pub kind: EventKind,
    pub run_id: String,
    pub text: String,
    pub payload: Value,
    pub created_at_ms: i64,
    pub wakes: bool,
    pub delivered_at_ms: Option<i64>,
}

/// The events that a session has yet to receive.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WaitingEvents {
    /// The oldest events first.
    pub events: Vec<SessionEvent>,
    /// How many events were dropped before their delivery.
    pub dropped: u64,
}

impl WaitingEvents {
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.dropped == 0
    }
}

/// How many events a purge removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PurgedEvents {
    pub delivered: usize,
    /// The undelivered events among them. Their sessions also count them as dropped.
    pub undelivered: usize,
}

impl Store {
    /// Returns the oldest undelivered events of the session, at most `limit` and [`MAX_PAGE`]. All
    /// of them are on the disk. If there are none, the call does not wait for the disk.
    pub fn waiting_events(
        &self,
        session_key: &str,
        limit: usize,
    ) -> Result<WaitingEvents, StoreError> {
        let waiting = self.read_committed(|sql| {
            let statement = format!(
                "SELECT {COLUMNS} FROM session_events
                 WHERE session_key = ?1 AND delivered_at_ms IS NULL ORDER BY id LIMIT ?2"
            );
            Ok(WaitingEvents {
                events: sql.all(&statement, params![session_key, page(limit)], event)?,
                dropped: dropped(sql, session_key)?,
            })
        })?;
        if !waiting.is_empty() {
            self.writer().wait_for_disk()?;
        }
        Ok(waiting)
    }

    /// Returns the events of all sessions after this id, delivered or not, for subscribers.
    pub fn events_after(&self, id: i64, limit: usize) -> Result<Vec<SessionEvent>, StoreError> {
        let statement =
            format!("SELECT {COLUMNS} FROM session_events WHERE id > ?1 ORDER BY id LIMIT ?2");
        self.read(|sql| sql.all(&statement, params![id, page(limit)], event))
    }

    /// Returns the events of one session after this id, delivered or not, for readers that look
    /// back.
    pub fn events_of(
        &self,
        session_key: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<SessionEvent>, StoreError> {
        let statement = format!(
            "SELECT {COLUMNS} FROM session_events
             WHERE session_key = ?1 AND id > ?2 ORDER BY id LIMIT ?3"
        );
        self.read(|sql| sql.all(&statement, params![session_key, after, page(limit)], event))
    }

    /// Returns the id of the newest event of all sessions, or 0 if there was none.
    pub fn last_event(&self) -> Result<i64, StoreError> {
        self.read(last_event)
    }

    /// Returns the last event that a reader of all events has handled. A new reader starts behind
    /// the newest event.
    pub fn events_reader(&self, name: &str) -> Result<i64, StoreError> {
        self.change(|change| {
            let statement = "SELECT up_to FROM session_events_reader WHERE name = ?1";
            let known = change.sql.optional(statement, [name], |row| row.get(0))?;
            match known {
                Some(up_to) => Ok(up_to),
                None => {
                    let last = last_event(&change.sql)?;
                    change.events_read(name, last)?;
                    Ok(last)
                }
            }
        })
    }

    /// See [`Change::events_read`].
    pub fn events_read(&self, name: &str, up_to: i64) -> Result<(), StoreError> {
        self.change(|change| change.events_read(name, up_to))
    }

    /// See [`Change::mark_delivered`].
    pub fn mark_delivered(
        &self,
        session_key: &str,
        up_to: i64,
        dropped: u64,
        now_ms: i64,
    ) -> Result<usize, StoreError> {
        self.change(|change| change.mark_delivered(session_key, up_to, dropped, now_ms))
    }

    /// See [`Change::mark_run_events_delivered`].
    pub fn mark_run_events_delivered(
        &self,
        run_id: &str,
        now_ms: i64,
    ) -> Result<usize, StoreError> {
        self.change(|change| change.mark_run_events_delivered(run_id, now_ms))
    }

    /// Forgets delivered events a day after they were written, and undelivered ones after a week.
    pub fn purge_events(&self, now_ms: i64) -> Result<PurgedEvents, StoreError> {
        self.change(|change| change.purge_events(now_ms))
    }
}

impl Change<'_> {
    /// Queues an event. Returns `None` and writes nothing if the run already has an event of this
    /// kind.
    pub fn append_event(&self, event: &NewEvent<'_>) -> Result<Option<i64>, StoreError> {
        limits::SESSION_KEY.check(event.session_key)?;
        limits::AGENT.check(event.agent)?;
        limits::RUN_ID.check(event.run_id)?;
        limits::EVENT_TEXT.check(event.text)?;
        let payload = canonical(event.payload);
        limits::EVENT_PAYLOAD.check(&payload)?;
        let id = self.sql.insert(
            "INSERT INTO session_events
                (session_key, agent, kind, run_id, text, payload, created_at_ms, wakes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (run_id, kind) DO NOTHING",
            params![
                event.session_key,
                event.agent,
                event.kind.as_str(),
                event.run_id,
                event.text,
                payload,
                event.now_ms,
                event.wakes,
            ],
        )?;
        if id.is_some() {
            self.is_awaited.set(true);
            self.keep_within_room(event.session_key, event.now_ms)?;
            if id.is_some_and(|id| id % LOOK_EVERY == 0) {
                self.keep_all_within_room(event.now_ms)?;
            }
        }
        Ok(id)
    }

    /// Records that a reader of all events has handled the events up to this id.
    pub fn events_read(&self, name: &str, up_to: i64) -> Result<(), StoreError> {
        self.sql.execute(
            "INSERT INTO session_events_reader (name, up_to) VALUES (?1, ?2)
             ON CONFLICT (name) DO UPDATE SET up_to = max(up_to, excluded.up_to)",
            params![name, up_to],
        )?;
        Ok(())
    }

    /// Marks the events of a session up to this id as delivered, and this number of dropped events
    /// as reported.
    pub fn mark_delivered(
        &self,
        session_key: &str,
        up_to: i64,
        dropped: u64,
        now_ms: i64,
    ) -> Result<usize, StoreError> {
        if dropped > 0 {
            self.sql.execute(
                "UPDATE session_events_dropped SET told = min(dropped, told + ?2)
                 WHERE session_key = ?1",
                params![session_key, dropped.cast_signed()],
            )?;
        }
        self.sql.execute(
            "UPDATE session_events SET delivered_at_ms = ?3
             WHERE session_key = ?1 AND id <= ?2 AND delivered_at_ms IS NULL",
            params![session_key, up_to, now_ms],
        )
    }

    /// Marks the events of a run as delivered, because its caller got everything in the result of
    /// the call.
    pub fn mark_run_events_delivered(
        &self,
        run_id: &str,
        now_ms: i64,
    ) -> Result<usize, StoreError> {
        self.sql.execute(
            "UPDATE session_events SET delivered_at_ms = ?2
             WHERE run_id = ?1 AND delivered_at_ms IS NULL",
            params![run_id, now_ms],
        )
    }

    fn purge_events(&self, now_ms: i64) -> Result<PurgedEvents, StoreError> {
        let delivered = self.sql.execute(
            "DELETE FROM session_events WHERE created_at_ms <= ?1 AND delivered_at_ms IS NOT NULL",
            [now_ms.saturating_sub(EVENT_KEPT_WHEN_DELIVERED_MS)],
        )?;
        let long_ago = now_ms.saturating_sub(EVENT_KEPT_MS);
        let sessions: Vec<(String, i64)> = self.sql.all(
            "SELECT session_key, count(*) FROM session_events
             WHERE created_at_ms <= ?1 AND delivered_at_ms IS NULL GROUP BY session_key",
            [long_ago],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        for (session_key, count) in &sessions {
            self.count_dropped(session_key, *count, now_ms)?;
        }
        let undelivered = self.sql.execute(
            "DELETE FROM session_events WHERE created_at_ms <= ?1 AND delivered_at_ms IS NULL",
            [long_ago],
        )?;
        // Forget the counts that were reported to their session.
        self.sql.execute(
            "DELETE FROM session_events_dropped WHERE told = dropped AND at_ms <= ?1",
            [long_ago],
        )?;
        Ok(PurgedEvents {
            delivered,
            undelivered,
        })
    }

    /// Drops the oldest events beyond the limit of a session, delivered ones first.
    fn keep_within_room(&self, session_key: &str, now_ms: i64) -> Result<(), StoreError> {
        let count: i64 = self.sql.one(
            "SELECT count(*) FROM session_events WHERE session_key = ?1",
            [session_key],
            |row| row.get(0),
        )?;
        let excess = count - i64::try_from(MAX_SESSION_EVENTS).unwrap_or(i64::MAX);
        if excess <= 0 {
            return Ok(());
        }
        let gone: Vec<bool> = self.sql.all(
            "DELETE FROM session_events WHERE id IN (
                SELECT id FROM session_events WHERE session_key = ?1
                ORDER BY delivered_at_ms IS NULL, id LIMIT ?2)
             RETURNING delivered_at_ms IS NULL",
            params![session_key, excess],
            |row| row.get(0),
        )?;
        let undelivered = gone.iter().filter(|undelivered| **undelivered).count();
        if undelivered == 0 {
            return Ok(());
        }
        let count = i64::try_from(undelivered).unwrap_or(i64::MAX);
        self.count_dropped(session_key, count, now_ms)
    }

    /// The same for all sessions together: a caller may name as many as it likes.
    fn keep_all_within_room(&self, now_ms: i64) -> Result<(), StoreError> {
        let count: i64 = self
            .sql
            .one("SELECT count(*) FROM session_events", [], |row| row.get(0))?;
        let excess = count - i64::try_from(MAX_EVENTS).unwrap_or(i64::MAX);
        if excess <= 0 {
            return Ok(());
        }
        let gone: Vec<(String, bool)> = self.sql.all(
            "DELETE FROM session_events WHERE id IN (
                SELECT id FROM session_events ORDER BY delivered_at_ms IS NULL, id LIMIT ?1)
             RETURNING session_key, delivered_at_ms IS NULL",
            [excess],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let mut undelivered: BTreeMap<&str, i64> = BTreeMap::new();
        for (session_key, is_undelivered) in &gone {
            if *is_undelivered {
                *undelivered.entry(session_key).or_default() += 1;
            }
        }
        for (session_key, count) in undelivered {
            self.count_dropped(session_key, count, now_ms)?;
        }
        self.sql.execute(
            "DELETE FROM session_events_dropped WHERE session_key IN (
                SELECT session_key FROM session_events_dropped
                ORDER BY at_ms DESC LIMIT -1 OFFSET ?1)",
            [MAX_DROPPED],
        )?;
        Ok(())
    }

    fn count_dropped(&self, session_key: &str, count: i64, now_ms: i64) -> Result<(), StoreError> {
        self.sql.execute(
            "INSERT INTO session_events_dropped (session_key, dropped, at_ms) VALUES (?1, ?2, ?3)
             ON CONFLICT (session_key) DO UPDATE
                SET dropped = dropped + excluded.dropped, at_ms = excluded.at_ms",
            params![session_key, count, now_ms],
        )?;
        Ok(())
    }
}

fn page(limit: usize) -> i64 {
    i64::try_from(limit.min(MAX_PAGE)).unwrap_or(i64::MAX)
}

/// Returns the id of the last event that was ever written, even if the event is forgotten.
fn last_event(sql: &Sql<'_>) -> Result<i64, StoreError> {
    let last = sql.optional(
        "SELECT seq FROM sqlite_sequence WHERE name = 'session_events'",
        [],
        |row| row.get(0),
    )?;
    Ok(last.unwrap_or_default())
}

fn dropped(sql: &Sql<'_>, session_key: &str) -> Result<u64, StoreError> {
    let dropped: Option<i64> = sql.optional(
        "SELECT dropped - told FROM session_events_dropped WHERE session_key = ?1",
        [session_key],
        |row| row.get(0),
    )?;
    Ok(dropped.unwrap_or_default().cast_unsigned())
}

const COLUMNS: &str =
    "id, session_key, agent, kind, run_id, text, payload, created_at_ms, wakes, delivered_at_ms";

fn event(row: &Row<'_>) -> rusqlite::Result<SessionEvent> {
    Ok(SessionEvent {
        id: row.get(0)?,
        session_key: row.get(1)?,
        agent: row.get(2)?,
        kind: row.get(3)?,
        run_id: row.get(4)?,
        text: row.get(5)?,
        payload: json::column(row, 6)?,
        created_at_ms: row.get(7)?,
        wakes: row.get(8)?,
        delivered_at_ms: row.get(9)?,
    })
}
