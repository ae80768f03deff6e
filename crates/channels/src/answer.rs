//! Decides which answers count.
//!
//! A decision counts if all of this holds. It is on a message that Interlock sent for this
//! approval, or was typed in a chat that received one. Its sender is an approver now, by the
//! platform's exact id. If it allows anything, the message showed the whole view. Adapters have
//! already dropped everything that is not a new event of a person.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use interlock_approvals::{ApprovalRefusal, AuditKind, PendingApproval};
use interlock_command::display::ShownLine;
use interlock_config::Config;
use interlock_store::{ApprovalDecision, ApprovalError, ChatMessageRow, StoreError};
use serde_json::json;

use crate::channel::{ChannelKind, ChatPlace, ChatTap, ChatUpdate, TappedMessage};
use crate::desk::{ApprovalDesk, ChatDecision};
use crate::message::{end_text, is_prompt};
use crate::rights::target_rights;
use crate::settings::{ChatSetup, account_prefix, approvers, takes_decisions};
use crate::typed::{TypedCommand, parse};

/// The shortest time between two refusals that a stranger receives.
const REFUSAL_EVERY: Duration = Duration::from_mins(1);

/// The most strangers that are remembered. Further strangers receive no answer.
const MOST_STRANGERS: usize = 1_000;

/// When each stranger was last refused.
#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<HashMap<String, Instant>>);

impl Strangers {
    /// Whether this sender receives an answer now.
    fn may_be_told(&self, sender: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        known.retain(|_, at| now.duration_since(*at) < REFUSAL_EVERY);
        if known.contains_key(sender) || known.len() >= MOST_STRANGERS {
            return false;
        }
        known.insert(sender.to_owned(), now);
        true
    }
}

/// The account that received an update, and the present config.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerContext<'a> {
    pub(crate) desk: &'a dyn ApprovalDesk,
    pub(crate) setup: &'a ChatSetup,
    pub(crate) kind: ChannelKind,
    /// The account's name.
    pub(crate) account: &'a str,
    pub(crate) strangers: &'a Strangers,
}

/// The result of an update.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Handled {
    /// The text is for the chat. `None` sends nothing.
    Done(Option<String>),
    /// An approver answers a message that the store does not know while a message is being sent,
    /// which may be the same one. If it is not, the text is for the chat.
    NotYet(Option<String>),
}

/// Handles one update.
pub(crate) fn handle(context: AnswerContext<'_>, update: &ChatUpdate) -> Handled {
    match handle_known(context, update) {
        Ok(said) => Handled::Done(said),
        Err(unknown) => {
            let now = interlock_approvals::clock::now();
            let approval = unknown.approval.as_deref();
            let account = account_prefix(context.kind, context.account);
            let store = context.desk.store();
            match store.has_chat_queued(approval, &account, now) {
                Ok(true) => Handled::NotYet(unknown.said),
                _ => Handled::Done(unknown.said),
            }
        }
    }
}

/// An answer to a message that the store does not know.
struct UnknownMessage {
    /// The approval that the answer names, if any.
    approval: Option<String>,
    said: Option<String>,
}

fn handle_known(
    context: AnswerContext<'_>,
    update: &ChatUpdate,
) -> Result<Option<String>, UnknownMessage> {
    match update {
        ChatUpdate::Tapped {
            sender,
            place,
            tap,
            names,
            message,
        } => {
            let tapped = TappedButton {
                tap: *tap,
                names: names.as_deref(),
                message,
            };
            decide_by_tap(context, sender, place, tapped)
        }
        ChatUpdate::Replaced { place } => replaced(context, place),
        ChatUpdate::Typed {
            sender,
            place,
            text,
            replies_to,
        } => {
            let Some(command) = parse(text) else {
                return Ok(None);
            };
            typed(context, sender, place, replies_to.as_deref(), command)
        }
    }
}

/// Returns the approvals that a message of this account is about. Other platforms and accounts may
/// use the same ids.
fn rows_at(context: AnswerContext<'_>, chat: &str, message: &str) -> Vec<ChatMessageRow> {
    let rows = context.desk.store().chat_messages_at(chat, message);
    let mut rows: Vec<ChatMessageRow> = rows.unwrap_or_default();
    rows.retain(|row| is_of_account(context, row));
    rows
}

/// Handles a pending prompt that was replaced, but not by this gateway. It can allow nothing any
/// more.
fn replaced(
    context: AnswerContext<'_>,
    place: &ChatPlace,
) -> Result<Option<String>, UnknownMessage> {
    let rows = rows_at(context, &place.chat, &place.message);
    if rows.is_empty() {
        return Err(UnknownMessage {
            approval: None,
            said: None,
        });
    }
    for row in rows.iter().filter(|row| row.offers_allow && !row.is_group) {
        let approval = context.desk.approval(&row.approval_id);
        if approval.is_ok_and(|approval| approval.ended.is_none()) {
            let marked = context
                .desk
                .store()
                .chat_not_whole(&row.approval_id, &row.target);
            if let Err(error) = marked {
                tracing::warn!(%error, "a replaced message was not marked");
            }
            let why = "replaced a prompt, and not by this gateway";
            record_refusal(context, &row.target, Some(&row.approval_id), why);
        }
    }
    Ok(None)
}

/// A pressed button, and the message that contains it.
#[derive(Clone, Copy)]
struct TappedButton<'a> {
    tap: ChatTap,
    names: Option<&'a str>,
    message: &'a TappedMessage,
}

fn decide_by_tap(
    context: AnswerContext<'_>,
    sender: &str,
    place: &ChatPlace,
    tapped: TappedButton<'_>,
) -> Result<Option<String>, UnknownMessage> {
    let TappedButton { tap, names, .. } = tapped;
    let mut rows = rows_at(context, &place.chat, &place.message);
    let row = match rows.as_mut_slice() {
        [] if is_approver(context, sender) => {
            return Err(UnknownMessage {
                approval: None,
                said: None,
            });
        }
        [row] if !row.is_group => row,
        _ => return Ok(None),
    };
    if let Err(refused) = check_sender(context, sender, Some(&row.approval_id)) {
        return Ok(refused);
    }
    if names.is_some_and(|names| names != row.approval_id) {
        let who = named(context.kind, sender);
        let why = "pressed a button of another approval";
        record_refusal(context, &who, Some(&row.approval_id), why);
        return Ok(None);
    }
    let Ok(approval) = context.desk.approval(&row.approval_id) else {
        return Ok(None);
    };
    // If another program replaced the message, what the approver saw is unknown.
    let rights = target_rights(context.desk, context.kind, &approval);
    row.offers_allow &= match tapped.message {
        TappedMessage::Unedited => true,
        TappedMessage::Edited => false,
        TappedMessage::Shows(text) => is_prompt(text, &approval, &rights),
    };
    Ok(match tap {
        // This tap stores nothing yet. The approver confirms by typing, and can read once more what
        // would be stored.
        ChatTap::AllowAlways if approval.ended.is_none() && row.offers_allow => Some(format!(
            "To store it for good, type: /approve {} allow-always",
            approval.short_id
        )),
        tap => decide(context, sender, row, &approval, tap.decision(), None),
    })
}

fn typed(
    context: AnswerContext<'_>,
    sender: &str,
    place: &ChatPlace,
    replies_to: Option<&str>,
    command: TypedCommand,
) -> Result<Option<String>, UnknownMessage> {
    Ok(match command {
        TypedCommand::Directive { session_key, text } => {
            directive(context, sender, place, replies_to, session_key, &text)
        }
        TypedCommand::Unclear(expected) => {
            check_sender(context, sender, None).map_or_else(|refused| refused, |()| Some(expected))
        }
        TypedCommand::Decide {
            reference,
            decision,
            reason,
        } => {
            if let Err(refused) = check_sender(context, sender, None) {
                return Ok(refused);
            }
            // The text is the same for an approval that does not exist and for one of another chat,
            // so that it reveals neither.
            let shown = ShownLine::new(&reference);
            let shown: String = shown.as_str().chars().take(40).collect();
            let unknown = Some(format!("{shown}: no such approval was sent to this chat"));
            let Ok(approval) = context.desk.approval(&reference) else {
                return Ok(unknown);
            };
            // Only programs use prefixes of ids. People see the whole short id.
            if reference != approval.short_id && reference != approval.id {
                return Ok(unknown);
            }
            let store = context.desk.store();
            let rows = store.chat_message_in(&approval.id, &place.chat);
            let mut rows = rows.unwrap_or_default().into_iter();
            match rows.find(|row| is_of_account(context, row)) {
                Some(row) => {
                    let reason = reason.as_deref();
                    decide(context, sender, &row, &approval, decision, reason)
                }
                None => {
                    return Err(UnknownMessage {
                        approval: Some(approval.id),
                        said: unknown,
                    });
                }
            }
        }
    })
}

/// Handles `/exec` and `/elevated`. In reply to a prompt, they apply to its conversation.
fn directive(
    context: AnswerContext<'_>,
    sender: &str,
    place: &ChatPlace,
    replies_to: Option<&str>,
    session_key: Option<String>,
    text: &str,
) -> Option<String> {
    if context.setup.is_own(context.kind, sender) {
        return None;
    }
    let who = named(context.kind, sender);
    // Only approvers and owners can change settings. Others receive no answer.
    let config = context.desk.config()?;
    let owners = config.config().commands.owner_allow_from.iter().flatten();
    let is_known = owners.into_iter().any(|owner| *owner == who);
    if !is_known {
        if !context.strangers.may_be_told(&who) {
            return None;
        }
        record_refusal(context, &who, None, "may not set anything");
        return Some("commands.ownerAllowFrom does not list you".to_owned());
    }
    let session_key = session_key.or_else(|| {
        let rows = rows_at(context, &place.chat, replies_to?);
        let [row] = rows.try_into().ok()?;
        Some(context.desk.approval(&row.approval_id).ok()?.session_key)
    });
    let Some(session_key) = session_key else {
        let example = "name the conversation: /exec agent:main:main …, or reply to its prompt";
        return Some(example.to_owned());
    };
    Some(match context.desk.directive(&who, &session_key, text) {
        Ok(answer) => answer,
        Err(why) => why,
    })
}

/// Refuses all senders but the present approvers. The error is the text for the chat, if any.
fn check_sender(
    context: AnswerContext<'_>,
    sender: &str,
    approval: Option<&str>,
) -> Result<(), Option<String>> {
    // Interlock's own accounts never decide and receive no answers.
    if context.setup.is_own(context.kind, sender) {
        return Err(None);
    }
    if is_approver(context, sender) {
        return Ok(());
    }
    let who = named(context.kind, sender);
    if !context.strangers.may_be_told(&who) {
        return Err(None);
    }
    record_refusal(context, &who, approval, "is not an approver");
    Err(Some("You are not an approver.".to_owned()))
}

/// Whether an update of this sender could count, because the sender is an approver or an owner.
/// Events of all others are not stored, so that they cannot fill the disk.
pub(crate) fn may_count(config: &Config, kind: ChannelKind, sender: &str) -> bool {
    let who = named(kind, sender);
    let mut owners = config.commands.owner_allow_from.iter().flatten();
    owners.any(|owner| *owner == who) || approvers(config, kind).iter().any(|id| id == sender)
}

/// Whether a sender is an approver now, by the exact id, and is not one of Interlock's own
/// accounts.
fn is_approver(context: AnswerContext<'_>, sender: &str) -> bool {
    let config = context.desk.config();
    let config = config.as_ref().map(|file| file.config());
    !context.setup.is_own(context.kind, sender)
        && config.is_some_and(|config| {
            let approvers = approvers(config, context.kind);
            takes_decisions(config, context.kind) && approvers.iter().any(|id| id == sender)
        })
}

fn decide(
    context: AnswerContext<'_>,
    sender: &str,
    row: &ChatMessageRow,
    approval: &PendingApproval,
    decision: ApprovalDecision,
    reason: Option<&str>,
) -> Option<String> {
    let short_id = &approval.short_id;
    if let Some(ended) = &approval.ended {
        return Some(format!("{short_id}: {}", end_text(ended, None)));
    }
    let mut rights = target_rights(context.desk, context.kind, approval);
    if !row.offers_allow {
        rights.deny_only("it was not shown whole here: open it to allow it");
    }
    let who = named(context.kind, sender);
    if !rights.has(decision) {
        let why = rights.no_allow.unwrap_or("it is not offered here");
        record_refusal(context, &who, Some(&approval.id), why);
        return Some(format!(
            "{short_id}: {} is refused: {why}",
            decision.as_str()
        ));
    }
    let decided = context.desk.decide(ChatDecision {
        id: &approval.id,
        plan_digest: &approval.plan_digest,
        decision,
        decider: &who,
        surface: &row.target,
        reason,
    });
    match decided {
        // The edited message shows the decision, so no reply is needed.
        Ok(_) => None,
        Err(error) => Some(format!("{short_id}: {}", refusal_text(&error))),
    }
}

/// Whether the account that received the answer sent the message.
fn is_of_account(context: AnswerContext<'_>, row: &ChatMessageRow) -> bool {
    let front = account_prefix(context.kind, context.account);
    let rest = row.target.strip_prefix(&front);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

fn refusal_text(error: &ApprovalRefusal) -> String {
    if let ApprovalRefusal::State(interlock_rules::RulesError::Store(StoreError::Approval(
        ApprovalError::AlreadyDecided { winner, .. },
    ))) = error
    {
        return end_text(winner, None);
    }
    error.to_string()
}

/// Returns a sender as records name it, by the platform's id.
pub(crate) fn named(kind: ChannelKind, sender: &str) -> String {
    format!("{}:{sender}", kind.as_str())
}

/// Records a refusal in the audit, under the platform's id.
fn record_refusal(context: AnswerContext<'_>, who: &str, approval: Option<&str>, why: &str) {
    let record = json!({
        "approvalId": approval,
        "detail": format!("{who} {why}"),
        "state": "refused",
        "surface": who,
    });
    let now = interlock_approvals::clock::now();
    let written = context.desk.store().change(|change| {
        change.append(AuditKind::Delivery, &record, now)?;
        Ok::<_, StoreError>(())
    });
    if let Err(error) = written {
        tracing::warn!(%error, "a refused answer was not recorded");
    }
}
