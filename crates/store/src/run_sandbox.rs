//! Remembers the sandbox of a run from its start to its end, so that the record of the end names
//! the sandbox, whichever process writes the record.

use rusqlite::params;
use serde_json::Value;

use crate::change::Change;
use crate::error::StoreError;
use crate::json::canonical;
use crate::limits;

impl Change<'_> {
    /// Stores the sandbox of a run that is about to start.
    pub fn keep_sandbox(&self, run_id: &str, sandbox: &Value) -> Result<(), StoreError> {
        limits::RUN_ID.check(run_id)?;
        let text = canonical(sandbox);
        limits::RUN_SANDBOX.check(&text)?;
        self.sql.execute(
            "INSERT OR REPLACE INTO run_sandbox (id, sandbox) VALUES (?1, ?2)",
            params![run_id, text],
        )?;
        Ok(())
    }

    /// Adds the sandbox of a run to the record of its end. The record of a run without a sandbox
    /// stays as it is. If the outcome of a claimed run is unknown, the sandbox stays stored,
    /// because the end of the run can be recorded again.
    pub fn add_sandbox_of_ended(&self, run_id: &str, record: &mut Value) -> Result<(), StoreError> {
        let statement = "SELECT sandbox FROM run_sandbox WHERE id = ?1";
        let text: Option<String> = self.sql.optional(statement, [run_id], |row| row.get(0))?;
        let Some(text) = text else {
            return Ok(());
        };
        // Only a damaged database holds text that is not JSON. The record then holds that text.
        let sandbox = serde_json::from_str(&text).unwrap_or(Value::String(text));
        record["sandbox"] = sandbox;
        self.sql.execute(
            "DELETE FROM run_sandbox WHERE id = ?1 AND NOT EXISTS
                (SELECT 1 FROM run_claim WHERE run_claim.id = ?1 AND state = 'unknown')",
            [run_id],
        )?;
        Ok(())
    }

    /// Forgets the sandboxes of runs that have ended and have no claim.
    pub(crate) fn forget_sandboxes(&self) -> Result<(), StoreError> {
        self.sql.execute(
            "DELETE FROM run_sandbox WHERE id NOT IN (SELECT id FROM open_run)
                AND id NOT IN (SELECT id FROM run_claim)",
            [],
        )?;
        Ok(())
    }
}
