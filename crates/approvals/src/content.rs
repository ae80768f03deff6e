//! Shows what changed in a script since it was last allowed. This is for display only: an approval
//! binds the content by its hash, regardless of what is shown.

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

use interlock_command::display::visible;
use interlock_plan::{BindingKind, BoundRole, PinnedFile, RunPlan, hex};
use interlock_store::{ApprovedContent, Change, MAX_CONTENT_BYTES, PinnedScript, StoreError};
use rustix::fs::{Mode, OFlags};
use sha2::{Digest as _, Sha256};
use similar::TextDiff;

use crate::approvals::Approvals;
use crate::clock::now;
use interlock_rules::RulesError;

/// At most this much of a difference is shown.
const MAX_SHOWN_LINES: usize = 1000;
const MAX_SHOWN_BYTES: usize = 64 * 1024;

/// The limit for all scripts of an approval together.
const MAX_KEPT_BYTES: usize = 1024 * 1024;

/// After this time, the difference is computed more coarsely.
const PATIENCE: Duration = Duration::from_millis(200);

/// The difference between the scripts of an approval and the content that was last allowed to the
/// same agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptDiff {
    /// A unified diff with invisible characters spelled out.
    pub text: String,
    pub added: usize,
    pub removed: usize,
    /// Lines of the difference that `text` leaves out.
    pub left_out: usize,
}

impl ScriptDiff {
    pub(crate) fn join(self, other: &Self) -> Self {
        Self {
            text: self.text + &other.text,
            added: self.added + other.added,
            removed: self.removed + other.removed,
            left_out: self.left_out + other.left_out,
        }
    }
}

impl Approvals<'_> {
    /// `None` if nothing was allowed before, nothing changed, or the file no longer has the pinned
    /// content.
    pub(crate) fn script_diff(self, plan: &RunPlan) -> Result<Option<ScriptDiff>, RulesError> {
        let mut whole: Option<ScriptDiff> = None;
        for script in scripts(plan) {
            let Some(before) = self
                .store
                .approved_content(&plan.agent_id, &script.canonical)?
            else {
                continue;
            };
            if script.sha256.as_ref() == Some(&before.sha256) {
                continue;
            }
            if let Some(content) = content(script) {
                let diff = difference(&script.canonical, &before.content, &content);
                whole = Some(match whole {
                    None => diff,
                    Some(first) => first.join(&diff),
                });
            }
        }
        Ok(whole)
    }
}

/// The scripts of a plan as they are now, if they still have the pinned content.
pub(crate) fn contents(plan: &RunPlan) -> Vec<ApprovedContent> {
    let content = |script: &PinnedFile| {
        Some(ApprovedContent {
            agent: plan.agent_id.clone(),
            path: script.canonical.clone(),
            content: content(script)?,
            sha256: script.sha256.clone()?,
            approved_at_ms: now(),
        })
    };
    scripts(plan).filter_map(content).collect()
}

/// Stores the allowed contents together with the decision.
pub(crate) fn keep(change: &Change<'_>, contents: &[ApprovedContent]) -> Result<(), StoreError> {
    let mut contents = contents.iter();
    contents.try_for_each(|content| change.keep_approved_content(content))
}

pub(crate) fn scripts(plan: &RunPlan) -> impl Iterator<Item = &PinnedFile> {
    let files = (plan.binding.kind == BindingKind::File).then_some(&plan.binding.files);
    let scripts = files.into_iter().flatten();
    scripts
        .filter(|bound| bound.role == BoundRole::Script)
        .map(|bound| &bound.file)
}

/// The scripts that an approval of this plan keeps for its approvers: each with its pinned content,
/// if the content fits and the file still has it.
pub fn pinned_scripts(plan: &RunPlan) -> Vec<PinnedScript> {
    let mut left = MAX_KEPT_BYTES;
    let mut kept = Vec::new();
    for script in scripts(plan) {
        let Some(content) = content_up_to(script, MAX_CONTENT_BYTES as u64) else {
            continue;
        };
        let Some(rest) = left.checked_sub(content.len()) else {
            continue;
        };
        left = rest;
        kept.push(PinnedScript {
            path: script.canonical.clone(),
            sha256: script.sha256.clone().unwrap_or_default(),
            content,
        });
    }
    kept
}

/// The pinned content as text; `None` if it is too long, changed or not UTF-8.
fn content(script: &PinnedFile) -> Option<String> {
    let bytes = content_up_to(script, MAX_CONTENT_BYTES as u64)?;
    String::from_utf8(bytes).ok()
}

/// A longer script cannot be shown to an approver, so it can only be denied.
const MAX_READ_BYTES: u64 = 16 << 20;

/// The pinned content of a script that was too long to be kept, if the file still has it.
pub(crate) fn bytes_of(script: &PinnedFile) -> Option<Vec<u8>> {
    content_up_to(script, MAX_READ_BYTES)
}

/// The content of a file, if it is not longer than `most` and has the pinned hash.
fn content_up_to(script: &PinnedFile, most: u64) -> Option<Vec<u8>> {
    // A FIFO or device that replaced the file must not block the reader.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(&script.canonical, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > most {
        return None;
    }
    let hash = hex(&Sha256::digest(&bytes));
    (script.sha256.as_deref() == Some(hash.as_str())).then_some(bytes)
}

pub(crate) fn difference(path: &str, before: &str, after: &str) -> ScriptDiff {
    let diff = TextDiff::configure()
        .timeout(PATIENCE)
        .diff_lines(before, after);
    let path = visible(path).replace('\n', "\\n");
    let unified = diff
        .unified_diff()
        .context_radius(3)
        .header(&format!("{path} (last allowed)"), &path)
        .to_string();
    let mut shown = ScriptDiff {
        text: String::new(),
        added: 0,
        removed: 0,
        left_out: 0,
    };
    for (number, line) in unified.lines().enumerate() {
        // The first two lines are the file names.
        let is_body = number >= 2;
        shown.added += usize::from(is_body && line.starts_with('+'));
        shown.removed += usize::from(is_body && line.starts_with('-'));
        let line = visible(line);
        if number < MAX_SHOWN_LINES && shown.text.len() + line.len() < MAX_SHOWN_BYTES {
            shown.text += &line;
            shown.text.push('\n');
        } else {
            shown.left_out += 1;
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_what_came_and_went_and_nothing_hidden() {
        let diff = difference("/w/x.sh", "one\ntwo\n", "one\n\u{202e}three\n");
        assert_eq!((diff.added, diff.removed, diff.left_out), (1, 1, 0));
        let expected = "--- /w/x.sh (last allowed)\n+++ /w/x.sh\n@@ -1,2 +1,2 @@\n one\n-two\n+\\u{202E}three\n";
        assert_eq!(diff.text, expected);
    }

    #[test]
    fn a_long_difference_says_how_much_it_leaves_out() {
        let after = "line\n".repeat(5000);
        let diff = difference("/x", "", &after);
        assert_eq!((diff.added, diff.removed), (5000, 0));
        assert_eq!(diff.text.lines().count() + diff.left_out, 5003);
        assert!(diff.left_out > 0 && diff.text.len() <= MAX_SHOWN_BYTES);
    }
}
