//! The settings of sessions, and which sessions are known.
//!
//! Settings are words in the form that surfaces use. Their readers interpret them. Writing settings
//! is writing policy, so each change has an audit record.

use rusqlite::{Row, params};
use serde_json::{Map, Value, json};

use crate::approvals::Author;
use crate::audit::AuditKind;
use crate::change::{Change, Sql};
use crate::database::Store;
use crate::error::StoreError;
use crate::limits;

/// The settings of one session. The config and the approvals document decide about absent values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionSettings {
    /// A label for people.
    pub label: Option<String>,
    pub host: Option<String>,
    pub security: Option<String>,
    pub ask: Option<String>,
    pub node: Option<String>,
    pub elevated: Option<String>,
}

/// A session that was used or configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownSession {
    pub session_key: String,
    pub agent: String,
    /// The time of the last thing known about the session.
    pub at_ms: i64,
    pub settings: SessionSettings,
}

impl SessionSettings {
    fn fields(&self) -> [(&'static str, &Option<String>); 6] {
        [
            ("label", &self.label),
            ("host", &self.host),
            ("security", &self.security),
            ("ask", &self.ask),
            ("node", &self.node),
            ("elevated", &self.elevated),
        ]
    }

    pub fn is_empty(&self) -> bool {
        self.fields().iter().all(|(_, value)| value.is_none())
    }
}

impl Store {
    /// Returns the settings of a session. They are empty if they were never set.
    pub fn session_settings(&self, session_key: &str) -> Result<SessionSettings, StoreError> {
        self.read_committed(|sql| settings_of(sql, session_key))
    }

    /// Returns all sessions with settings, events or runs, latest first.
    pub fn known_sessions(&self) -> Result<Vec<KnownSession>, StoreError> {
        let statement = format!(
            "SELECT seen.session_key, seen.agent, max(seen.at_ms), {COLUMNS} FROM (
                SELECT session_key, agent, updated_at_ms AS at_ms FROM session_settings
                UNION ALL SELECT session_key, agent, created_at_ms FROM session_events
                UNION ALL SELECT session_key, agent, started_at_ms FROM open_run
             ) AS seen LEFT JOIN session_settings USING (session_key)
             GROUP BY seen.session_key ORDER BY 3 DESC, seen.session_key"
        );
        self.read(|sql| {
            sql.all(&statement, [], |row| {
                Ok(KnownSession {
                    session_key: row.get(0)?,
                    agent: row.get(1)?,
                    at_ms: row.get(2)?,
                    settings: settings(row, 3)?,
                })
            })
        })
    }
}

impl Change<'_> {
    /// Returns the settings as this change sees them.
    pub fn session_settings(&self, session_key: &str) -> Result<SessionSettings, StoreError> {
        settings_of(&self.sql, session_key)
    }

    /// Replaces the settings of a session, with an audit record that names the author. Settings
    /// without any value remove the settings of the session.
    pub fn set_session_settings(
        &self,
        session_key: &str,
        agent: &str,
        settings: &SessionSettings,
        author: &Author,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        limits::SESSION_KEY.check(session_key)?;
        limits::AGENT.check(agent)?;
        let mut reported = Map::new();
        for (name, value) in settings.fields() {
            limits::SESSION_SETTING.check_if_any(value.as_deref())?;
            if let Some(value) = value {
                reported.insert(name.to_owned(), Value::from(value.as_str()));
            }
        }
        if settings.is_empty() {
            let statement = "DELETE FROM session_settings WHERE session_key = ?1";
            self.sql.execute(statement, [session_key])?;
        } else {
            self.sql.execute(
                "INSERT OR REPLACE INTO session_settings
                    (session_key, agent, label, host, security, ask, node, elevated, updated_at_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                params![
                    session_key,
                    agent,
                    settings.label,
                    settings.host,
                    settings.security,
                    settings.ask,
                    settings.node,
                    settings.elevated,
                    now_ms,
                ],
            )?;
        }
        let record = json!({
            "document": "session",
            "agent": agent,
            "sessionKey": session_key,
            "settings": reported,
            "who": author.as_str(),
        });
        self.append(AuditKind::PolicyWrite, &record, now_ms)?;
        Ok(())
    }
}

const COLUMNS: &str = "label, host, security, ask, node, elevated";

fn settings_of(sql: &Sql<'_>, session_key: &str) -> Result<SessionSettings, StoreError> {
    let statement = format!("SELECT {COLUMNS} FROM session_settings WHERE session_key = ?1");
    let found = sql.optional(&statement, [session_key], |row| settings(row, 0))?;
    Ok(found.unwrap_or_default())
}

fn settings(row: &Row<'_>, from: usize) -> rusqlite::Result<SessionSettings> {
    Ok(SessionSettings {
        label: row.get(from)?,
        host: row.get(from + 1)?,
        security: row.get(from + 2)?,
        ask: row.get(from + 3)?,
        node: row.get(from + 4)?,
        elevated: row.get(from + 5)?,
    })
}
