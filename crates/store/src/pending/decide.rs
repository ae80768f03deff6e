//! Ends an approval: the first valid decision wins.

use rusqlite::params;
use serde::Serialize;
use serde_json::json;

use crate::audit::AuditKind;
use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;
use crate::grant::{MAX_SESSION_GRANT_MS, NewGrant};
use crate::limits;
use crate::pending::find::{ApprovalState, state_of};
use crate::pending::{
    ApprovalDecision, ApprovalEnd, ApprovalEnding, ApprovalError, Delivery, DeliveryState, Lease,
    NullableField,
};

/// The most approvals that expire in one transaction.
const EXPIRE_AT_ONCE: usize = 500;

/// An approver's answer to one approval.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalAnswer<'a> {
    /// The full id.
    pub id: &'a str,
    pub decision: ApprovalDecision,
    /// The approver, as other surfaces show the name.
    pub decider: &'a str,
    /// The surface where the approver decides. The approval must have been delivered to it.
    pub surface: &'a str,
    /// The reason for a denial, in the approver's words. Only a denial has one.
    pub reason: Option<&'a str>,
    /// The digest of the plan that the surface showed. Surfaces of other programs may not know it.
    pub plan_digest: Option<&'a str>,
    pub now_ms: i64,
}

/// The answer of `askFallback`, when no approver could be asked or none answered in time.
#[derive(Debug, Clone, Copy)]
pub struct FallbackAnswer<'a> {
    /// The full id.
    pub id: &'a str,
    pub allow: bool,
    pub now_ms: i64,
}

/// The result of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Decided {
    /// This answer is the decision.
    Won,
    /// The same answer was given before. Nothing changed.
    Same,
    /// Another answer was given before, and it remains the decision.
    Lost { winner: ApprovalEnd },
}

impl Decided {
    /// Turns a late decision into an error, for surfaces that report it as one.
    pub fn into_result(self) -> Result<(), ApprovalError> {
        match self {
            Self::Won | Self::Same => Ok(()),
            Self::Lost { winner } => Err(ApprovalError::AlreadyDecided { winner }),
        }
    }
}

/// An approval that expired without a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredApproval {
    pub id: String,
    pub short_id: String,
    pub agent: String,
    pub session_key: String,
    pub host: String,
    pub node: Option<String>,
}

impl Store {
    /// See [`Change::decide`].
    pub fn decide(&self, answer: &ApprovalAnswer<'_>) -> Result<Decided, StoreError> {
        self.change(|change| change.decide(answer))
    }

    /// See [`Change::decide_by_fallback`].
    pub fn decide_by_fallback(&self, answer: &FallbackAnswer<'_>) -> Result<Decided, StoreError> {
        self.change(|change| change.decide_by_fallback(answer))
    }

    /// See [`Change::withdraw`].
    pub fn withdraw(&self, id: &str, now_ms: i64) -> Result<Decided, StoreError> {
        self.change(|change| change.withdraw(id, now_ms))
    }

    /// Ends every undecided approval whose time is up. Returns only the approvals that this call
    /// ended, so that each is announced once.
    pub fn expire_due(&self, now_ms: i64) -> Result<Vec<ExpiredApproval>, StoreError> {
        let mut expired = Vec::new();
        loop {
            // Ten thousand approvals in one change would block other writers for too long.
            let piece = self.change(|change| change.expire_due(now_ms, EXPIRE_AT_ONCE))?;
            let is_last = piece.len() < EXPIRE_AT_ONCE;
            expired.extend(piece);
            if is_last {
                return Ok(expired);
            }
        }
    }
}

impl Change<'_> {
    /// Records an approver's decision if it is the first. The decision is refused, whatever was
    /// decided before, if it is about another plan, if it comes from the caller itself, if its
    /// surface did not show the approval, or if the time is up.
    ///
    /// `allow-session` and a lease create their grant in the same transaction. For `allow-always`,
    /// the caller stores the entries in this same change: if that fails, nothing is decided.
    pub fn decide(&self, answer: &ApprovalAnswer<'_>) -> Result<Decided, StoreError> {
        self.decide_with(answer, None, false)
    }

    /// Like [`Self::decide`], but the record of the decision also names the form of what it stores.
    /// A surface that knows that it has shown the approval may say so with the answer, and the
    /// record then says so too.
    pub fn decide_with(
        &self,
        answer: &ApprovalAnswer<'_>,
        form: Option<&str>,
        has_shown: bool,
    ) -> Result<Decided, StoreError> {
        limits::DECIDER.check(answer.decider)?;
        limits::SURFACE.check(answer.surface)?;
        let reason = answer
            .reason
            .filter(|_| answer.decision == ApprovalDecision::Deny);
        if let Some(reason) = reason {
            limits::DENY_REASON.check(reason)?;
        }
        let approval = state_of(&self.sql, answer.id)?;
        let short_id = || approval.short_id.clone();
        if answer
            .plan_digest
            .is_some_and(|digest| digest != approval.plan_digest)
        {
            return Err(ApprovalError::RequestMismatch {
                short_id: short_id(),
            }
            .into());
        }
        if [answer.decider, answer.surface].contains(&approval.requester.as_str()) {
            return Err(ApprovalError::SelfDecision {
                short_id: short_id(),
                requester: approval.requester,
            }
            .into());
        }
        if has_shown {
            let seen = Delivery {
                surface: answer.surface.to_owned(),
                state: DeliveryState::Seen,
                at_ms: answer.now_ms,
                detail: None,
            };
            self.deliver(&approval, &seen)?;
        } else if !self.was_shown(approval.number, answer.surface)? {
            return Err(ApprovalError::NotShown {
                short_id: short_id(),
                surface: answer.surface.to_owned(),
            }
            .into());
        }
        let ending = ApprovalEnding::Decision(answer.decision);
        if let Some(winner) = approval.ended {
            return earlier(winner, ending, approval.short_id);
        }
        if answer.now_ms >= approval.expires_at_ms {
            return Err(ApprovalError::Expired {
                short_id: short_id(),
            }
            .into());
        }
        if answer.decision == ApprovalDecision::AllowAlways
            && !self.offers_always(approval.number)?
        {
            return Err(ApprovalError::NotOffered {
                short_id: short_id(),
            }
            .into());
        }
        if let ApprovalDecision::Lease(lease) = answer.decision {
            lease.check()?;
        }
        self.end(
            answer.id,
            &approval,
            &ApprovalEnd {
                ending,
                decider: Some(answer.decider.to_owned()),
                reason: reason.map(str::to_owned),
                at_ms: answer.now_ms,
            },
        )?;
        let grant_id = self.grant_by(answer, &approval)?;
        let (milliseconds, max_uses) = ending.lease_columns();
        let record = DecisionRecord {
            decider: Some(answer.decider),
            form,
            grant_id: grant_id.into(),
            lease: milliseconds.map(|expires_in_ms| LeaseRecord {
                expires_in_ms,
                max_uses,
            }),
            reason,
            seen: has_shown,
            surface: Some(answer.surface),
            ..DecisionRecord::new(answer.id, &approval, ending)
        };
        self.append(AuditKind::Decision, &json!(record), answer.now_ms)?;
        Ok(Decided::Won)
    }

    /// Lets `askFallback` end an undecided approval, either before its time is up because no
    /// surface could show it, or afterwards because no approver answered. Must not be called while
    /// an approver can still answer.
    pub fn decide_by_fallback(&self, answer: &FallbackAnswer<'_>) -> Result<Decided, StoreError> {
        let approval = state_of(&self.sql, answer.id)?;
        let ending = if answer.allow {
            ApprovalEnding::FallbackAllow
        } else {
            ApprovalEnding::FallbackDeny
        };
        if let Some(winner) = approval.ended {
            return earlier(winner, ending, approval.short_id);
        }
        self.end(answer.id, &approval, &undecided(ending, answer.now_ms))?;
        let record = DecisionRecord::new(answer.id, &approval, ending);
        self.append(AuditKind::Decision, &json!(record), answer.now_ms)?;
        Ok(Decided::Won)
    }

    /// Ends an approval that its caller withdraws.
    pub fn withdraw(&self, id: &str, now_ms: i64) -> Result<Decided, StoreError> {
        let approval = state_of(&self.sql, id)?;
        if let Some(winner) = approval.ended {
            return earlier(winner, ApprovalEnding::Withdrawn, approval.short_id);
        }
        self.end(id, &approval, &undecided(ApprovalEnding::Withdrawn, now_ms))?;
        let record = DecisionRecord::new(id, &approval, ApprovalEnding::Withdrawn);
        self.append(AuditKind::Decision, &json!(record), now_ms)?;
        Ok(Decided::Won)
    }

    /// Like [`Store::expire_due`], for at most `most` approvals, those that expired first.
    pub fn expire_due(&self, now_ms: i64, most: usize) -> Result<Vec<ExpiredApproval>, StoreError> {
        let due = self.overdue_approvals(now_ms, most)?;
        let expire = |id: String| {
            let approval = state_of(&self.sql, &id)?;
            self.end(&id, &approval, &undecided(ApprovalEnding::Expired, now_ms))?;
            let record = DecisionRecord::new(&id, &approval, ApprovalEnding::Expired);
            self.append(AuditKind::Decision, &json!(record), now_ms)?;
            Ok(ExpiredApproval {
                id,
                short_id: approval.short_id,
                agent: approval.agent,
                session_key: approval.session_key,
                host: approval.host,
                node: approval.node,
            })
        };
        due.into_iter().map(expire).collect()
    }

    fn end(
        &self,
        id: &str,
        approval: &ApprovalState,
        ended: &ApprovalEnd,
    ) -> Result<(), StoreError> {
        let ending = ended.ending;
        let (lease_for_ms, lease_max_uses) = ending.lease_columns();
        // Only an ending that allows something needs a seal.
        let seal = ending
            .allows()
            .then(|| approval.seal(self.store, id, ended));
        let changed = self.sql.execute(
            "UPDATE approval SET ending = ?2, lease_for_ms = ?3, lease_max_uses = ?4, decider = ?5,
                ended_at_ms = ?6, seal = ?7, deny_reason = ?8 WHERE number = ?1 AND ending IS NULL",
            params![
                approval.number,
                ending.as_str(),
                lease_for_ms,
                lease_max_uses,
                ended.decider,
                ended.at_ms,
                seal.as_ref().map(<[u8; 32]>::as_slice),
                ended.reason,
            ],
        )?;
        self.is_awaited.set(true);
        if changed == 1 {
            Ok(())
        } else {
            Err(self.sql.corrupt("an approval changed under its own lock"))
        }
    }

    /// Seals the decisions that an older version recorded.
    pub(crate) fn seal_decisions(&self) -> Result<(), StoreError> {
        let statement = "SELECT id FROM approval WHERE ending IS NOT NULL AND seal IS NULL";
        let ids: Vec<String> = self.sql.all(statement, [], |row| row.get(0))?;
        for id in ids {
            let approval = state_of(&self.sql, &id)?;
            let allowed = approval
                .ended
                .as_ref()
                .filter(|ended| ended.ending.allows());
            if let Some(ended) = allowed {
                let seal = approval.seal(self.store, &id, ended);
                let statement = "UPDATE approval SET seal = ?2 WHERE id = ?1";
                self.sql.execute(statement, params![id, seal.as_slice()])?;
            }
        }
        Ok(())
    }

    fn offers_always(&self, number: i64) -> Result<bool, StoreError> {
        self.sql.one(
            "SELECT always IS NOT NULL FROM approval_content WHERE number = ?1",
            [number],
            |row| row.get(0),
        )
    }

    fn grant_by(
        &self,
        answer: &ApprovalAnswer<'_>,
        approval: &ApprovalState,
    ) -> Result<Option<String>, StoreError> {
        if !answer.decision.grants() {
            return Ok(None);
        }
        let lease = match answer.decision {
            ApprovalDecision::Lease(lease) => Some(lease),
            _ => None,
        };
        self.check_grants(&approval.agent, answer.now_ms)?;
        let id = self.insert_grant(&NewGrant {
            approval_id: answer.id,
            content_digest: &approval.content_digest,
            agent: &approval.agent,
            session_key: &approval.session_key,
            host: &approval.host,
            node: approval.node.as_deref(),
            decider: answer.decider,
            now_ms: answer.now_ms,
            // Some sessions never end, but a grant for a session must.
            expires_at_ms: Some(
                answer
                    .now_ms
                    .saturating_add(lease.map_or(MAX_SESSION_GRANT_MS, Lease::milliseconds)),
            ),
            number: approval.number,
            max_uses: lease.and_then(|lease| lease.max_uses),
        })?;
        Ok(Some(id))
    }
}

/// Returns the end of an approval that no approver decided.
fn undecided(ending: ApprovalEnding, at_ms: i64) -> ApprovalEnd {
    ApprovalEnd {
        ending,
        decider: None,
        reason: None,
        at_ms,
    }
}

/// Returns the result for a decision that came after another one.
fn earlier(
    winner: ApprovalEnd,
    ending: ApprovalEnding,
    short_id: String,
) -> Result<Decided, StoreError> {
    if winner.ending == ApprovalEnding::Expired {
        return Err(ApprovalError::Expired { short_id }.into());
    }
    if winner.ending.is_same(ending) {
        return Ok(Decided::Same);
    }
    Ok(Decided::Lost { winner })
}

/// The audit record of the end of an approval. Fields that only an approver's decision has are
/// absent from the records of other endings.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DecisionRecord<'a> {
    agent: &'a str,
    approval_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    decider: Option<&'a str>,
    decision: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    form: Option<&'a str>,
    #[serde(skip_serializing_if = "NullableField::is_absent")]
    grant_id: NullableField<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease: Option<LeaseRecord>,
    plan_digest: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// Whether the approver was shown the approval.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    seen: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    surface: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LeaseRecord {
    expires_in_ms: i64,
    max_uses: Option<u32>,
}

impl<'a> DecisionRecord<'a> {
    fn new(id: &'a str, approval: &'a ApprovalState, ending: ApprovalEnding) -> Self {
        Self {
            agent: &approval.agent,
            approval_id: id,
            decider: None,
            decision: ending.as_str(),
            form: None,
            grant_id: NullableField::Absent,
            lease: None,
            plan_digest: &approval.plan_digest,
            reason: None,
            seen: false,
            surface: None,
        }
    }
}
