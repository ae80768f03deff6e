//! The audit records of this host: reading, checking and exporting them.

use std::io::{self, Write};
use std::path::Path;

use interlock_store::{
    ApprovalsStore as _, AuditFilter, AuditHead, AuditKind, AuditRecord, AuditVerification, Author,
    Store,
};
use serde_json::json;

use crate::approvals::Approvals;
use crate::clock::now;
use crate::error::ApprovalStateError;

impl Approvals<'_> {
    pub fn audit_log(self, filter: &AuditFilter) -> Result<Vec<AuditRecord>, ApprovalStateError> {
        Ok(self.store.audit_log(filter)?)
    }

    /// The last record, to be kept where no account of this machine can change it.
    pub fn audit_head(self) -> Result<AuditHead, ApprovalStateError> {
        Ok(self.store.audit_head()?)
    }

    /// Checks every record; with a head that was kept elsewhere, also that none was cut off. Behind
    /// records that are intact, the approvals document must be the one that they wrote last.
    pub fn audit_verify(
        self,
        head: Option<&AuditHead>,
    ) -> Result<AuditVerification, ApprovalStateError> {
        let store = self.store;
        let verified = store.verify_audit(head)?;
        if matches!(verified, AuditVerification::Intact(_)) {
            store.document()?;
        }
        Ok(verified)
    }

    /// Writes every record as a line of JSON, and the head as the last one.
    pub fn audit_export(self, out: &mut impl Write) -> Result<io::Result<()>, ApprovalStateError> {
        for line in self.store.audit_export()? {
            let line = line?;
            if let Err(error) = writeln!(out, "{line}") {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }
}

/// Records that a config was changed. The config is a file of its own, so this comes after it.
pub fn record_config_write(
    state_dir: &Path,
    config: &Path,
    keys: &[&str],
    author: &Author,
) -> Result<(), ApprovalStateError> {
    append_config_write(&Store::open(state_dir)?, config, keys, author)
}

/// Appends the audit record of a changed config.
pub fn append_config_write(
    store: &Store,
    config: &Path,
    keys: &[&str],
    author: &Author,
) -> Result<(), ApprovalStateError> {
    let record = json!({
        "document": "config",
        "keys": keys,
        "path": config.display().to_string(),
        "who": author.as_str(),
    });
    store.append(AuditKind::PolicyWrite, &record, now())?;
    Ok(())
}
