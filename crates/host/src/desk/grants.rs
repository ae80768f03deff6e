//! What earlier answers still allow: for a session, or for a time.

use interlock_store::Grant;

use super::error::DeskError;
use super::origin::OutsideRuns;
use super::pending::plan;
use super::{Desk, now};
use crate::local::{HostError, LocalHost};

impl Desk<'_> {
    /// Those that still allow something, the newest first.
    pub fn grants(self) -> Result<Vec<Grant>, HostError> {
        Ok(self.host.store().grants(now())?)
    }

    /// Takes a grant back, by its id or the beginning of it. Runs that it allowed before go on.
    pub fn revoke_grant(
        self,
        reference: &str,
        who: &str,
        _outside: OutsideRuns,
    ) -> Result<Grant, DeskError> {
        let grants = self.grants()?;
        let exact = grants.iter().find(|grant| grant.id == reference);
        let mut beginning = grants
            .iter()
            .filter(|grant| grant.id.starts_with(reference));
        let found = match (exact, beginning.next(), beginning.next()) {
            (Some(grant), ..) | (None, Some(grant), None) if !reference.is_empty() => grant,
            _ => return Err(DeskError::NoGrant(reference.to_owned())),
        };
        self.host.store().revoke_grant(&found.id, who, now())?;
        Ok(found.clone())
    }
}

/// The files that grants hold, programs and scripts, by the path that each was found by and its
/// real one.
pub(crate) fn granted_files(host: &LocalHost) -> Result<Vec<String>, HostError> {
    let mut files = Vec::new();
    for grant in host.desk().grants()? {
        // What cannot be read any more allows nothing either.
        let Ok(approval) = host.store().approval(&grant.approval_id) else {
            continue;
        };
        let Ok(plan) = plan(&approval) else {
            continue;
        };
        let bound = plan.binding.files.iter().map(|bound| &bound.file);
        let held = plan.executables().into_iter().chain(plan.passed_on());
        for file in held.chain(bound) {
            files.extend([file.found.clone(), file.canonical.clone()]);
        }
    }
    Ok(files)
}
