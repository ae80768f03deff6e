//! The view that an approver reads: one value for every surface.
//!
//! `build` makes the view from the stored plan, never from the request. `lines` is its only text
//! form; a terminal adds colors, and a program gets the view itself as JSON. Every text in it is a
//! [`ShownLine`], so nothing that an agent names can look like a field of the prompt.

mod build;
mod lines;
mod remote;
mod scripts;

use interlock_command::display::ShownLine;
use interlock_plan::{Elevation, SandboxSummary};
use serde::{Deserialize, Serialize};

pub use build::build_view;
pub use lines::{ViewDetail, ViewLine};
pub use remote::{ElsewhereNotes, ElsewhereSubject, RemoteRunFacts};
pub(crate) use remote::{RemoteSubject, build_remote_view};
pub use scripts::add_scripts;

/// The limit of each text in a message.
pub const MESSAGE_BYTES: usize = 64 * 1024;

/// A whole plan in reading order: first what runs, then where and how, then why an approver has to
/// decide and what binds it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalView {
    pub parts: Vec<ViewPart>,
    /// The number of masked secrets in the view. A surface offers to reveal them before it offers
    /// to allow.
    pub masked_secrets: usize,
    /// Whether the owner wants colors in commands; `None` if the config does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_highlighting: Option<bool>,
    /// Where the run is confined; the field `sandbox` says the same in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxSummary>,
    /// How far the run leaves the sandbox of its conversation; the field `sandbox` says the same in
    /// words.
    #[serde(default, skip_serializing_if = "Elevation::is_off")]
    pub elevated: Elevation,
}

/// One fact, or one text of several lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum ViewPart {
    Field(ViewField),
    Block(ViewBlock),
}

/// A labeled fact on one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewField {
    pub label: ViewLabel,
    pub value: ShownLine,
    #[serde(default, skip_serializing_if = "ViewTone::is_plain")]
    pub tone: ViewTone,
}

/// A labeled text. Each printed line of it is marked as a line of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewBlock {
    pub label: ViewLabel,
    /// A description of the text: a path with its hash, or a number of lines.
    pub title: ShownLine,
    pub lines: Vec<ShownLine>,
    /// The number of further lines that this value leaves out. The file in the title has them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out_lines: usize,
    /// Whether the lines are those of a difference, with `+` and `-` in front.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_diff: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// How important a fact is for the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ViewTone {
    #[default]
    Plain,
    /// The run can do more than its words say.
    Warning,
}

impl ViewTone {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
    fn is_plain(&self) -> bool {
        *self == Self::Plain
    }
}

/// The subject of a part. Only Interlock names parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ViewLabel {
    /// The command as the caller wrote it.
    Command,
    /// The form that runs: expanded words, or the shell that reads the text.
    Runs,
    Directory,
    /// An environment override with its value.
    Env,
    Host,
    Terminal,
    Stdin,
    Time,
    Limits,
    Background,
    Sandbox,
    Shield,
    /// Which programs a run on the host may start, if that is limited or logged.
    Programs,
    /// The user of the run, if it is not the user of Interlock.
    User,
    Agent,
    Session,
    Why,
    /// What the sandbox denied to the run that this run repeats outside of it.
    Denied,
    /// An alternative that keeps the run in its sandbox.
    Instead,
    /// The caller's own words for leaving the sandbox.
    Justification,
    Binding,
    Race,
    /// A file of the project that decides what runs.
    Manifest,
    /// The content of a bound script.
    Script,
    /// The difference between a script and the content that was last allowed.
    Diff,
    /// The changes of a patch.
    Patch,
    /// How a preview ended.
    Ended,
    /// The output of a preview.
    Output,
    /// A program that a preview started.
    Started,
    /// A host that a preview asked for and did not reach.
    Wanted,
    Note,
}

impl ViewLabel {
    /// The printed label, at most eight letters long.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Runs => "runs",
            Self::Directory => "in",
            Self::Env => "env",
            Self::Host => "on",
            Self::Terminal => "terminal",
            Self::Stdin => "stdin",
            Self::Time => "time",
            Self::Limits => "limits",
            Self::Background => "waits",
            Self::Sandbox => "sandbox",
            Self::Shield => "shield",
            Self::Programs => "programs",
            Self::User => "user",
            Self::Agent => "agent",
            Self::Session => "session",
            Self::Why => "why",
            Self::Denied => "denied",
            Self::Instead => "instead",
            Self::Justification => "says",
            Self::Binding => "binding",
            Self::Race => "race",
            Self::Manifest => "manifest",
            Self::Script => "script",
            Self::Diff => "changed",
            Self::Patch => "patch",
            Self::Ended => "ended",
            Self::Output => "output",
            Self::Started => "started",
            Self::Wanted => "wanted",
            Self::Note => "note",
        }
    }
}

impl ApprovalView {
    pub fn field(&mut self, label: ViewLabel, value: &str) {
        self.toned(label, value, ViewTone::Plain);
    }

    pub fn warning(&mut self, label: ViewLabel, value: &str) {
        self.toned(label, value, ViewTone::Warning);
    }

    fn toned(&mut self, label: ViewLabel, value: &str, tone: ViewTone) {
        self.parts.push(ViewPart::Field(ViewField {
            label,
            value: ShownLine::new(value),
            tone,
        }));
    }

    /// Records that the run leaves the sandbox of its conversation.
    pub(super) fn leave_sandbox(&mut self, elevation: Elevation) {
        self.elevated = elevation;
        self.warning(ViewLabel::Sandbox, &format!("none; {}", elevation.words()));
    }

    /// Whether Interlock's surfaces color the words of commands.
    pub fn has_colors(&self) -> bool {
        self.command_highlighting != Some(false)
    }

    pub fn block(&mut self, block: ViewBlock) {
        self.parts.push(ViewPart::Block(block));
    }

    /// The view with at most `bytes` bytes of each text, and four times as many in total, for
    /// messages of limited size. Omitted lines are counted.
    #[must_use]
    pub fn bounded(&self, bytes: usize) -> Self {
        let mut view = self.clone();
        let mut all = bytes.saturating_mul(4);
        for part in &mut view.parts {
            let ViewPart::Block(block) = part else {
                continue;
            };
            let mut left = bytes.min(all);
            let fits = |line: &&ShownLine| match left.checked_sub(line.as_str().len() + 1) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => false,
            };
            let kept = block.lines.iter().take_while(fits).count();
            all = all.saturating_sub(bytes.min(all) - left);
            block.left_out_lines += block.lines.len() - kept;
            block.lines.truncate(kept);
        }
        view
    }

    /// The number of lines that this value leaves out.
    pub fn left_out_lines(&self) -> usize {
        let blocks = self.parts.iter().map(|part| match part {
            ViewPart::Block(block) => block.left_out_lines,
            ViewPart::Field(_) => 0,
        });
        blocks.sum()
    }

    /// The values of one kind of field, in order.
    pub fn values(&self, label: ViewLabel) -> impl Iterator<Item = &ShownLine> {
        self.parts.iter().filter_map(move |part| match part {
            ViewPart::Field(field) if field.label == label => Some(&field.value),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests;
