//! Remembers what a sandbox denied to runs that have ended, so that an approver can be asked to
//! allow one of them outside; and the binds that an approver added to a conversation instead.

use rusqlite::params;
use serde_json::{Value, json};

use crate::approvals::Author;
use crate::audit::AuditKind;
use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::json::canonical;
use crate::limits;

/// Denials expire after a day: by then, the files may have changed.
const KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// The most runs, of all agents, whose denials are kept. The oldest are dropped first.
const MOST_RUNS: i64 = 10_000;

/// The most binds of one conversation.
const MOST_BINDS: usize = 32;

/// What a sandbox denied to a run.
#[derive(Debug, Clone, PartialEq)]
pub struct DeniedRun {
    pub run_id: String,
    pub agent: String,
    pub session_key: String,
    /// SHA-256 of the command as the caller wrote it.
    pub command_sha256: String,
    pub denials: Value,
}

impl Store {
    /// Returns what was denied to a run, unless an approver was already asked about the run.
    pub fn denied_run(&self, run_id: &str) -> Result<Option<DeniedRun>, StoreError> {
        let statement =
            "SELECT agent, session_key, command_sha256, denials FROM run_denial WHERE id = ?1";
        self.read(|sql| {
            sql.optional(statement, [run_id], |row| {
                let denials: String = row.get(3)?;
                Ok(DeniedRun {
                    run_id: run_id.to_owned(),
                    agent: row.get(0)?,
                    session_key: row.get(1)?,
                    command_sha256: row.get(2)?,
                    denials: serde_json::from_str(&denials).unwrap_or(Value::Null),
                })
            })
        })
    }

    /// Returns the binds of a conversation beyond those of the config.
    pub fn session_binds(&self, session_key: &str, agent: &str) -> Result<Vec<String>, StoreError> {
        let statement = "SELECT bind FROM session_bind WHERE session_key = ?1 AND agent = ?2";
        self.read(|sql| sql.all(statement, params![session_key, agent], |row| row.get(0)))
    }
}

impl Change<'_> {
    /// Stores what was denied to a run.
    pub fn keep_denied_run(&self, run: &DeniedRun, now_ms: i64) -> Result<(), StoreError> {
        limits::RUN_ID.check(&run.run_id)?;
        limits::SESSION_KEY.check(&run.session_key)?;
        limits::AGENT.check(&run.agent)?;
        let denials = canonical(&run.denials);
        limits::RUN_SANDBOX.check(&denials)?;
        self.sql.execute(
            "DELETE FROM run_denial WHERE at_ms < ?1",
            [now_ms.saturating_sub(KEPT_MS)],
        )?;
        self.sql.execute(
            "DELETE FROM run_denial WHERE id IN
                (SELECT id FROM run_denial ORDER BY at_ms DESC LIMIT -1 OFFSET ?1)",
            [MOST_RUNS],
        )?;
        self.sql.execute(
            "INSERT OR REPLACE INTO run_denial
                (id, agent, session_key, command_sha256, denials, at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                run.run_id,
                run.agent,
                run.session_key,
                run.command_sha256,
                denials,
                now_ms,
            ],
        )?;
        Ok(())
    }

    /// Uses up the one time that an approver may be asked about a run. Returns `false` if it was
    /// used before.
    pub fn take_denied_run(&self, run_id: &str) -> Result<bool, StoreError> {
        let taken = self
            .sql
            .execute("DELETE FROM run_denial WHERE id = ?1", [run_id])?;
        Ok(taken == 1)
    }

    /// Adds a bind to a conversation or removes it, and records who did so. Returns `false` if the
    /// conversation has too many binds, or if nothing changed.
    pub fn change_session_bind(
        &self,
        (session_key, agent): (&str, &str),
        bind: &str,
        is_added: bool,
        author: &Author,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        limits::SESSION_KEY.check(session_key)?;
        limits::AGENT.check(agent)?;
        limits::RUN_SANDBOX.check(bind)?;
        let changed = if is_added {
            let statement = "SELECT bind FROM session_bind WHERE session_key = ?1 AND agent = ?2";
            let all: Vec<String> = self
                .sql
                .all(statement, params![session_key, agent], |row| row.get(0))?;
            if all.len() >= MOST_BINDS {
                return Ok(false);
            }
            self.sql.execute(
                "INSERT OR IGNORE INTO session_bind (session_key, agent, bind) VALUES (?1, ?2, ?3)",
                params![session_key, agent, bind],
            )?
        } else {
            self.sql.execute(
                "DELETE FROM session_bind WHERE session_key = ?1 AND agent = ?2 AND bind = ?3",
                params![session_key, agent, bind],
            )?
        };
        if changed == 0 {
            return Ok(false);
        }
        let record = json!({
            "document": "session-bind",
            "agent": agent,
            "sessionKey": session_key,
            "bind": bind,
            "added": is_added,
            "who": author.as_str(),
        });
        self.append(AuditKind::PolicyWrite, &record, now_ms)?;
        Ok(true)
    }
}
