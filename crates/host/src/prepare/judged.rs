//! A plan together with the judge's leave to start it: what was judged is what is prepared.

use interlock_command::Analysis;
use interlock_plan::{PlanDigest, RunPlan};
use interlock_policy::{Outcome, Proof, Verdict};

use super::{PrepareError, RunSettings, prepare};

/// The judge allows the plan with this digest. It is made with that plan and used up by its start.
#[derive(Debug)]
pub(crate) struct Allowed {
    digest: PlanDigest,
}

impl Allowed {
    /// The verdict's own proof is part of a verdict that can be copied; bound to a plan it cannot be.
    fn bind(_proof: Proof, plan: &RunPlan) -> Self {
        Self {
            digest: plan.digest(),
        }
    }

    pub(crate) fn into_digest(self) -> PlanDigest {
        self.digest
    }
}

/// The plan of a judged request, with the judge's leave where the verdict allows it.
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

    /// The plan of a forwarded request, which holds more files than its verdict rests on and has the
    /// gateway's time limit. The proof is that of the same request.
    pub(crate) fn forwarded(plan: RunPlan, proof: Option<Proof>) -> Self {
        let allowed = proof.map(|proof| Allowed::bind(proof, &plan));
        Self { plan, allowed }
    }

    /// The plan alone: the leave to start it is given up.
    pub(crate) fn into_plan(self) -> RunPlan {
        self.plan
    }

    /// The plan, and the leave to start it. Without one it takes a claim.
    pub(crate) fn into_parts(self) -> (RunPlan, Option<Allowed>) {
        (self.plan, self.allowed)
    }
}
