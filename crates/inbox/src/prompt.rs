//! Formats an approval for an approver at a terminal: the plan, what *always* would store, and the
//! time that is left to decide.

use interlock_approvals::{
    EFFECT_BINDING, PendingApproval, ViewDetail, ViewLabel, ViewLine, ViewPart, ViewTone,
    requester_at_home, requester_has_ended,
};
use interlock_command::display::ShownLine;
use interlock_console::output::Paint;
use interlock_console::{bounds, time_left};
use interlock_host::now_ms;
use interlock_policy::AlwaysForm;

/// The width of the column of labels.
const LABELS: usize = 10;
const INDENT: usize = 2;
/// The width of the widest mark in front of a text.
const MARKS: usize = 3;
/// The least width of a line, also on a narrower terminal.
const LEAST_COLUMNS: usize = 20;

/// The prompt: everything that the decision depends on. Long texts are cut to what an approver
/// reads at once.
pub(super) fn text(approval: &PendingApproval, paint: Paint) -> String {
    block(approval, paint, ViewDetail::Prompt)
}

/// The entry of a list: like [`text`], with only the beginning of longer texts.
pub(super) fn listed_text(approval: &PendingApproval, paint: Paint) -> String {
    block(approval, paint, ViewDetail::List)
}

/// Like [`text`], with every text in full.
pub(super) fn whole_text(approval: &PendingApproval, paint: Paint) -> String {
    block(approval, paint, ViewDetail::Whole)
}

fn block(approval: &PendingApproval, paint: Paint, detail: ViewDetail) -> String {
    let columns = paint
        .columns()
        .map(|columns| columns.saturating_sub(INDENT + LABELS + MARKS));
    let columns = columns.map(|columns| columns.max(LEAST_COLUMNS));
    let mut all = lines(approval, detail, columns);
    let mut out = paint.strong(&approval.short_id);
    if let Some(command) = heading(approval, columns) {
        let shown = if approval.view.has_colors() {
            paint.command(command)
        } else {
            command.to_owned()
        };
        out += &format!("  {shown}");
        all.remove(0);
    }
    out.push('\n');
    for line in all {
        let text = match line.tone {
            _ if line.is_diff && line.text.starts_with('+') => paint.added(&line.text),
            _ if line.is_diff && line.text.starts_with('-') => paint.removed(&line.text),
            ViewTone::Warning => paint.warning(&line.text),
            ViewTone::Plain => line.text,
        };
        let label = line.label;
        out += &format!("{:INDENT$}{label:<LABELS$}{}{text}\n", "", line.mark);
    }
    out
}

/// The command, if it fits on the line of the short id.
fn heading(approval: &PendingApproval, columns: Option<usize>) -> Option<&str> {
    let Some(ViewPart::Field(field)) = approval.view.parts.first() else {
        return None;
    };
    let fits = columns.is_none_or(|columns| field.value.rows(columns).len() == 1);
    (field.label == ViewLabel::Command && fits).then_some(field.value.as_str())
}

/// The lines of an approval, the same for lists, prompts and the full-screen inbox.
pub(super) fn lines(
    approval: &PendingApproval,
    detail: ViewDetail,
    columns: Option<usize>,
) -> Vec<ViewLine> {
    let open = format!("interlock approvals pending {}", approval.short_id);
    let mut view = approval.view.clone();
    let masked = view.masked_secrets;
    if masked > 0 {
        let text = format!("{masked} secrets are masked; --reveal, or r, shows them");
        view.field(ViewLabel::Note, &text);
    }
    let mut lines = view.lines(detail, columns, &open);
    let mut push_toned = |label: &'static str, text: &str, tone: ViewTone| {
        let text = ShownLine::new(text);
        let rows = columns.map_or_else(|| vec![text.as_str()], |columns| text.rows(columns));
        for (index, row) in rows.into_iter().enumerate() {
            lines.push(ViewLine {
                label: if index == 0 { label } else { "" },
                mark: if index == 0 { "" } else { "> " },
                text: row.to_owned(),
                tone,
                is_diff: false,
            });
        }
    };
    push_toned("asked by", &client(&approval.requester), ViewTone::Plain);
    if approval.ended.is_none() && requester_has_ended(&approval.requester) {
        let gone = match approval.binding.as_str() {
            EFFECT_BINDING => EFFECT_CALLER_GONE,
            _ => CALLER_GONE,
        };
        push_toned("", gone, ViewTone::Warning);
    }
    let mut push = |label: &'static str, text: &str| push_toned(label, text, ViewTone::Plain);
    for (index, entry) in approval.always.iter().enumerate() {
        let scope = match approval.always_form {
            AlwaysForm::Project => "for this project would store",
            _ => "would store",
        };
        let text = format!("{scope} {} ({})", entry.pattern, bounds(entry));
        push(if index == 0 { "always" } else { "" }, &text);
    }
    for wider in &approval.wider {
        for entry in &wider.entries {
            let text = format!("as {}: {} ({})", wider.form, entry.pattern, bounds(entry));
            push("", &text);
        }
    }
    for not in &approval.not_wider {
        push("", &format!("not as {}: {}", not.form, not.why));
    }
    if let Some(why) = &approval.no_always {
        push("always", &format!("is not offered: {why}"));
    }
    match &approval.ended {
        Some(ended) => push("ended", &ended.to_string()),
        None => push("expires", &format!("in {}", left(approval))),
    }
    lines
}

/// What an approver reads if the caller has ended.
const EFFECT_CALLER_GONE: &str =
    "the caller has gone: a yes commits the changes by the gateway, or with the next command";
const CALLER_GONE: &str =
    "the caller has gone: nothing waits for this, and a yes runs nothing by itself";

/// Describes the caller: a process of this machine or a client of the gateway.
fn client(requester: &str) -> String {
    let (requester, is_elsewhere) = requester_at_home(requester);
    let machine = if is_elsewhere {
        "the machine of the gateway"
    } else {
        "this machine"
    };
    match requester.split_once(':') {
        Some(("process", name)) => match name.split(':').nth(1) {
            Some(pid) => format!("a command on {machine} (process {pid})"),
            None => format!("a command on {machine}"),
        },
        Some(("mcp", connection)) => format!("an MCP client (connection {connection})"),
        Some(("http", _)) => "a call over HTTP".to_owned(),
        Some(("ws", connection)) => format!("a client of the gateway (connection {connection})"),
        _ => requester.to_owned(),
    }
}

fn left(approval: &PendingApproval) -> String {
    let expires = u64::try_from(approval.expires_at_ms).unwrap_or_default();
    time_left(expires.saturating_sub(now_ms()))
}
