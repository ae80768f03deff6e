//! The content of the scripts that an approval binds, as it was pinned. Approvers read this
//! content, and not what the path leads to by then.

use rusqlite::params;

use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::limits;

/// A script with the content that is approved or denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedScript {
    /// The canonical path.
    pub path: String,
    /// The SHA-256 of the content, in hexadecimal. Readers must check it.
    pub sha256: String,
    pub content: Vec<u8>,
}

impl Store {
    /// Returns the scripts that were stored with an approval, by its full id, in their order.
    pub fn pinned_scripts(&self, id: &str) -> Result<Vec<PinnedScript>, StoreError> {
        self.read(|sql| {
            sql.all(
                "SELECT path, sha256, content FROM approval_script
                 JOIN approval USING (number) WHERE id = ?1 ORDER BY position",
                [id],
                |row| {
                    Ok(PinnedScript {
                        path: row.get(0)?,
                        sha256: row.get(1)?,
                        content: row.get(2)?,
                    })
                },
            )
        })
    }
}

impl Change<'_> {
    /// Stores the scripts that an approval binds, in the change that creates the approval. Values
    /// that are too long are refused.
    pub fn keep_pinned_scripts(
        &self,
        id: &str,
        scripts: &[PinnedScript],
    ) -> Result<(), StoreError> {
        for (position, script) in scripts.iter().enumerate() {
            limits::SCRIPT_PATH.check(&script.path)?;
            limits::SCRIPT_DIGEST.check(&script.sha256)?;
            limits::SCRIPT.check_bytes(script.content.len())?;
            self.sql.execute(
                "INSERT INTO approval_script (number, position, path, sha256, content)
                 SELECT number, ?2, ?3, ?4, ?5 FROM approval WHERE id = ?1",
                params![
                    id,
                    i64::try_from(position).unwrap_or(i64::MAX),
                    script.path,
                    script.sha256,
                    script.content,
                ],
            )?;
        }
        Ok(())
    }
}
