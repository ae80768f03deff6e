//! The single use of an approval, a grant or a forwarded run, recorded before the start.

use interlock_plan::{PlanDigest, RunPlan};
use interlock_store::{
    Approval, ApprovalDecision, ApprovalEnding, Change, ClaimState, Claiming, ForwardedClaim,
    GrantKey, GrantUse, NotAllowed, RecordedStatus, StoreError,
};
use serde_json::{Value, json};

use crate::clock::now;
use crate::error::ApprovalRefusal;
use crate::process::process_name;

/// The store's record that this process is about to start the plan with this digest, once. Only the
/// functions below make a claim, each from the store's own answer. It counts once the change that
/// made it is on disk.
#[derive(Debug)]
#[must_use = "a claim is used to start its plan, or its run is recorded as not started"]
pub struct Claim {
    digest: PlanDigest,
}

impl Claim {
    /// Claims an approval for exactly this plan. The store refuses every other digest.
    pub fn of_approval(
        change: &Change<'_>,
        id: &str,
        plan: &RunPlan,
    ) -> Result<Result<Self, ClaimRefusal>, StoreError> {
        let digest = plan.digest();
        let sandbox = confinement_record(plan);
        let digest_text = digest.as_str();
        let claiming =
            change.claim_confined(id, digest_text, process_name(), now(), sandbox.as_ref())?;
        Ok(check_claimed(claiming).map(|()| Self { digest }))
    }

    /// Claims the run id of a forwarded run for exactly this plan.
    pub fn of_forwarded(
        change: &Change<'_>,
        (id, agent, session_key): (&str, &str, &str),
        plan: &RunPlan,
    ) -> Result<Result<Self, ClaimRefusal>, StoreError> {
        let digest = plan.digest();
        let claiming = change.claim_forwarded(&ForwardedClaim {
            id,
            digest: digest.as_str(),
            agent,
            session_key,
            claimer: process_name(),
            now_ms: now(),
        })?;
        Ok(check_claimed(claiming).map(|()| Self { digest }))
    }

    /// Takes one use of a grant for the content of this plan, if there is one.
    pub fn of_grant(
        change: &Change<'_>,
        key: &GrantKey<'_>,
        plan: &RunPlan,
    ) -> Result<Option<(GrantUse, Self)>, StoreError> {
        let sandbox = confinement_record(plan);
        let used = change.use_grant_confined(key, process_name(), now(), sandbox.as_ref())?;
        Ok(used.map(|used| {
            let digest = plan.digest();
            (used, Self { digest })
        }))
    }

    /// The digest of the plan that may be started, once.
    pub fn into_digest(self) -> PlanDigest {
        self.digest
    }
}

/// Where a plan is confined, or how far it leaves its sandbox, for the records of its run. `None`
/// for a run of a conversation without a sandbox.
pub fn confinement_record(plan: &RunPlan) -> Option<Value> {
    match &plan.sandbox {
        Some(sandbox) => Some(json!(sandbox.summary())),
        None if plan.elevated.leaves() => Some(json!({ "elevated": plan.elevated })),
        None => None,
    }
}

/// Why the store recorded no claim.
#[derive(Debug)]
pub enum ClaimRefusal {
    Already(ClaimState),
    NotAllowed(NotAllowed),
}

fn check_claimed(claiming: Claiming) -> Result<(), ClaimRefusal> {
    match claiming {
        Claiming::Claimed => Ok(()),
        Claiming::AlreadyClaimed { state, .. } => Err(ClaimRefusal::Already(state)),
        Claiming::NotAllowed(why) => Err(ClaimRefusal::NotAllowed(why)),
    }
}

/// Checks the claim of an approval whose plan is not a run plan. Only after `Ok` may the plan be
/// carried out.
pub fn check_claim(claiming: Claiming, short_id: &str) -> Result<(), ApprovalRefusal> {
    check_claimed(claiming).map_err(|why| why.refuse(short_id))
}

impl ClaimRefusal {
    /// The refusal as the caller of the approval with this short id reads it.
    pub fn refuse(self, short_id: &str) -> ApprovalRefusal {
        let short_id = short_id.to_owned();
        match self {
            Self::Already(state) => ApprovalRefusal::Used {
                short_id,
                became: became(&state),
            },
            Self::NotAllowed(NotAllowed::Expired) => ApprovalRefusal::Expired { short_id },
            Self::NotAllowed(NotAllowed::Undecided) => ApprovalRefusal::Undecided { short_id },
            Self::NotAllowed(why) => ApprovalRefusal::Ended {
                short_id,
                why: why.to_string(),
            },
        }
    }
}

/// Checks that an approval allows its plan and has no claim yet.
pub fn check_allowed(approval: &Approval) -> Result<ApprovalEnding, ApprovalRefusal> {
    let short_id = approval.short_id.clone();
    if let Some(claim) = &approval.claim {
        let became = became(&claim.state);
        return Err(ApprovalRefusal::Used { short_id, became });
    }
    let Some(ended) = &approval.ended else {
        return Err(ApprovalRefusal::Undecided { short_id });
    };
    match ended.ending {
        ApprovalEnding::Decision(ApprovalDecision::Deny) => {
            Err(ApprovalRefusal::denied(short_id, ended))
        }
        ApprovalEnding::FallbackDeny => Err(ApprovalRefusal::FallbackDenied {
            short_id,
            reason: ended.to_string(),
        }),
        ApprovalEnding::Expired => Err(ApprovalRefusal::Expired { short_id }),
        ending => Ok(ending),
    }
}

/// The state of a claimed run, in the words of a refusal.
fn became(state: &ClaimState) -> String {
    match state {
        ClaimState::Unfinished => "it runs, or is about to".to_owned(),
        ClaimState::Unknown { .. } => "what became of it is unknown".to_owned(),
        ClaimState::Finished { outcome, .. } => {
            let status = outcome
                .status
                .as_ref()
                .map_or("ended", RecordedStatus::as_str);
            match outcome.exit_code.value() {
                Some(code) => format!("it {status} with {code}"),
                None => format!("it ended as {status}"),
            }
        }
    }
}

/// The prefix of a forwarded run's id.
const FORWARDED: &str = "node:";

/// The id of a forwarded run in the records of the host that makes it. A gateway may share the
/// store with this host, and uses the id without the prefix.
pub fn forwarded_run_id(gateway_id: &str) -> String {
    format!("{FORWARDED}{gateway_id}")
}

/// The id that a gateway gave a run, if a gateway forwarded the run. The gateway itself notifies
/// the run's conversation.
pub fn gateway_run_id(id: &str) -> Option<&str> {
    id.strip_prefix(FORWARDED)
}
