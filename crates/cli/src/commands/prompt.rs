//! A question as a person reads it, at the terminal and in lists.

use interlock_host::{Choice, PendingApproval, now_ms};
use serde_json::{Value, json};

use super::approvals::{bounds, duration};
use crate::output::{self, Paint, visible};

/// Everything that the answer depends on, a line each.
pub(super) fn text(approval: &PendingApproval, paint: Paint) -> String {
    let mut rows = vec![
        row("agent", &visible(&approval.agent)),
        row("in", &visible(&approval.cwd)),
    ];
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
    rows.push(row("expires", &format!("in {}", left(approval))));
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

pub(super) fn json(approval: &PendingApproval) -> Value {
    let choices: Vec<&str> = approval
        .choices
        .iter()
        .map(|choice| word(*choice))
        .collect();
    json!({
        "id": approval.id,
        "shortId": approval.short_id,
        "planDigest": approval.plan_digest,
        "agent": approval.agent,
        "sessionKey": approval.session_key,
        "host": approval.host,
        "command": approval.command.text,
        "maskedSecrets": approval.command.masked,
        "cwd": approval.cwd,
        "binding": approval.binding,
        "bindingReason": approval.binding_reason,
        "reasons": approval.reasons,
        "always": approval.always,
        "alwaysWider": approval.wider,
        "alwaysNotWider": approval.not_wider,
        "alwaysNotOffered": approval.no_always,
        "choices": choices,
        "requester": approval.requester,
        "createdAtMs": approval.created_at_ms,
        "expiresAtMs": approval.expires_at_ms,
    })
}

fn word(choice: Choice) -> &'static str {
    match choice {
        Choice::AllowOnce => "allow-once",
        Choice::AllowSession => "allow-session",
        Choice::AllowAlways => "allow-always",
        Choice::Lease => "lease",
        Choice::Deny => "deny",
    }
}
