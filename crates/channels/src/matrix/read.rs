//! Decides which events of Matrix are answers of people, and which rooms an approver invites to.

use serde_json::Value;

use super::SEEDS;
use crate::channel::{ChatPlace, ChatUpdate, TappedMessage};

/// Returns the rooms to which an approver invited the account. The account's server does not check
/// the state of a room that the account has not joined, so every named invitation must be from an
/// approver.
pub(super) fn invitations(synced: &Value, own: &str, approvers: &[String]) -> Vec<String> {
    let invited = synced["rooms"]["invite"].as_object().into_iter().flatten();
    let wanted = invited.filter(|(_, room)| {
        let events = room["invite_state"]["events"].as_array();
        let events = events.into_iter().flatten();
        let mut invitations = events
            .filter(|event| {
                event["type"] == "m.room.member"
                    && event["state_key"] == own
                    && event["content"]["membership"] == "invite"
            })
            .peekable();
        let is_invited = invitations.peek().is_some();
        let is_of_approver = |event: &Value| {
            let sender = event["sender"].as_str();
            sender.is_some_and(|sender| approvers.iter().any(|id| id == sender))
        };
        is_invited && invitations.all(is_of_approver)
    });
    wanted.map(|(room, _)| room.clone()).collect()
}

/// Returns what people did in the rooms of a sync.
pub(super) fn read_updates(synced: &Value, own: &str) -> Vec<ChatUpdate> {
    let rooms = synced["rooms"]["join"].as_object().into_iter().flatten();
    let mut updates = Vec::new();
    for (room, joined) in rooms {
        let events = joined["timeline"]["events"].as_array();
        for event in events.into_iter().flatten() {
            updates.extend(read_any(room, event, own));
        }
    }
    updates
}

pub(super) fn read_any(room: &str, event: &Value, own: &str) -> Option<ChatUpdate> {
    if event["sender"] == own {
        read_own_event(room, event)
    } else {
        read_event(room, event)
    }
}

pub(super) fn place_in(room: &str, message: &str) -> ChatPlace {
    ChatPlace {
        chat: room.to_owned(),
        message: message.to_owned(),
        interaction: None,
        event: None,
    }
}

/// Reads replacements of the account's own messages. Replacements by other accounts need no check,
/// because clients do not show them.
fn read_own_event(room: &str, event: &Value) -> Option<ChatUpdate> {
    let relation = &event["content"]["m.relates_to"];
    let is_replacing = event["type"] == "m.room.message" && relation["rel_type"] == "m.replace";
    let message = relation["event_id"].as_str().filter(|_| is_replacing)?;
    Some(ChatUpdate::Replaced {
        place: place_in(room, message),
    })
}

fn read_event(room: &str, event: &Value) -> Option<ChatUpdate> {
    let sender = event["sender"].as_str()?.to_owned();
    let id = event["event_id"].as_str()?;
    let content = &event["content"];
    let relation = &content["m.relates_to"];
    let place = |message: &str| place_in(room, message);
    match event["type"].as_str()? {
        // A reaction that was removed arrives without its relation.
        "m.reaction" if relation["rel_type"] == "m.annotation" => {
            let key = relation["key"].as_str()?.replace('\u{fe0f}', "");
            let tap = SEEDS
                .into_iter()
                .find(|(_, seed)| seed.replace('\u{fe0f}', "") == key)?
                .0;
            Some(ChatUpdate::Tapped {
                sender,
                place: place(relation["event_id"].as_str()?),
                tap,
                names: None,
                message: TappedMessage::Unedited,
            })
        }
        "m.room.message" if content["msgtype"] == "m.text" => {
            if relation["rel_type"] == "m.replace" || content.get("m.new_content").is_some() {
                return None;
            }
            // Some servers return a message that was edited since with its new text.
            if !event["unsigned"]["m.relations"]["m.replace"].is_null() {
                return None;
            }
            // Markup may be a quote or a code block. Plainly typed text has none.
            let html = content["formatted_body"].as_str().unwrap_or_default();
            if html.contains('<') {
                return None;
            }
            // In a thread, a fallback tells clients without threads to show the message as a reply
            // to the previous one.
            let is_fallback = relation["is_falling_back"] == true;
            let replied = relation["m.in_reply_to"]["event_id"].as_str();
            let replied = replied.filter(|_| !is_fallback);
            let thread = relation["event_id"].as_str();
            Some(ChatUpdate::Typed {
                sender,
                place: place(id),
                text: content["body"].as_str()?.to_owned(),
                replies_to: replied.or(thread).map(str::to_owned),
            })
        }
        _ => None,
    }
}
