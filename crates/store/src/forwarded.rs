//! Runs that a gateway forwards to this host: the plans that this host issued for an approval
//! elsewhere, and the run ids that were used.

use rusqlite::params;

use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::limits;
use crate::pending::{CLAIM_WINDOW_MS, Claiming, ForwardedClaim};

/// The most plans that are kept. The oldest are dropped first.
const MAX_ISSUED_PLANS: i64 = 4096;

/// What they take at most, in bytes, as far as they are large: small ones are bounded by their number.
const MAX_ISSUED_BYTES: i64 = 256 << 20;
const LARGE_BYTES: usize = 64 << 10;

/// Which plan of those with the same words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssuedPlan {
    /// The plan that a pending approval is bound to.
    First,
    Newest,
}

impl Store {
    /// Returns the plan that was issued under this digest, unless it has expired.
    pub fn issued_plan(
        &self,
        digest: &str,
        which: IssuedPlan,
        now_ms: i64,
    ) -> Result<Option<String>, StoreError> {
        let statement = match which {
            IssuedPlan::First => "SELECT plan FROM handed_plan WHERE digest = ?1 AND at_ms > ?2",
            IssuedPlan::Newest => "SELECT newest FROM handed_plan WHERE digest = ?1 AND at_ms > ?2",
        };
        let after = now_ms.saturating_sub(CLAIM_WINDOW_MS);
        self.read(|sql| sql.optional(statement, params![digest, after], |row| row.get(0)))
    }
}

impl Change<'_> {
    /// Stores a plan for as long as an approval of it can live. The first plan under a digest stays
    /// until then: if the same plan is prepared again, the plan that an approval is bound to must
    /// not change.
    pub fn issue_plan(&self, digest: &str, plan: &str, now_ms: i64) -> Result<(), StoreError> {
        limits::PLAN_DIGEST.check(digest)?;
        limits::PLAN.check(plan)?;
        let before = now_ms.saturating_sub(CLAIM_WINDOW_MS);
        self.sql
            .execute("DELETE FROM handed_plan WHERE at_ms <= ?1", [before])?;
        self.sql.execute(
            "INSERT INTO handed_plan (digest, at_ms, plan, newest) VALUES (?1, ?2, ?3, ?3)
             ON CONFLICT (digest) DO UPDATE SET at_ms = max(at_ms, ?2), newest = ?3",
            params![digest, now_ms, plan],
        )?;
        self.sql.execute(
            "DELETE FROM handed_plan WHERE rowid IN (
                SELECT rowid FROM handed_plan ORDER BY at_ms DESC LIMIT -1 OFFSET ?1)",
            [MAX_ISSUED_PLANS],
        )?;
        if plan.len() >= LARGE_BYTES {
            self.sql.execute(
                "DELETE FROM handed_plan WHERE digest IN (
                    SELECT digest FROM (
                        SELECT digest, sum(octet_length(plan) + octet_length(newest))
                            OVER (ORDER BY at_ms DESC, rowid DESC) AS bytes FROM handed_plan)
                    WHERE bytes > ?1)",
                [MAX_ISSUED_BYTES],
            )?;
        }
        Ok(())
    }

    /// Forgets a plan that no longer holds, so that the next plan may be issued in its place.
    pub fn forget_issued_plan(&self, digest: &str) -> Result<(), StoreError> {
        self.sql
            .execute("DELETE FROM handed_plan WHERE digest = ?1", [digest])?;
        Ok(())
    }

    /// Claims a run id that a gateway chose. The run may start only after this change is committed
    /// with [`Claiming::Claimed`].
    pub fn claim_forwarded(&self, claim: &ForwardedClaim<'_>) -> Result<Claiming, StoreError> {
        limits::CLAIMER.check(claim.claimer)?;
        limits::RUN_ID.check(claim.id)?;
        limits::AGENT.check(claim.agent)?;
        limits::SESSION_KEY.check(claim.session_key)?;
        self.claim_without_approval(claim)
    }
}
