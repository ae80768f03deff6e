//! The approvals document: one JSON text with its hash. Only a writer that has seen the present
//! document can replace it.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::audit::AuditHead;
use crate::change::Change;
use crate::database::Store;
use crate::document::APPROVALS;
use crate::error::StoreError;
use crate::json::{canonical, sha256_hex};
use crate::limits;

/// The longest document that the store accepts, in bytes.
pub const MAX_DOCUMENT_BYTES: usize = 4 * 1024 * 1024;

/// The approvals document as the store holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDocument {
    /// Canonical JSON, without blanks and with sorted keys, so that equal documents are equal
    /// texts.
    pub text: String,
    /// SHA-256 of the text, in hexadecimal.
    pub hash: String,
    pub updated_at_ms: i64,
}

/// A document that a change has written, for the file `approvals.recorded` beside the database.
#[derive(Debug)]
pub(crate) struct WrittenDocument {
    /// The audit record of the write.
    pub(crate) head: AuditHead,
    pub(crate) text: String,
    /// Whether the owner repaired the document, whatever the database held before.
    pub(crate) is_repair: bool,
}

/// The name under which the audit records the writer of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author(String);

impl Author {
    pub fn new(name: impl Into<String>) -> Result<Self, StoreError> {
        let name = name.into();
        limits::AUTHOR.check(&name)?;
        Ok(Self(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The default author is a program of this account that gives no name.
impl Default for Author {
    fn default() -> Self {
        Self("local".to_owned())
    }
}

/// Stores the approvals document. The store does not interpret its content.
pub trait ApprovalsStore: Send + Sync {
    /// Returns the document, or `None` before the first start writes one.
    fn document(&self) -> Result<Option<StoredDocument>, StoreError>;

    /// Replaces the document if its hash is still `base_hash`; `None` means that no document may
    /// exist yet. Otherwise the call fails with [`StoreError::DocumentChanged`], and nothing is
    /// written. When this returns, the document and the audit record of the change are on the disk.
    fn replace_document_as(
        &self,
        author: &Author,
        base_hash: Option<&str>,
        text: &str,
    ) -> Result<StoredDocument, StoreError>;

    /// Calls [`Self::replace_document_as`] with an unnamed [`Author`].
    fn replace_document(
        &self,
        base_hash: Option<&str>,
        text: &str,
    ) -> Result<StoredDocument, StoreError> {
        self.replace_document_as(&Author::default(), base_hash, text)
    }
}

impl ApprovalsStore for Store {
    fn document(&self) -> Result<Option<StoredDocument>, StoreError> {
        self.recorded_document()
    }

    fn replace_document_as(
        &self,
        author: &Author,
        base_hash: Option<&str>,
        text: &str,
    ) -> Result<StoredDocument, StoreError> {
        let text = checked(text)?;
        self.change(|change| change.replace_checked(author, base_hash, text))
    }
}

impl Change<'_> {
    /// Returns the document as this change sees it.
    pub fn document(&self) -> Result<Option<StoredDocument>, StoreError> {
        self.recorded_document()
    }

    /// Like [`ApprovalsStore::replace_document_as`], but as a part of this change, so that a
    /// decision commits together with the entries that it stores.
    pub fn replace_document_as(
        &self,
        author: &Author,
        base_hash: Option<&str>,
        text: &str,
    ) -> Result<StoredDocument, StoreError> {
        self.replace_checked(author, base_hash, checked(text)?)
    }

    fn replace_checked(
        &self,
        author: &Author,
        base_hash: Option<&str>,
        text: String,
    ) -> Result<StoredDocument, StoreError> {
        let current = self.document()?;
        let current_hash = current.as_ref().map(|document| document.hash.as_str());
        if current_hash != base_hash {
            return Err(StoreError::DocumentChanged {
                current_hash: current.map(|document| document.hash),
            });
        }
        let document = StoredDocument {
            hash: sha256_hex(&text),
            text,
            updated_at_ms: now_ms(),
        };
        let record = json!({
            "document": APPROVALS,
            "newHash": document.hash,
            "oldHash": current_hash,
            "who": author.as_str(),
        });
        if let Some(same) = current.filter(|current| current.hash == document.hash) {
            return Ok(same);
        }
        self.write_document(&document, &record, false)?;
        Ok(document)
    }
}

/// Returns the document in canonical form, or an error if it is too long or is not valid JSON.
pub(crate) fn checked(text: &str) -> Result<String, StoreError> {
    if text.len() > MAX_DOCUMENT_BYTES {
        return Err(StoreError::DocumentTooLarge {
            bytes: text.len(),
            most: MAX_DOCUMENT_BYTES,
        });
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value) => Ok(canonical(&value)),
        Err(error) => Err(StoreError::DocumentInvalid {
            problem: error.to_string(),
        }),
    }
}

pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_keeps_the_old_document() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let first = store.replace_document(None, "{}").unwrap();
        // SQLite's own limit stands in for the end of the disk: the same error, on the same path.
        store
            .connection()
            .execute_batch("PRAGMA max_page_count = 4")
            .unwrap();
        let large = format!("[{:?}]", "x".repeat(100_000));
        let error = store
            .replace_document(Some(&first.hash), &large)
            .unwrap_err();
        assert_eq!(error.code(), "STORE_DISK_FULL");
        assert_eq!(store.document().unwrap(), Some(first));
    }

    #[test]
    fn a_document_that_was_tampered_with_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        store.replace_document(None, "{\"version\":1}").unwrap();
        store
            .connection()
            .execute("UPDATE approvals_document SET text = '{}'", [])
            .unwrap();
        assert_eq!(store.document().unwrap_err().code(), "DOCUMENT_UNRECORDED");
    }

    #[test]
    fn the_connection_is_durable_and_strict() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let store = (store, Store::open(directory.path()).unwrap()).1; // one that did not migrate
        let ask = |pragma: &str| {
            let sql = format!("PRAGMA {pragma}");
            store
                .connection()
                .query_row(&sql, [], |row| row.get::<_, rusqlite::types::Value>(0))
                .unwrap()
        };
        assert_eq!(ask("journal_mode"), "wal".to_owned().into());
        // The log is always consistent; `disk` makes sure that it is on the disk.
        assert_eq!(ask("synchronous"), 1.into());
        assert_eq!(ask("foreign_keys"), 1.into());
    }

    #[test]
    fn a_database_that_stays_locked_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let other = Store::open(directory.path()).unwrap();
        other.connection().execute_batch("BEGIN IMMEDIATE").unwrap();
        store
            .connection()
            .busy_timeout(std::time::Duration::ZERO)
            .unwrap();
        let error = store.replace_document(None, "{}").unwrap_err();
        assert_eq!(error.code(), "STORE_LOCKED");
        other.connection().execute_batch("ROLLBACK").unwrap();
        store.replace_document(None, "{}").unwrap();
    }

    #[test]
    fn who_reads_neither_waits_for_a_change_nor_sees_half_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let first = store.replace_document(None, "{}").unwrap();
        let changed = store.change(|change| {
            let text = "UPDATE approvals_document SET text = 'half'";
            change.sql.execute(text, [])?;
            assert_eq!(store.document().unwrap(), Some(first.clone()));
            Ok::<_, StoreError>(())
        });
        changed.unwrap();
        assert_eq!(store.document().unwrap_err().code(), "DOCUMENT_UNRECORDED");
    }
}
