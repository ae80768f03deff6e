//! Forgets what ended long ago. The audit keeps its records.

use rusqlite::params;

use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::pending::CLAIM_WINDOW_MS;

/// The most approvals that one transaction forgets.
const PURGE_AT_ONCE: i64 = 500;

/// How much a purge removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    pub approvals: usize,
    /// Claims of runs under grants. Claims of approvals are removed with their approvals.
    pub claims: usize,
    pub grants: usize,
}

impl Store {
    /// Forgets approvals that ended, and claims and grants that are over, 24 hours or more ago.
    ///
    /// A claim is never removed before its approval, and an approval whose run has no outcome yet
    /// stays. So no run can be claimed again, whatever the clock says.
    pub fn purge(&self, now_ms: i64) -> Result<Purged, StoreError> {
        let mut purged = Purged::default();
        loop {
            let piece = self.change(|change| change.purge_approvals(now_ms))?;
            purged.approvals += piece;
            if piece == 0 {
                break;
            }
        }
        let (claims, grants) = self.change(|change| change.purge_grants(now_ms))?;
        Ok(Purged {
            claims,
            grants,
            ..purged
        })
    }
}

impl Change<'_> {
    fn purge_approvals(&self, now_ms: i64) -> Result<usize, StoreError> {
        let before = now_ms.saturating_sub(CLAIM_WINDOW_MS);
        let old: Vec<(i64, String)> = self.sql.all(
            "SELECT number, approval.id FROM approval LEFT JOIN run_claim USING (id)
             WHERE approval.ended_at_ms <= ?1
                AND (state IS NULL OR (state <> 'unfinished' AND claimed_at_ms <= ?1))
             LIMIT ?2",
            params![before, PURGE_AT_ONCE],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        for (number, id) in &old {
            self.sql
                .execute("DELETE FROM run_claim WHERE id = ?1", [id])?;
            self.sql
                .execute("DELETE FROM approval WHERE number = ?1", [number])?;
        }
        Ok(old.len())
    }

    fn purge_grants(&self, now_ms: i64) -> Result<(usize, usize), StoreError> {
        let before = now_ms.saturating_sub(CLAIM_WINDOW_MS);
        let claims = self.sql.execute(
            "DELETE FROM run_claim
             WHERE id <> approval_id AND state <> 'unfinished' AND claimed_at_ms <= ?1",
            [before],
        )?;
        let grants = self.sql.execute(
            "DELETE FROM run_grant
             WHERE expires_at_ms <= ?1 OR (uses >= max_uses AND created_at_ms <= ?1)",
            [before],
        )?;
        self.forget_sandboxes()?;
        Ok((claims, grants))
    }
}
