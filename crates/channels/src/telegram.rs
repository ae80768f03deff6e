//! Telegram: a bot that sends messages with buttons and polls for updates (`getUpdates`).

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::channel::{
    ChatChannel, ChatFailure, ChatFuture, ChatPlace, ChatTap, ChatUpdate, ChatUpdates, MessageEdit,
    MessageRef, NewMessage, ReadFrom, TappedMessage,
};
use crate::http::{ServiceAccount, ServiceCall};
use crate::message::ChatMessage;
use crate::rhythm::until_beat;
use crate::settings::AccountSetup;

/// The limit of a message in UTF-16 units.
const MOST_UNITS: usize = 4096;

/// One bot.
#[derive(Debug)]
pub(crate) struct TelegramBot {
    account: ServiceAccount,
    /// The bot's name according to Telegram, once it was asked.
    name: OnceCell<String>,
}

impl TelegramBot {
    pub(crate) fn new(setup: &AccountSetup) -> Self {
        Self {
            account: ServiceAccount::new(setup),
            name: OnceCell::new(),
        }
    }

    /// Returns the name that commands for this bot carry in groups.
    async fn name(&self) -> Result<&str, ChatFailure> {
        let asked = self.name.get_or_try_init(|| async {
            let known = self.ask(ServiceCall::post("getMe", &json!({}))).await?;
            let name = known["username"].as_str().unwrap_or("a bot");
            Ok(name.to_owned())
        });
        asked.await.map(String::as_str)
    }

    async fn ask(&self, call: ServiceCall) -> Result<Value, ChatFailure> {
        let front = format!("/bot{}/", self.account.token.expose());
        let mut reply = self.account.call(call.below(&front)).await?;
        if reply.is_success() && reply.json["ok"] == true {
            return Ok(reply.json["result"].take());
        }
        if let Some(seconds) = reply.json["parameters"]["retry_after"].as_u64() {
            reply.retry_after = Some(Duration::from_secs(seconds.clamp(1, 600)));
        }
        let words = reply.json["description"].as_str().unwrap_or_default();
        Err(reply.failure(words))
    }
}

/// Returns the text and its entities. No parse mode is used, so nothing in the text is markup.
fn text(message: &ChatMessage) -> (String, Value) {
    let mut text = String::new();
    let mut entities = Vec::new();
    let units = |text: &str| text.encode_utf16().count();
    let mut add = |part: &str, kind: Option<&str>, text: &mut String| {
        if part.is_empty() {
            return;
        }
        if !text.is_empty() {
            text.push('\n');
        }
        if let Some(kind) = kind {
            let (offset, length) = (units(text), units(part));
            entities.push(json!({ "type": kind, "offset": offset, "length": length }));
        }
        text.push_str(part);
    };
    add(&message.title, Some("code"), &mut text);
    add(&message.block, Some("pre"), &mut text);
    add(&message.note, Some("code"), &mut text);
    add(message.link.as_deref().unwrap_or_default(), None, &mut text);
    (text, Value::Array(entities))
}

fn keyboard(message: &ChatMessage) -> Value {
    let buttons = message
        .buttons
        .iter()
        .map(|button| json!({ "text": button.label, "callback_data": button.tap.word() }));
    let row: Vec<Value> = buttons.collect();
    if row.is_empty() {
        // The keyboard must be sent even if it is empty: an edit without it keeps the message's
        // buttons.
        json!({ "inline_keyboard": [] })
    } else {
        json!({ "inline_keyboard": [row] })
    }
}

/// Ids of chats are numbers. Names of channels begin with `@`.
fn chat_id(text: &str) -> Value {
    text.parse::<i64>()
        .map_or_else(|_| json!(text), |id| json!(id))
}

impl ChatChannel for TelegramBot {
    fn fits(&self, message: &ChatMessage) -> bool {
        text(message).0.encode_utf16().count() <= MOST_UNITS
    }

    fn pause(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn send<'a>(&'a self, new: NewMessage<'a>) -> ChatFuture<'a, MessageRef> {
        Box::pin(async move {
            let (text, entities) = text(new.message);
            let mut body = json!({
                "chat_id": chat_id(&new.target.to),
                "text": text,
                "entities": entities,
                "link_preview_options": { "is_disabled": true },
            });
            if !new.message.buttons.is_empty() {
                body["reply_markup"] = keyboard(new.message);
            }
            let thread = new.target.thread.as_ref();
            if let Some(thread) = thread.and_then(|id| id.parse::<i64>().ok()) {
                body["message_thread_id"] = json!(thread);
            }
            let sent = self.ask(ServiceCall::post("sendMessage", &body)).await?;
            let (chat, message) = (&sent["chat"]["id"], &sent["message_id"]);
            MessageRef::named("Telegram", id_text(chat), id_text(message))
        })
    }

    fn edit<'a>(&'a self, edit: MessageEdit<'a>) -> ChatFuture<'a, ()> {
        Box::pin(async move {
            let (text, entities) = text(edit.message);
            let body = json!({
                "chat_id": chat_id(&edit.at.chat),
                "message_id": chat_id(&edit.at.message),
                "text": text,
                "entities": entities,
                "link_preview_options": { "is_disabled": true },
                "reply_markup": keyboard(edit.message),
            });
            match self.ask(ServiceCall::post("editMessageText", &body)).await {
                // The edit was repeated.
                Err(ChatFailure::Refused(why)) if why.contains("not modified") => Ok(()),
                done => done.map(|_| ()),
            }
        })
    }

    fn remove<'a>(&'a self, at: &'a MessageRef, _key: &'a str) -> ChatFuture<'a, ()> {
        Box::pin(async move {
            let body = json!({ "chat_id": chat_id(&at.chat), "message_id": chat_id(&at.message) });
            self.ask(ServiceCall::post("deleteMessage", &body)).await?;
            Ok(())
        })
    }

    fn updates<'a>(&'a self, from: ReadFrom<'a>) -> ChatFuture<'a, ChatUpdates> {
        Box::pin(async move {
            let name = self.name().await?;
            let time = until_beat();
            let offset = from.cursor.and_then(|cursor| cursor.parse::<i64>().ok());
            let body = json!({
                // Before the first cursor, all updates are old, and only the number of the last one
                // is read.
                "offset": offset.unwrap_or(-1),
                // With so few updates, the answer is never too long to be read.
                "limit": 25,
                "timeout": if offset.is_some() { time.as_secs() } else { 0 },
                "allowed_updates": ["message", "callback_query"],
            });
            let call = ServiceCall::post("getUpdates", &body).waiting(time);
            let found = self.ask(call).await?;
            let found = found.as_array().cloned().unwrap_or_default();
            let number = |one: &Value| one["update_id"].as_i64();
            let last = found.iter().filter_map(number).max();
            let unread = offset.unwrap_or(0);
            let next = last.map_or(unread, |last| last.saturating_add(1).max(unread));
            let updates = match offset {
                // Confirmed updates are not new, even if a server returns them again.
                Some(unread) => {
                    let is_new = |one: &&Value| number(one).is_some_and(|at| at >= unread);
                    let new = found.iter().filter(is_new);
                    new.filter_map(|one| read_update(one, name)).collect()
                }
                None => Vec::new(),
            };
            Ok(ChatUpdates {
                updates,
                cursor: Some(next.to_string()),
            })
        })
    }

    fn reply<'a>(&'a self, to: &'a ChatPlace, text: &'a str) -> ChatFuture<'a, ()> {
        Box::pin(async move {
            if let Some(interaction) = &to.interaction {
                // Telegram shows at most 200 characters.
                let text: String = text.chars().take(200).collect();
                let body = json!({
                    "callback_query_id": interaction,
                    "text": text,
                    "show_alert": !text.is_empty(),
                });
                self.ask(ServiceCall::post("answerCallbackQuery", &body))
                    .await?;
                return Ok(());
            }
            let length = text.encode_utf16().count();
            let body = json!({
                "chat_id": chat_id(&to.chat),
                "text": text,
                "entities": [{ "type": "code", "offset": 0, "length": length }],
                "reply_parameters": {
                    "message_id": chat_id(&to.message), "allow_sending_without_reply": true,
                },
                "link_preview_options": { "is_disabled": true },
            });
            self.ask(ServiceCall::post("sendMessage", &body)).await?;
            Ok(())
        })
    }

    fn whoami(&self) -> ChatFuture<'_, String> {
        Box::pin(async move {
            let known = self.ask(ServiceCall::post("getMe", &json!({}))).await?;
            let name = known["username"].as_str().unwrap_or("a bot");
            Ok(format!("@{name}"))
        })
    }
}

fn id_text(value: &Value) -> Option<String> {
    value.as_i64().map(|id| id.to_string())
}

/// Returns a person's id. Bots, and chats that write as themselves, are not persons.
fn person(from: &Value) -> Option<String> {
    (from["is_bot"] == false).then(|| id_text(&from["id"]))?
}

fn read_update(update: &Value, own_name: &str) -> Option<ChatUpdate> {
    if let Some(query) = update.get("callback_query") {
        let message = &query["message"];
        let tap = ChatTap::named(query["data"].as_str()?)?;
        return Some(ChatUpdate::Tapped {
            sender: person(&query["from"])?,
            place: ChatPlace {
                chat: id_text(&message["chat"]["id"])?,
                message: id_text(&message["message_id"])?,
                interaction: Some(query["id"].as_str()?.to_owned()),
                event: None,
            },
            tap,
            names: None,
            message: match message["edit_date"] {
                Value::Null => TappedMessage::Unedited,
                _ => TappedMessage::Edited,
            },
        });
    }
    let message = update.get("message")?;
    // Such keys mark forwards, messages sent through a bot, anonymous administrators, quotes, and
    // messages that a program sent for a person, or that were scheduled earlier.
    let foreign = [
        "forward_origin",
        "forward_date",
        "forward_from",
        "via_bot",
        "sender_chat",
        "quote",
        "external_reply",
        "edit_date",
        "is_automatic_forward",
        "sender_business_bot",
        "is_from_offline",
    ];
    if foreign.iter().any(|key| message.get(key).is_some()) {
        return None;
    }
    // Formatted text may be a quote or a code block. Commands and mentions are neither.
    let entities = message["entities"].as_array().into_iter().flatten();
    let is_plain = |entity: &Value| {
        matches!(
            entity["type"].as_str(),
            Some("bot_command" | "mention" | "url" | "hashtag" | "email" | "phone_number")
        )
    };
    if !entities.into_iter().all(is_plain) {
        return None;
    }
    Some(ChatUpdate::Typed {
        sender: person(&message["from"])?,
        place: ChatPlace {
            chat: id_text(&message["chat"]["id"])?,
            message: id_text(&message["message_id"])?,
            interaction: None,
            event: None,
        },
        text: for_bot(message["text"].as_str()?, own_name)?,
        replies_to: id_text(&message["reply_to_message"]["message_id"]),
    })
}

/// Returns a text that is not for another bot. In groups, a command may carry the name of its bot.
fn for_bot(text: &str, own_name: &str) -> Option<String> {
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (first, rest) = text.split_at(end);
    match first
        .strip_prefix('/')
        .and_then(|word| word.split_once('@'))
    {
        Some((_, name)) if !name.eq_ignore_ascii_case(own_name) => None,
        Some((word, _)) => Some(format!("/{word}{rest}")),
        None => Some(text.to_owned()),
    }
}

#[cfg(test)]
mod tests;
