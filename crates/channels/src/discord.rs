//! Discord: sends messages with buttons over its HTTP interface, and receives events over its
//! gateway socket.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::channel::{
    ChatChannel, ChatFailure, ChatFuture, ChatPlace, ChatUpdates, MessageEdit, MessageRef,
    NewMessage, ReadFrom,
};
use crate::direct::DirectChats;
use crate::http::{ServiceAccount, ServiceCall, ServiceReply, escaped};
use crate::message::ChatMessage;
use crate::settings::{AccountSetup, ChatTarget};
use crate::socket::SocketFeed;

mod gateway;
mod read;

/// The limit of a message. Discord counts characters, of which there are never more than UTF-16
/// units.
const MOST_UNITS: usize = 2_000;

/// The version of the interface.
const API: &str = "/v10";

/// The name in the form that Discord requires of programs.
const AGENT: &str = concat!(
    "DiscordBot (https://interlock.invalid, ",
    env!("CARGO_PKG_VERSION"),
    ")"
);

/// Flags of messages: links get no previews, and only one person sees the message.
const SUPPRESS_EMBEDS: u64 = 1 << 2;
const EPHEMERAL: u64 = 1 << 6;

/// The time within which an acknowledgment must arrive. Discord waits three seconds.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(2_500);

/// One bot.
#[derive(Debug)]
pub(crate) struct DiscordBot {
    account: Arc<DiscordAccount>,
    feed: SocketFeed,
    direct: DirectChats,
}

#[derive(Debug)]
struct DiscordAccount(ServiceAccount);

impl DiscordAccount {
    async fn ask(&self, call: ServiceCall) -> Result<Value, ChatFailure> {
        let authorization = format!("Bot {}", self.0.token.expose());
        let call = call.header("authorization", authorization);
        let call = call.header("user-agent", AGENT.to_owned()).below(API);
        let mut reply = self.0.call(call).await?;
        if reply.is_success() {
            return Ok(reply.json);
        }
        if let Some(seconds) = reply.json["retry_after"].as_f64() {
            let seconds = seconds.clamp(0.1, 600.0);
            reply.retry_after = Some(Duration::from_secs_f64(seconds));
        }
        Err(failure(&reply))
    }

    /// Acknowledges a button without a visible answer. The answer follows separately.
    async fn acknowledge(&self, id: &str, token: &str) -> Result<(), ChatFailure> {
        let path = format!("/interactions/{}/{}/callback", escaped(id), escaped(token));
        // Type 6 is a deferred update of the message.
        let call = ServiceCall::post(path, &json!({ "type": 6 }));
        let answered = self.ask(call.within(ACKNOWLEDGED_WITHIN));
        answered.await.map(|_| ())
    }
}

fn failure(reply: &ServiceReply) -> ChatFailure {
    let words = reply.json["message"].as_str().unwrap_or_default();
    match reply.json["code"].as_i64() {
        Some(code) => reply.failure(&format!("{code} {words}")),
        None => reply.failure(words),
    }
}

impl DiscordBot {
    pub(crate) fn new(setup: &AccountSetup) -> Self {
        Self {
            account: Arc::new(DiscordAccount(ServiceAccount::new(setup))),
            feed: SocketFeed::default(),
            direct: DirectChats::default(),
        }
    }

    async fn ask(&self, call: ServiceCall) -> Result<Value, ChatFailure> {
        self.account.ask(call).await
    }

    /// Returns the channel of a target. For a user it is the direct channel.
    async fn channel(&self, to: &str) -> Result<String, ChatFailure> {
        let Some(user) = to.strip_prefix("user:") else {
            return Ok(to.strip_prefix("channel:").unwrap_or(to).to_owned());
        };
        if let Some(channel) = self.direct.of(user) {
            return Ok(channel);
        }
        let body = json!({ "recipient_id": user });
        let made = self.ask(ServiceCall::post("/users/@me/channels", &body));
        let made = made.await?;
        let Some(channel) = made["id"].as_str() else {
            return Err(ChatFailure::Passing("Discord named no channel".to_owned()));
        };
        self.direct.remember(user, channel);
        Ok(channel.to_owned())
    }
}

/// Returns the text: a block of code, in which nothing is markup, and the link.
fn text(message: &ChatMessage) -> String {
    let lines = [&message.title, &message.block, &message.note];
    let lines: Vec<&str> = lines
        .iter()
        .map(|line| line.as_str())
        .filter(|line| !line.is_empty())
        .collect();
    let text = code_block(&lines.join("\n"));
    match &message.link {
        Some(link) => format!("{text}\n<{link}>"),
        None => text,
    }
}

/// Returns a block of code that its text cannot leave. A fence within the text is replaced.
fn code_block(text: &str) -> String {
    let text = text.replace(FENCE, "ˋˋˋ");
    format!("{FENCE}\n{text}\n{FENCE}")
}

/// The mark that ends a block of code.
const FENCE: &str = "```";

fn content(message: &ChatMessage) -> Value {
    let buttons = message.subject.as_ref().map(|subject| {
        let buttons = message.buttons.iter().map(|button| {
            json!({
                "type": 2,
                // Every button is gray, so that none invites a press more than the others.
                "style": 2,
                "label": button.label,
                "custom_id": format!("{}:{}", button.tap.word(), subject.id),
            })
        });
        buttons.collect::<Vec<Value>>()
    });
    let rows = match buttons {
        Some(buttons) if !buttons.is_empty() => json!([{ "type": 1, "components": buttons }]),
        // The list must be sent even if it is empty: an edit without it keeps the message's
        // buttons.
        _ => json!([]),
    };
    json!({
        "content": text(message),
        "components": rows,
        "allowed_mentions": { "parse": [] },
        "flags": SUPPRESS_EMBEDS,
    })
}

impl ChatChannel for DiscordBot {
    /// A text that contains a fence is not shown unaltered.
    fn fits(&self, message: &ChatMessage) -> bool {
        let parts = [&message.title, &message.block, &message.note];
        parts.iter().all(|part| !part.contains(FENCE))
            && text(message).encode_utf16().count() <= MOST_UNITS
    }

    fn pause(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// In channels of servers the bot reads no messages, because it would need the right to read
    /// all of them.
    fn takes_typed(&self, target: &ChatTarget) -> bool {
        target.to.starts_with("user:")
    }

    fn send<'a>(&'a self, new: NewMessage<'a>) -> ChatFuture<'a, MessageRef> {
        Box::pin(async move {
            let channel = new.target.thread.clone();
            let channel = match channel {
                // On Discord, a thread is a channel.
                Some(thread) => thread,
                None => self.channel(&new.target.to).await?,
            };
            let mut body = content(new.message);
            // Within a few minutes, a message with the same nonce is not sent again.
            body["nonce"] = json!(new.key.chars().take(25).collect::<String>());
            body["enforce_nonce"] = json!(true);
            let path = format!("/channels/{}/messages", escaped(&channel));
            let sent = self.ask(ServiceCall::post(path, &body)).await?;
            MessageRef::named("Discord", sent["channel_id"].as_str(), sent["id"].as_str())
        })
    }

    fn edit<'a>(&'a self, edit: MessageEdit<'a>) -> ChatFuture<'a, ()> {
        Box::pin(async move {
            let call = ServiceCall::patch(message_path(edit.at), &content(edit.message));
            self.ask(call).await.map(|_| ())
        })
    }

    fn remove<'a>(&'a self, at: &'a MessageRef, _key: &'a str) -> ChatFuture<'a, ()> {
        Box::pin(async move {
            let call = ServiceCall::delete(message_path(at));
            self.ask(call).await.map(|_| ())
        })
    }

    fn updates<'a>(&'a self, from: ReadFrom<'a>) -> ChatFuture<'a, ChatUpdates> {
        Box::pin(self.feed.updates(from.cursor, |cursor| {
            let account = Arc::clone(&self.account);
            Box::pin(gateway::open(account, cursor))
        }))
    }

    fn reply<'a>(&'a self, to: &'a ChatPlace, text: &'a str) -> ChatFuture<'a, ()> {
        Box::pin(async move {
            if text.is_empty() {
                return Ok(());
            }
            let shown: String = text.chars().take(MOST_UNITS / 2).collect();
            let mut body = json!({
                "content": code_block(&shown),
                "allowed_mentions": { "parse": [], "replied_user": false },
                "flags": SUPPRESS_EMBEDS,
            });
            let path = match &to.interaction {
                Some(interaction) => {
                    body["flags"] = json!(SUPPRESS_EMBEDS | EPHEMERAL);
                    format!("/webhooks/{interaction}")
                }
                None => {
                    body["message_reference"] =
                        json!({ "message_id": to.message, "fail_if_not_exists": false });
                    format!("/channels/{}/messages", escaped(&to.chat))
                }
            };
            self.ask(ServiceCall::post(path, &body)).await.map(|_| ())
        })
    }

    fn whoami(&self) -> ChatFuture<'_, String> {
        Box::pin(async move {
            let known = self.ask(ServiceCall::get("/users/@me")).await?;
            let name = known["username"].as_str().unwrap_or("a bot");
            Ok(format!("@{name}"))
        })
    }
}

fn message_path(at: &MessageRef) -> String {
    let (chat, message) = (escaped(&at.chat), escaped(&at.message));
    format!("/channels/{chat}/messages/{message}")
}

#[cfg(test)]
mod tests;
