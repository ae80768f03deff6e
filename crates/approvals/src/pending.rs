//! An approval as an approver is shown it.

use interlock_command::display::{self, Secrets, ShownLine, ShownText};
use interlock_plan::{BindingKind, BoundRole, Elevation, RunPlan, SandboxSummary};
use interlock_policy::{AlwaysForm, Entry, NotWider, Wider};
use interlock_store::{Approval, ApprovalDecision, ApprovalEnd, Delivery, Lease, PinnedScript};
use serde::Serialize;
use serde_json::{Value, json};

use crate::always::AlwaysForms;
use crate::approvals::Approvals;
use crate::content::ScriptDiff;
use crate::effect_plan::{EFFECT_BINDING, read_effect};
use crate::error::ApprovalRefusal;
use crate::manifests::{ManifestState, add_projects, manifest_diff};
use crate::network_plan::{NETWORK_BINDING, read_network};
use crate::patch_plan::{PATCH_BINDING, read_patch};
use crate::process::requester_at_home;
use crate::remote::{REMOTE, read_remote};
use crate::stored_verdict::StoredVerdict;
use crate::view::{ApprovalView, MESSAGE_BYTES, ViewBlock, ViewLabel, add_scripts, build_view};

/// One approval, with everything that the decision depends on.
#[derive(Debug, Clone)]
pub struct PendingApproval {
    pub id: String,
    pub short_id: String,
    /// Sent with the decision. It names the plan that was shown.
    pub plan_digest: String,
    pub agent: String,
    pub session_key: String,
    pub host: String,
    /// The command on one line, for lists and messages.
    pub command: ShownText,
    /// Everything that an approver reads. Every surface shows this view.
    pub view: ApprovalView,
    /// The directory in which the run would start.
    pub cwd: String,
    /// The kind of the binding: native, file, project, text or unbound, or the binding of another
    /// kind of plan.
    pub binding: String,
    pub binding_reason: String,
    /// Why an approver has to decide, with the deciding rule first.
    pub reasons: Vec<String>,
    /// The entries that *always* would store if no other form is chosen.
    pub always: Vec<Entry>,
    /// The form of these entries: exact, or for this project.
    pub always_form: AlwaysForm,
    /// Wider forms that may be chosen instead, and forms that may not, with the reason.
    pub wider: Vec<Wider>,
    pub not_wider: Vec<NotWider>,
    /// Why *always* would store nothing.
    pub no_always: Option<String>,
    /// The decisions that a prompt offers. An offered lease has the longest permitted terms.
    pub offered: Vec<ApprovalDecision>,
    /// The difference between its script and the content that was last allowed. For a patch, all
    /// its changes.
    pub diff: Option<ScriptDiff>,
    pub requester: String,
    pub created_at_ms: i64,
    pub expires_at_ms: i64,
    pub ended: Option<ApprovalEnd>,
    pub node: Option<String>,
    /// The subject of an approval of another host. Nothing of it runs here.
    pub remote: Option<Value>,
    /// Where the approval was shown or could not be shown, in chronological order. Empty if a
    /// gateway sent the approval.
    pub deliveries: Vec<Delivery>,
}

impl Approvals<'_> {
    /// Finds an approval by its id, its short id or the beginning of its id.
    pub fn approval(
        self,
        reference: &str,
        secrets: Secrets,
    ) -> Result<PendingApproval, ApprovalRefusal> {
        let mut pending = self.read_approval(reference, secrets)?;
        pending.view.command_highlighting = self.highlighting(&pending.agent);
        Ok(pending)
    }

    /// Whether the owner wants colors in an agent's commands. `None` if the config cannot be read.
    pub(crate) fn highlighting(self, agent: &str) -> Option<bool> {
        let config = self.config().ok()?;
        let exec = config.config().exec_for(agent);
        exec.command_highlighting
    }

    fn read_approval(
        self,
        reference: &str,
        secrets: Secrets,
    ) -> Result<PendingApproval, ApprovalRefusal> {
        let approval = self.store.approval(reference)?;
        if approval.request.binding == REMOTE {
            return read_remote(approval, secrets);
        }
        if approval.request.binding == PATCH_BINDING {
            return read_patch(approval);
        }
        if approval.request.binding == EFFECT_BINDING {
            return read_effect(approval);
        }
        if approval.request.binding == NETWORK_BINDING {
            return read_network(approval);
        }
        let plan = stored_plan(&approval)?;
        let verdict = StoredVerdict::of_approval(&approval);
        let scripts = self.store.pinned_scripts(&approval.id)?;
        let agent = &approval.request.agent;
        let manifests = self
            .manifests(agent, &verdict.binding, &scripts)
            .map_err(ApprovalRefusal::from)?;
        let diff = match (self.script_diff(&plan)?, manifest_diff(&manifests)) {
            (Some(script), Some(manifests)) => Some(script.join(&manifests)),
            (script, manifests) => script.or(manifests),
        };
        let kept = KeptFiles {
            scripts: &scripts,
            manifests: &manifests,
        };
        Ok(read((approval, verdict), plan, diff, &kept, secrets))
    }
}

impl PendingApproval {
    /// Whether a prompt offers this decision; the terms of a lease do not matter.
    pub fn offers(&self, decision: ApprovalDecision) -> bool {
        let mut offered = self.offered.iter();
        offered.any(|one| one.as_str() == decision.as_str())
    }

    /// The JSON form that surfaces send and print.
    pub fn to_json(&self) -> Value {
        json!(self.printed())
    }

    pub(crate) fn printed(&self) -> PrintedApproval<'_> {
        let offered = self.offered.iter();
        let choices = offered.map(|decision| decision.as_str()).collect();
        PrintedApproval {
            id: &self.id,
            short_id: &self.short_id,
            plan_digest: &self.plan_digest,
            agent: &self.agent,
            session_key: &self.session_key,
            host: &self.host,
            command: &self.command.text,
            masked_secrets: self.view.masked_secrets,
            view: self.view.bounded(MESSAGE_BYTES),
            cwd: &self.cwd,
            binding: &self.binding,
            binding_reason: &self.binding_reason,
            reasons: &self.reasons,
            always: &self.always,
            always_form: self.always_form,
            always_wider: &self.wider,
            always_not_wider: &self.not_wider,
            always_not_offered: self.no_always.as_deref(),
            choices,
            diff: self.diff.as_ref().map(|diff| PrintedDiff {
                text: &diff.text,
                added: diff.added,
                removed: diff.removed,
                left_out_lines: diff.left_out,
            }),
            requester: requester_at_home(&self.requester).0,
            created_at_ms: self.created_at_ms,
            expires_at_ms: self.expires_at_ms,
            node: self.node.as_deref(),
            sandbox: self.view.sandbox.as_ref(),
            elevated: self.view.elevated,
        }
    }
}

/// An approval as surfaces send and print it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PrintedApproval<'a> {
    id: &'a str,
    short_id: &'a str,
    plan_digest: &'a str,
    agent: &'a str,
    session_key: &'a str,
    host: &'a str,
    command: &'a str,
    masked_secrets: usize,
    view: ApprovalView,
    cwd: &'a str,
    binding: &'a str,
    binding_reason: &'a str,
    reasons: &'a [String],
    always: &'a [Entry],
    always_form: AlwaysForm,
    always_wider: &'a [Wider],
    always_not_wider: &'a [NotWider],
    always_not_offered: Option<&'a str>,
    choices: Vec<&'static str>,
    pub(crate) diff: Option<PrintedDiff<'a>>,
    requester: &'a str,
    created_at_ms: i64,
    expires_at_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    /// Where the run is confined; `None` outside of a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<&'a SandboxSummary>,
    /// How far the run leaves the sandbox of its conversation.
    #[serde(skip_serializing_if = "Elevation::is_off")]
    elevated: Elevation,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PrintedDiff<'a> {
    text: &'a str,
    added: usize,
    removed: usize,
    left_out_lines: usize,
}

/// The files that were stored with an approval for its approvers.
struct KeptFiles<'a> {
    scripts: &'a [PinnedScript],
    manifests: &'a [ManifestState],
}

fn read(
    (approval, verdict): (Approval, StoredVerdict),
    plan: RunPlan,
    diff: Option<ScriptDiff>,
    kept: &KeptFiles<'_>,
    secrets: Secrets,
) -> PendingApproval {
    let request = approval.request;
    let AlwaysForms {
        exact: always,
        form: always_form,
        wider,
        not_wider,
    } = AlwaysForms::read(request.always.as_ref());
    let command = shown_command(&plan.command, secrets);
    let mut view = build_view(&plan, &verdict.manner, secrets);
    let reasons = verdict.reasons();
    add_session(&mut view, &request.session_key);
    add_reasons(&mut view, &reasons);
    add_binding(&mut view, &request.binding, &verdict.binding.reason);
    add_projects(&mut view, &verdict.binding, kept.manifests);
    add_held(&mut view, &plan);
    let is_whole = add_scripts(&mut view, &plan, kept.scripts);
    add_diff(&mut view, diff.as_ref());
    PendingApproval {
        view,
        offered: if !is_whole {
            // No approver may allow what no approver can read.
            vec![ApprovalDecision::Deny]
        } else if plan.retry.is_some() {
            vec![ApprovalDecision::AllowOnce, ApprovalDecision::Deny]
        } else {
            offered(&request.binding, !always.is_empty())
        },
        no_always: always
            .is_empty()
            .then(|| verdict.no_always.unwrap_or_default()),
        reasons,
        binding_reason: verdict.binding.reason,
        id: approval.id,
        short_id: approval.short_id,
        plan_digest: request.plan_digest,
        agent: request.agent,
        session_key: request.session_key,
        host: request.host,
        command,
        cwd: plan.cwd.canonical,
        binding: request.binding,
        always,
        always_form,
        wider,
        not_wider,
        requester: request.requester,
        created_at_ms: request.created_at_ms,
        expires_at_ms: request.expires_at_ms,
        ended: approval.ended,
        diff,
        node: request.node,
        remote: None,
        deliveries: approval.deliveries,
    }
}

pub(crate) fn add_session(view: &mut ApprovalView, session_key: &str) {
    view.field(ViewLabel::Session, session_key);
}

pub(crate) fn add_reasons(view: &mut ApprovalView, reasons: &[String]) {
    for reason in reasons {
        view.field(ViewLabel::Why, reason);
    }
}

pub(crate) fn add_binding(view: &mut ApprovalView, kind: &str, reason: &str) {
    view.field(ViewLabel::Binding, &format!("{kind}: {reason}"));
    if kind == "unbound" {
        let warning = "UNBOUND: what runs may be other code than what is shown";
        view.warning(ViewLabel::Binding, warning);
    }
}

/// Adds files that are bound by content but whose content is not shown: the input of a text or of a
/// project's program.
fn add_held(view: &mut ApprovalView, plan: &RunPlan) {
    if plan.binding.kind == BindingKind::File {
        return;
    }
    let scripts = plan.binding.files.iter();
    for script in scripts.filter(|bound| bound.role == BoundRole::Script) {
        let hash = script.file.sha256.as_deref().unwrap_or_default();
        let hash = hash.get(..16).unwrap_or(hash);
        let text = format!(
            "holds {} as it is now, sha256 {hash}…",
            script.file.canonical
        );
        view.field(ViewLabel::Binding, &text);
    }
}

fn add_diff(view: &mut ApprovalView, diff: Option<&ScriptDiff>) {
    let Some(diff) = diff else {
        return;
    };
    let title = format!(
        "since it was last allowed: {} lines added, {} removed",
        diff.added, diff.removed
    );
    view.block(ViewBlock {
        label: ViewLabel::Diff,
        title: ShownLine::new(&title),
        lines: diff.text.lines().map(ShownLine::new).collect(),
        left_out_lines: diff.left_out,
        is_diff: true,
    });
}

/// A command on one line, as approvers and events show it.
pub fn shown_command(command: &str, secrets: Secrets) -> ShownText {
    display::command(command, secrets).unwrap_or_else(|bytes| ShownText {
        text: format!("[a command of {bytes} bytes]"),
        masked: 0,
        spelled_out: 0,
        left_out: bytes,
    })
}

/// The stored plan, if it still has the approved digest.
pub fn stored_plan(approval: &Approval) -> Result<RunPlan, ApprovalRefusal> {
    let damaged = |problem: String| ApprovalRefusal::Damaged {
        short_id: approval.short_id.clone(),
        problem,
    };
    let plan: RunPlan = serde_json::from_str(&approval.request.plan)
        .map_err(|error| damaged(format!("its plan cannot be read: {error}")))?;
    if plan.digest().as_str() == approval.request.plan_digest {
        Ok(plan)
    } else {
        Err(damaged("its plan does not match its digest".to_owned()))
    }
}

/// The decisions that a prompt offers. Nothing can be pinned of an unbound command, so it can be
/// allowed once at most.
fn offered(binding: &str, offers_always: bool) -> Vec<ApprovalDecision> {
    if binding == "unbound" {
        return vec![ApprovalDecision::AllowOnce, ApprovalDecision::Deny];
    }
    let mut offered = vec![
        ApprovalDecision::AllowOnce,
        ApprovalDecision::AllowSession,
        ApprovalDecision::Lease(Lease::LONGEST),
    ];
    if offers_always {
        offered.push(ApprovalDecision::AllowAlways);
    }
    offered.push(ApprovalDecision::Deny);
    offered
}
