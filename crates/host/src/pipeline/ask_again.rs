//! Asks again about an expired approval, with the same plan, while everything that the plan binds
//! is unchanged.

use interlock_approvals::clock::now;
use interlock_approvals::{
    ApprovalEnding, ApprovalRefusal, EFFECT_BINDING, EXPIRES_AFTER_MS, NETWORK_BINDING,
    PATCH_BINDING, PendingApproval, StoredVerdict, THIS_HOST, stored_plan,
};
use interlock_command::display::Secrets;
use interlock_store::{Approval, ApprovalRequest, StoreError};

use super::approved_run::check_pins;
use super::resume::ResumableRun;
use crate::local::LocalHost;

/// How long after its expiry an approval may be asked about again. Later, only its caller knows
/// whether the command is still needed.
pub const ASK_AGAIN_MS: i64 = 10 * 60 * 1000;

/// Whether an approval with this ending may be asked about again now.
pub fn may_ask_again(ending: ApprovalEnding, ended_at_ms: i64) -> bool {
    ending == ApprovalEnding::Expired && now() < ended_at_ms.saturating_add(ASK_AGAIN_MS)
}

impl LocalHost {
    /// Stores a new approval for the plan of an expired one. The requester stays the original
    /// caller, so that it still cannot decide. This host will start the run.
    pub fn ask_again(
        &self,
        reference: &str,
    ) -> Result<(PendingApproval, ResumableRun), ApprovalRefusal> {
        self.approvals().expire_due()?;
        let store = self.store();
        let approval = store.approval(reference)?;
        let not_offered = |why: &str| ApprovalRefusal::NotOffered {
            short_id: approval.short_id.clone(),
            choice: "ask again".to_owned(),
            why: why.to_owned(),
        };
        check_end(&approval).map_err(not_offered)?;
        let plan = stored_plan(&approval)?;
        let path = plan.env.get("PATH").cloned().unwrap_or_default();
        check_pins(&plan, &path).map_err(|found| ApprovalRefusal::Drift {
            what: found.to_string(),
        })?;
        let scripts = store.pinned_scripts(&approval.id)?;
        let agent = &approval.request.agent;
        let config = self.config();
        let config = config.map_err(|error| not_offered(&error.to_string()))?;
        let most = config.config().exec_for(agent).most_pending();
        let asked_at_ms = now();
        let created = store.change(|change| {
            change.check_pending(agent, most, asked_at_ms)?;
            let created = change.create_approval(&ApprovalRequest {
                created_at_ms: asked_at_ms,
                expires_at_ms: asked_at_ms.saturating_add(EXPIRES_AFTER_MS),
                ..approval.request.clone()
            })?;
            change.keep_pinned_scripts(&created.id, &scripts)?;
            Ok::<_, StoreError>(created)
        })?;
        let again = self.approvals().approval(&created.id, Secrets::Masked)?;
        let run = ResumableRun {
            id: created.id,
            agent: again.agent.clone(),
            session_key: again.session_key.clone(),
            is_patch: false,
        };
        Ok((again, run))
    }
}

/// Why this host may not ask again by itself, if it may not.
fn check_end(approval: &Approval) -> Result<(), &'static str> {
    let request = &approval.request;
    let Some(ended) = &approval.ended else {
        return Err("it still waits for a decision");
    };
    if ended.ending != ApprovalEnding::Expired {
        return Err("it was decided");
    }
    if !may_ask_again(ended.ending, ended.at_ms) {
        return Err("it expired more than 10 minutes ago");
    }
    let is_here = request.host == THIS_HOST && request.node.is_none();
    if !is_here
        || [PATCH_BINDING, EFFECT_BINDING, NETWORK_BINDING].contains(&request.binding.as_str())
    {
        return Err("only its caller can ask for it again");
    }
    match StoredVerdict::of_approval(approval).into_resume() {
        Some(_) => Ok(()),
        None => Err("its caller runs it, and is gone"),
    }
}
