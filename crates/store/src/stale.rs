//! Results that a session must not rely on any more, because their command was denied later.

use std::collections::HashMap;

use rusqlite::params;

use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::json::sha256_hex;
use crate::limits;

/// No result is kept longer than this, so marks older than this are not needed.
pub const STALE_KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// The denied commands of each session, with the time of the last denial.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaleMarks(HashMap<(String, String), i64>);

impl StaleMarks {
    /// Returns when this command was last denied in the session, if the mark is still stored.
    /// Results of the command that are not younger are stale.
    pub fn since(&self, session_key: &str, command: &str) -> Option<i64> {
        if self.0.is_empty() {
            return None;
        }
        let key = (session_key.to_owned(), sha256_hex(command));
        self.0.get(&key).copied()
    }
}

impl Store {
    /// Returns all marks at once, because a list of results needs many of them.
    pub fn stale_marks(&self) -> Result<StaleMarks, StoreError> {
        let marks = self.read(|sql| {
            sql.all(
                "SELECT session_key, command_digest, at_ms FROM stale_commands",
                [],
                |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)),
            )
        })?;
        Ok(StaleMarks(marks.into_iter().collect()))
    }

    /// Forgets the marks that no stored result can be older than. Returns how many.
    pub fn purge_stale(&self, now_ms: i64) -> Result<usize, StoreError> {
        self.change(|change| {
            change.sql.execute(
                "DELETE FROM stale_commands WHERE at_ms <= ?1",
                [now_ms.saturating_sub(STALE_KEPT_MS)],
            )
        })
    }
}

impl Change<'_> {
    /// Marks all results of exactly this command that the session has by now.
    pub fn mark_stale(
        &self,
        session_key: &str,
        command: &str,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        limits::SESSION_KEY.check(session_key)?;
        self.sql.execute(
            "INSERT INTO stale_commands (session_key, command_digest, at_ms) VALUES (?1, ?2, ?3)
             ON CONFLICT DO UPDATE SET at_ms = max(at_ms, excluded.at_ms)",
            params![session_key, sha256_hex(command), now_ms],
        )?;
        Ok(())
    }
}
