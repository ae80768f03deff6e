//! Reads, checks and exports the audit records of this host.

use std::io::{self, Write};
use std::path::Path;

use interlock_store::{
    ApprovalsStore as _, ArchiveError, ArchivedAudit, AuditFilter, AuditHead, AuditRecord,
    AuditRecordPage, AuditVerification, Author,
};

use crate::clock::now;
use crate::origin::OutsideRuns;

use crate::approvals::Approvals;
use interlock_rules::RulesError;

impl Approvals<'_> {
    pub fn audit_log(self, filter: &AuditFilter) -> Result<Vec<AuditRecord>, RulesError> {
        Ok(self.store.audit_log(filter)?)
    }

    /// A page of audit records with the exact total and the cursor of the next page.
    pub fn audit_page(self, filter: &AuditFilter) -> Result<AuditRecordPage, RulesError> {
        Ok(self.store.audit_page(filter)?)
    }

    /// The last record. The owner keeps it where no account of this machine can change it.
    pub fn audit_head(self) -> Result<AuditHead, RulesError> {
        Ok(self.store.audit_head()?)
    }

    /// Checks every record, and with a head that was kept elsewhere also that no record was cut
    /// off. If the records are intact, the approvals document must be the last one that they
    /// record.
    pub fn audit_verify(self, head: Option<&AuditHead>) -> Result<AuditVerification, RulesError> {
        let store = self.store;
        let verified = store.verify_audit(head)?;
        if matches!(verified, AuditVerification::Intact(_)) {
            store.document()?;
        }
        Ok(verified)
    }

    /// Moves records that are older than `before_ms` into files of a directory; see
    /// [`Store::archive_audit`](interlock_store::Store::archive_audit). Only the owner may do this,
    /// never a run.
    pub fn audit_archive(
        self,
        before_ms: i64,
        directory: &Path,
        who: &str,
        _outside: OutsideRuns,
    ) -> Result<Vec<ArchivedAudit>, ArchiveError> {
        let author = Author::new(who.to_owned())?;
        self.store
            .archive_audit(before_ms, directory, &author, now())
    }

    /// Writes every record as a line of JSON, and the head as the last line.
    pub fn audit_export(self, out: &mut impl Write) -> Result<io::Result<()>, RulesError> {
        for line in self.store.audit_export()? {
            let line = line?;
            if let Err(error) = writeln!(out, "{line}") {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }
}
