//! An approval as a person is shown it.

use interlock_command::display::{self, Secrets, ShownLine, ShownText};
use interlock_plan::{BindingKind, BoundRole, RunPlan};
use interlock_policy::{AlwaysForm, Entry, NotWider, Wider};
use interlock_store::{Approval, ApprovalEnd, PinnedScript};
use serde_json::{Value, json};

use super::always::Always;
use super::content::ScriptDiff;
use super::error::DeskError;
use super::manifests::{ManifestState, add_projects, manifest_diff};
use super::process::requester_at_home;
use super::view::{ApprovalView, MESSAGE_BYTES, ViewBlock, ViewLabel, add_scripts, build_view};
use super::{Desk, patch, remote};

/// An answer that a prompt offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    AllowOnce,
    AllowSession,
    AllowAlways,
    Lease,
    Deny,
}

impl Choice {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow-once",
            Self::AllowSession => "allow-session",
            Self::AllowAlways => "allow-always",
            Self::Lease => "lease",
            Self::Deny => "deny",
        }
    }

    /// The choice that a word names, if one does.
    pub fn of_word(word: &str) -> Option<Self> {
        let all = [
            Self::AllowOnce,
            Self::AllowSession,
            Self::AllowAlways,
            Self::Lease,
            Self::Deny,
        ];
        all.into_iter().find(|choice| choice.as_str() == word)
    }
}

/// What is asked, with everything that the answer depends on.
#[derive(Debug, Clone)]
pub struct PendingApproval {
    pub id: String,
    pub short_id: String,
    /// Sent with the decision: it names what was shown.
    pub plan_digest: String,
    pub agent: String,
    pub session_key: String,
    pub host: String,
    /// On one line, for lists and messages.
    pub command: ShownText,
    /// All that an approver reads; every surface shows this.
    pub view: ApprovalView,
    /// Overrides and all: the directory it would run in.
    pub cwd: String,
    /// Native, file, project, text or unbound.
    pub binding: String,
    pub binding_reason: String,
    /// Why it is asked: the deciding rule first.
    pub reasons: Vec<String>,
    /// What *always* would store where no other form is chosen.
    pub always: Vec<Entry>,
    /// The form of that: exact, or for this project.
    pub always_form: AlwaysForm,
    /// Wider forms that may be chosen instead, and those that may not, with the reason.
    pub wider: Vec<Wider>,
    pub not_wider: Vec<NotWider>,
    /// Why *always* would store nothing.
    pub no_always: Option<String>,
    pub choices: Vec<Choice>,
    /// How its script differs from what was last allowed; of a patch, all that it changes.
    pub diff: Option<ScriptDiff>,
    pub requester: String,
    pub created_at_ms: i64,
    pub expires_at_ms: i64,
    pub ended: Option<ApprovalEnd>,
    pub node: Option<String>,
    /// What another host asked, if one did; nothing of it runs here.
    pub remote: Option<Value>,
}

impl Desk<'_> {
    /// An approval by its id, its short id or the beginning of its id.
    pub fn approval(self, reference: &str, secrets: Secrets) -> Result<PendingApproval, DeskError> {
        let approval = self.host.store().approval(reference)?;
        if approval.request.binding == remote::REMOTE {
            return remote::read(approval, secrets);
        }
        if approval.request.binding == patch::PATCH {
            return patch::read(approval);
        }
        let plan = plan(&approval)?;
        let scripts = self.host.store().pinned_scripts(&approval.id)?;
        let request = &approval.request;
        let manifests = self.manifests(&request.agent, &request.verdict, &scripts)?;
        let diff = match (self.script_diff(&plan)?, manifest_diff(&manifests)) {
            (Some(script), Some(manifests)) => Some(script.join(&manifests)),
            (script, manifests) => script.or(manifests),
        };
        let kept = KeptFiles {
            scripts: &scripts,
            manifests: &manifests,
        };
        Ok(read(approval, plan, diff, &kept, secrets))
    }
}

impl PendingApproval {
    /// For programs: what surfaces send and print.
    pub fn to_json(&self) -> Value {
        let choices: Vec<&str> = self.choices.iter().map(|choice| choice.as_str()).collect();
        let diff = self.diff.as_ref().map(|diff| {
            json!({
                "text": diff.text,
                "added": diff.added,
                "removed": diff.removed,
                "leftOutLines": diff.left_out,
            })
        });
        let mut value = json!({
            "id": self.id,
            "shortId": self.short_id,
            "planDigest": self.plan_digest,
            "agent": self.agent,
            "sessionKey": self.session_key,
            "host": self.host,
            "command": self.command.text,
            "maskedSecrets": self.view.masked_secrets,
            "view": self.view.bounded(MESSAGE_BYTES),
            "cwd": self.cwd,
            "binding": self.binding,
            "bindingReason": self.binding_reason,
            "reasons": self.reasons,
            "always": self.always,
            "alwaysForm": self.always_form,
            "alwaysWider": self.wider,
            "alwaysNotWider": self.not_wider,
            "alwaysNotOffered": self.no_always,
            "choices": choices,
            "diff": diff,
            "requester": requester_at_home(&self.requester).0,
            "createdAtMs": self.created_at_ms,
            "expiresAtMs": self.expires_at_ms,
        });
        if let Some(node) = &self.node {
            value["node"] = node.as_str().into();
        }
        value
    }
}

/// What was kept with an approval for its approvers.
struct KeptFiles<'a> {
    scripts: &'a [PinnedScript],
    manifests: &'a [ManifestState],
}

fn read(
    approval: Approval,
    plan: RunPlan,
    diff: Option<ScriptDiff>,
    kept: &KeptFiles<'_>,
    secrets: Secrets,
) -> PendingApproval {
    let request = approval.request;
    let Always {
        exact: always,
        form: always_form,
        wider,
        not_wider,
    } = Always::read(request.always.as_ref());
    let command = shown(&plan.command, secrets);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let verdict = &request.verdict;
    let mut view = build_view(&plan, verdict, secrets);
    let reasons = reasons(verdict);
    let binding_reason = text(&verdict["binding"]["reason"]);
    add_session(&mut view, &request.session_key);
    add_reasons(&mut view, &reasons);
    add_binding(&mut view, &request.binding, &binding_reason);
    add_projects(&mut view, verdict, kept.manifests);
    add_held(&mut view, &plan);
    let is_whole = add_scripts(&mut view, &plan, kept.scripts);
    add_diff(&mut view, diff.as_ref());
    PendingApproval {
        view,
        choices: if is_whole {
            choices(&request.binding, !always.is_empty())
        } else {
            // What no approver can read, none may allow.
            vec![Choice::Deny]
        },
        no_always: always.is_empty().then(|| text(&verdict["noAlways"])),
        reasons,
        binding_reason,
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
    }
}

pub(super) fn add_session(view: &mut ApprovalView, session_key: &str) {
    view.field(ViewLabel::Session, session_key);
}

pub(super) fn add_reasons(view: &mut ApprovalView, reasons: &[String]) {
    for reason in reasons {
        view.field(ViewLabel::Why, reason);
    }
}

pub(super) fn add_binding(view: &mut ApprovalView, kind: &str, reason: &str) {
    view.field(ViewLabel::Binding, &format!("{kind}: {reason}"));
    if kind == "unbound" {
        let warning = "UNBOUND: what runs may be other code than what is shown";
        view.warning(ViewLabel::Binding, warning);
    }
}

/// Files that are held by their content where that is not shown: what a text or a project's program reads.
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

pub(super) fn shown(command: &str, secrets: Secrets) -> ShownText {
    display::command(command, secrets).unwrap_or_else(|bytes| ShownText {
        text: format!("[a command of {bytes} bytes]"),
        masked: 0,
        spelled_out: 0,
        left_out: bytes,
    })
}

/// The stored plan, if it is still the one whose digest was approved.
pub(super) fn plan(approval: &Approval) -> Result<RunPlan, DeskError> {
    let damaged = |problem: String| DeskError::Damaged {
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

/// Nothing can be pinned of what is unbound: it is allowed for this once, if at all.
fn choices(binding: &str, offers_always: bool) -> Vec<Choice> {
    if binding == "unbound" {
        return vec![Choice::AllowOnce, Choice::Deny];
    }
    let mut choices = vec![Choice::AllowOnce, Choice::AllowSession, Choice::Lease];
    if offers_always {
        choices.push(Choice::AllowAlways);
    }
    choices.push(Choice::Deny);
    choices
}

/// Why it is asked: the deciding rule first, then each command that nothing satisfies.
pub(crate) fn reasons(verdict: &Value) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    let segments = verdict["segments"].as_array().into_iter().flatten();
    let misses = segments.filter(|segment| segment["satisfiedBy"].is_null());
    for reason in std::iter::once(verdict).chain(misses) {
        let Some(message) = reason["reason"]["message"].as_str() else {
            continue;
        };
        if !reasons.iter().any(|known| known == message) {
            reasons.push(message.to_owned());
        }
    }
    reasons
}
