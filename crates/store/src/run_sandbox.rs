//! Where a run is confined, from its start to its end: the record of the end names it, whichever process
//! writes that.

use rusqlite::params;
use serde_json::Value;

use crate::change::Change;
use crate::error::StoreError;
use crate::json::canonical;
use crate::limits;

impl Change<'_> {
    /// Notes the sandbox of a run that is about to start.
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

    /// Adds the sandbox of a run to the record of its end. A run without one leaves the record as it is.
    /// Of a claimed run whose outcome is unknown the sandbox stays noted, since its end can be recorded
    /// once more.
    pub fn add_sandbox_of_ended(&self, run_id: &str, record: &mut Value) -> Result<(), StoreError> {
        let statement = "SELECT sandbox FROM run_sandbox WHERE id = ?1";
        let text: Option<String> = self.sql.optional(statement, [run_id], |row| row.get(0))?;
        let Some(text) = text else {
            return Ok(());
        };
        // Only a damaged database holds another text; the record then has it as it is.
        let sandbox = serde_json::from_str(&text).unwrap_or(Value::String(text));
        record["sandbox"] = sandbox;
        self.sql.execute(
            "DELETE FROM run_sandbox WHERE id = ?1 AND NOT EXISTS
                (SELECT 1 FROM run_claim WHERE run_claim.id = ?1 AND state = 'unknown')",
            [run_id],
        )?;
        Ok(())
    }

    /// Forgets the sandboxes of runs that are over and that no claim is kept of.
    pub(crate) fn forget_sandboxes(&self) -> Result<(), StoreError> {
        self.sql.execute(
            "DELETE FROM run_sandbox WHERE id NOT IN (SELECT id FROM open_run)
                AND id NOT IN (SELECT id FROM run_claim)",
            [],
        )?;
        Ok(())
    }
}
