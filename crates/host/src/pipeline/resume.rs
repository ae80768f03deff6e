//! Runs whose caller has left: this host starts them by itself once they are allowed.

use std::collections::BTreeMap;

use interlock_approvals::clock::now;
use interlock_approvals::{ApprovalRefusal, PATCH_BINDING, ResumeFacts, StoredVerdict, THIS_HOST};
use interlock_command::Source;
use interlock_local::CallerContext;
use interlock_policy::AgentId;
use interlock_supervisor::SupervisorClient;

use crate::exec::{ExecError, ExecRequest, RequestedPlace, Running, Yield};
use crate::local::{HostError, LocalHost};
use crate::retry::RetryRequest;

/// How long after the expiry of its approval an allowed plan may still start. No caller expects a
/// command to start later.
const LATE_MS: i64 = 60_000;

/// Whether it is too late to start an allowed plan without a waiting caller. A decision may come at
/// the last moment, so a short time after the expiry still counts.
pub fn is_too_late(expires_at_ms: i64) -> bool {
    now() >= expires_at_ms.saturating_add(LATE_MS)
}

/// An approval of an earlier process whose run this process has to start.
#[derive(Debug, Clone)]
pub struct ResumableRun {
    pub id: String,
    pub agent: String,
    pub session_key: String,
    pub is_patch: bool,
}

/// The facts besides the plan that must be judged again, for a request whose caller may leave.
pub(crate) fn resume_facts(request: &ExecRequest<'_>) -> ResumeFacts {
    ResumeFacts {
        env: request.env.clone(),
        ask: request.ask,
        caller: request.caller.to_stored(),
        elevated: request.place.elevated,
        sender: request.place.sender.clone(),
    }
}

impl LocalHost {
    /// Up to `most` approvals that were stored before this time and whose runs are left to this
    /// host: undecided, or allowed and never run. The oldest come first.
    pub fn runs_to_resume(
        &self,
        stored_before_ms: i64,
        most: usize,
    ) -> Result<Vec<ResumableRun>, HostError> {
        let store = self.store();
        let mut resumable = Vec::new();
        for id in store.unclaimed_here(THIS_HOST, stored_before_ms, most)? {
            // An unreadable approval must not hold up the others.
            let Ok(approval) = store.approval(&id) else {
                continue;
            };
            let facts = StoredVerdict::of_approval(&approval).into_resume();
            if facts.is_some() {
                resumable.push(ResumableRun {
                    id,
                    is_patch: approval.request.binding == PATCH_BINDING,
                    agent: approval.request.agent,
                    session_key: approval.request.session_key,
                });
            }
        }
        Ok(resumable)
    }

    /// Runs the stored plan of an allowed approval whose caller has left, like
    /// [`Self::run_approved`].
    pub fn resume_run(
        &self,
        id: &str,
        base_env: &BTreeMap<String, String>,
        supervisor: &SupervisorClient,
    ) -> Result<Running, ExecError> {
        let (approval, plan) = self.stored_run(id, supervisor)?;
        let damaged = |problem: &str| ApprovalRefusal::Damaged {
            short_id: approval.short_id.clone(),
            problem: problem.to_owned(),
        };
        let facts = StoredVerdict::of_approval(&approval).into_resume();
        let facts = facts.ok_or_else(|| damaged("it is not left to this host"))?;
        let caller = CallerContext::from(facts.caller);
        let agent = AgentId::new(&plan.agent_id).map_err(|_| damaged("its agent has no name"))?;
        if is_too_late(approval.request.expires_at_ms) {
            let what =
                "it was allowed, and Interlock was not running in time to start it".to_owned();
            return Err(self.refuse_run(&approval, ApprovalRefusal::Drift { what }.into()));
        }
        let exec = self.config()?.config().exec_for(agent.as_str());
        let session_key = plan.session_key.clone();
        let request = ExecRequest {
            agent: &agent,
            config: None,
            caller: &caller,
            source: Source::Text(plan.command.clone()),
            cwd: plan.cwd.requested.clone(),
            env: facts.env,
            ask: facts.ask,
            gateway: None,
            timeout_seconds: None,
            base_env,
            session_key: session_key.as_deref(),
            pty: plan.pty,
            stdin: plan.stdin,
            yields: Yield::After(exec.background_after()),
            show_chars: None,
            requester: &approval.request.requester,
            runs_later: true,
            place: RequestedPlace {
                elevated: facts.elevated,
                sender: facts.sender,
                retry: plan.retry.as_ref().map(RetryRequest::of_plan),
                ..RequestedPlace::default()
            },
        };
        let announced = supervisor.announce(&plan);
        self.run_stored(&approval, plan, &request, (supervisor, announced))
    }
}
