//! Forwarded runs that the operator of this host decides about.
//!
//! A foreign gateway that does not ask an approver itself sends a run without an approval. Where
//! the policy of this host wants one, this host asks its own operator through the approval socket,
//! for as long as the gateway waits. An allowed run is like that of a local call: it executes the
//! plan of this host, as shown, once.

use std::time::{Duration, Instant};

use interlock_approvals::clock::now;
use interlock_approvals::companion::{self, Courier, CourierWaits};
use interlock_approvals::{OutsideRuns, PendingApproval, forwarded_run_id, process_name};
use interlock_policy::Ask;
use interlock_store::{Claiming, ForwardedClaim, RecordedOutcome, RecordedStatus, StoreError};
use interlock_supervisor::SupervisorClient;

use super::node_run::{CarriedPlan, ForwardedRun, ForwardedRunError, same, session_key};
use crate::exec::{Exec, ExecRequest, Running};
use crate::local::LocalHost;

/// How often a decision from another surface than the companion is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// The outcome code of a forwarded run id that became a local call of this host. It also replaces
/// the digest of the plan.
const DECIDED_HERE: &str = "DECIDED_HERE";

impl LocalHost {
    /// Whether the operator can be asked about a run that carries no approval. With `ask=always`, a
    /// run without a plan is refused, because the gateway has not even prepared it.
    pub(super) fn may_ask_operator(&self, ask: Ask, forwarded: &ForwardedRun<'_>) -> bool {
        let is_planned = matches!(forwarded.plan, CarriedPlan::Digest(_));
        forwarded.operator_patience.is_some()
            && (is_planned || ask != Ask::Always)
            && companion::has_socket(self.state_dir())
    }

    /// Asks the operator, and starts the run if it is allowed. The run id is used up, regardless of
    /// the decision.
    pub(super) fn exec_by_operator(
        &self,
        request: &ExecRequest<'_>,
        forwarded: &ForwardedRun<'_>,
        supervisor: &SupervisorClient,
    ) -> Result<Running, ForwardedRunError> {
        let began = Instant::now();
        self.use_up_run_id(request, forwarded)?;
        let own = ExecRequest {
            // Calls of this host count their limit in seconds.
            timeout_seconds: Some(forwarded.timeout_ms.map_or(0, |limit| limit.div_ceil(1000))),
            ..same(request)
        };
        let pending = match self.exec(&own, supervisor)? {
            Exec::Started(running) => return Ok(*running),
            Exec::Pending(pending) => pending.approval,
        };
        let until = began + forwarded.operator_patience.unwrap_or_default();
        if !self.is_decided_until(&pending, until, supervisor)? {
            let why = "the operator of this host has not decided";
            return Err(ForwardedRunError::ApprovalRequired(why.to_owned()));
        }
        let running = self.run_approved(&pending.id, &own, supervisor);
        if running.is_err() {
            // The answer to the gateway already reports the failure.
            let _ = self.approvals().mark_outcome_delivered(&pending.id);
        }
        Ok(running?)
    }

    /// Uses up the run id, so that a gateway that sends the same run again gets no second run.
    fn use_up_run_id(
        &self,
        request: &ExecRequest<'_>,
        forwarded: &ForwardedRun<'_>,
    ) -> Result<(), ForwardedRunError> {
        let id = forwarded_run_id(forwarded.run_id);
        let claiming = self.store().change(|change| {
            let claiming = change.claim_forwarded(&ForwardedClaim {
                id: &id,
                digest: DECIDED_HERE,
                agent: request.agent.as_str(),
                session_key: &session_key(request),
                claimer: process_name(),
                now_ms: now(),
            })?;
            if claiming == Claiming::Claimed {
                let outcome = RecordedOutcome::new(RecordedStatus::NotStarted)
                    .with_code(DECIDED_HERE)
                    .with_message("the operator of this host decides about it");
                change.finish_claim(&id, &outcome, now())?;
            }
            Ok::<_, StoreError>(claiming)
        })?;
        match claiming {
            Claiming::Claimed => Ok(()),
            _ => Err(ForwardedRunError::Used),
        }
    }

    /// Shows the approval to the companion and waits for a decision. An approval that is undecided
    /// at the end, or that no companion can show, is withdrawn: no caller waits for its run any
    /// more.
    fn is_decided_until(
        &self,
        approval: &PendingApproval,
        until: Instant,
        supervisor: &SupervisorClient,
    ) -> Result<bool, ForwardedRunError> {
        let approvals = self.approvals();
        let mut courier = approvals.courier(approval, CourierWaits::ForDecision);
        let outside = OutsideRuns::this_process(supervisor).ok();
        let end = |courier: Option<Courier<'_>>, how: &str| {
            if let Some(courier) = courier {
                courier.end(how);
            }
        };
        let until = if courier.is_some() {
            until
        } else {
            Instant::now()
        };
        loop {
            if let Some(courier) = &mut courier {
                courier.look(Duration::ZERO, outside);
            }
            let decided = approvals.wait(&approval.id, LOOK);
            if let Some(ended) = decided.map_err(crate::local::HostError::from)? {
                end(courier, &ended.to_string());
                return Ok(true);
            }
            if Instant::now() >= until {
                end(courier, "the gateway does not wait for it any more");
                let decided = approvals.withdraw_undecided(&approval.id);
                let decided = decided.map_err(crate::exec::ExecError::from)?;
                return Ok(decided.is_some());
            }
        }
    }
}
