//! What a chat shows of an approval, and whether it may be allowed there.
//!
//! The text is the one of every other surface ([`interlock_approvals::ApprovalView`]). *Allow* is offered only
//! where all of it is shown unaltered; else there are *Deny* and a link.

use interlock_approvals::{ApprovalEnding, PendingApproval, RecordedOutcome, ViewDetail};
use interlock_command::display::ShownLine;
use interlock_store::{ApprovalDecision, ApprovalEnd};

use crate::channel::{ChatChannel, ChatTap};
use crate::rights::ChatRights;

/// A decision that can be tapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatButton {
    pub tap: ChatTap,
    pub label: &'static str,
}

/// A message as every platform gets it. Nothing in it is markup: platforms show all of it literally.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChatMessage {
    /// One line.
    pub title: String,
    /// Lines of fixed width.
    pub block: String,
    /// What can be typed, or why nothing can be allowed here; one line.
    pub note: String,
    /// Opens it in a browser; carries an id and no right.
    pub link: Option<String>,
    /// None: the message has no buttons any more.
    pub buttons: Vec<ChatButton>,
    /// The approval that it is about, for programs; none where it is about several.
    pub subject: Option<ChatSubject>,
}

/// The approval of a message, for platforms that are programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatSubject {
    pub id: String,
    pub plan_digest: String,
    pub body: serde_json::Value,
}

/// The message that asks, and whether it shows the whole view.
pub(crate) fn prompt(
    channel: &dyn ChatChannel,
    approval: &PendingApproval,
    mut rights: ChatRights,
    link: Option<String>,
) -> (ChatMessage, bool) {
    let mut block = approval.view.text(ViewDetail::Whole, "");
    if let Some(stored) = always_line(approval) {
        block.push_str(&stored);
    }
    let mut message = ChatMessage {
        title: title(approval),
        block: block.trim_end_matches('\n').to_owned(),
        link,
        subject: Some(subject(approval, "requested", &rights)),
        ..ChatMessage::default()
    };
    fill_in(&mut message, approval, &rights);
    if !channel.fits(&message) {
        rights.deny_only("not all of it is shown here: open it to allow it");
        message.subject = Some(subject(approval, "requested", &rights));
        fill_in(&mut message, approval, &rights);
        cut(channel, &mut message);
    }
    let is_whole = rights.offers_allow();
    (message, is_whole)
}

/// The note and the buttons.
fn fill_in(message: &mut ChatMessage, approval: &PendingApproval, rights: &ChatRights) {
    let mut words: Vec<String> = Vec::new();
    for word in &rights.decisions {
        words.push(match *word {
            "lease" => "lease 30m".to_owned(),
            "deny" => "deny [reason]".to_owned(),
            word => word.to_owned(),
        });
    }
    let typed = match words.as_slice() {
        _ if !rights.is_typed => String::new(),
        [] => String::new(),
        words => format!("/approve {} {}", approval.short_id, words.join("|")),
    };
    message.note = match (rights.no_allow, typed.as_str()) {
        (Some(why), "") if rights.decisions.is_empty() => format!("No decision here: {why}"),
        (Some(why), "") => why.to_owned(),
        (Some(why), typed) => format!("{typed} · {why}"),
        (None, typed) => typed.to_owned(),
    };
    let button = |decision: ApprovalDecision, tap, label| {
        rights.has(decision).then_some(ChatButton { tap, label })
    };
    let buttons = [
        button(
            ApprovalDecision::AllowOnce,
            ChatTap::AllowOnce,
            "Allow once",
        ),
        button(
            ApprovalDecision::AllowAlways,
            ChatTap::AllowAlways,
            "Always",
        ),
        button(ApprovalDecision::Deny, ChatTap::Deny, "Deny"),
    ];
    message.buttons = buttons.into_iter().flatten().collect();
}

/// Cuts the block until the platform takes the message. What is left says so.
fn cut(channel: &dyn ChatChannel, message: &mut ChatMessage) {
    const MARK: &str = "\n… cut";
    let whole = std::mem::take(&mut message.block);
    let (mut least, mut most) = (0, whole.len());
    while least < most {
        let middle = whole.floor_char_boundary((least + most).div_ceil(2));
        if middle <= least {
            break;
        }
        message.block = format!("{}{MARK}", &whole[..middle]);
        if channel.fits(message) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    let end = whole.floor_char_boundary(least);
    message.block = format!("{}{MARK}", &whole[..end]);
}

/// The message when the approval has ended: who decided, and what became of the run.
pub(crate) fn ended(
    channel: &dyn ChatChannel,
    approval: &PendingApproval,
    ended: &ApprovalEnd,
    outcome: Option<&RecordedOutcome>,
    link: Option<String>,
) -> ChatMessage {
    let rights = ChatRights {
        decisions: Vec::new(),
        no_allow: None,
        is_typed: true,
    };
    let mut message = ChatMessage {
        title: end_text(ended, outcome),
        block: format!("{}\n{}", short_title(approval), approval.command.text),
        link,
        subject: Some(subject(approval, "ended", &rights)),
        ..ChatMessage::default()
    };
    if !channel.fits(&message) {
        cut(channel, &mut message);
    }
    message
}

/// One message for several approvals. It shows none of them whole, so nothing can be allowed by it.
pub(crate) fn group(
    channel: &dyn ChatChannel,
    approvals: &[(PendingApproval, Option<RecordedOutcome>)],
    link: Option<String>,
) -> ChatMessage {
    const MOST_LINES: usize = 20;
    const MOST_CHARACTERS: usize = 100;
    let waiting = approvals.iter().filter(|one| one.0.ended.is_none()).count();
    let lines = approvals
        .iter()
        .rev()
        .take(MOST_LINES)
        .map(|(one, outcome)| {
            let state = match &one.ended {
                None => "⏳".to_owned(),
                Some(ended) => end_text(ended, outcome.as_ref()),
            };
            let command = &one.command.text;
            let end = command
                .char_indices()
                .nth(MOST_CHARACTERS)
                .map_or(command.len(), |(at, _)| at);
            let mark = if end < command.len() { "…" } else { "" };
            format!("{state} {} {}{mark}", short_title(one), &command[..end])
        });
    let mut lines: Vec<String> = lines.collect();
    if approvals.len() > MOST_LINES {
        lines.push(format!("… and {} more", approvals.len() - MOST_LINES));
    }
    let mut message = ChatMessage {
        title: match waiting {
            0 => "✅ no approval waits".to_owned(),
            1 => "⏳ 1 approval waits".to_owned(),
            more => format!("⏳ {more} approvals wait"),
        },
        block: lines.join("\n"),
        note: match waiting {
            0 => String::new(),
            _ => "/approve ID deny [reason] · open one to allow it".to_owned(),
        },
        link,
        ..ChatMessage::default()
    };
    if !channel.fits(&message) {
        cut(channel, &mut message);
    }
    message
}

/// How an approval ended, on one line.
pub(crate) fn end_text(ended: &ApprovalEnd, outcome: Option<&RecordedOutcome>) -> String {
    let by = ended
        .decider
        .as_deref()
        .map(|by| format!(" by {}", ShownLine::new(by)))
        .unwrap_or_default();
    let what = match ended.ending {
        ApprovalEnding::Decision(decision) => match decision {
            ApprovalDecision::AllowOnce => "✅ Allowed once",
            ApprovalDecision::AllowSession => "✅ Allowed for the session",
            ApprovalDecision::AllowAlways => "✅ Allowed always",
            ApprovalDecision::Lease(_) => "✅ Allowed for a time",
            ApprovalDecision::Deny => "❌ Denied",
        },
        ApprovalEnding::FallbackAllow => "✅ Allowed by askFallback: no approver could be reached",
        ApprovalEnding::FallbackDeny => "❌ Denied by askFallback: no approver could be reached",
        ApprovalEnding::Expired => "⌛ Expired",
        ApprovalEnding::Withdrawn => "⌛ Withdrawn",
    };
    let reason = ended
        .reason
        .as_deref()
        .map(|reason| format!(": {}", ShownLine::new(reason)))
        .unwrap_or_default();
    let became = outcome.map(outcome_text).unwrap_or_default();
    format!("{what}{by} {}{reason}{became}", clock(ended.at_ms))
}

fn outcome_text(outcome: &RecordedOutcome) -> String {
    let value = serde_json::to_value(outcome).unwrap_or_default();
    let number = |key: &str| value.get(key).and_then(serde_json::Value::as_i64);
    let time = number("durationMs").map(|ms| format!(", {} s", ms / 1000));
    let time = time.unwrap_or_default();
    match (number("exitCode"), number("signal"), &outcome.code) {
        (Some(code), _, _) => format!(" · exit {code}{time}"),
        (None, Some(signal), _) => format!(" · signal {signal}{time}"),
        (None, None, Some(code)) => format!(" · {}", ShownLine::new(code)),
        _ => String::new(),
    }
}

/// The time of day, in UTC.
fn clock(at_ms: i64) -> String {
    let time = time::OffsetDateTime::from_unix_timestamp(at_ms / 1000);
    time.map(|time| format!("{:02}:{:02} UTC", time.hour(), time.minute()))
        .unwrap_or_default()
}

fn title(approval: &PendingApproval) -> String {
    format!("⏳ {}", short_title(approval))
}

fn short_title(approval: &PendingApproval) -> String {
    let place = approval.node.as_deref().unwrap_or(&approval.host);
    format!(
        "{} · {} @ {} · {}",
        approval.short_id,
        ShownLine::new(&approval.agent),
        ShownLine::new(place),
        ShownLine::new(&approval.session_key)
    )
}

/// What *always* would store.
fn always_line(approval: &PendingApproval) -> Option<String> {
    if !approval.offers(ApprovalDecision::AllowAlways) {
        return None;
    }
    let shown = approval.always.iter().map(|entry| {
        let entry = serde_json::to_string(entry).unwrap_or_default();
        format!("{:<10}{}\n", "always", ShownLine::new(&entry))
    });
    Some(shown.collect())
}

/// The approval as a program gets it.
fn subject(approval: &PendingApproval, kind: &str, rights: &ChatRights) -> ChatSubject {
    let mut body = approval.to_json();
    body["type"] = format!("approval.{kind}").into();
    body["decisions"] = rights.decisions.clone().into();
    if let Some(ended) = &approval.ended {
        body["ended"] = serde_json::json!({
            "ending": ended.ending.as_str(),
            "by": ended.decider,
            "atMs": ended.at_ms,
        });
    }
    ChatSubject {
        id: approval.id.clone(),
        plan_digest: approval.plan_digest.clone(),
        body,
    }
}
