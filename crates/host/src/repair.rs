//! The owner's way out where no audit record wrote the approvals document.

use interlock_approvals::OutsideRuns;
use interlock_policy::Document;
use interlock_store::{Author, DocumentStanding, StoredDocument};

use crate::local::{HostError, LocalHost, parse_document};

/// What becomes of a document that is not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentRepair {
    /// The one in the database is recorded as it is; where there is none, the cautious one is written.
    Record,
    /// The one that was recorded last is put back.
    Restore,
}

impl LocalHost {
    /// How the document stands. It is not an error that it is not recorded.
    pub fn document_standing(&self) -> Result<DocumentStanding, HostError> {
        Ok(self.store().document_standing()?)
    }

    /// Repairs a document that is not recorded; none where there is nothing to repair. Never for a run:
    /// it would write its own policy.
    pub fn repair_document(
        &self,
        repair: DocumentRepair,
        author: &Author,
        _outside: OutsideRuns,
    ) -> Result<Option<StoredDocument>, HostError> {
        let DocumentStanding::Unrecorded {
            present, recorded, ..
        } = self.document_standing()?
        else {
            return Ok(None);
        };
        let text = match repair {
            DocumentRepair::Record => present.unwrap_or_else(|| Document::cautious().to_json()),
            DocumentRepair::Restore => recorded.ok_or_else(|| HostError::Edit {
                code: "DOCUMENT_MISSING",
                message: "the document that was recorded last cannot be read".to_owned(),
                remedy: "record what is there: interlock doctor --record-document".to_owned(),
            })?,
        };
        parse_document("approvals document", text.as_bytes())?;
        Ok(Some(self.store().repair_document(author, &text)?))
    }
}
