//! The content that a script had when it was last allowed, so that the next approval can show what
//! changed. This content is for display only: its presence allows nothing.

use rusqlite::params;

use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::limits;

/// The most scripts that are remembered. The script that was allowed longest ago is forgotten
/// first.
const MAX_SCRIPTS: i64 = 500;

/// A script as it was last allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovedContent {
    pub agent: String,
    /// The canonical path.
    pub path: String,
    /// The SHA-256 of the content, in hexadecimal.
    pub sha256: String,
    pub content: String,
    pub approved_at_ms: i64,
}

impl Store {
    /// Returns this agent's script as it was when it was last allowed.
    pub fn approved_content(
        &self,
        agent: &str,
        path: &str,
    ) -> Result<Option<ApprovedContent>, StoreError> {
        self.read(|sql| {
            sql.optional(
                "SELECT agent, path, sha256, content, approved_at_ms FROM approved_contents
                 WHERE agent = ?1 AND path = ?2",
                params![agent, path],
                |row| {
                    Ok(ApprovedContent {
                        agent: row.get(0)?,
                        path: row.get(1)?,
                        sha256: row.get(2)?,
                        content: row.get(3)?,
                        approved_at_ms: row.get(4)?,
                    })
                },
            )
        })
    }
}

impl Change<'_> {
    /// Replaces the remembered content of a script. Values that are too long are refused.
    pub fn keep_approved_content(&self, allowed: &ApprovedContent) -> Result<(), StoreError> {
        limits::AGENT.check(&allowed.agent)?;
        limits::SCRIPT_PATH.check(&allowed.path)?;
        limits::SCRIPT_DIGEST.check(&allowed.sha256)?;
        // The limit refuses empty text, but a script may be empty.
        let content = Some(allowed.content.as_str()).filter(|content| !content.is_empty());
        limits::SCRIPT.check_if_any(content)?;
        self.sql.execute(
            "INSERT INTO approved_contents (agent, path, sha256, content, approved_at_ms)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (agent, path) DO UPDATE
                SET sha256 = ?3, content = ?4, approved_at_ms = ?5",
            params![
                allowed.agent,
                allowed.path,
                allowed.sha256,
                allowed.content,
                allowed.approved_at_ms,
            ],
        )?;
        self.sql.execute(
            "DELETE FROM approved_contents WHERE rowid IN
                (SELECT rowid FROM approved_contents
                 ORDER BY approved_at_ms DESC, rowid DESC LIMIT -1 OFFSET ?1)",
            [MAX_SCRIPTS],
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(path: &str, content: &str, at_ms: i64) -> ApprovedContent {
        ApprovedContent {
            agent: "main".to_owned(),
            path: path.to_owned(),
            sha256: "00".to_owned(),
            content: content.to_owned(),
            approved_at_ms: at_ms,
        }
    }

    fn keep(store: &Store, allowed: &ApprovedContent) -> Result<(), StoreError> {
        store.change(|change| change.keep_approved_content(allowed))
    }

    #[test]
    fn the_last_content_of_each_script_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        keep(&store, &allowed("/a", "one", 1)).unwrap();
        keep(&store, &allowed("/b", "other", 1)).unwrap();
        keep(&store, &allowed("/a", "two", 2)).unwrap();
        let found = store.approved_content("main", "/a").unwrap();
        assert_eq!(found, Some(allowed("/a", "two", 2)));
        assert_eq!(store.approved_content("main", "/c").unwrap(), None);
        assert_eq!(store.approved_content("other", "/a").unwrap(), None);
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let kept: Result<(), StoreError> = store.change(|change| {
            (0..=MAX_SCRIPTS).try_for_each(|number| {
                change.keep_approved_content(&allowed(&format!("/{number}"), "", number))
            })
        });
        kept.unwrap();
        assert_eq!(store.approved_content("main", "/0").unwrap(), None);
        assert!(store.approved_content("main", "/1").unwrap().is_some());
        let long = "x".repeat(limits::MAX_CONTENT_BYTES + 1);
        let error = keep(&store, &allowed("/long", &long, 1)).unwrap_err();
        assert_eq!(error.code(), "INPUT_TOO_LARGE");
    }
}
