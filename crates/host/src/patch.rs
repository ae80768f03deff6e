//! `apply_patch` on this host: tool policy and config first, then the files, then the patch as a
//! whole.
//!
//! `interlock_effects` decides which files are executed or obeyed later.

mod error;
mod permit;
mod record;

use std::ops::ControlFlow::{self, Break, Continue};
use std::path::PathBuf;

use interlock_approvals::{
    PatchPlan, PatchSource, PendingApproval, ProtectedFile, usual_session_key,
};
use interlock_command::display::Secrets;
use interlock_effects::{GuardedPlace, PatchGuard};
use interlock_local::CallerContext;
use interlock_patch::{ApplyError, PatchSummary, Preview};
use interlock_policy::{AgentId, Ask, Levels};

use crate::local::LocalHost;
use crate::pipeline::{EndListener, PatchApproval};

pub use error::PatchError;
pub(crate) use permit::Permitted;
pub(crate) use record::summary_outcome;

/// The request to apply a patch.
#[derive(Debug, Clone)]
pub struct PatchRequest<'a> {
    pub agent: &'a AgentId,
    pub session_key: Option<&'a str>,
    /// The model behind the agent, if the call names it.
    pub model: Option<&'a str>,
    /// The calling program's own context.
    pub caller: &'a CallerContext,
    /// The workspace.
    pub root: PathBuf,
    pub input: &'a str,
    /// Whether the patch is only checked.
    pub dry_run: bool,
    /// The caller's connection or process, for the records. No decision depends on it.
    pub requester: &'a str,
    /// Whether this host itself applies the patch once it is allowed, even after its caller has
    /// left: [`LocalHost::resume_patch`].
    pub runs_later: bool,
}

impl PatchRequest<'_> {
    pub(crate) fn session_key(&self) -> String {
        let key = self.session_key.map(str::to_owned);
        key.unwrap_or_else(|| usual_session_key(self.agent.as_str()))
    }
}

/// The outcome of a patch that was not refused.
#[derive(Debug)]
pub enum PatchOutcome {
    Applied(PatchSummary),
    /// An approver has to decide first. No file changed.
    Pending(Box<PendingApproval>),
}

/// Why a patch was stopped after its effects were known, before any file changed.
enum Stopped {
    Protected(Vec<ProtectedFile>),
    Ask(Box<PatchPlan>),
    Unshowable(ApplyError),
}

impl LocalHost {
    /// Applies a patch, stores an approval where it changes protected files, or reports what it
    /// would change. The request is in the audit before a file changes; the result, also a refusal,
    /// is recorded afterwards. A dry run leaves no record.
    pub fn apply_patch(&self, request: &PatchRequest<'_>) -> Result<PatchOutcome, PatchError> {
        self.apply_patch_with(request, None)
    }

    /// Like [`Self::apply_patch`], for callers that cannot name an approval. An unused approval for
    /// the same patch in the same conversation counts for them if it is free.
    pub fn apply_patch_again(
        &self,
        request: &PatchRequest<'_>,
        is_free: &dyn Fn(&str) -> bool,
    ) -> Result<PatchOutcome, PatchError> {
        self.apply_patch_with(request, Some(is_free))
    }

    fn apply_patch_with(
        &self,
        request: &PatchRequest<'_>,
        is_free: Option<&dyn Fn(&str) -> bool>,
    ) -> Result<PatchOutcome, PatchError> {
        if request.dry_run {
            let permitted = self.permit_patch(request)?;
            let judge = self.judge_patch(request, &permitted.levels)?;
            let checked =
                interlock_patch::check_judged(&permitted.patch, &permitted.options, judge);
            return match checked.map_err(Box::new)? {
                // A dry run of a patch that would need an approver reports the changes without
                // asking.
                Continue(summary) => Ok(PatchOutcome::Applied(summary)),
                Break(Stopped::Protected(files)) => Err(PatchError::Protected(files)),
                Break(Stopped::Unshowable(error)) => Err(Box::new(error).into()),
                Break(Stopped::Ask(_)) => {
                    let summary = interlock_patch::check(&permitted.patch, &permitted.options);
                    Ok(PatchOutcome::Applied(summary.map_err(Box::new)?))
                }
            };
        }
        let begun = self.permit_patch(request).and_then(|permitted| {
            self.record_begun(request, &permitted.patch, None)?;
            let judge = self.judge_patch(request, &permitted.levels)?;
            let applied =
                interlock_patch::apply_judged(&permitted.patch, &permitted.options, judge);
            match applied.map_err(Box::new)? {
                Continue(summary) => Ok(Continue(summary)),
                Break(Stopped::Protected(files)) => Err(PatchError::Protected(files)),
                Break(Stopped::Unshowable(error)) => Err(Box::new(error).into()),
                Break(Stopped::Ask(plan)) => Ok(Break(plan)),
            }
        });
        let applied = match begun {
            Ok(Break(plan)) => return self.ask_for_patch(&plan, request, is_free),
            Ok(Continue(summary)) => Ok(summary),
            Err(error) => Err(error),
        };
        let applied = self.record_applied(request, applied, None)?;
        Ok(PatchOutcome::Applied(applied))
    }

    /// Applies the patch at once if an unused approval allows the same patch. Otherwise stores an
    /// approval.
    fn ask_for_patch(
        &self,
        plan: &PatchPlan,
        request: &PatchRequest<'_>,
        is_free: Option<&dyn Fn(&str) -> bool>,
    ) -> Result<PatchOutcome, PatchError> {
        let mut approval = self.request_patch_approval(plan, request, is_free)?;
        if let PatchApproval::Allowed(id) = &approval {
            match self.apply_approved(id, request, EndListener::Caller) {
                Ok(summary) => return Ok(PatchOutcome::Applied(summary)),
                // The approval was for something else after all, or another call claimed it first.
                Err(PatchError::Approval(error)) if error.wants_new_approval() => {
                    approval = self.request_patch_approval(plan, request, None)?;
                }
                Err(error) => return Err(error),
            }
        }
        let id = match approval {
            PatchApproval::Pending(created) => created.id,
            PatchApproval::Allowed(id) => id,
        };
        let approval = self.approvals().approval(&id, Secrets::Masked)?;
        Ok(PatchOutcome::Pending(Box::new(approval)))
    }

    /// Examines the changes that a patch is about to make. Files that are executed or obeyed later
    /// need an approver; no other part of the policy prompts for patches.
    fn judge_patch<'a>(
        &self,
        request: &'a PatchRequest<'_>,
        levels: &Levels,
    ) -> Result<impl FnOnce(&mut Preview<'_>) -> ControlFlow<Stopped> + use<'a>, PatchError> {
        let guard = PatchGuard::load(
            self,
            GuardedPlace {
                agent: request.agent,
                caller: request.caller,
                root: &request.root,
            },
        )?;
        let ask = levels.ask.value();
        Ok(move |preview: &mut Preview<'_>| {
            let protected: Vec<ProtectedFile> = preview
                .changes()
                .iter()
                .filter_map(|change| {
                    let reason = guard.reason(change)?;
                    let path = change.shown.clone();
                    Some(ProtectedFile { path, reason })
                })
                .collect();
            if protected.is_empty() {
                return Continue(());
            }
            if ask == Ask::Off {
                return Break(Stopped::Protected(protected));
            }
            let source = PatchSource {
                agent_id: request.agent.as_str(),
                session_key: request.session_key(),
                model: request.model,
                root: request.root.clone(),
                input: request.input,
            };
            match PatchPlan::new(source, preview, protected) {
                Ok(plan) => Break(Stopped::Ask(Box::new(plan))),
                Err(error) => Break(Stopped::Unshowable(error)),
            }
        })
    }
}
