//! Records or restores an approvals document that no audit record covers.

use interlock_approvals::OutsideRuns;
use interlock_host::{HostError, LocalHost};
use interlock_policy::Document;
use interlock_rules::{RulesError, parse_document};
use interlock_store::{Author, DocumentStanding, StoredDocument};

/// What to do with a document that is not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentRepair {
    /// Records the document in the database unchanged. If there is none, writes the cautious
    /// document.
    Record,
    /// Restores the document that was recorded last.
    Restore,
}

/// Repairs a document that is not recorded. Returns `None` if there is nothing to repair. A run
/// must not do this, because it would write its own policy.
pub fn repair_document(
    host: &LocalHost,
    repair: DocumentRepair,
    author: &Author,
    _outside: OutsideRuns,
) -> Result<Option<StoredDocument>, HostError> {
    let DocumentStanding::Unrecorded {
        present, recorded, ..
    } = host.rules().document_standing()?
    else {
        return Ok(None);
    };
    let text = match repair {
        DocumentRepair::Record => present.unwrap_or_else(|| Document::cautious().to_json()),
        DocumentRepair::Restore => recorded.ok_or_else(|| RulesError::Edit {
            code: "DOCUMENT_MISSING",
            message: "the document that was recorded last cannot be read".to_owned(),
            remedy: "record the document in the database: interlock doctor --record-document"
                .to_owned(),
        })?,
    };
    parse_document("approvals document", text.as_bytes())?;
    Ok(Some(host.store().repair_document(author, &text)?))
}
