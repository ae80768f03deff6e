//! Claims: a claim is on the disk before its run starts, so that no crash makes the run start
//! twice.

use rusqlite::{Row, params};
use serde_json::{Value, json};

use crate::audit::AuditKind;
use crate::change::{Change, Sql};
use crate::database::Store;
use crate::error::StoreError;
use crate::grant::GrantKey;
use crate::json::{self, canonical};
use crate::limits;
use crate::pending::find::state_of;
use crate::pending::{
    ApprovalClaim, ApprovalDecision, ApprovalEnding, ApprovalError, ClaimState, RecordedOutcome,
};

/// An allowed run must be claimed within this time of the decision, and a claim is kept at least
/// this long.
pub const CLAIM_WINDOW_MS: i64 = 24 * 60 * 60 * 1000;

/// Whether a run may start. Only [`Claiming::Claimed`] allows it, and it is returned once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Claiming {
    Claimed,
    /// The run was started before, or was about to be. It must not be started again.
    AlreadyClaimed {
        at_ms: i64,
        state: ClaimState,
    },
    NotAllowed(NotAllowed),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAllowed {
    #[error("the approval has not been decided yet")]
    Undecided,
    #[error("the approval was denied")]
    Denied,
    #[error("the approval expired before it was decided")]
    Expired,
    #[error("the approval was decided more than 24 hours ago")]
    TooLate,
    #[error("the grant has expired, was used up, was revoked, or its session has ended")]
    GrantEnded,
}

/// The claim of a run that is about to start.
pub(crate) struct NewClaim<'a> {
    pub(crate) id: &'a str,
    pub(crate) approval_id: &'a str,
    pub(crate) grant_id: Option<&'a str>,
    pub(crate) digest: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) session_key: &'a str,
    pub(crate) host: &'a str,
    pub(crate) node: Option<&'a str>,
    pub(crate) claimer: &'a str,
    pub(crate) now_ms: i64,
    /// The sandbox of the run.
    pub(crate) sandbox: Option<&'a Value>,
}

/// A run that a gateway forwards under an id that the gateway chose. This host has no approval for
/// it.
#[derive(Debug, Clone, Copy)]
pub struct ForwardedClaim<'a> {
    pub id: &'a str,
    pub digest: &'a str,
    pub agent: &'a str,
    pub session_key: &'a str,
    pub claimer: &'a str,
    pub now_ms: i64,
}

/// Stands in place of an approval's id. Such claims are purged like the claims of grants.
const BY_GATEWAY: &str = "gateway";

/// The number of newest approvals that [`Change::unused_approvals`] looks at.
const OF_LATE: i64 = 500;

impl Store {
    /// See [`Change::claim`].
    pub fn claim(
        &self,
        id: &str,
        plan_digest: &str,
        claimer: &str,
        now_ms: i64,
    ) -> Result<Claiming, StoreError> {
        self.change(|change| change.claim(id, plan_digest, claimer, now_ms))
    }

    /// See [`Change::finish_claim`].
    pub fn finish_claim(
        &self,
        id: &str,
        outcome: &RecordedOutcome,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        self.change(|change| change.finish_claim(id, outcome, now_ms))
    }

    /// See [`Change::mark_unknown`].
    pub fn mark_unknown(&self, id: &str, now_ms: i64) -> Result<(), StoreError> {
        self.change(|change| change.mark_unknown(id, now_ms))
    }

    /// Returns the claims without an outcome, oldest first. After a crash, the claims of the dead
    /// process are reported and marked as unknown. Their runs are never started again.
    pub fn unfinished_claims(&self) -> Result<Vec<ApprovalClaim>, StoreError> {
        self.read(|sql| {
            let statement = format!(
                "SELECT {COLUMNS} FROM run_claim WHERE state = 'unfinished'
                 ORDER BY claimed_at_ms, id"
            );
            sql.all(&statement, [], claim)
        })
    }

    /// Returns the claim of a run by its full id.
    pub fn run_claim(&self, id: &str) -> Result<Option<ApprovalClaim>, StoreError> {
        self.read(|sql| find(sql, id))
    }
}

impl Change<'_> {
    /// Returns the approvals that allow one run of the same content and were never claimed, oldest
    /// first. Only recent approvals are considered.
    pub fn unused_approvals(
        &self,
        key: &GrantKey<'_>,
        now_ms: i64,
    ) -> Result<Vec<String>, StoreError> {
        self.sql.all(
            "SELECT id FROM approval WHERE number > (SELECT max(number) FROM approval) - ?1
                AND session_key = ?2 AND content_digest = ?3 AND host = ?4 AND node IS ?5
                AND agent = ?6 AND ending = ?7 AND ended_at_ms > ?8
                AND NOT EXISTS (SELECT 1 FROM run_claim WHERE run_claim.id = approval.id)
             ORDER BY number LIMIT 16",
            params![
                OF_LATE,
                key.session_key,
                key.content_digest,
                key.host,
                key.node,
                key.agent,
                ApprovalEnding::Decision(ApprovalDecision::AllowOnce).as_str(),
                now_ms.saturating_sub(CLAIM_WINDOW_MS),
            ],
            |row| row.get(0),
        )
    }

    /// Claims the one run that an approval allows. The run may start only after this change is
    /// committed with [`Claiming::Claimed`].
    ///
    /// If the approval created a grant, the claim takes one of the grant's uses, so that a lease
    /// for three runs allows three in all.
    pub fn claim(
        &self,
        id: &str,
        plan_digest: &str,
        claimer: &str,
        now_ms: i64,
    ) -> Result<Claiming, StoreError> {
        self.claim_confined(id, plan_digest, claimer, now_ms, None)
    }

    /// Like [`Self::claim`], for a run in a sandbox. The audit records of its start and end name
    /// the sandbox.
    pub fn claim_confined(
        &self,
        id: &str,
        plan_digest: &str,
        claimer: &str,
        now_ms: i64,
        sandbox: Option<&Value>,
    ) -> Result<Claiming, StoreError> {
        limits::CLAIMER.check(claimer)?;
        let approval = state_of(&self.sql, id)?;
        if plan_digest != approval.plan_digest {
            return Err(ApprovalError::RequestMismatch {
                short_id: approval.short_id,
            }
            .into());
        }
        if let Some(claim) = find(&self.sql, id)? {
            return Ok(Claiming::AlreadyClaimed {
                at_ms: claim.claimed_at_ms,
                state: claim.state,
            });
        }
        let Some(ended) = &approval.ended else {
            return Ok(Claiming::NotAllowed(NotAllowed::Undecided));
        };
        if !ended.ending.allows() {
            return Ok(Claiming::NotAllowed(match ended.ending {
                ApprovalEnding::Expired => NotAllowed::Expired,
                _ => NotAllowed::Denied,
            }));
        }
        if now_ms >= ended.at_ms.saturating_add(CLAIM_WINDOW_MS) {
            return Ok(Claiming::NotAllowed(NotAllowed::TooLate));
        }
        if !approval.is_sealed(self.store, id) {
            return Err(ApprovalError::Unrecorded {
                short_id: approval.short_id,
            }
            .into());
        }
        let grant = match ended.ending {
            ApprovalEnding::Decision(decision) if decision.grants() => {
                let Some(grant) = self.take_use_of_approval(id, now_ms)? else {
                    return Ok(Claiming::NotAllowed(NotAllowed::GrantEnded));
                };
                Some(grant)
            }
            _ => None,
        };
        insert(
            self,
            &NewClaim {
                id,
                approval_id: id,
                grant_id: grant.as_deref(),
                digest: plan_digest,
                agent: &approval.agent,
                session_key: &approval.session_key,
                host: &approval.host,
                node: approval.node.as_deref(),
                claimer,
                now_ms,
                sandbox,
            },
        )?;
        Ok(Claiming::Claimed)
    }

    pub(crate) fn claim_without_approval(
        &self,
        claim: &ForwardedClaim<'_>,
    ) -> Result<Claiming, StoreError> {
        if let Some(claim) = find(&self.sql, claim.id)? {
            return Ok(Claiming::AlreadyClaimed {
                at_ms: claim.claimed_at_ms,
                state: claim.state,
            });
        }
        insert(
            self,
            &NewClaim {
                id: claim.id,
                approval_id: BY_GATEWAY,
                grant_id: None,
                digest: claim.digest,
                agent: claim.agent,
                session_key: claim.session_key,
                host: "node",
                node: None,
                claimer: claim.claimer,
                now_ms: claim.now_ms,
                sandbox: None,
            },
        )?;
        Ok(Claiming::Claimed)
    }

    /// Records how a claimed run ended. Recording the same outcome again is accepted. A run that
    /// was marked unknown can still get an outcome: its supervisor may come back and report it.
    pub fn finish_claim(
        &self,
        id: &str,
        outcome: &RecordedOutcome,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let text = canonical(&outcome.to_value());
        limits::OUTCOME.check(&text)?;
        let claim = self.existing_claim(id)?;
        if let ClaimState::Finished { outcome, .. } = &claim.state {
            return if canonical(&outcome.to_value()) == text {
                Ok(())
            } else {
                Err(ApprovalError::ClaimFinished { id: id.to_owned() }.into())
            };
        }
        self.end_claim(&claim, "finished", Some(outcome), now_ms)
    }

    /// Records that it is unknown how a claimed run ended, or whether it started. A run whose end
    /// is known keeps its outcome.
    pub fn mark_unknown(&self, id: &str, now_ms: i64) -> Result<(), StoreError> {
        let claim = self.existing_claim(id)?;
        match claim.state {
            ClaimState::Unfinished => self.end_claim(&claim, "unknown", None, now_ms),
            ClaimState::Unknown { .. } => Ok(()),
            ClaimState::Finished { .. } => {
                Err(ApprovalError::ClaimFinished { id: id.to_owned() }.into())
            }
        }
    }

    fn existing_claim(&self, id: &str) -> Result<ApprovalClaim, StoreError> {
        find(&self.sql, id)?.ok_or_else(|| {
            let id = id.chars().take(limits::MAX_NAME_BYTES).collect();
            ApprovalError::ClaimNotFound { id }.into()
        })
    }

    fn end_claim(
        &self,
        claim: &ApprovalClaim,
        state: &str,
        outcome: Option<&RecordedOutcome>,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        self.sql.execute(
            "UPDATE run_claim SET state = ?2, outcome = ?3, ended_at_ms = ?4 WHERE id = ?1",
            params![
                claim.id,
                state,
                outcome.map(|outcome| canonical(&outcome.to_value())),
                now_ms
            ],
        )?;
        self.is_awaited.set(true);
        let mut record = json!({
            "agent": claim.agent,
            "approvalId": claim.approval_id,
            "outcome": outcome,
            "runId": claim.id,
            "state": state,
        });
        self.add_sandbox_of_ended(&claim.id, &mut record)?;
        self.append(AuditKind::RunEnded, &record, now_ms)?;
        Ok(())
    }
}

/// Writes the claim. A second claim with the same id is an error of the database.
pub(crate) fn insert(change: &Change<'_>, claim: &NewClaim<'_>) -> Result<(), StoreError> {
    change.sql.execute(
        "INSERT INTO run_claim (id, approval_id, grant_id, digest, agent, session_key, host, node,
            claimer, claimed_at_ms, state)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 'unfinished')",
        params![
            claim.id,
            claim.approval_id,
            claim.grant_id,
            claim.digest,
            claim.agent,
            claim.session_key,
            claim.host,
            claim.node,
            claim.claimer,
            claim.now_ms,
        ],
    )?;
    change.is_awaited.set(true);
    let mut record = json!({
        "agent": claim.agent,
        "approvalId": claim.approval_id,
        "claimer": claim.claimer,
        "digest": claim.digest,
        "grantId": claim.grant_id,
        "host": claim.host,
        "node": claim.node,
        "runId": claim.id,
        "sessionKey": claim.session_key,
    });
    if let Some(sandbox) = claim.sandbox {
        change.keep_sandbox(claim.id, sandbox)?;
        record["sandbox"] = sandbox.clone();
    }
    change.append(AuditKind::RunStarted, &record, claim.now_ms)?;
    Ok(())
}

const COLUMNS: &str = "id, approval_id, grant_id, digest, agent, session_key, host, node, claimer,
    claimed_at_ms, state, ended_at_ms, outcome";

pub(super) fn find(sql: &Sql<'_>, id: &str) -> Result<Option<ApprovalClaim>, StoreError> {
    let statement = format!("SELECT {COLUMNS} FROM run_claim WHERE id = ?1");
    sql.optional(&statement, [id], claim)
}

fn claim(row: &Row<'_>) -> rusqlite::Result<ApprovalClaim> {
    let word: String = row.get(10)?;
    Ok(ApprovalClaim {
        id: row.get(0)?,
        approval_id: row.get(1)?,
        grant_id: row.get(2)?,
        digest: row.get(3)?,
        agent: row.get(4)?,
        session_key: row.get(5)?,
        host: row.get(6)?,
        node: row.get(7)?,
        claimer: row.get(8)?,
        claimed_at_ms: row.get(9)?,
        state: match word.as_str() {
            "unfinished" => ClaimState::Unfinished,
            "finished" => ClaimState::Finished {
                at_ms: row.get(11)?,
                outcome: json::column(row, 12)?,
            },
            "unknown" => ClaimState::Unknown {
                at_ms: row.get(11)?,
            },
            _ => {
                let text = rusqlite::types::Type::Text;
                return Err(rusqlite::Error::InvalidColumnType(10, word, text));
            }
        },
    })
}
