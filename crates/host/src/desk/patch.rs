//! Patches of protected files: put down as an approval, and applied once when it allows them.

use std::cell::Cell;
use std::ops::ControlFlow::{Break, Continue};

use interlock_command::display::{Secrets, ShownLine, ShownText};
use interlock_patch::{Patch, PatchSummary};
use interlock_policy::{AgentId, AlwaysForm, Ask};
use interlock_store::{
    Approval, ApprovalRequest, Claiming, CreatedApproval, GrantKey, NewRun, StoreError,
};
use serde_json::{Value, json};

use super::approved::{allowing, claim_failed, stricter};
use super::ask::EXPIRES_AFTER_MS;
use super::content::ScriptDiff;
use super::error::DeskError;
use super::events::{SessionRunEnd, clipped};
use super::later::{LaterFacts, is_too_late};
use super::pending::{Choice, PendingApproval, add_binding, add_reasons, add_session, shown};
use super::records::{EndListener, end};
use super::view::{ApprovalView, ViewBlock, ViewLabel};
use super::{Desk, HOST, now, process_name};
use crate::caller_context::NO_CALLER_CONTEXT;
use crate::local::HostError;
use crate::patch::{PatchDiff, PatchError, PatchPlan, PatchRequest, Permitted, summary_outcome};

/// The binding of such an approval: each file is bound by its identity and its new content.
pub(super) const PATCH: &str = "patch";

/// What became of a question about a patch.
pub(crate) enum AskedPatch {
    /// It waits for an approver.
    Waits(CreatedApproval),
    /// The same was allowed before, and nothing was made of it.
    Allowed(String),
}

impl Desk<'_> {
    /// Puts a patch of protected files down. `is_free` finds an approval of the same patch that no
    /// other call is about to use.
    pub(crate) fn ask_patch(
        self,
        plan: &PatchPlan,
        request: &PatchRequest<'_>,
        is_free: Option<&dyn Fn(&str) -> bool>,
    ) -> Result<AskedPatch, DeskError> {
        let digest = plan.digest().ok_or_else(|| DeskError::Drift {
            what: "a path of the patch is not valid UTF-8".to_owned(),
        })?;
        let key = GrantKey {
            content_digest: &digest,
            agent: &plan.agent_id,
            session_key: &plan.session_key,
            host: HOST,
            node: None,
        };
        let now = now();
        let config = self.host.config()?;
        let most = config.config().exec_for(&plan.agent_id).most_pending();
        self.host.store().change(|change| {
            if let Some(is_free) = is_free {
                let mut unused = change.unused_approvals(&key, now)?.into_iter();
                if let Some(id) = unused.find(|id| is_free(id)) {
                    return Ok(AskedPatch::Allowed(id));
                }
            }
            change.check_pending(&plan.agent_id, most, now)?;
            let created = change.create_approval(&ApprovalRequest {
                plan: serde_json::to_string(plan).unwrap_or_default(),
                plan_digest: digest.clone(),
                content_digest: digest.clone(),
                verdict: verdict(plan, request.runs_later),
                binding: PATCH.to_owned(),
                preview: title(plan).text,
                agent: plan.agent_id.clone(),
                session_key: plan.session_key.clone(),
                host: HOST.to_owned(),
                node: None,
                requester: request.requester.to_owned(),
                created_at_ms: now,
                expires_at_ms: now.saturating_add(EXPIRES_AFTER_MS),
                always: None,
            })?;
            Ok(AskedPatch::Waits(created))
        })
    }

    /// Applies what was approved: the stored patch and nothing else, once, if every file is still
    /// what was shown. The caller's request must be the one that was asked about.
    pub fn apply_approved(
        self,
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
            return Err(DeskError::Mismatch { short_id, what }.into());
        }
        self.apply_stored(&approval, &plan, request, listener)
    }

    /// Applies what was allowed when the process that asked is gone; its conversation is notified.
    pub fn apply_left(self, id: &str) -> Result<PatchSummary, PatchError> {
        let (approval, plan) = self.stored_patch(id)?;
        if is_too_late(approval.request.expires_at_ms) {
            let what = "it was allowed, and no process was there to apply it in time".to_owned();
            return Err(self
                .refuse_approved(&approval, DeskError::Drift { what })
                .into());
        }
        let agent = AgentId::new(&plan.agent_id).map_err(|_| DeskError::Damaged {
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

    fn stored_patch(self, reference: &str) -> Result<(Approval, PatchPlan), DeskError> {
        self.expire(now())?;
        let approval = self.host.store().approval(reference)?;
        let plan = read_plan(&approval)?;
        Ok((approval, plan))
    }

    fn apply_stored(
        self,
        approval: &Approval,
        plan: &PatchPlan,
        request: &PatchRequest<'_>,
        listener: EndListener,
    ) -> Result<PatchSummary, PatchError> {
        allowing(approval)?;
        let permitted = match self.host.permit_patch(request) {
            Ok(permitted) if permitted.levels.ask.value() == Ask::Off => {
                Err(stricter("ask is `off`, and no approver counts"))
            }
            Ok(permitted) => Ok(permitted),
            Err(error) if error.is_denial() => Err(stricter(&error.to_string())),
            Err(error) => return Err(error),
        };
        let permitted = permitted.map_err(|error| self.refuse_approved(approval, error))?;
        let Permitted { patch, options, .. } = permitted;
        self.host
            .record_begun(request, &patch, Some(&approval.id))?;
        let is_claimed = Cell::new(false);
        let applied = interlock_patch::apply_judged(&patch, &options, |preview| {
            if let Some(what) = plan.difference(preview.changes()) {
                return Break(DeskError::Drift { what });
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
            Ok(Break(error @ DeskError::Drift { .. })) => {
                Err(self.refuse_approved(approval, error).into())
            }
            Ok(Break(error)) => Err(error.into()),
            // It cannot be made of the files as they are now.
            Err(error) if !is_claimed.get() => {
                let what = error.to_string();
                Err(self
                    .refuse_approved(approval, DeskError::Drift { what })
                    .into())
            }
            Err(error) => Err(PatchError::from(Box::new(error))),
        };
        if is_claimed.get() {
            self.record_applied(approval, &applied, listener)?;
        }
        self.host
            .record_applied(request, applied, Some(&approval.id))
    }

    /// The one use, on the disk before a file changes. From then on the approval wants an end.
    fn claim_patch(self, approval: &Approval) -> Result<(), DeskError> {
        let Approval { id, request, .. } = approval;
        let claiming = self.host.store().change(|change| {
            let claiming = change.claim(id, &request.plan_digest, process_name(), now())?;
            if claiming == Claiming::Claimed {
                change.open_run(&NewRun {
                    id,
                    approval_id: Some(id),
                    agent: &request.agent,
                    session_key: &request.session_key,
                    host: HOST,
                    node: None,
                    command: &clipped(&request.preview),
                    waiter: process_name(),
                    now_ms: now(),
                })?;
            }
            Ok::<_, StoreError>(claiming)
        })?;
        claim_failed(claiming, &approval.short_id)
    }

    fn record_applied(
        self,
        approval: &Approval,
        applied: &Result<PatchSummary, PatchError>,
        listener: EndListener,
    ) -> Result<(), HostError> {
        let (outcome, tail) = match applied {
            Ok(summary) => (summary_outcome(summary), summary.to_string()),
            Err(error) => {
                let message = error.to_string();
                let outcome = json!({
                    "code": error.code(),
                    "exitCode": 1,
                    "message": message,
                    "status": "failed",
                });
                (outcome, message)
            }
        };
        let notify = self.notify(&approval.request.agent);
        Ok(self.host.store().change(|change| {
            let how = SessionRunEnd {
                outcome: Some(&outcome),
                tail: &tail,
                notify,
            };
            end(change, &approval.id, &how)?;
            if listener == EndListener::Caller {
                change.mark_run_events_delivered(&approval.id, now())?;
            }
            Ok::<_, StoreError>(())
        })?)
    }
}

/// The stored plan, if it is still the one whose digest was approved.
fn read_plan(approval: &Approval) -> Result<PatchPlan, DeskError> {
    let short_id = || approval.short_id.clone();
    if approval.request.binding != PATCH {
        return Err(DeskError::Mismatch {
            short_id: short_id(),
            what: "the tool",
        });
    }
    let damaged = |problem: &str| DeskError::Damaged {
        short_id: short_id(),
        problem: problem.to_owned(),
    };
    let plan: PatchPlan = serde_json::from_str(&approval.request.plan)
        .map_err(|error| damaged(&format!("its plan cannot be read: {error}")))?;
    let is_whole = plan.digest().as_deref() == Some(approval.request.plan_digest.as_str());
    if !is_whole || Patch::parse(&plan.input).is_err() {
        return Err(damaged("its plan does not match its digest"));
    }
    Ok(plan)
}

/// As an approver is shown it.
pub(super) fn read(approval: Approval) -> Result<PendingApproval, DeskError> {
    let plan = read_plan(&approval)?;
    let request = approval.request;
    let files = plan.changes.len();
    let binding_reason = format!(
        "{files} {}, each bound by what stands there now and by its new content",
        if files == 1 { "file" } else { "files" }
    );
    let reasons = reasons(&plan);
    let command = title(&plan);
    let mut view = ApprovalView::default();
    view.field(ViewLabel::Command, &command.text);
    view.field(ViewLabel::Directory, &plan.root.display().to_string());
    add_patch(&mut view, &plan.diff);
    view.field(ViewLabel::Agent, &request.agent);
    add_session(&mut view, &request.session_key);
    add_reasons(&mut view, &reasons);
    add_binding(&mut view, PATCH, &binding_reason);
    Ok(PendingApproval {
        view,
        command,
        cwd: plan.root.display().to_string(),
        binding_reason,
        reasons,
        diff: Some(ScriptDiff {
            text: plan.diff.text,
            added: plan.diff.added,
            removed: plan.diff.removed,
            left_out: 0,
        }),
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
        no_always: Some(ONCE.to_owned()),
        choices: vec![Choice::AllowOnce, Choice::Deny],
        requester: request.requester,
        created_at_ms: request.created_at_ms,
        expires_at_ms: request.expires_at_ms,
        ended: approval.ended,
        node: None,
        remote: None,
    })
}

/// All of it: a patch that cannot be shown as a whole is not put down.
fn add_patch(view: &mut ApprovalView, diff: &PatchDiff) {
    let title = format!("{} lines added, {} removed", diff.added, diff.removed);
    view.block(ViewBlock {
        label: ViewLabel::Patch,
        title: ShownLine::new(&title),
        lines: diff.text.lines().map(ShownLine::new).collect(),
        left_out_lines: 0,
        is_diff: true,
    });
}

/// Why nothing but *once* is offered.
pub(super) const ONCE: &str = "a patch is applied once";

fn title(plan: &PatchPlan) -> ShownText {
    shown(&plan.title(), Secrets::Revealed)
}

fn reasons(plan: &PatchPlan) -> Vec<String> {
    let reason =
        |file: &crate::patch::ProtectedFile| format!("{} is protected: {}", file.path, file.reason);
    plan.protected.iter().map(reason).collect()
}

/// The part of a verdict that surfaces and the desk read.
fn verdict(plan: &PatchPlan, runs_later: bool) -> Value {
    let mut verdict = json!({
        "reason": { "code": "protected-path", "message": reasons(plan).join("; ") },
        "noAlways": ONCE,
        "fallback": {
            "allow": false,
            "reason": "only an approver allows a patch of protected files",
        },
    });
    if runs_later {
        LaterFacts::default().write(&mut verdict);
    }
    verdict
}
