//! Patches of protected files: each is stored as an approval, and applied once when an approver
//! allows it.

use std::cell::Cell;
use std::ops::ControlFlow::{Break, Continue};

use interlock_approvals::clock::now;
use interlock_approvals::{
    ApprovalRefusal, ApprovalSettings, EXPIRES_AFTER_MS, PATCH_BINDING, PatchPlan, SessionRunEnd,
    THIS_HOST, check_allowed, check_claim, clipped_command, process_name, stored_patch_plan,
};
use interlock_local::NO_CALLER_CONTEXT;
use interlock_patch::PatchSummary;
use interlock_policy::{AgentId, Ask};
use interlock_store::{
    Approval, ApprovalRequest, Claiming, CreatedApproval, GrantKey, NewRun, NullableField,
    RecordedOutcome, RecordedStatus, StoreError,
};

use super::approved_run::stricter;
use super::resume::is_too_late;
use super::run_records::{EndListener, end_run};
use crate::local::{HostError, LocalHost};
use crate::patch::{PatchError, PatchRequest, Permitted, summary_outcome};

/// The approval that a patch needs.
pub(crate) enum PatchApproval {
    /// It waits for an approver.
    Pending(CreatedApproval),
    /// The same patch was allowed before, and that approval is unused.
    Allowed(String),
}

impl LocalHost {
    /// Stores the approval for a patch of protected files. `is_free` says whether an approval of
    /// the same patch is unused by other calls; such an approval is returned instead.
    pub(crate) fn request_patch_approval(
        &self,
        plan: &PatchPlan,
        request: &PatchRequest<'_>,
        is_free: Option<&dyn Fn(&str) -> bool>,
    ) -> Result<PatchApproval, ApprovalRefusal> {
        let digest = plan.digest().ok_or_else(|| ApprovalRefusal::Drift {
            what: "a path of the patch is not valid UTF-8".to_owned(),
        })?;
        let key = GrantKey {
            content_digest: &digest,
            agent: &plan.agent_id,
            session_key: &plan.session_key,
            host: THIS_HOST,
            node: None,
        };
        let now = now();
        let config = ApprovalSettings::config(&**self)?;
        let most = config.config().exec_for(&plan.agent_id).most_pending();
        self.store().change(|change| {
            if let Some(is_free) = is_free {
                let mut unused = change.unused_approvals(&key, now)?.into_iter();
                if let Some(id) = unused.find(|id| is_free(id)) {
                    return Ok(PatchApproval::Allowed(id));
                }
            }
            change.check_pending(&plan.agent_id, most, now)?;
            let created = change.create_approval(&ApprovalRequest {
                plan: serde_json::to_string(plan).unwrap_or_default(),
                plan_digest: digest.clone(),
                content_digest: digest.clone(),
                verdict: plan.stored_verdict(request.runs_later).to_value(),
                binding: PATCH_BINDING.to_owned(),
                preview: plan.preview(),
                agent: plan.agent_id.clone(),
                session_key: plan.session_key.clone(),
                host: THIS_HOST.to_owned(),
                node: None,
                requester: request.requester.to_owned(),
                created_at_ms: now,
                expires_at_ms: now.saturating_add(EXPIRES_AFTER_MS),
                always: None,
            })?;
            Ok(PatchApproval::Pending(created))
        })
    }

    /// Applies the stored patch of an approval and nothing else, once, if every file is still as it
    /// was shown. The caller's request must equal the request of the approval.
    pub fn apply_approved(
        &self,
        reference: &str,
        request: &PatchRequest<'_>,
        listener: EndListener,
    ) -> Result<PatchSummary, PatchError> {
        let (approval, plan) = self.stored_patch(reference)?;
        let parts = [
            ("the agent", plan.agent_id != request.agent.as_str()),
            ("the session", plan.session_key != request.session_key()),
            ("the model", plan.model.as_deref() != request.model),
            ("the workspace", plan.root != request.root),
            ("the patch", plan.input != request.input),
        ];
        if let Some((what, _)) = parts.into_iter().find(|(_, differs)| *differs) {
            let short_id = approval.short_id;
            return Err(ApprovalRefusal::Mismatch { short_id, what }.into());
        }
        self.apply_stored(&approval, &plan, request, listener)
    }

    /// Applies an allowed patch whose caller has left. Its conversation is notified.
    pub fn resume_patch(&self, id: &str) -> Result<PatchSummary, PatchError> {
        let (approval, plan) = self.stored_patch(id)?;
        if is_too_late(approval.request.expires_at_ms) {
            let what = "it was allowed, and no process was there to apply it in time".to_owned();
            return Err(self
                .refuse_patch(&approval, ApprovalRefusal::Drift { what })
                .into());
        }
        let agent = AgentId::new(&plan.agent_id).map_err(|_| ApprovalRefusal::Damaged {
            short_id: approval.short_id.clone(),
            problem: "its agent has no name".to_owned(),
        })?;
        let request = PatchRequest {
            agent: &agent,
            session_key: Some(&plan.session_key),
            model: plan.model.as_deref(),
            caller: &NO_CALLER_CONTEXT,
            root: plan.root.clone(),
            input: &plan.input,
            dry_run: false,
            requester: &approval.request.requester,
            runs_later: true,
        };
        self.apply_stored(&approval, &plan, &request, EndListener::SessionEvent)
    }

    fn stored_patch(&self, reference: &str) -> Result<(Approval, PatchPlan), ApprovalRefusal> {
        self.approvals().expire_due()?;
        let approval = self.store().approval(reference)?;
        let plan = stored_patch_plan(&approval)?;
        Ok((approval, plan))
    }

    fn apply_stored(
        &self,
        approval: &Approval,
        plan: &PatchPlan,
        request: &PatchRequest<'_>,
        listener: EndListener,
    ) -> Result<PatchSummary, PatchError> {
        check_allowed(approval)?;
        let permitted = match self.permit_patch(request) {
            Ok(permitted) if permitted.levels.ask.value() == Ask::Off => {
                Err(stricter("ask is `off`, and no approver counts"))
            }
            Ok(permitted) => Ok(permitted),
            Err(error) if error.is_denial() => Err(stricter(&error.to_string())),
            Err(error) => return Err(error),
        };
        let permitted = permitted.map_err(|error| self.refuse_patch(approval, error))?;
        let Permitted { patch, options, .. } = permitted;
        self.record_begun(request, &patch, Some(&approval.id))?;
        let is_claimed = Cell::new(false);
        let applied = interlock_patch::apply_judged(&patch, &options, |preview| {
            if let Some(what) = plan.difference(preview.changes()) {
                return Break(ApprovalRefusal::Drift { what });
            }
            match self.claim_patch(approval) {
                Ok(()) => {
                    is_claimed.set(true);
                    Continue(())
                }
                Err(error) => Break(error),
            }
        });
        let applied = match applied {
            Ok(Continue(summary)) => Ok(summary),
            Ok(Break(error @ ApprovalRefusal::Drift { .. })) => {
                Err(self.refuse_patch(approval, error).into())
            }
            Ok(Break(error)) => Err(error.into()),
            // The patch no longer fits the files.
            Err(error) if !is_claimed.get() => {
                let what = error.to_string();
                Err(self
                    .refuse_patch(approval, ApprovalRefusal::Drift { what })
                    .into())
            }
            Err(error) => Err(PatchError::from(Box::new(error))),
        };
        if is_claimed.get() {
            self.record_patch_end(approval, &applied, listener)?;
        }
        self.record_applied(request, applied, Some(&approval.id))
    }

    /// Claims the single use of the approval. The claim is on disk before a file changes. From then
    /// on the approval needs an outcome.
    fn claim_patch(&self, approval: &Approval) -> Result<(), ApprovalRefusal> {
        let Approval { id, request, .. } = approval;
        let claiming = self.store().change(|change| {
            let claiming = change.claim(id, &request.plan_digest, process_name(), now())?;
            if claiming == Claiming::Claimed {
                change.open_run(&NewRun {
                    id,
                    approval_id: Some(id),
                    agent: &request.agent,
                    session_key: &request.session_key,
                    host: THIS_HOST,
                    node: None,
                    command: &clipped_command(&request.preview),
                    waiter: process_name(),
                    now_ms: now(),
                })?;
            }
            Ok::<_, StoreError>(claiming)
        })?;
        check_claim(claiming, &approval.short_id)
    }

    fn record_patch_end(
        &self,
        approval: &Approval,
        applied: &Result<PatchSummary, PatchError>,
        listener: EndListener,
    ) -> Result<(), HostError> {
        let (outcome, tail) = match applied {
            Ok(summary) => (summary_outcome(summary), summary.to_string()),
            Err(error) => {
                let message = error.to_string();
                let outcome = RecordedOutcome {
                    exit_code: NullableField::Value(1),
                    ..RecordedOutcome::new(RecordedStatus::Failed)
                };
                let outcome = outcome.with_code(error.code()).with_message(&message);
                (outcome, message)
            }
        };
        let notify = self.approvals().notify_settings(&approval.request.agent);
        Ok(self.store().change(|change| {
            let how = SessionRunEnd {
                outcome: Some(&outcome),
                tail: &tail,
                notify,
            };
            end_run(change, &approval.id, &how)?;
            if listener == EndListener::Caller {
                change.mark_run_events_delivered(&approval.id, now())?;
            }
            Ok::<_, StoreError>(())
        })?)
    }
}
