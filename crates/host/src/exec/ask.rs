//! Finds the allowance for a plan that an approver has to allow: a grant from an earlier decision,
//! an approval whose run no caller waited for, or a new approval.

use interlock_approvals::clock::now;
use interlock_approvals::{
    ApprovalRefusal, Claim, NewApproval, RunManner, pinned_scripts, read_manifests,
};
use interlock_command::display::Secrets;
use interlock_plan::RunPlan;
use interlock_policy::Verdict;
use interlock_store::{Change, CreatedApproval, StoreError};
use interlock_supervisor::{Manner, SupervisorClient};

use super::error::ExecError;
use super::judged::JudgedRequest;
use super::request::ExecRequest;
use super::{Exec, Pending};
use crate::local::{HostError, LocalHost};
use crate::permission::Permission;
use crate::pipeline::{RunTicket, record_verdict, resume_facts, use_grant};
use crate::retry::RetryRefusal;

/// Whether an earlier approval counts for a request that does not name it.
#[derive(Clone, Copy)]
pub(super) enum Earlier<'a> {
    Named,
    /// If it is free.
    Found(&'a dyn Fn(&str) -> bool),
}

/// How a run gets its approval.
enum NeededApproval {
    Granted((RunTicket, Claim)),
    Allowed(String),
    Pending(CreatedApproval),
    /// An approver has already been asked about this retry.
    AskedBefore,
}

impl LocalHost {
    /// Starts the plan at once if a standing grant allows it, or an allowed approval whose run no
    /// caller waited for. Otherwise stores a new approval.
    pub(super) fn ask(
        &self,
        request: &ExecRequest<'_>,
        judged: &JudgedRequest<'_>,
        (plan, manner): (RunPlan, Manner),
        supervisor: &SupervisorClient,
        earlier: Earlier<'_>,
        record: impl Fn(&Change<'_>) -> Result<(), StoreError>,
    ) -> Result<Exec, ExecError> {
        let verdict = &judged.evaluation.verdict;
        let session_key = request.session_key();
        let approval = NewApproval {
            plan: &plan,
            verdict,
            ask: judged.levels.ask.value(),
            session_key: &session_key,
            requester: request.requester,
            resume: request.runs_later.then(|| resume_facts(request)),
            manner: shown_manner(&manner),
            scripts: [pinned_scripts(&plan), read_manifests(verdict)].concat(),
        };
        let content = approval.content_digest();
        let most = judged.scope.exec().most_pending();
        let needed = self.store().change(|change| {
            record(change)?;
            let key = approval.grant_key(&content);
            if let Some(granted) = use_grant(change, &approval, &key)? {
                return Ok(NeededApproval::Granted(granted));
            }
            let unused = match earlier {
                Earlier::Named => None,
                Earlier::Found(is_free) => {
                    let unused = change.unused_approvals(&key, now())?;
                    unused.into_iter().find(|id| is_free(id))
                }
            };
            Ok::<_, StoreError>(match unused {
                Some(id) => NeededApproval::Allowed(id),
                None => {
                    if let Some(retry) = &plan.retry
                        && !change.take_denied_run(&retry.run)?
                    {
                        return Ok(NeededApproval::AskedBefore);
                    }
                    NeededApproval::Pending(approval.store(change, content.clone(), most)?)
                }
            })
        });
        if let Err(StoreError::Approval(error)) = &needed {
            // The failed change wrote nothing, so the verdict is recorded separately.
            let code = Some(error.code());
            let place = judged.confinement();
            let recorded = self
                .store()
                .change(|change| record_verdict(change, request, verdict, code, place));
            recorded.map_err(HostError::from)?;
        }
        match needed.map_err(not_stored)? {
            NeededApproval::Granted((ticket, claim)) => {
                let permission = Permission::Claim(claim);
                let running = self.order(plan, permission, manner, ticket, (supervisor, None))?;
                Ok(Exec::Started(Box::new(running)))
            }
            NeededApproval::Allowed(id) => match self.run_approved(&id, request, supervisor) {
                Ok(running) => Ok(Exec::Started(Box::new(running))),
                // The approval was for something else after all, or another call claimed it first.
                Err(ExecError::Approval(error)) if error.wants_new_approval() => {
                    let created = self
                        .store()
                        .change(|change| approval.store(change, content.clone(), most));
                    self.pending(&created.map_err(not_stored)?, verdict)
                }
                Err(error) => Err(error),
            },
            NeededApproval::AskedBefore => Err(RetryRefusal::UnknownRun.into()),
            NeededApproval::Pending(created) => self.pending(&created, verdict),
        }
    }

    fn pending(&self, created: &CreatedApproval, verdict: &Verdict) -> Result<Exec, ExecError> {
        Ok(Exec::Pending(Box::new(Pending {
            approval: self.approvals().approval(&created.id, Secrets::Masked)?,
            verdict: verdict.clone(),
        })))
    }
}

/// Why an approval could not be stored: the store failed, or too many approvals of the agent are
/// pending.
fn not_stored(error: StoreError) -> ExecError {
    match ApprovalRefusal::from(error) {
        ApprovalRefusal::State(error) => HostError::from(error).into(),
        error => error.into(),
    }
}

/// How a run is carried out, as shown to the approver.
fn shown_manner(manner: &Manner) -> RunManner {
    RunManner {
        memory_bytes: manner.limits.memory_bytes,
        pids: manner.limits.pids,
        cpus: manner.limits.cpus.map(f64::from),
        wait_ms: manner.wait_ms,
    }
}
