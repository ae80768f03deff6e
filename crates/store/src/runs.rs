//! Runs whose end is not recorded yet.
//!
//! A run is listed here from the transaction that records its start to the transaction that records
//! its end. [`Change::close_run`] gives a run to one caller only, so its end is reported once,
//! whichever caller finds it first: the call that waited, a later look, or the cleanup after a
//! crash.

use rusqlite::{Row, params};

use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::limits;

/// A run that is about to start.
#[derive(Debug, Clone, Copy)]
pub struct NewRun<'a> {
    pub id: &'a str,
    /// `None` if the policy alone allowed the run.
    pub approval_id: Option<&'a str>,
    pub agent: &'a str,
    pub session_key: &'a str,
    pub host: &'a str,
    pub node: Option<&'a str>,
    /// The command as approvers see it.
    pub command: &'a str,
    /// The process that waits for the run's end.
    pub waiter: &'a str,
    pub now_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRun {
    pub id: String,
    pub approval_id: Option<String>,
    pub agent: String,
    pub session_key: String,
    pub host: String,
    pub node: Option<String>,
    pub command: String,
    pub waiter: String,
    pub started_at_ms: i64,
    /// The name of the background session. `None` while the call that started the run waits.
    pub session: Option<String>,
    /// Whether an event already reported that the run takes long.
    pub announced: bool,
}

impl Store {
    /// Returns all open runs, oldest first.
    pub fn open_runs(&self) -> Result<Vec<OpenRun>, StoreError> {
        let statement = format!("SELECT {COLUMNS} FROM open_run ORDER BY started_at_ms, id");
        self.read(|sql| sql.all(&statement, [], run))
    }

    /// Returns the open runs on one node, oldest first.
    pub fn open_runs_on(&self, node: &str) -> Result<Vec<OpenRun>, StoreError> {
        let statement =
            format!("SELECT {COLUMNS} FROM open_run WHERE node = ?1 ORDER BY started_at_ms, id");
        self.read(|sql| sql.all(&statement, [node], run))
    }

    /// Returns the run with this id if its end is not recorded yet.
    pub fn open_run_by_id(&self, id: &str) -> Result<Option<OpenRun>, StoreError> {
        let statement = format!("SELECT {COLUMNS} FROM open_run WHERE id = ?1");
        self.read(|sql| sql.optional(&statement, [id], run))
    }

    /// Returns the open runs that one session key started, oldest first. They may not be on the
    /// disk yet. Callers act on them by a later change, which cannot be on the disk without them.
    pub fn open_runs_of(&self, session_key: &str) -> Result<Vec<OpenRun>, StoreError> {
        let statement = format!(
            "SELECT {COLUMNS} FROM open_run WHERE session_key = ?1 ORDER BY started_at_ms, id"
        );
        self.read_committed(|sql| sql.all(&statement, [session_key], run))
    }

    /// Returns the open run that is in the background under this name.
    pub fn background_run(&self, session: &str) -> Result<Option<OpenRun>, StoreError> {
        // Names are reused: the newest run has the name.
        let statement = format!(
            "SELECT {COLUMNS} FROM open_run WHERE session = ?1 ORDER BY started_at_ms DESC LIMIT 1"
        );
        self.read(|sql| sql.optional(&statement, [session], run))
    }
}

impl Change<'_> {
    /// Stores a run that is about to start. A second run with the same id is an error of the
    /// database.
    pub fn open_run(&self, new: &NewRun<'_>) -> Result<OpenRun, StoreError> {
        limits::RUN_ID.check(new.id)?;
        limits::RUN_ID.check_if_any(new.approval_id)?;
        limits::AGENT.check(new.agent)?;
        limits::SESSION_KEY.check(new.session_key)?;
        limits::HOST.check(new.host)?;
        limits::NODE.check_if_any(new.node)?;
        limits::RUN_COMMAND.check(new.command)?;
        limits::WAITER.check(new.waiter)?;
        self.sql.execute(
            "INSERT INTO open_run
                (id, approval_id, agent, session_key, host, node, command, waiter, started_at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                new.id,
                new.approval_id,
                new.agent,
                new.session_key,
                new.host,
                new.node,
                new.command,
                new.waiter,
                new.now_ms,
            ],
        )?;
        Ok(OpenRun {
            id: new.id.to_owned(),
            approval_id: new.approval_id.map(str::to_owned),
            agent: new.agent.to_owned(),
            session_key: new.session_key.to_owned(),
            host: new.host.to_owned(),
            node: new.node.map(str::to_owned),
            command: new.command.to_owned(),
            waiter: new.waiter.to_owned(),
            started_at_ms: new.now_ms,
            session: None,
            announced: false,
        })
    }

    /// Moves a run to the background: no call waits for its end any more. Returns `false` if the
    /// run is over already.
    pub fn to_background(&self, id: &str, session: &str) -> Result<bool, StoreError> {
        limits::SESSION_NAME.check(session)?;
        let changed = self.sql.execute(
            "UPDATE open_run SET session = ?2 WHERE id = ?1",
            params![id, session],
        )?;
        Ok(changed == 1)
    }

    /// Marks a run as reported to take long. Returns `None` if it was marked before or is over.
    pub fn announce_run(&self, id: &str) -> Result<Option<OpenRun>, StoreError> {
        let statement = format!(
            "UPDATE open_run SET announced = 1 WHERE id = ?1 AND announced = 0 RETURNING {COLUMNS}"
        );
        self.sql.optional(&statement, [id], run)
    }

    /// Removes a run from the list. The caller that gets the run must record its end in this same
    /// change. Returns `None` if another caller got it first.
    pub fn close_run(&self, id: &str) -> Result<Option<OpenRun>, StoreError> {
        let statement = format!("DELETE FROM open_run WHERE id = ?1 RETURNING {COLUMNS}");
        self.sql.optional(&statement, [id], run)
    }
}

const COLUMNS: &str = "id, approval_id, agent, session_key, host, node, command, waiter,
    started_at_ms, session, announced";

fn run(row: &Row<'_>) -> rusqlite::Result<OpenRun> {
    Ok(OpenRun {
        id: row.get(0)?,
        approval_id: row.get(1)?,
        agent: row.get(2)?,
        session_key: row.get(3)?,
        host: row.get(4)?,
        node: row.get(5)?,
        command: row.get(6)?,
        waiter: row.get(7)?,
        started_at_ms: row.get(8)?,
        session: row.get(9)?,
        announced: row.get(10)?,
    })
}
