//! The common part of the plans of patches, effects and hosts: how they are read from an approval
//! and shown to an approver. Plans of runs show more: see `pending`.

use interlock_command::display::{ShownText, visible};
use interlock_policy::AlwaysForm;
use interlock_store::{Approval, ApprovalDecision};
use serde::de::DeserializeOwned;

use crate::content::ScriptDiff;
use crate::error::ApprovalRefusal;
use crate::patch_plan::PatchDiff;
use crate::pending::PendingApproval;
use crate::view::ApprovalView;

/// Such a plan as an approver is shown it.
pub(crate) struct ShownPlan {
    /// The plan on one line, for lists and messages.
    pub command: ShownText,
    pub view: ApprovalView,
    pub cwd: String,
    pub binding_reason: String,
    pub reasons: Vec<String>,
    pub diff: Option<ScriptDiff>,
    /// Why *always* would store nothing.
    pub no_always: Option<String>,
    pub offered: Vec<ApprovalDecision>,
}

impl ShownPlan {
    /// The approval with the shown form of its plan. *Always* stores no allowlist entry for such a
    /// plan.
    pub(crate) fn of_approval(self, approval: Approval) -> PendingApproval {
        let request = approval.request;
        PendingApproval {
            view: self.view,
            command: self.command,
            cwd: self.cwd,
            binding_reason: self.binding_reason,
            reasons: self.reasons,
            diff: self.diff,
            id: approval.id,
            short_id: approval.short_id,
            plan_digest: request.plan_digest,
            agent: request.agent,
            session_key: request.session_key,
            host: request.host,
            binding: request.binding,
            always: Vec::new(),
            always_form: AlwaysForm::Exact,
            wider: Vec::new(),
            not_wider: Vec::new(),
            no_always: self.no_always,
            offered: self.offered,
            requester: request.requester,
            created_at_ms: request.created_at_ms,
            expires_at_ms: request.expires_at_ms,
            ended: approval.ended,
            node: None,
            remote: None,
            deliveries: approval.deliveries,
        }
    }
}

/// The decisions about a plan that is carried out once.
pub(crate) fn once_or_deny() -> Vec<ApprovalDecision> {
    vec![ApprovalDecision::AllowOnce, ApprovalDecision::Deny]
}

/// Refuses an approval of another tool.
pub(crate) fn check_binding(approval: &Approval, binding: &str) -> Result<(), ApprovalRefusal> {
    if approval.request.binding == binding {
        return Ok(());
    }
    Err(ApprovalRefusal::Mismatch {
        short_id: approval.short_id.clone(),
        what: "the tool",
    })
}

/// The stored plan, if it still has the approved digest.
pub(crate) fn stored_plan<P: DeserializeOwned>(
    approval: &Approval,
    digest: impl Fn(&P) -> Option<String>,
) -> Result<P, ApprovalRefusal> {
    let damaged = |problem: String| ApprovalRefusal::Damaged {
        short_id: approval.short_id.clone(),
        problem,
    };
    let plan: P = serde_json::from_str(&approval.request.plan)
        .map_err(|error| damaged(format!("its plan cannot be read: {error}")))?;
    if digest(&plan).as_deref() != Some(approval.request.plan_digest.as_str()) {
        return Err(damaged("its plan does not match its digest".to_owned()));
    }
    Ok(plan)
}

/// The whole difference, as every surface shows it.
pub(crate) fn whole_diff(diff: PatchDiff) -> ScriptDiff {
    ScriptDiff {
        text: diff.text,
        added: diff.added,
        removed: diff.removed,
        left_out: 0,
    }
}

/// A path on one line.
pub(crate) fn visible_line(text: &str) -> String {
    visible(text).replace('\n', "\\n")
}
