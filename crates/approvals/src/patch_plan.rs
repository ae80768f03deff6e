//! The patch plan: the canonical, immutable description of one patch of protected files. This value
//! is what is shown, stored, approved and applied; its digest names it.

use std::path::PathBuf;

use interlock_command::display::{Secrets, ShownLine, ShownText, visible};
use interlock_patch::{ApplyError, FileChange, Patch, Preview, sha256};
use interlock_store::Approval;
use serde::{Deserialize, Serialize};
use similar::TextDiff;

use crate::error::ApprovalRefusal;
use crate::pending::{PendingApproval, add_binding, add_reasons, add_session, shown_command};
use crate::shown_plan::{
    ShownPlan, check_binding, once_or_deny, stored_plan, visible_line, whole_diff,
};
use crate::stored_verdict::{ResumeFacts, StoredVerdict};
use crate::view::{ApprovalView, ViewBlock, ViewLabel};

/// The binding of an approval for a patch: each file is bound by its identity and its new content.
pub const PATCH_BINDING: &str = "patch";

/// Why only *once* is offered.
pub(crate) const ONCE: &str = "a patch is applied once";

/// A longer difference is not shown, and a patch that is not shown is not approved.
const MAX_SHOWN_LINES: usize = 1000;
const MAX_SHOWN_BYTES: usize = 60 * 1024;

/// Longer files are not compared.
const MAX_COMPARED_BYTES: u64 = 4 * 1024 * 1024;

/// After this time, the difference is computed more coarsely.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(200);

/// Everything about one patch that could change between its decision and its application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchPlan {
    pub agent_id: String,
    pub session_key: String,
    pub model: Option<String>,
    pub root: PathBuf,
    /// The patch as the caller wrote it.
    pub input: String,
    /// Every file with its present and its new state.
    pub changes: Vec<FileChange>,
    /// The files that need an approver. Never empty.
    pub protected: Vec<ProtectedFile>,
    pub diff: PatchDiff,
}

/// A file that is executed or obeyed later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProtectedFile {
    /// The path as the workspace names it.
    pub path: String,
    pub reason: String,
}

/// All changes of a patch, as an approver reads them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchDiff {
    /// A unified diff with protected files first and invisible characters spelled out.
    pub text: String,
    pub added: usize,
    pub removed: usize,
}

/// The request that a patch comes from.
#[derive(Debug, Clone)]
pub struct PatchSource<'a> {
    pub agent_id: &'a str,
    pub session_key: String,
    pub model: Option<&'a str>,
    pub root: PathBuf,
    /// The patch as the caller wrote it.
    pub input: &'a str,
}

impl PatchPlan {
    /// Makes the plan of a patch. Fails if the difference is too long to be shown to an approver.
    pub fn new(
        source: PatchSource<'_>,
        preview: &mut Preview<'_>,
        protected: Vec<ProtectedFile>,
    ) -> Result<Self, ApplyError> {
        let diff = PatchDiff::new(preview, &protected)?;
        Ok(Self {
            agent_id: source.agent_id.to_owned(),
            session_key: source.session_key,
            model: source.model.map(str::to_owned),
            root: source.root,
            input: source.input.to_owned(),
            changes: preview.changes().to_vec(),
            protected,
            diff,
        })
    }

    /// The SHA-256 of the plan, in hexadecimal. `None` if a path is not UTF-8, because such a plan
    /// cannot be stored or shown.
    pub fn digest(&self) -> Option<String> {
        let bytes = serde_json::to_vec(self).ok()?;
        Some(sha256(&bytes))
    }

    /// The title as lists and messages show it.
    pub fn preview(&self) -> String {
        title(self).text
    }

    /// What the approval stores besides the plan.
    pub fn stored_verdict(&self, runs_later: bool) -> StoredVerdict {
        let why = reasons(self).join("; ");
        let mut verdict = StoredVerdict::of_reason(Some("protected-path"), &why);
        verdict.no_always = Some(ONCE.to_owned());
        if runs_later {
            verdict.set_resume(ResumeFacts::default());
        }
        verdict
    }

    /// A title on one line, for lists and messages.
    pub fn title(&self) -> String {
        let names = self.protected.iter().map(|file| visible_line(&file.path));
        let names: Vec<String> = names.collect();
        let others = self.changes.len().saturating_sub(names.len());
        let others = match others {
            0 => String::new(),
            1 => " and 1 other file".to_owned(),
            others => format!(" and {others} other files"),
        };
        format!("apply_patch {}{others}", names.join(" "))
    }

    /// The first file that is no longer as it was when the patch was shown.
    pub fn difference(&self, now: &[FileChange]) -> Option<String> {
        for (was, is) in self.changes.iter().zip(now) {
            if was == is {
                continue;
            }
            let what = if was.path != is.path {
                "its path leads elsewhere"
            } else if was.before != is.before {
                "the file is another one"
            } else {
                "it would become something else"
            };
            return Some(format!("{}: {what}", was.shown));
        }
        (self.changes.len() != now.len()).then(|| "the files of the patch".to_owned())
    }
}

impl PatchDiff {
    fn new(preview: &mut Preview<'_>, protected: &[ProtectedFile]) -> Result<Self, ApplyError> {
        let mut diff = Self {
            text: String::new(),
            added: 0,
            removed: 0,
        };
        let is_protected = |change: &FileChange| {
            let mut protected = protected.iter();
            protected.any(|file| file.path == change.shown)
        };
        let mut order: Vec<usize> = (0..preview.changes().len()).collect();
        order.sort_by_key(|index| !is_protected(&preview.changes()[*index]));
        for index in order {
            diff.add(preview, index)?;
        }
        let lines = diff.text.lines().count();
        if lines > MAX_SHOWN_LINES || diff.text.len() > MAX_SHOWN_BYTES {
            return Err(ApplyError::TooLarge {
                what: format!("a difference of {lines} lines"),
                limit: format!(
                    "an approver is shown {MAX_SHOWN_LINES} lines and {MAX_SHOWN_BYTES} bytes; protected files go into a patch of their own"
                ),
            });
        }
        Ok(diff)
    }

    fn add(&mut self, preview: &mut Preview<'_>, index: usize) -> Result<(), ApplyError> {
        let before = preview.before(index, MAX_COMPARED_BYTES)?;
        let change = &preview.changes()[index];
        let path = visible_line(&change.path.display().to_string());
        let is_link = change.before.as_ref().is_some_and(|before| before.is_link);
        let old = match (&change.before, is_link) {
            (None, _) => "(not there)".to_owned(),
            (Some(_), false) => path.clone(),
            (Some(_), true) => format!("{path} (a link to the path below)"),
        };
        let new = match &change.after {
            None => "(deleted)".to_owned(),
            Some(after) => match after.mode {
                Some(mode) => format!("{path} (mode {mode:04o})"),
                None => path,
            },
        };
        let before = before.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let after = preview.after(index).map(String::from_utf8_lossy);
        let unified = TextDiff::configure()
            .timeout(PATIENCE)
            .diff_lines(
                before.as_deref().unwrap_or_default(),
                after.as_deref().unwrap_or_default(),
            )
            .unified_diff()
            .context_radius(3)
            .header("", "")
            .to_string();
        self.text += &format!("--- {old}\n+++ {new}\n");
        // The first two lines are the file names.
        for line in unified.split_terminator('\n').skip(2) {
            self.added += usize::from(line.starts_with('+'));
            self.removed += usize::from(line.starts_with('-'));
            self.text += &visible(line);
            self.text.push('\n');
        }
        Ok(())
    }
}

/// The stored plan, if it still has the approved digest.
pub fn stored_patch_plan(approval: &Approval) -> Result<PatchPlan, ApprovalRefusal> {
    check_binding(approval, PATCH_BINDING)?;
    // A patch that cannot be parsed has no valid digest.
    let digest = |plan: &PatchPlan| {
        let is_readable = Patch::parse(&plan.input).is_ok();
        plan.digest().filter(|_| is_readable)
    };
    stored_plan(approval, digest)
}

/// Reads an approval for a patch as an approver is shown it.
pub(crate) fn read_patch(approval: Approval) -> Result<PendingApproval, ApprovalRefusal> {
    let plan = stored_patch_plan(&approval)?;
    let request = &approval.request;
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
    add_binding(&mut view, PATCH_BINDING, &binding_reason);
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

/// Adds the whole difference: no approval is stored for a patch that cannot be shown completely.
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

fn title(plan: &PatchPlan) -> ShownText {
    shown_command(&plan.title(), Secrets::Revealed)
}

fn reasons(plan: &PatchPlan) -> Vec<String> {
    let reason = |file: &ProtectedFile| format!("{} is protected: {}", file.path, file.reason);
    plan.protected.iter().map(reason).collect()
}
