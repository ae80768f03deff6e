//! A plan together with the judge's permission to start it: the prepared plan is the judged one.

use interlock_command::Analysis;
use interlock_plan::{PlanDigest, RunPlan};
use interlock_policy::{Outcome, Proof, Verdict};

use super::{PrepareError, RunSettings, prepare};

/// The judge's permission to start the plan with this digest. It is made together with that plan
/// and consumed by its start.
#[derive(Debug)]
pub(crate) struct Allowed {
    digest: PlanDigest,
}

impl Allowed {
    /// Binds a proof to a plan. A verdict can be copied together with its proof; the bound
    /// permission cannot.
    fn bind(_proof: Proof, plan: &RunPlan) -> Self {
        Self {
            digest: plan.digest(),
        }
    }

    pub(crate) fn into_digest(self) -> PlanDigest {
        self.digest
    }
}

/// The plan of a judged request, with the judge's permission if the verdict allows it.
#[derive(Debug)]
pub(crate) struct PreparedRun {
    plan: RunPlan,
    allowed: Option<Allowed>,
}

impl PreparedRun {
    /// Makes the plan of a request and binds the verdict to it.
    pub(crate) fn of(
        analysis: &Analysis,
        verdict: &Verdict,
        settings: &RunSettings<'_>,
    ) -> Result<Self, PrepareError> {
        let plan = prepare(analysis, verdict, settings)?;
        let allowed = match verdict.outcome {
            Outcome::Allow(proof) => Some(Allowed::bind(proof, &plan)),
            Outcome::Ask | Outcome::Deny => None,
        };
        Ok(Self { plan, allowed })
    }

    /// The plan of a forwarded request. It pins more files than its verdict rests on and has the
    /// gateway's time limit. `proof` must belong to the same request.
    pub(crate) fn forwarded(plan: RunPlan, proof: Option<Proof>) -> Self {
        let allowed = proof.map(|proof| Allowed::bind(proof, &plan));
        Self { plan, allowed }
    }

    /// The plan alone. The permission to start it is dropped.
    pub(crate) fn into_plan(self) -> RunPlan {
        self.plan
    }

    /// The plan and the permission to start it. Without a permission, the plan needs a claim.
    pub(crate) fn into_parts(self) -> (RunPlan, Option<Allowed>) {
        (self.plan, self.allowed)
    }
}
