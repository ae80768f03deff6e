//! The only text form of a view: labeled lines, which every terminal and message prints.

use interlock_command::display::ShownLine;

use super::{ApprovalView, ViewBlock, ViewLabel, ViewPart, ViewTone};

/// The mark in front of every line of a text, so that no line can look like a field.
const BLOCK: &str = "| ";
/// The mark in front of the rest of a line that is wider than the terminal.
const BLOCK_CONTINUED: &str = "|> ";
const FIELD_CONTINUED: &str = "> ";

/// The width of the label column in a message.
const LABELS: usize = 10;

/// How much of each text a prompt shows.
const PROMPT_BYTES: usize = 64 * 1024;
/// How many lines of each text a list shows.
const LIST_LINES: usize = 40;
/// How many lines of a script's difference a prompt shows. The prompt shows the script itself as
/// well.
const PROMPT_DIFF_LINES: usize = 12;

/// How much of long texts is printed. Omitted lines are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewDetail {
    /// One of several approvals: the beginning of each text.
    List,
    /// A prompt for a decision: 64 KiB of each text.
    Prompt,
    /// Everything.
    Whole,
}

/// One printed line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewLine {
    /// Empty for a line that continues the field or text above.
    pub label: &'static str,
    /// The mark in front of the text. It is never part of the text.
    pub mark: &'static str,
    pub text: String,
    pub tone: ViewTone,
    pub is_diff: bool,
}

impl ApprovalView {
    /// The lines of a prompt. `columns` is the width of the texts: a terminal would wrap a wider
    /// line by itself, and the rest could look like another line. `open` tells how to read the rest
    /// of a text.
    pub fn lines(&self, detail: ViewDetail, columns: Option<usize>, open: &str) -> Vec<ViewLine> {
        let mut lines = Vec::new();
        let mut last = "";
        for part in &self.parts {
            let label = match part {
                ViewPart::Field(field) => field.label.as_str(),
                ViewPart::Block(block) => block.label.as_str(),
            };
            match part {
                ViewPart::Field(field) => {
                    // Equal labels in a row are printed once.
                    let shown = if label == last { "" } else { label };
                    push(
                        &mut lines,
                        (shown, "", FIELD_CONTINUED),
                        &field.value,
                        columns,
                    );
                    let from = lines.len() - rows(&field.value, columns);
                    for line in &mut lines[from..] {
                        line.tone = field.tone;
                    }
                }
                ViewPart::Block(block) => {
                    push(
                        &mut lines,
                        (label, "", FIELD_CONTINUED),
                        &block.title,
                        columns,
                    );
                    push_block(&mut lines, block, detail, columns, open);
                }
            }
            last = label;
        }
        lines
    }

    /// The lines as one text, for messages.
    pub fn text(&self, detail: ViewDetail, open: &str) -> String {
        let lines = self.lines(detail, None, open);
        let lines = lines.iter().map(|line| {
            let ViewLine {
                label, mark, text, ..
            } = line;
            format!("{label:<LABELS$}{mark}{text}\n")
        });
        lines.collect()
    }

    /// Whether a prompt shows every text completely.
    pub fn is_whole_in_prompt(&self) -> bool {
        self.parts.iter().all(|part| match part {
            ViewPart::Block(block) if block.label != ViewLabel::Diff => {
                shown_lines(block, ViewDetail::Prompt) == block.lines.len()
            }
            ViewPart::Field(_) | ViewPart::Block(_) => true,
        })
    }
}

fn rows(text: &ShownLine, columns: Option<usize>) -> usize {
    columns.map_or(1, |columns| text.rows(columns).len())
}

fn push(
    lines: &mut Vec<ViewLine>,
    (label, mark, continued): (&'static str, &'static str, &'static str),
    text: &ShownLine,
    columns: Option<usize>,
) {
    let rows = match columns {
        Some(columns) => text.rows(columns),
        None => vec![text.as_str()],
    };
    for (index, row) in rows.into_iter().enumerate() {
        lines.push(ViewLine {
            label: if index == 0 { label } else { "" },
            mark: if index == 0 { mark } else { continued },
            text: row.to_owned(),
            tone: ViewTone::Plain,
            is_diff: false,
        });
    }
}

fn push_block(
    lines: &mut Vec<ViewLine>,
    block: &ViewBlock,
    detail: ViewDetail,
    columns: Option<usize>,
    open: &str,
) {
    let shown = shown_lines(block, detail);
    for line in &block.lines[..shown] {
        let from = lines.len();
        push(lines, ("", BLOCK, BLOCK_CONTINUED), line, columns);
        for row in &mut lines[from..] {
            row.is_diff = block.is_diff;
        }
    }
    let hidden = block.lines.len() - shown;
    let mut note = |text: String| {
        lines.push(ViewLine {
            label: "",
            mark: "",
            text,
            tone: ViewTone::Warning,
            is_diff: false,
        });
    };
    if hidden > 0 {
        note(format!(
            "… {} more lines: {open}",
            hidden + block.left_out_lines
        ));
    } else if block.left_out_lines > 0 {
        note(format!(
            "… {} more lines are not shown",
            block.left_out_lines
        ));
    }
}

/// How many lines of a text are printed.
fn shown_lines(block: &ViewBlock, detail: ViewDetail) -> usize {
    let count = block.lines.len();
    match detail {
        ViewDetail::Whole => count,
        ViewDetail::List => count.min(LIST_LINES),
        ViewDetail::Prompt if block.label == ViewLabel::Diff => count.min(PROMPT_DIFF_LINES),
        ViewDetail::Prompt => {
            let mut bytes = 0;
            let fits = |line: &&ShownLine| {
                bytes += line.as_str().len() + 1;
                bytes <= PROMPT_BYTES
            };
            block.lines.iter().take_while(fits).count()
        }
    }
}
