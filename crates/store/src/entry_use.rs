//! The last use of each allowlist entry. It is stored beside the document, so that a use does not
//! change the document's hash and make an edit of the document fail.

use std::collections::BTreeSet;

use rusqlite::params;

use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::limits;

/// Longer commands are truncated.
const MAX_COMMAND_CHARS: usize = 400;

/// The last use of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryUse {
    /// The name that the policy gives to the entry.
    pub entry: String,
    pub used_at_ms: i64,
    /// The command as approvers see it, without secrets.
    pub command: String,
    /// The file that the command resolved to.
    pub resolved: Option<String>,
}

impl Change<'_> {
    /// Records a use, in the same change as the run that it allows. It needs no audit record: the
    /// records of the run say more.
    pub fn use_entry(&self, used: &EntryUse) -> Result<(), StoreError> {
        limits::ENTRY.check(&used.entry)?;
        let command: String = used.command.chars().take(MAX_COMMAND_CHARS).collect();
        self.sql.execute(
            "INSERT INTO entry_use (entry, used_at_ms, command, resolved) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (entry) DO UPDATE SET used_at_ms = ?2, command = ?3, resolved = ?4
             WHERE used_at_ms <= ?2",
            params![used.entry, used.used_at_ms, command, used.resolved],
        )?;
        Ok(())
    }
}

impl Store {
    pub fn entry_uses(&self) -> Result<Vec<EntryUse>, StoreError> {
        let statement = "SELECT entry, used_at_ms, command, resolved FROM entry_use ORDER BY entry";
        self.read(|sql| {
            sql.all(statement, [], |row| {
                Ok(EntryUse {
                    entry: row.get(0)?,
                    used_at_ms: row.get(1)?,
                    command: row.get(2)?,
                    resolved: row.get(3)?,
                })
            })
        })
    }

    /// Forgets the uses of entries that no longer exist, and returns how many.
    pub fn forget_entry_uses(&self, present: &BTreeSet<String>) -> Result<usize, StoreError> {
        let uses = self.entry_uses()?;
        let gone: Vec<&str> = uses
            .iter()
            .map(|used| used.entry.as_str())
            .filter(|entry| !present.contains(*entry))
            .collect();
        if gone.is_empty() {
            return Ok(0);
        }
        self.change(|change| {
            for entry in &gone {
                change
                    .sql
                    .execute("DELETE FROM entry_use WHERE entry = ?1", [entry])?;
            }
            Ok(gone.len())
        })
    }
}
