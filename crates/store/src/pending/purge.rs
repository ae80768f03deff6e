//! Forgets what ended long ago. The audit keeps its records.

use rusqlite::params;

use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::pending::CLAIM_WINDOW_MS;

/// The most approvals that one transaction forgets.
const PURGE_AT_ONCE: i64 = 500;

/// Approvals of one agent that are over and are kept until their day is over. An agent can ask and
/// take back as often as it likes, so that there must be an end to what it leaves.
pub const MAX_ENDED: usize = 1_000;

/// What these take at most, with their plans and scripts.
pub const MAX_ENDED_BYTES: i64 = 64 << 20;

/// It is looked for more than that with every so many new approvals, and with every large one.
const LOOK_EVERY: i64 = 64;
const LARGE_BYTES: usize = 256 << 10;

/// What was forgotten.
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
            self.forget_approval(*number, id)?;
        }
        Ok(old.len())
    }

    /// Forgets the oldest approvals of an agent that are over, where there are more than are kept.
    /// For the change that creates an approval, which has this number. What may still run stays.
    pub(super) fn keep_ended_within_room(
        &self,
        agent: &str,
        number: i64,
        bytes: usize,
    ) -> Result<(), StoreError> {
        if number % LOOK_EVERY != 0 && bytes < LARGE_BYTES {
            return Ok(());
        }
        let over: Vec<(i64, String, i64)> = self.sql.all(
            "SELECT approval.number, approval.id,
                octet_length(preview) + octet_length(verdict) + octet_length(plan)
                    + ifnull(octet_length(always), 0)
                    + (SELECT ifnull(sum(octet_length(content)), 0) FROM approval_script AS script
                        WHERE script.number = approval.number)
             FROM approval JOIN approval_content USING (number)
                LEFT JOIN run_claim ON run_claim.id = approval.id
             WHERE approval.agent = ?1 AND approval.ended_at_ms IS NOT NULL
                AND CASE WHEN run_claim.state IS NULL
                    THEN ending IN ('deny', 'fallback-deny', 'expired', 'withdrawn')
                    ELSE run_claim.state <> 'unfinished' END
             ORDER BY approval.number DESC",
            [agent],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )?;
        let mut all = 0;
        for (place, (number, id, bytes)) in over.iter().enumerate() {
            all += bytes;
            if place >= MAX_ENDED || all > MAX_ENDED_BYTES {
                self.forget_approval(*number, id)?;
            }
        }
        Ok(())
    }

    fn forget_approval(&self, number: i64, id: &str) -> Result<(), StoreError> {
        self.sql
            .execute("DELETE FROM run_claim WHERE id = ?1", [id])?;
        self.sql
            .execute("DELETE FROM approval WHERE number = ?1", [number])?;
        Ok(())
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
