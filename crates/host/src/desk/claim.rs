//! The single use of an approval, a grant or a forwarded run, recorded before the start.

use interlock_plan::{PlanDigest, RunPlan};
use interlock_store::{
    Change, ClaimState, Claiming, ForwardedClaim, GrantKey, GrantUse, NotAllowed, StoreError,
};

use super::{now, process_name};

/// The store has recorded that the plan with this digest is about to be started, by this process, once.
/// Only the functions below make one, each from the store's own answer; it counts once the change that
/// made it is on the disk.
#[derive(Debug)]
#[must_use = "a claim is used to start its plan, or its run is recorded as not started"]
pub(crate) struct Claim {
    digest: PlanDigest,
}

impl Claim {
    /// Claims an approval for exactly this plan: the store refuses every other digest.
    pub(super) fn of_approval(
        change: &Change<'_>,
        id: &str,
        plan: &RunPlan,
    ) -> Result<Result<Self, NotClaimed>, StoreError> {
        let digest = plan.digest();
        let claiming = change.claim(id, digest.as_str(), process_name(), now())?;
        Ok(check_claimed(claiming).map(|()| Self { digest }))
    }

    /// Claims the run id of a forwarded run for exactly this plan.
    pub(super) fn of_forwarded(
        change: &Change<'_>,
        (id, agent, session_key): (&str, &str, &str),
        plan: &RunPlan,
    ) -> Result<Result<Self, NotClaimed>, StoreError> {
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
    pub(super) fn of_grant(
        change: &Change<'_>,
        key: &GrantKey<'_>,
        plan: &RunPlan,
    ) -> Result<Option<(GrantUse, Self)>, StoreError> {
        let used = change.use_grant(key, process_name(), now())?;
        Ok(used.map(|used| {
            let digest = plan.digest();
            (used, Self { digest })
        }))
    }

    pub(crate) fn into_digest(self) -> PlanDigest {
        self.digest
    }
}

/// Why the store recorded no claim.
#[derive(Debug)]
pub(super) enum NotClaimed {
    Already(ClaimState),
    NotAllowed(NotAllowed),
}

pub(super) fn check_claimed(claiming: Claiming) -> Result<(), NotClaimed> {
    match claiming {
        Claiming::Claimed => Ok(()),
        Claiming::AlreadyClaimed { state, .. } => Err(NotClaimed::Already(state)),
        Claiming::NotAllowed(why) => Err(NotClaimed::NotAllowed(why)),
    }
}
