//! What approvals and grants do, in so few words that it can be seen to be right.

use std::num::NonZeroU32;
use std::time::Duration;

use interlock_store::{ApprovalDecision, CLAIM_WINDOW_MS, Lease, MAX_SESSION_GRANT_MS};

/// Who answers; the last one is the caller.
pub const PEOPLE: [&str; 3] = ["alice", "bob", "connection:agent"];

pub const LEASE_MS: i64 = 40;

pub fn decision(index: usize) -> ApprovalDecision {
    let lease = |uses| {
        ApprovalDecision::Lease(Lease {
            expires_in: Duration::from_millis(LEASE_MS.unsigned_abs()),
            max_uses: NonZeroU32::new(uses),
        })
    };
    [
        ApprovalDecision::AllowOnce,
        ApprovalDecision::AllowSession,
        ApprovalDecision::AllowAlways,
        ApprovalDecision::Deny,
        lease(2),
        lease(0),
    ][index]
}

/// What the model knows of one approval.
#[derive(Debug, Clone)]
pub struct Modelled {
    pub id: String,
    pub content: usize,
    pub always: bool,
    pub expires: i64,
    pub shown: Vec<usize>,
    /// The word, who, when; and the terms that tell one lease from another.
    pub ended: Option<(String, Option<usize>, i64)>,
    pub claim: Option<ModelledClaim>,
    pub grant: Option<ModelledGrant>,
    pub forgotten: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ModelledClaim {
    pub at: i64,
    /// `unfinished`, `unknown` or the outcome.
    pub state: String,
}

#[derive(Debug, Clone)]
pub struct ModelledGrant {
    pub expires: Option<i64>,
    pub left: Option<u32>,
}

impl ModelledGrant {
    pub fn alive(&self, now: i64) -> bool {
        self.expires.is_none_or(|expires| expires > now) && self.left != Some(0)
    }

    pub fn take(&mut self) {
        self.left = self.left.map(|left| left - 1);
    }
}

/// The word under which a decision is compared: leases of other terms are other decisions.
fn word(decision_index: usize) -> String {
    format!("{}-{decision_index}", decision(decision_index).as_str())
}

#[derive(Debug, Default)]
pub struct Model {
    pub now: i64,
    pub approvals: Vec<Modelled>,
    pub records: u64,
}

impl Model {
    pub fn decide(
        &mut self,
        which: usize,
        index: usize,
        decider: usize,
        surface: usize,
        digest: Named,
    ) -> String {
        let now = self.now;
        let approval = &mut self.approvals[which];
        if approval.forgotten {
            return "APPROVAL_NOT_FOUND".to_owned();
        }
        if digest == Named::Wrong {
            return "APPROVAL_REQUEST_MISMATCH".to_owned();
        }
        if decider == 2 || surface == 2 {
            return "APPROVAL_SELF_DECISION".to_owned();
        }
        if !approval.shown.contains(&surface) {
            return "APPROVAL_NOT_SHOWN".to_owned();
        }
        if let Some(told) = earlier(approval, &word(index)) {
            return told;
        }
        if now >= approval.expires {
            return "APPROVAL_EXPIRED".to_owned();
        }
        if index == 2 && !approval.always {
            return "APPROVAL_NOT_OFFERED".to_owned();
        }
        approval.ended = Some((word(index), Some(decider), now));
        approval.grant = match decision(index) {
            ApprovalDecision::AllowSession => Some(ModelledGrant {
                expires: Some(now + MAX_SESSION_GRANT_MS),
                left: None,
            }),
            ApprovalDecision::Lease(lease) => Some(ModelledGrant {
                expires: Some(now + LEASE_MS),
                left: lease.max_uses.map(NonZeroU32::get),
            }),
            _ => None,
        };
        self.records += 1;
        "won".to_owned()
    }

    pub fn fall_back(&mut self, which: usize, allow: bool) -> String {
        let approval = &mut self.approvals[which];
        if approval.forgotten {
            return "APPROVAL_NOT_FOUND".to_owned();
        }
        let word = if allow {
            "fallback-allow"
        } else {
            "fallback-deny"
        };
        if let Some(told) = earlier(approval, word) {
            return told;
        }
        approval.ended = Some((word.to_owned(), None, self.now));
        self.records += 1;
        "won".to_owned()
    }

    pub fn claim(&mut self, which: usize, right: bool) -> String {
        let now = self.now;
        let approval = &mut self.approvals[which];
        if approval.forgotten {
            return "APPROVAL_NOT_FOUND".to_owned();
        }
        if !right {
            return "APPROVAL_REQUEST_MISMATCH".to_owned();
        }
        if let Some(claim) = &approval.claim {
            return format!("already {} {}", claim.at, claim.state);
        }
        let Some((word, _, at)) = &approval.ended else {
            return "the approval has not been decided yet".to_owned();
        };
        if word == "expired" {
            return "the approval expired before it was decided".to_owned();
        }
        if word.contains("deny") {
            return "the approval was denied".to_owned();
        }
        if now >= at + CLAIM_WINDOW_MS {
            return "the approval was decided more than 24 hours ago".to_owned();
        }
        if word.starts_with("lease") || word.starts_with("allow-session") {
            match approval.grant.as_mut().filter(|grant| grant.alive(now)) {
                Some(grant) => grant.take(),
                None => {
                    return "the grant has expired, was used up, was revoked, or its session has ended".to_owned();
                }
            }
        }
        approval.claim = Some(ModelledClaim {
            at: now,
            state: "unfinished".to_owned(),
        });
        self.records += 1;
        "claimed".to_owned()
    }

    pub fn end_claim(&mut self, which: usize, state: &str) -> String {
        let approval = &mut self.approvals[which];
        let Some(claim) = approval.claim.as_mut().filter(|_| !approval.forgotten) else {
            return "RUN_NOT_FOUND".to_owned();
        };
        if claim.state == state {
            return "ok".to_owned();
        }
        if claim.state != "unfinished" && claim.state != "unknown" {
            return "RUN_ENDED".to_owned();
        }
        state.clone_into(&mut claim.state);
        self.records += 1;
        "ok".to_owned()
    }

    pub fn purge(&mut self) {
        let before = self.now - CLAIM_WINDOW_MS;
        for approval in &mut self.approvals {
            let is_old = approval
                .ended
                .as_ref()
                .is_some_and(|(_, _, at)| *at <= before);
            let claim_is_old = approval
                .claim
                .as_ref()
                .is_none_or(|claim| claim.state != "unfinished" && claim.at <= before);
            approval.forgotten |= is_old && claim_is_old;
        }
    }
}

fn earlier(approval: &Modelled, word: &str) -> Option<String> {
    let (winner, decider, _) = approval.ended.as_ref()?;
    if winner == "expired" {
        return Some("APPROVAL_EXPIRED".to_owned());
    }
    if winner == word {
        return Some("same".to_owned());
    }
    let decider = decider.map(|decider| PEOPLE[decider]);
    Some(format!("lost to {decider:?}"))
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Named {
    Nothing,
    Right,
    Wrong,
}
