//! Why a plan may be started: the judge's allow for it, or a claim of what was approved. Nothing else
//! in this crate authorizes a plan, and each permission is used up by one start.

use interlock_approvals::Claim;
use interlock_engine::PlanPermission;
use interlock_plan::PlanDigest;

use crate::prepare::Allowed;

/// Neither kind can be copied or made elsewhere: [`Allowed`] comes with the plan that was prepared
/// from the verdict, and a [`Claim`] from the store's record of it.
#[derive(Debug)]
pub(crate) enum Permission {
    Verdict(Allowed),
    Claim(Claim),
}

impl PlanPermission for Permission {
    fn into_permitted_digest(self) -> PlanDigest {
        match self {
            Self::Verdict(allowed) => allowed.into_digest(),
            Self::Claim(claim) => claim.into_digest(),
        }
    }
}
