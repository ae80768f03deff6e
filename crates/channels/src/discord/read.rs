//! Decides which events of Discord are answers of people.

use serde_json::Value;

use crate::channel::{ChatPlace, ChatTap, ChatUpdate, TappedMessage};
use crate::http::escaped;
use crate::typed;

/// Kinds of messages, interactions and components, in Discord's numbers.
const PLAIN_MESSAGE: u64 = 0;
const REPLY: u64 = 19;
const COMPONENT: u64 = 3;
const BUTTON: u64 = 2;

/// The flag of a message that contains another one: a forward.
const HAS_SNAPSHOT: u64 = 1 << 14;

/// The identity of the bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiscordIdentity {
    pub(super) application: String,
    pub(super) user: String,
}

/// Returns a person's id. Bots, Discord itself and the bot's own account are not persons.
fn person(user: &Value, own: &DiscordIdentity) -> Option<String> {
    let is_set = |key: &str| !matches!(user[key], Value::Null | Value::Bool(false));
    let id = user["id"].as_str().filter(|id| *id != own.user)?;
    (!is_set("bot") && !is_set("system")).then(|| id.to_owned())
}

/// Reads a pressed button, with the id and the token that acknowledge it.
pub(super) fn read_tap(
    event: &Value,
    own: &DiscordIdentity,
) -> Option<(ChatUpdate, String, String)> {
    let (data, message) = (&event["data"], &event["message"]);
    let is_of_button = event["type"] == COMPONENT
        && data["component_type"] == BUTTON
        && event["application_id"] == own.application.as_str()
        && message["author"]["id"] == own.user.as_str()
        && message["webhook_id"].is_null();
    if !is_of_button {
        return None;
    }
    // In a server the sender is a member, elsewhere a user. An event with both is not valid.
    let user = match (&event["member"]["user"], &event["user"]) {
        (member, Value::Null) => member,
        (Value::Null, user) => user,
        _ => return None,
    };
    let chat = message["channel_id"].as_str()?;
    if event["channel_id"] != chat {
        return None;
    }
    let (word, approval) = data["custom_id"].as_str()?.split_once(':')?;
    let (id, token) = (event["id"].as_str()?, event["token"].as_str()?);
    let answer_path = format!("{}/{}", escaped(&own.application), escaped(token));
    let update = ChatUpdate::Tapped {
        sender: person(user, own)?,
        place: ChatPlace {
            chat: chat.to_owned(),
            message: message["id"].as_str()?.to_owned(),
            interaction: Some(answer_path),
            event: Some(id.to_owned()),
        },
        tap: ChatTap::named(word)?,
        names: Some(approval.to_owned()),
        message: match message["edited_timestamp"] {
            Value::Null => TappedMessage::Unedited,
            _ => TappedMessage::Edited,
        },
    };
    Some((update, id.to_owned(), token.to_owned()))
}

/// Reads a message that a person has just typed to the bot alone.
pub(super) fn read_message(event: &Value, own: &DiscordIdentity) -> Option<ChatUpdate> {
    let is_new = matches!(event["type"].as_u64(), Some(PLAIN_MESSAGE | REPLY))
        && event["guild_id"].is_null()
        && event["edited_timestamp"].is_null()
        && event["flags"].as_u64().unwrap_or(0) & HAS_SNAPSHOT == 0
        // The reference of a reply has the type 0 or none, that of a forward another one.
        && matches!(event["message_reference"]["type"].as_u64(), None | Some(0));
    // Such keys mark webhooks, programs that write for a person, and content other than text.
    let foreign = [
        "webhook_id",
        "application_id",
        "application",
        "activity",
        "interaction",
        "interaction_metadata",
        "message_snapshots",
        "attachments",
        "embeds",
        "components",
        "sticker_items",
        "poll",
        "call",
    ];
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    if !is_new || foreign.iter().any(|key| !is_empty(&event[*key])) {
        return None;
    }
    let text = event["content"].as_str()?;
    typed::parse(text)?;
    let id = event["id"].as_str()?;
    let replied = event["message_reference"]["message_id"].as_str();
    Some(ChatUpdate::Typed {
        sender: person(&event["author"], own)?,
        place: ChatPlace {
            chat: event["channel_id"].as_str()?.to_owned(),
            message: id.to_owned(),
            interaction: None,
            event: Some(id.to_owned()),
        },
        text: text.to_owned(),
        replies_to: replied.map(str::to_owned),
    })
}
