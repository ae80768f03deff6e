//! A question as a person reads it, at the terminal and in lists.

use interlock_host::{PendingApproval, now_ms};

use super::approvals::{bounds, duration};
use crate::output::{self, Paint, visible};

/// As much of what changed in a script as is shown beside everything else.
const BRIEF_LINES: usize = 12;

/// Everything that the answer depends on, a line each; of what changed in a script the beginning.
pub(super) fn text(approval: &PendingApproval, paint: Paint) -> String {
    // What a patch changes is all there is to it.
    let lines = if approval.binding == "patch" {
        usize::MAX
    } else {
        BRIEF_LINES
    };
    block(approval, paint, lines)
}

/// The same with all of what changed.
pub(super) fn whole_text(approval: &PendingApproval, paint: Paint) -> String {
    block(approval, paint, usize::MAX)
}

fn block(approval: &PendingApproval, paint: Paint, diff_lines: usize) -> String {
    let mut text = facts(approval, paint);
    let Some(diff) = &approval.diff else {
        return text;
    };
    for line in diff.text.lines().take(diff_lines) {
        let line = match line.as_bytes().first() {
            Some(b'+') => paint.added(line),
            Some(b'-') => paint.removed(line),
            _ => line.to_owned(),
        };
        text += &format!("    {line}\n");
    }
    let hidden = diff.text.lines().count().saturating_sub(diff_lines);
    if hidden > 0 {
        text += &format!(
            "    … {hidden} more lines: interlock approvals pending {}\n",
            approval.short_id
        );
    }
    if diff.left_out > 0 && hidden == 0 {
        text += &format!("    … {} more lines are not shown\n", diff.left_out);
    }
    text
}

/// What changed in its script, in a few words.
pub(super) fn changed(approval: &PendingApproval) -> Option<String> {
    let diff = approval.diff.as_ref()?;
    let what = if approval.binding == "patch" {
        "by the patch"
    } else {
        "its script since it was last allowed"
    };
    Some(format!(
        "{what}: {} lines added, {} removed",
        diff.added, diff.removed
    ))
}

fn facts(approval: &PendingApproval, paint: Paint) -> String {
    let mut rows = vec![
        row("agent", &visible(&approval.agent)),
        row("in", &visible(&approval.cwd)),
    ];
    if let Some(node) = &approval.node {
        rows.push(row("on", &format!("the node {}", visible(node))));
    }
    for (index, reason) in approval.reasons.iter().enumerate() {
        rows.push(row(if index == 0 { "why" } else { "" }, &visible(reason)));
    }
    let binding = format!(
        "{}: {}",
        approval.binding,
        visible(&approval.binding_reason)
    );
    rows.push(row("binding", &binding));
    if approval.binding == "unbound" {
        let warning = "UNBOUND: what runs may be other code than what is shown";
        rows.push(row("", &paint.warning(warning)));
    }
    for (index, entry) in approval.always.iter().enumerate() {
        let shown = format!("{} ({})", visible(&entry.pattern), visible(&bounds(entry)));
        let title = if index == 0 { "always" } else { "" };
        rows.push(row(title, &format!("would store {shown}")));
    }
    for wider in &approval.wider {
        for entry in &wider.entries {
            let shown = format!("{} ({})", visible(&entry.pattern), visible(&bounds(entry)));
            rows.push(row("", &format!("as {}: {shown}", wider.form)));
        }
    }
    for not in &approval.not_wider {
        let text = format!("not as {}: {}", not.form, visible(&not.why));
        rows.push(row("", &text));
    }
    if let Some(why) = &approval.no_always {
        rows.push(row("always", &format!("is not offered: {}", visible(why))));
    }
    let hidden = &approval.command;
    let notes = [
        (hidden.masked, "secrets are masked"),
        (hidden.spelled_out, "characters are spelled out"),
        (hidden.left_out, "bytes are left out"),
    ];
    for (count, what) in notes {
        if count > 0 {
            rows.push(row("note", &format!("{count} {what}")));
        }
    }
    if let Some(changed) = changed(approval) {
        rows.push(row("changed", &changed));
    }
    rows.push(match &approval.ended {
        Some(ended) => row("ended", &visible(&ended.to_string())),
        None => row("expires", &format!("in {}", left(approval))),
    });
    format!(
        "{}  {}\n{}",
        paint.strong(&approval.short_id),
        paint.command(&approval.command.text),
        output::table(&rows, "  ")
    )
}

fn row(title: &str, value: &str) -> Vec<String> {
    vec![title.to_owned(), value.to_owned()]
}

fn left(approval: &PendingApproval) -> String {
    let expires = u64::try_from(approval.expires_at_ms).unwrap_or_default();
    duration(expires.saturating_sub(now_ms()))
}
