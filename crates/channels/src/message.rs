//! Builds what a chat shows of an approval, and decides whether it may be allowed there.
//!
//! The text is the same as on every other surface ([`interlock_approvals::ApprovalView`]). *Allow*
//! is offered only if the message shows all of it unaltered. Otherwise the message offers *Deny*
//! and a link.

use std::collections::HashMap;

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

/// A message as every platform receives it. It contains no markup: platforms show all of it
/// literally.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChatMessage {
    /// The title, on one line.
    pub title: String,
    /// Lines in a font of fixed width.
    pub block: String,
    /// What can be typed, or why nothing can be allowed here, on one line.
    pub note: String,
    /// Opens the approval in a browser. The link contains its id and gives no right.
    pub link: Option<String>,
    /// The buttons. If there are none, an edit removes those that the message had.
    pub buttons: Vec<ChatButton>,
    /// The approval of the message, for programs. `None` if the message is about several.
    pub subject: Option<ChatSubject>,
}

/// The approval of a message, for platforms that are programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatSubject {
    pub id: String,
    pub plan_digest: String,
    pub body: serde_json::Value,
}

/// Returns the prompt, and whether it shows the whole view.
pub(crate) fn prompt(
    channel: &dyn ChatChannel,
    approval: &PendingApproval,
    mut rights: ChatRights,
    link: Option<String>,
) -> (ChatMessage, bool) {
    let mut message = whole(approval, &rights, link);
    if !channel.fits(&message) {
        rights.deny_only("not all of it is shown here: open it to allow it");
        message.subject = Some(subject(approval, "requested", &rights));
        fill_in(&mut message, approval, &rights);
        cut(channel, &mut message);
    }
    let is_whole = rights.offers_allow();
    (message, is_whole)
}

/// Returns the message that shows the whole view, however long it is.
fn whole(approval: &PendingApproval, rights: &ChatRights, link: Option<String>) -> ChatMessage {
    let mut block = approval.view.text(ViewDetail::Whole, "");
    if let Some(stored) = always_line(approval) {
        block.push_str(&stored);
    }
    let mut message = ChatMessage {
        title: title(approval),
        block: block.trim_end_matches('\n').to_owned(),
        link,
        subject: Some(subject(approval, "requested", rights)),
        ..ChatMessage::default()
    };
    fill_in(&mut message, approval, rights);
    message
}

/// Whether a text is that of the whole prompt. Platforms rewrite spaces and pictographs, so only
/// letters, digits and ASCII marks are compared.
pub(crate) fn is_prompt(shown: &str, approval: &PendingApproval, rights: &ChatRights) -> bool {
    let whole = whole(approval, rights, None);
    let expected = [whole.title, whole.block, whole.note].concat();
    let marks = |text: &str| -> Vec<char> {
        let is_compared = |one: &char| one.is_ascii_graphic() || one.is_alphanumeric();
        text.chars().filter(is_compared).collect()
    };
    marks(shown) == marks(&expected)
}

/// Returns the message of an approval whose text the platform refuses. An agent's text must not
/// decide whether an approver sees anything.
pub(crate) fn without_text(
    approval: &PendingApproval,
    mut rights: ChatRights,
    link: Option<String>,
) -> ChatMessage {
    rights.deny_only("its text is not taken here: open it to allow it");
    let mut message = ChatMessage {
        title: format!("⏳ {}", approval.short_id),
        block: "An approval waits.".to_owned(),
        link,
        subject: Some(subject(approval, "requested", &rights)),
        ..ChatMessage::default()
    };
    fill_in(&mut message, approval, &rights);
    message
}

/// Adds the note and the buttons.
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

/// Cuts the block, and the title if that is not enough, until the platform accepts the message. The
/// remaining text says that it was cut.
pub(crate) fn cut(channel: &dyn ChatChannel, message: &mut ChatMessage) {
    let block = std::mem::take(&mut message.block);
    cut_part(channel, message, &block, "\n… cut", |message| {
        &mut message.block
    });
    if !channel.fits(message) {
        let title = std::mem::take(&mut message.title);
        cut_part(channel, message, &title, "…", |message| {
            &mut message.title
        });
    }
}

/// Fills in as much of one part as the platform accepts.
fn cut_part(
    channel: &dyn ChatChannel,
    message: &mut ChatMessage,
    whole: &str,
    mark: &str,
    part: impl Fn(&mut ChatMessage) -> &mut String,
) {
    let (mut least, mut most) = (0, whole.len());
    while least < most {
        let middle = whole.floor_char_boundary((least + most).div_ceil(2));
        if middle <= least {
            break;
        }
        *part(message) = format!("{}{mark}", &whole[..middle]);
        if channel.fits(message) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    let end = whole.floor_char_boundary(least);
    *part(message) = format!("{}{mark}", &whole[..end]);
}

/// Returns the message of an approval that has ended: who decided, and how the run went on.
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

/// Returns one message for several approvals. It shows none of them whole, so it can allow nothing.
/// `denies` says whether an approval can be denied by typing.
pub(crate) fn group(
    channel: &dyn ChatChannel,
    approvals: &[(PendingApproval, Option<RecordedOutcome>)],
    denies: bool,
    link: Option<String>,
) -> ChatMessage {
    const MOST_LINES: usize = 20;
    let waiting = approvals.iter().filter(|one| one.0.ended.is_none()).count();
    let rows = group_rows(approvals);
    let mut lines: Vec<String> = rows.iter().take(MOST_LINES).map(GroupRow::line).collect();
    let left_out: usize = rows.iter().skip(MOST_LINES).map(|row| row.count).sum();
    if left_out > 0 {
        lines.push(format!("… and {left_out} more"));
    }
    let mut message = ChatMessage {
        title: match waiting {
            0 => "✅ no approval waits".to_owned(),
            1 => "⏳ 1 approval waits".to_owned(),
            more => format!("⏳ {more} approvals wait"),
        },
        block: lines.join("\n"),
        note: match (waiting, denies) {
            (0, _) => String::new(),
            (_, true) => "/approve ID deny [reason] · open one to allow it".to_owned(),
            (_, false) => "open one to decide it".to_owned(),
        },
        link,
        ..ChatMessage::default()
    };
    if !channel.fits(&message) {
        cut(channel, &mut message);
    }
    message
}

/// Approvals that share one line in a message for several: pending approvals of equal plans, or one
/// that has ended.
struct GroupRow<'a> {
    newest: &'a PendingApproval,
    outcome: Option<&'a RecordedOutcome>,
    count: usize,
    /// The position among the agent's rows. The first has 0.
    place: usize,
}

impl GroupRow<'_> {
    fn line(&self) -> String {
        const MOST_CHARACTERS: usize = 100;
        let state = match &self.newest.ended {
            None => "⏳".to_owned(),
            Some(ended) => end_text(ended, self.outcome),
        };
        let times = match self.count {
            1 => String::new(),
            count => format!(" ×{count}"),
        };
        let command = &self.newest.command.text;
        let end = command
            .char_indices()
            .nth(MOST_CHARACTERS)
            .map_or(command.len(), |(at, _)| at);
        let mark = if end < command.len() { "…" } else { "" };
        let title = short_title(self.newest);
        format!("{state}{times} {title} {}{mark}", &command[..end])
    }
}

/// Returns the rows, pending ones first and the newest first. The agents take turns, so that no
/// agent buries another's approvals.
fn group_rows(approvals: &[(PendingApproval, Option<RecordedOutcome>)]) -> Vec<GroupRow<'_>> {
    let mut rows: Vec<GroupRow<'_>> = Vec::new();
    let mut known: HashMap<(&str, String), usize> = HashMap::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for (approval, outcome) in approvals.iter().rev() {
        if approval.ended.is_none() {
            let shown = approval.view.text(ViewDetail::Whole, "");
            let key = (approval.session_key.as_str(), shown);
            if let Some(same) = known.get(&key) {
                rows[*same].count += 1;
                continue;
            }
            known.insert(key, rows.len());
        }
        let place = places.entry(approval.agent.as_str()).or_default();
        rows.push(GroupRow {
            newest: approval,
            outcome: outcome.as_ref(),
            count: 1,
            place: *place,
        });
        *place += 1;
    }
    rows.sort_by_key(|row| (row.newest.ended.is_some(), row.place));
    rows
}

/// Returns how an approval ended, on one line.
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

/// Returns the time of day in UTC.
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

/// Returns the line that says what *always* would store.
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

/// Returns the approval as a program receives it.
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
