//! The effect plan: the workspace changes of a run under `cow`, if they include protected paths or
//! the run is a preview. This value is what is shown, stored, approved and committed; its digest
//! names it.

use std::path::PathBuf;

use interlock_command::display::{Secrets, ShownLine, ShownText, visible};
use interlock_patch::{EffectChange, EffectKind, EffectPath, EffectSource, RunEffect, sha256};
use interlock_store::Approval;
use serde::{Deserialize, Serialize};
use similar::TextDiff;

use crate::error::ApprovalRefusal;
use crate::patch_plan::{PatchDiff, ProtectedFile};
use crate::pending::{PendingApproval, add_binding, add_reasons, add_session, shown_command};
use crate::shown_plan::{
    ShownPlan, check_binding, once_or_deny, stored_plan, visible_line, whole_diff,
};
use crate::stored_verdict::StoredVerdict;
use crate::view::{ApprovalView, ViewBlock, ViewLabel};

/// The binding of an approval for an effect: each path is bound by its identity and its new
/// content.
pub const EFFECT_BINDING: &str = "effect";

/// Why only *once* is offered.
const ONCE: &str = "the changes of a run are committed once";

/// At most this much of a difference is shown. Deletions and protected paths come first.
const MAX_SHOWN_BYTES: usize = 200 * 1024;

/// Longer files are not compared.
const MAX_COMPARED_BYTES: u64 = 1024 * 1024;

/// After this time, the difference is computed more coarsely.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(200);

/// Everything about the effect of one run that could change between its decision and its commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EffectPlan {
    pub agent_id: String,
    pub session_key: String,
    pub run_id: String,
    /// The command that ran.
    pub command: String,
    /// The digest of the plan that ran.
    pub run_plan_digest: String,
    pub root: PathBuf,
    /// The digest over each path with its old identity and its new SHA-256.
    pub effect_digest: String,
    pub created: usize,
    pub changed: usize,
    pub deleted: usize,
    /// The paths that need an approver. Only a preview may have none.
    pub protected: Vec<ProtectedFile>,
    /// Further facts for the approver of a preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<PreviewFacts>,
    pub diff: PatchDiff,
    /// The number of files whose difference is not shown.
    pub not_shown: usize,
    /// The number of protected files among them. If there are any, no approver is asked: only
    /// changes that are shown completely may be allowed.
    pub protected_not_shown: usize,
}

/// How a preview ended, and what it wrote, started and asked for. Every part is bounded, and
/// omissions are counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PreviewFacts {
    /// The end in words: `exit code 0`.
    pub ended: String,
    /// The end of the output.
    pub output: String,
    /// Bytes of output before `output`.
    #[serde(default)]
    pub output_left_out: u64,
    /// The programs that the preview started, each with its arguments, on one line.
    #[serde(default)]
    pub programs: Vec<String>,
    #[serde(default)]
    pub programs_left_out: u64,
    /// Hosts that the preview asked for. None of them was reached.
    #[serde(default)]
    pub hosts: Vec<String>,
}

/// The run that caused an effect.
#[derive(Debug, Clone)]
pub struct EffectOrigin<'a> {
    pub agent_id: &'a str,
    pub session_key: String,
    pub run_id: &'a str,
    pub command: &'a str,
    pub run_plan_digest: &'a str,
}

impl EffectPlan {
    /// Makes the plan of an effect. `effect` must have been read with all its hashes.
    pub fn new(
        origin: EffectOrigin<'_>,
        source: &EffectSource,
        effect: &RunEffect,
        protected: Vec<ProtectedFile>,
        preview: Option<PreviewFacts>,
    ) -> Self {
        let mut diff = EffectDiff::default();
        diff.add_all(source, effect, &protected);
        Self {
            agent_id: origin.agent_id.to_owned(),
            session_key: origin.session_key,
            run_id: origin.run_id.to_owned(),
            command: origin.command.to_owned(),
            run_plan_digest: origin.run_plan_digest.to_owned(),
            root: source.root.clone(),
            effect_digest: effect.digest(origin.run_plan_digest),
            created: effect.count(EffectChange::Created),
            changed: effect.count(EffectChange::Changed) + effect.count(EffectChange::Mode),
            deleted: effect.count(EffectChange::Deleted),
            protected,
            preview,
            diff: diff.diff,
            not_shown: diff.not_shown,
            protected_not_shown: diff.protected_not_shown,
        }
    }

    /// The SHA-256 of the plan, in hexadecimal.
    pub fn digest(&self) -> Option<String> {
        let bytes = serde_json::to_vec(self).ok()?;
        Some(sha256(&bytes))
    }

    /// A title on one line, for lists and messages.
    pub fn title(&self) -> String {
        if self.preview.is_some() {
            return format!(
                "commit {} created, {} changed, {} deleted by {}",
                self.created,
                self.changed,
                self.deleted,
                visible_line(&self.command)
            );
        }
        let names = self.protected.iter().map(|file| visible_line(&file.path));
        let names: Vec<String> = names.take(5).collect();
        let all = self.created + self.changed + self.deleted;
        let others = match all.saturating_sub(names.len()) {
            0 => String::new(),
            1 => " and 1 other path".to_owned(),
            others => format!(" and {others} other paths"),
        };
        format!("commit {}{others}", names.join(" "))
    }

    /// What the approval stores besides the plan.
    pub fn stored_verdict(&self) -> StoredVerdict {
        let why = reasons(self).join("; ");
        let code = if self.preview.is_some() {
            "preview"
        } else {
            "protected-path"
        };
        let mut verdict = StoredVerdict::of_reason(Some(code), &why);
        verdict.no_always = Some(ONCE.to_owned());
        verdict
    }
}

/// The differences of a run, as `sandbox diff` prints them and an approver reads them.
#[derive(Debug)]
pub struct EffectDiff {
    pub diff: PatchDiff,
    /// The number of files whose difference is left out, because the whole would be too long.
    pub not_shown: usize,
    protected_not_shown: usize,
}

impl Default for EffectDiff {
    fn default() -> Self {
        Self {
            diff: PatchDiff {
                text: String::new(),
                added: 0,
                removed: 0,
            },
            not_shown: 0,
            protected_not_shown: 0,
        }
    }
}

impl EffectDiff {
    pub fn new(source: &EffectSource, effect: &RunEffect, protected: &[ProtectedFile]) -> Self {
        let mut diff = Self::default();
        diff.add_all(source, effect, protected);
        diff
    }

    fn add_all(&mut self, source: &EffectSource, effect: &RunEffect, protected: &[ProtectedFile]) {
        // Every deletion is listed, regardless of the limit.
        for path in &effect.paths {
            if path.change == EffectChange::Deleted {
                let name = visible_line(&path.path.display().to_string());
                self.diff.text += &format!("--- {name}\n+++ (deleted)\n");
            }
        }
        let is_protected = |path: &EffectPath| {
            let shown = path.path.display().to_string();
            protected.iter().any(|file| file.path == shown)
        };
        let mut order: Vec<&EffectPath> = effect
            .paths
            .iter()
            .filter(|path| path.change != EffectChange::Deleted)
            .collect();
        order.sort_by_key(|path| !is_protected(path));
        for path in order {
            self.add(source, path);
            if is_protected(path) {
                self.protected_not_shown = self.not_shown;
            }
        }
    }

    fn add(&mut self, source: &EffectSource, path: &EffectPath) {
        let name = visible_line(&path.path.display().to_string());
        let Some(after) = &path.after else { return };
        let old = match &path.before {
            None => "(not there)".to_owned(),
            Some(before) if before.kind == EffectKind::Link => format!("{name} (a link)"),
            Some(before) => format!("{name} (mode {:04o})", before.mode & 0o777),
        };
        let new = match after.kind {
            EffectKind::Link => format!("{name} (a link to the path below)"),
            EffectKind::Directory => format!("{name}/ (mode {:04o})", after.mode),
            EffectKind::File => format!("{name} (mode {:04o})", after.mode),
        };
        let header = format!("--- {old}\n+++ {new}\n");
        if after.kind == EffectKind::Directory {
            if self.diff.text.len() + header.len() <= MAX_SHOWN_BYTES {
                self.diff.text += &header;
            } else {
                self.not_shown += 1;
            }
            return;
        }
        let before = source.read_before(path, MAX_COMPARED_BYTES);
        let now = source.read_after(path, MAX_COMPARED_BYTES);
        let (Ok(before), Ok(now)) = (before, now) else {
            self.left_out(&header);
            return;
        };
        let text = |bytes: Option<Vec<u8>>| {
            String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
        };
        let (before, now) = (text(before), text(now));
        if now.contains('\0') || before.contains('\0') {
            let hash = after.sha256.as_deref().unwrap_or("not hashed");
            let line = format!("{header}(not text: {} bytes, SHA-256 {hash})\n", after.size);
            if self.diff.text.len() + line.len() <= MAX_SHOWN_BYTES {
                self.diff.text += &line;
            } else {
                self.not_shown += 1;
            }
            return;
        }
        let unified = TextDiff::configure()
            .timeout(PATIENCE)
            .diff_lines(before.as_str(), now.as_str())
            .unified_diff()
            .context_radius(3)
            .header("", "")
            .to_string();
        let (mut lines, mut added, mut removed) = (String::new(), 0, 0);
        // The first two lines are the file names.
        for line in unified.split_terminator('\n').skip(2) {
            added += usize::from(line.starts_with('+'));
            removed += usize::from(line.starts_with('-'));
            lines += &visible(line);
            lines.push('\n');
        }
        if self.diff.text.len() + header.len() + lines.len() > MAX_SHOWN_BYTES {
            self.left_out(&header);
            return;
        }
        self.diff.text += &header;
        self.diff.text += &lines;
        self.diff.added += added;
        self.diff.removed += removed;
    }

    fn left_out(&mut self, header: &str) {
        self.not_shown += 1;
        if self.diff.text.len() + header.len() <= MAX_SHOWN_BYTES {
            self.diff.text += header;
            self.diff.text += "(too long to be shown)\n";
        }
    }
}

/// The stored plan, if it still has the approved digest.
pub fn stored_effect_plan(approval: &Approval) -> Result<EffectPlan, ApprovalRefusal> {
    check_binding(approval, EFFECT_BINDING)?;
    stored_plan(approval, EffectPlan::digest)
}

/// Reads an approval of an effect as an approver is shown it.
pub(crate) fn read_effect(approval: Approval) -> Result<PendingApproval, ApprovalRefusal> {
    let plan = stored_effect_plan(&approval)?;
    let request = &approval.request;
    let binding_reason = format!(
        "{} created, {} changed, {} deleted, each bound by what stands there now and by its new content",
        plan.created, plan.changed, plan.deleted
    );
    let reasons = reasons(&plan);
    let command = title(&plan);
    let mut view = ApprovalView::default();
    view.field(ViewLabel::Command, &command.text);
    view.field(
        ViewLabel::Runs,
        &format!("nothing: this ran already: {}", plan.command),
    );
    view.field(ViewLabel::Directory, &plan.root.display().to_string());
    if let Some(facts) = &plan.preview {
        add_facts(&mut view, facts);
    }
    let title = format!(
        "{} lines added, {} removed",
        plan.diff.added, plan.diff.removed
    );
    view.block(ViewBlock {
        label: ViewLabel::Diff,
        title: ShownLine::new(&title),
        lines: plan.diff.text.lines().map(ShownLine::new).collect(),
        left_out_lines: 0,
        is_diff: true,
    });
    if plan.not_shown > 0 {
        let (count, id) = (plan.not_shown, &plan.run_id);
        view.warning(
            ViewLabel::Note,
            &format!(
                "{count} files are too long to be shown here; deny, or look at the layer: interlock sandbox diff {id}"
            ),
        );
    }
    view.field(ViewLabel::Agent, &request.agent);
    add_session(&mut view, &request.session_key);
    add_reasons(&mut view, &reasons);
    add_binding(&mut view, EFFECT_BINDING, &binding_reason);
    let shown = ShownPlan {
        view,
        command,
        cwd: plan.root.display().to_string(),
        binding_reason,
        reasons,
        diff: Some(whole_diff(plan.diff)),
        no_always: Some(ONCE.to_owned()),
        offered: once_or_deny(),
    };
    Ok(shown.of_approval(approval))
}

/// Adds the facts of a preview to the view.
fn add_facts(view: &mut ApprovalView, facts: &PreviewFacts) {
    view.field(ViewLabel::Ended, &facts.ended);
    for program in &facts.programs {
        view.field(ViewLabel::Started, program);
    }
    if facts.programs_left_out > 0 {
        let more = format!("{} more programs", facts.programs_left_out);
        view.warning(ViewLabel::Started, &more);
    }
    for host in &facts.hosts {
        view.warning(ViewLabel::Wanted, &format!("{host} (not reached)"));
    }
    if !facts.output.is_empty() {
        let title = match facts.output_left_out {
            0 => "all that it wrote".to_owned(),
            left_out => format!("the end of what it wrote; {left_out} bytes in front of it"),
        };
        view.block(ViewBlock {
            label: ViewLabel::Output,
            title: ShownLine::new(&title),
            lines: facts.output.lines().map(ShownLine::new).collect(),
            left_out_lines: 0,
            is_diff: false,
        });
    }
}

fn title(plan: &EffectPlan) -> ShownText {
    shown_command(&plan.title(), Secrets::Revealed)
}

/// The first reasons only: a run can touch thousands of paths.
fn reasons(plan: &EffectPlan) -> Vec<String> {
    const MOST: usize = 20;
    let reason = |file: &ProtectedFile| {
        format!("{} is protected: {}", visible_line(&file.path), file.reason)
    };
    let mut reasons = Vec::new();
    if plan.preview.is_some() {
        reasons
            .push("the run was a preview: its changes are committed only by approval".to_owned());
    }
    reasons.extend(plan.protected.iter().take(MOST).map(reason));
    if plan.protected.len() > MOST {
        reasons.push(format!(
            "{} more paths are protected",
            plan.protected.len() - MOST
        ));
    }
    reasons
}
