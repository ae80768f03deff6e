//! The audit records of this host: reading and checking them.

use std::io::{self, Write};
use std::path::Path;

use interlock_store::{
    ApprovalsStore as _, AuditFilter, AuditHead, AuditKind, AuditPage, AuditRecord,
    AuditVerification, Author, Store,
};
use serde_json::json;

use super::{Desk, now};
use crate::local::HostError;

impl Desk<'_> {
    pub fn audit_log(self, filter: &AuditFilter) -> Result<Vec<AuditRecord>, HostError> {
        Ok(self.host.store().audit_log(filter)?)
    }

    /// The same with the exact total, and where to go on.
    pub fn audit_page(self, filter: &AuditFilter) -> Result<AuditPage, HostError> {
        Ok(self.host.store().audit_page(filter)?)
    }

    /// The last record, to be kept where no account of this machine can change it.
    pub fn audit_head(self) -> Result<AuditHead, HostError> {
        Ok(self.host.store().audit_head()?)
    }

    /// Checks every record; with a head that was kept elsewhere, also that none was cut off. Behind
    /// records that are intact, the approvals document must be the one that they wrote last.
    pub fn audit_verify(self, head: Option<&AuditHead>) -> Result<AuditVerification, HostError> {
        let store = self.host.store();
        let verified = store.verify_audit(head)?;
        if matches!(verified, AuditVerification::Intact(_)) {
            store.document()?;
        }
        Ok(verified)
    }

    /// Writes every record as a line of JSON, and the head as the last one.
    pub fn audit_export(self, out: &mut impl Write) -> Result<io::Result<()>, HostError> {
        for line in self.host.store().audit_export()? {
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
) -> Result<(), HostError> {
    append_config_write(&Store::open(state_dir)?, config, keys, author)
}

pub(crate) fn append_config_write(
    store: &Store,
    config: &Path,
    keys: &[&str],
    author: &Author,
) -> Result<(), HostError> {
    let record = json!({
        "document": "config",
        "keys": keys,
        "path": config.display().to_string(),
        "who": author.as_str(),
    });
    store.append(AuditKind::PolicyWrite, &record, now())?;
    Ok(())
}
