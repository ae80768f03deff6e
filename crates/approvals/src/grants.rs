//! Grants: what earlier decisions still allow, for a conversation or for a time.

use interlock_store::Grant;

use crate::approvals::Approvals;
use crate::clock::now;
use crate::error::ApprovalRefusal;
use crate::origin::OutsideRuns;
use crate::pending::stored_plan;
use interlock_rules::RulesError;

impl Approvals<'_> {
    /// The grants that still allow something, the newest first.
    pub fn grants(self) -> Result<Vec<Grant>, RulesError> {
        Ok(self.store.grants(now())?)
    }

    /// Revokes a grant, by its id or the beginning of its id. Runs that it already allowed
    /// continue.
    pub fn revoke_grant(
        self,
        reference: &str,
        who: &str,
        _outside: OutsideRuns,
    ) -> Result<Grant, ApprovalRefusal> {
        let grants = self.grants()?;
        let exact = grants.iter().find(|grant| grant.id == reference);
        let mut beginning = grants
            .iter()
            .filter(|grant| grant.id.starts_with(reference));
        let found = match (exact, beginning.next(), beginning.next()) {
            (Some(grant), ..) | (None, Some(grant), None) if !reference.is_empty() => grant,
            _ => return Err(ApprovalRefusal::NoGrant(reference.to_owned())),
        };
        self.store.revoke_grant(&found.id, who, now())?;
        Ok(found.clone())
    }

    /// The files that grants hold, programs and scripts, each by the path where it was found and by
    /// its real path.
    pub fn granted_files(self) -> Result<Vec<String>, RulesError> {
        let mut files = Vec::new();
        for grant in self.grants()? {
            // An approval that can no longer be read allows nothing either.
            let Ok(approval) = self.store.approval(&grant.approval_id) else {
                continue;
            };
            let Ok(plan) = stored_plan(&approval) else {
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
}
