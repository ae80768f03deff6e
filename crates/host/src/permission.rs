//! The permissions to start a plan: the judge's allow for the plan, or the claim of an approval.
//! Nothing else in this crate authorizes a plan, and one start consumes the permission.

use interlock_approvals::Claim;
use interlock_engine::PlanPermission;
use interlock_plan::PlanDigest;

use crate::prepare::Allowed;

/// A permission to start one plan. It can neither be copied nor made elsewhere: an [`Allowed`]
/// comes with the plan that was prepared from the verdict, and a [`Claim`] with the store's record
/// of it.
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
