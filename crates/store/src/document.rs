//! Checks that the approvals document is the one that the audit recorded last.
//!
//! Every write of the document adds an audit record that holds the document's hash. The row of the
//! document names that record, and a seal covers both. The file `approvals.recorded` beside the
//! database names the last such record. A document that fails either check was written without an
//! audit record, and nothing runs by it.

use rusqlite::params;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::approvals::{Author, StoredDocument, WrittenDocument, checked, now_ms};
use crate::audit::{AuditHead, AuditKind, chained_record, newest_of};
use crate::change::{Change, Sql};
use crate::database::Store;
use crate::error::StoreError;
use crate::json::{lenient_field, sha256_hex};
use crate::recorded::{self, DocumentRecord};

/// The value of `document` in the audit record of a write of the approvals document.
pub(crate) const APPROVALS: &str = "approvals";

/// The state of the approvals document, for the owner who repairs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentStanding {
    /// No document was written yet.
    First,
    Recorded(StoredDocument),
    Unrecorded {
        problem: String,
        /// The document that the database holds now.
        present: Option<String>,
        /// The document that was recorded last, if it is known.
        recorded: Option<String>,
    },
}

/// A document that was checked and found to be recorded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KnownDocument {
    hash: String,
    seal: Vec<u8>,
}

/// The row in the database, before its seal is checked.
struct DocumentRow {
    document: StoredDocument,
    audit_seq: Option<i64>,
    seal: Option<Vec<u8>>,
}

/// A document that may be used, and the record that `approvals.recorded` has yet to name.
struct CheckedDocument {
    document: Option<StoredDocument>,
    behind: Option<AuditHead>,
}

impl Store {
    /// Returns the document if the audit recorded it, or `None` before the first start writes one.
    pub(crate) fn recorded_document(&self) -> Result<Option<StoredDocument>, StoreError> {
        let mut found = self.read_committed(|sql| self.check_document(sql));
        if let Err(StoreError::DocumentUnrecorded { .. }) = found {
            // Another process may have written a document after the database was read and before
            // the file was read. The file is written last, so a second read sees both.
            found = self.read_committed(|sql| self.check_document(sql));
        }
        let found = found?;
        if let (Some(document), Some(head)) = (&found.document, found.behind) {
            // A process that ended right after its commit did not write the file. The record must
            // be on the disk before the file names it.
            self.sync()?;
            let _ = recorded::write(self.state_dir(), head, &document.text);
        }
        Ok(found.document)
    }

    /// Returns the state of the document. An unrecorded document is a state here, not an error.
    pub fn document_standing(&self) -> Result<DocumentStanding, StoreError> {
        match self.recorded_document() {
            Ok(None) => Ok(DocumentStanding::First),
            Ok(Some(document)) => Ok(DocumentStanding::Recorded(document)),
            Err(StoreError::DocumentUnrecorded { problem }) => Ok(DocumentStanding::Unrecorded {
                problem,
                present: self.read_committed(row)?.map(|row| row.document.text),
                recorded: recorded::text(self.state_dir()),
            }),
            Err(error) => Err(error),
        }
    }

    /// Writes and records a document, whatever the database holds now. Only the repair by the
    /// owner, who has seen the state of the document, may call this.
    pub fn repair_document(
        &self,
        author: &Author,
        text: &str,
    ) -> Result<StoredDocument, StoreError> {
        let text = checked(text)?;
        self.change(|change| {
            let present = row(&change.sql)?.map(|row| row.document.hash);
            let document = StoredDocument {
                hash: sha256_hex(&text),
                text,
                updated_at_ms: now_ms(),
            };
            let record = json!({
                "document": APPROVALS,
                "newHash": document.hash,
                "oldHash": present,
                "repair": true,
                "who": author.as_str(),
            });
            change.write_document(&document, &record, true)?;
            Ok(document)
        })
    }

    /// Writes the file that names the document recorded last. The document itself is on the disk
    /// already. If the file cannot be written now, the next read of the document writes it.
    pub(crate) fn keep_recorded(&self, written: &WrittenDocument) {
        let is_older = match recorded::read(self.state_dir()) {
            DocumentRecord::By(head) => head.seq > written.head.seq && !written.is_repair,
            DocumentRecord::Never | DocumentRecord::Unreadable => false,
        };
        if !is_older {
            let _ = recorded::write(self.state_dir(), written.head, &written.text);
        }
    }

    /// Seals what an older version wrote, but only if no document was ever recorded in this state
    /// directory. After that, a missing seal means that another program wrote the row, so
    /// the row stays unsealed.
    pub(crate) fn adopt(&self) -> Result<(), StoreError> {
        if recorded::read(self.state_dir()) != DocumentRecord::Never {
            return Ok(());
        }
        let is_unsealed = self
            .read_committed(row)?
            .is_some_and(|row| row.seal.is_none());
        if !is_unsealed {
            return Ok(());
        }
        self.change(|change| {
            change.adopt()?;
            Ok(())
        })
    }

    fn check_document(&self, sql: &Sql<'_>) -> Result<CheckedDocument, StoreError> {
        let unrecorded = |problem: &str| {
            Err(StoreError::DocumentUnrecorded {
                problem: problem.to_owned(),
            })
        };
        let Some(row) = row(sql)? else {
            return match recorded::read(self.state_dir()) {
                DocumentRecord::Never => Ok(CheckedDocument {
                    document: None,
                    behind: None,
                }),
                DocumentRecord::By(_) | DocumentRecord::Unreadable => unrecorded(
                    "the database holds none, though one was recorded in this state directory",
                ),
            };
        };
        let document = row.document;
        if document.hash != sha256_hex(&document.text) {
            return unrecorded("its text does not match its hash");
        }
        let (Some(seq), Some(seal)) = (row.audit_seq, row.seal) else {
            return unrecorded("it was put into the database by another program");
        };
        let known = KnownDocument {
            hash: document.hash.clone(),
            seal,
        };
        if self.known().as_ref() == Some(&known) {
            return Ok(CheckedDocument {
                document: Some(document),
                behind: None,
            });
        }
        let Some((head, record)) = chained_record(sql, seq)? else {
            return unrecorded("the audit record that it names is not there, or was changed");
        };
        if !is_write_of(&record, &document.hash) {
            return unrecorded("the audit record that it names wrote another one");
        }
        let values = sealed(&document.hash, head);
        if !self.key().is_sealed(APPROVALS, &values, Some(&known.seal)) {
            return unrecorded("it was put into the database by another program");
        }
        let behind = match recorded::read(self.state_dir()) {
            DocumentRecord::By(last) if last == head => None,
            DocumentRecord::By(last) if last.seq >= head.seq => {
                return unrecorded("a later one was recorded in this state directory");
            }
            DocumentRecord::By(_) | DocumentRecord::Never | DocumentRecord::Unreadable => {
                Some(head)
            }
        };
        if behind.is_none() {
            *self.known() = Some(known);
        }
        Ok(CheckedDocument {
            document: Some(document),
            behind,
        })
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<KnownDocument>> {
        let known = self.known_document.lock();
        known.unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Change<'_> {
    /// Returns the document as this change sees it, if the audit recorded it.
    pub(crate) fn recorded_document(&self) -> Result<Option<StoredDocument>, StoreError> {
        Ok(self.store.check_document(&self.sql)?.document)
    }

    /// Writes the document together with its audit record and its seal.
    pub(crate) fn write_document(
        &self,
        document: &StoredDocument,
        record: &Value,
        is_repair: bool,
    ) -> Result<(), StoreError> {
        let head = self.append(AuditKind::PolicyWrite, record, document.updated_at_ms)?;
        self.put_row(document, head)?;
        self.written.replace(Some(WrittenDocument {
            head,
            text: document.text.clone(),
            is_repair,
        }));
        Ok(())
    }

    /// Records the present document again if its audit record has a number up to `through`. A
    /// document that is invalid now stays invalid.
    pub(crate) fn record_document_again(&self, through: u64, who: &str) -> Result<(), StoreError> {
        let checked = self.store.check_document(&self.sql)?;
        let seq = row(&self.sql)?.and_then(|row| row.audit_seq);
        let is_old = seq.is_some_and(|seq| seq <= through.cast_signed());
        let Some(mut document) = checked.document.filter(|_| is_old) else {
            return Ok(());
        };
        document.updated_at_ms = now_ms();
        let record = json!({
            "archive": true,
            "document": APPROVALS,
            "newHash": document.hash,
            "oldHash": document.hash,
            "who": who,
        });
        self.write_document(&document, &record, false)
    }

    fn put_row(&self, document: &StoredDocument, head: AuditHead) -> Result<(), StoreError> {
        let seal = self
            .store
            .key()
            .seal(APPROVALS, &sealed(&document.hash, head));
        self.sql.execute(
            "INSERT INTO approvals_document (only_row, text, hash, updated_at_ms, audit_seq, seal)
             VALUES (1, ?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (only_row) DO UPDATE
             SET text = ?1, hash = ?2, updated_at_ms = ?3, audit_seq = ?4, seal = ?5",
            params![
                document.text,
                document.hash,
                document.updated_at_ms,
                head.seq.cast_signed(),
                seal.as_slice(),
            ],
        )?;
        Ok(())
    }

    /// Does the work of [`Store::adopt`]. A document that the newest record did not write stays
    /// unsealed.
    fn adopt(&self) -> Result<(), StoreError> {
        let Some(DocumentRow { document, .. }) = row(&self.sql)? else {
            return Ok(());
        };
        let is_own = |body: &str| is_about_approvals(body);
        let head = match newest_of(&self.sql, AuditKind::PolicyWrite, is_own)? {
            Some(seq) => match chained_record(&self.sql, seq)? {
                Some((head, record)) if is_write_of(&record, &document.hash) => head,
                _ => return Ok(()),
            },
            // The document was written before there were audit records.
            None => {
                let record = json!({
                    "document": APPROVALS,
                    "newHash": document.hash,
                    "oldHash": document.hash,
                    "who": "upgrade",
                });
                self.append(AuditKind::PolicyWrite, &record, now_ms())?
            }
        };
        self.put_row(&document, head)?;
        self.seal_decisions()?;
        self.seal_grants()?;
        self.written.replace(Some(WrittenDocument {
            head,
            text: document.text,
            is_repair: false,
        }));
        Ok(())
    }
}

/// Returns the values that the seal of the document covers.
fn sealed(hash: &str, head: AuditHead) -> (&str, String) {
    (hash, head.to_string())
}

fn is_about_approvals(body: &str) -> bool {
    DocumentWriteBody::read(body).document.as_deref() == Some(APPROVALS)
}

/// The fields of an audit record's body that describe a write of a document.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DocumentWriteBody {
    #[serde(deserialize_with = "lenient_field")]
    document: Option<String>,
    #[serde(deserialize_with = "lenient_field")]
    new_hash: Option<String>,
}

impl DocumentWriteBody {
    fn read(body: &str) -> Self {
        serde_json::from_str(body).unwrap_or_default()
    }
}

/// Whether the record says that it wrote the document with this hash.
fn is_write_of((kind, body): &(String, String), hash: &str) -> bool {
    let body = DocumentWriteBody::read(body);
    kind == AuditKind::PolicyWrite.as_str()
        && body.document.as_deref() == Some(APPROVALS)
        && body.new_hash.as_deref() == Some(hash)
}

fn row(sql: &Sql<'_>) -> Result<Option<DocumentRow>, StoreError> {
    sql.optional(
        "SELECT text, hash, updated_at_ms, audit_seq, seal FROM approvals_document",
        [],
        |row| {
            Ok(DocumentRow {
                document: StoredDocument {
                    text: row.get(0)?,
                    hash: row.get(1)?,
                    updated_at_ms: row.get(2)?,
                },
                audit_seq: row.get(3)?,
                seal: row.get(4)?,
            })
        },
    )
}
