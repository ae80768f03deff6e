//! Decides which events of Slack are answers of people.

use serde_json::Value;

use crate::channel::{ChatPlace, ChatTap, ChatUpdate, TappedMessage};
use crate::typed;

/// The identity of the app. Events that name another workspace or another app are ignored.
#[derive(Debug, Clone)]
pub(super) struct SlackIdentity {
    pub(super) app: String,
    pub(super) team: String,
    /// The bot's own user.
    pub(super) user: String,
}

pub(super) fn read_envelope(envelope: &Value, own: &SlackIdentity) -> Option<ChatUpdate> {
    let payload = &envelope["payload"];
    if payload["api_app_id"] != own.app.as_str() {
        return None;
    }
    match envelope["type"].as_str()? {
        "interactive" => read_tap(payload, own),
        "events_api" => read_message(payload, own),
        "slash_commands" => read_slash_command(payload, own),
        _ => None,
    }
}

/// Returns the id of a user of this workspace. Guests of shared channels belong to other
/// workspaces, and bots are not users.
fn person(id: &Value, teams: &[&Value], own: &SlackIdentity) -> Option<String> {
    let is_of_team = |team: &&Value| team.is_null() || **team == own.team.as_str();
    let id = id.as_str().filter(|id| !id.is_empty() && *id != own.user)?;
    teams.iter().all(is_of_team).then(|| id.to_owned())
}

fn read_tap(payload: &Value, own: &SlackIdentity) -> Option<ChatUpdate> {
    let container = &payload["container"];
    let is_of_message = payload["type"] == "block_actions"
        && payload["team"]["id"] == own.team.as_str()
        && container["type"] == "message"
        && container["is_ephemeral"] != true;
    let [action] = payload["actions"].as_array()?.as_slice() else {
        return None;
    };
    if !is_of_message || action["type"] != "button" {
        return None;
    }
    let user = &payload["user"];
    let sender = person(&user["id"], &[&user["team_id"]], own)?;
    let chat = container["channel_id"].as_str()?;
    let message = container["message_ts"].as_str()?;
    // The payload names the message twice, and both must agree.
    let is_same = |value: &Value, known: &str| value.is_null() || value == known;
    if !is_same(&payload["channel"]["id"], chat) || !is_same(&payload["message"]["ts"], message) {
        return None;
    }
    let time = action["action_ts"].as_str()?;
    Some(ChatUpdate::Tapped {
        place: ChatPlace {
            chat: chat.to_owned(),
            message: message.to_owned(),
            interaction: Some(sender.clone()),
            event: Some(format!("{time} {sender} {chat} {message}")),
        },
        sender,
        tap: ChatTap::named(action["action_id"].as_str()?)?,
        names: Some(action["value"].as_str()?.to_owned()),
        message: shown(&payload["message"]),
    })
}

/// Returns what a message shows. If only the blocks were replaced, Slack does not mark the message
/// as edited, but it reports the blocks.
fn shown(message: &Value) -> TappedMessage {
    let is_set = |key: &str| match &message[key] {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        _ => true,
    };
    if ["edited", "attachments", "files"].into_iter().any(is_set) {
        return TappedMessage::Edited;
    }
    let Some(blocks) = message["blocks"].as_array() else {
        return TappedMessage::Unedited;
    };
    let mut text = String::new();
    for block in blocks.iter().filter(|block| block["type"] != "actions") {
        if block["type"] != "rich_text" || !add_text(block, &mut text) {
            return TappedMessage::Edited;
        }
    }
    TappedMessage::Shows(text)
}

/// Adds the text below a part of a message. Returns false if the part contains anything but text,
/// such as a picture. A bare link is Interlock's own and leads to a page that shows the approval
/// itself.
fn add_text(part: &Value, text: &mut String) -> bool {
    match part["type"].as_str() {
        Some("text") => text.push_str(part["text"].as_str().unwrap_or_default()),
        Some("link") if part["text"].is_null() => {}
        // Slack writes some characters as emoji.
        Some("emoji") => {}
        Some("rich_text" | "rich_text_section" | "rich_text_preformatted") => {
            let mut inner = part["elements"].as_array().into_iter().flatten();
            return inner.all(|inner| add_text(inner, text));
        }
        _ => return false,
    }
    true
}

/// Reads a message that a person has just typed, as plain text.
fn read_message(payload: &Value, own: &SlackIdentity) -> Option<ChatUpdate> {
    let event = &payload["event"];
    let is_message = payload["type"] == "event_callback"
        && payload["team_id"] == own.team.as_str()
        && event["type"] == "message";
    // Edits and everything else that is not a new message have a subtype. Apps, bots and workflows
    // have an id, even if they write in a person's name. Shared messages are attachments.
    let foreign = [
        "subtype",
        "bot_id",
        "bot_profile",
        "app_id",
        "edited",
        "hidden",
        "attachments",
        "files",
        "metadata",
        "previous_message",
        "username",
    ];
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if !is_message || foreign.iter().any(|key| !is_empty(&event[*key])) || !is_plain(event) {
        return None;
    }
    let teams = [&event["team"], &event["user_team"], &event["source_team"]];
    let sender = person(&event["user"], &teams, own)?;
    let (chat, message) = (event["channel"].as_str()?, event["ts"].as_str()?);
    let thread = event["thread_ts"].as_str();
    Some(ChatUpdate::Typed {
        text: for_interlock(event["text"].as_str()?)?,
        place: ChatPlace {
            chat: chat.to_owned(),
            message: message.to_owned(),
            interaction: Some(sender.clone()),
            event: Some(payload["event_id"].as_str()?.to_owned()),
        },
        sender,
        replies_to: thread.map(str::to_owned),
    })
}

/// Reads the app's own slash commands. Slack sends those of other apps to the other apps.
fn read_slash_command(payload: &Value, own: &SlackIdentity) -> Option<ChatUpdate> {
    if payload["team_id"] != own.team.as_str() {
        return None;
    }
    let sender = person(&payload["user_id"], &[], own)?;
    let command = payload["command"].as_str()?;
    let text = payload["text"].as_str().unwrap_or_default();
    Some(ChatUpdate::Typed {
        text: for_interlock(&format!("{command} {text}"))?,
        place: ChatPlace {
            chat: payload["channel_id"].as_str()?.to_owned(),
            message: String::new(),
            interaction: Some(sender.clone()),
            event: Some(payload["trigger_id"].as_str()?.to_owned()),
        },
        sender,
        replies_to: None,
    })
}

/// Whether the blocks of a message contain nothing but typed text. Lists, quotes and code are
/// blocks of other kinds, and text in the style of code does not count either.
fn is_plain(event: &Value) -> bool {
    let blocks = event["blocks"].as_array().into_iter().flatten();
    blocks.into_iter().all(|block| {
        let mut sections = block["elements"].as_array().into_iter().flatten();
        block["type"] == "rich_text"
            && sections.all(|section| {
                let mut parts = section["elements"].as_array().into_iter().flatten();
                section["type"] == "rich_text_section"
                    && parts.all(|part| part["type"] == "text" && part["style"].is_null())
            })
    })
}

/// Returns the text as it was typed, if it is meant for Interlock. Slack writes links and mentions
/// in angle brackets, and escapes typed brackets.
fn for_interlock(text: &str) -> Option<String> {
    if text.contains(['<', '>']) {
        return None;
    }
    let text = text
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    typed::parse(&text).is_some().then_some(text)
}
