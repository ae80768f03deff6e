//! Slack: sends messages with buttons over the web interface, and receives events over Socket Mode.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::address::ServiceAddress;
use crate::channel::{
    ChatChannel, ChatFailure, ChatFuture, ChatPlace, ChatUpdates, MessageEdit, MessageRef,
    NewMessage, ReadFrom,
};
use crate::http::{ServiceAccount, ServiceCall, short_line};
use crate::message::ChatMessage;
use crate::rhythm::until_beat;
use crate::settings::AccountSetup;
use crate::socket::{FeedSender, OpenSocket, ServiceSocket, SocketFeed, SocketRead, closed};

mod read;

use read::{SlackIdentity, read_envelope};

/// The limit of a message in UTF-16 units. Slack may cut longer ones.
const MOST_UNITS: usize = 4_000;

/// How long Slack may be silent although it is pinged.
const LONGEST_SILENCE: Duration = Duration::from_secs(75);

/// Socket Mode has no cursor. Slack itself repeats what it could not deliver.
const CURSOR: &str = "socket";

/// Errors after which the same call may succeed.
const PASSING: [&str; 6] = [
    "fatal_error",
    "internal_error",
    "request_timeout",
    "service_unavailable",
    "message_limit_exceeded",
    "team_added_to_org",
];

/// One app in one workspace.
#[derive(Debug)]
pub(crate) struct SlackWorkspace {
    account: Arc<SlackAccount>,
    feed: SocketFeed,
}

/// The same app, by its two tokens.
#[derive(Debug)]
struct SlackAccount {
    bot: ServiceAccount,
    app: ServiceAccount,
}

impl SlackWorkspace {
    pub(crate) fn new(setup: &AccountSetup) -> Self {
        Self {
            account: Arc::new(SlackAccount {
                bot: ServiceAccount::new(setup),
                app: ServiceAccount::with_token(
                    setup.address.clone(),
                    setup.app_token.clone().unwrap_or_default(),
                ),
            }),
            feed: SocketFeed::default(),
        }
    }

    async fn ask(&self, method: &str, body: Value) -> Result<Value, ChatFailure> {
        ask(&self.account.bot, method, &body).await
    }
}

async fn ask(account: &ServiceAccount, method: &str, body: &Value) -> Result<Value, ChatFailure> {
    let call = ServiceCall::post(format!("/{method}"), body).bearer(&account.token);
    let reply = account.call(call).await?;
    if reply.is_success() && reply.json["ok"] == true {
        return Ok(reply.json);
    }
    let word = reply.json["error"].as_str().unwrap_or_default();
    if !reply.is_success() {
        return Err(reply.failure(word));
    }
    Err(match word {
        "" => ChatFailure::Passing("the answer is none of Slack's".to_owned()),
        "ratelimited" | "rate_limited" => ChatFailure::Busy {
            after: reply.retry_after.unwrap_or(Duration::from_secs(5)),
        },
        word => {
            let why = format!("Slack answers {}", short_line(word));
            if PASSING.contains(&word) {
                ChatFailure::Passing(why)
            } else {
                ChatFailure::Refused(why)
            }
        }
    })
}

impl SlackAccount {
    /// Returns the address of a socket. It contains a ticket, so it is used once and never written
    /// anywhere.
    async fn socket_address(&self) -> Result<(ServiceAddress, String), ChatFailure> {
        let method = "apps.connections.open";
        let opened = ask(&self.app, method, &json!({})).await?;
        let url = opened["url"].as_str().unwrap_or_default();
        let address = &self.app.address;
        let socket = address.socket(url, address.host());
        socket.map_err(ChatFailure::from)
    }

    async fn open(self: Arc<Self>) -> Result<OpenSocket, ChatFailure> {
        let known = ask(&self.bot, "auth.test", &json!({})).await?;
        let (address, path) = self.socket_address().await?;
        let mut socket = ServiceSocket::open(&address, &path).await?;
        let hello = socket.first().await?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let app = text(&hello["connection_info"]["app_id"]).filter(|_| hello["type"] == "hello");
        let own = app
            .zip(text(&known["team_id"]))
            .zip(text(&known["user_id"]));
        let Some(((app, team), user)) = own else {
            let why = "Slack does not say which app and workspace this is".to_owned();
            return Err(ChatFailure::Passing(why));
        };
        let own = SlackIdentity { app, team, user };
        Ok(OpenSocket {
            cursor: CURSOR.to_owned(),
            follow: Box::new(move |feed| {
                Box::pin(async move {
                    match follow(socket, &own, &feed).await {
                        Ok(failure) | Err(failure) => failure,
                    }
                })
            }),
        })
    }
}

/// Reads a socket until it ends. Every envelope is acknowledged as soon as it is read, because
/// Slack waits three seconds and a decision may take longer.
async fn follow(
    mut socket: ServiceSocket,
    own: &SlackIdentity,
    feed: &FeedSender,
) -> Result<ChatFailure, ChatFailure> {
    let mut heard = Instant::now();
    loop {
        let read = match tokio::time::timeout(until_beat(), socket.read()).await {
            Ok(read) => read?,
            Err(_) if heard.elapsed() >= LONGEST_SILENCE => {
                return Ok(ChatFailure::Passing("Slack is silent".to_owned()));
            }
            Err(_) => {
                socket.ping().await?;
                continue;
            }
        };
        heard = Instant::now();
        let envelope = match read {
            SocketRead::Json(envelope) => envelope,
            SocketRead::Alive => continue,
            SocketRead::Closed(code) => return Ok(closed(code)),
        };
        if envelope["type"] == "disconnect" {
            return Ok(if envelope["reason"] == "link_disabled" {
                ChatFailure::Refused("Socket Mode is switched off for the app".to_owned())
            } else {
                ChatFailure::Passing("Slack ends the connection for another one".to_owned())
            });
        }
        let Some(id) = envelope["envelope_id"].as_str() else {
            continue;
        };
        let is_taken = match read_envelope(&envelope, own) {
            Some(update) => feed.feed(update, CURSOR),
            None => true,
        };
        if is_taken {
            socket.send(&json!({ "envelope_id": id })).await?;
        }
    }
}

/// Returns the message as blocks without markup, and its text for notifications.
fn content(message: &ChatMessage) -> Value {
    let text = |text: &str, style: Value| {
        let mut element = json!({ "type": "text", "text": text });
        if !style.is_null() {
            element["style"] = style;
        }
        element
    };
    let section = |element: Value| json!({ "type": "rich_text_section", "elements": [element] });
    let code = json!({ "code": true });
    let mut elements = vec![section(text(&message.title, code.clone()))];
    if !message.block.is_empty() {
        let element = text(&message.block, Value::Null);
        elements.push(json!({ "type": "rich_text_preformatted", "elements": [element] }));
    }
    if !message.note.is_empty() {
        elements.push(section(text(&message.note, code)));
    }
    if let Some(link) = &message.link {
        elements.push(section(json!({ "type": "link", "url": link })));
    }
    let mut blocks = vec![json!({ "type": "rich_text", "elements": elements })];
    if let (Some(subject), [_, ..]) = (&message.subject, message.buttons.as_slice()) {
        let buttons = message.buttons.iter().map(|button| {
            json!({
                "type": "button",
                "action_id": button.tap.word(),
                "value": subject.id,
                "text": { "type": "plain_text", "text": button.label, "emoji": false },
            })
        });
        let buttons: Vec<Value> = buttons.collect();
        blocks.push(json!({ "type": "actions", "elements": buttons }));
    }
    let mut short = message.title.replace('&', "&amp;");
    short = short.replace('<', "&lt;").replace('>', "&gt;");
    json!({
        "text": short,
        "blocks": blocks,
        "parse": "none",
        "link_names": false,
    })
}

/// Returns the id of a target: `C…`, `G…` or `D…`, or a user, for whom Slack opens a direct
/// message.
fn channel_of(to: &str) -> &str {
    let bare = to.strip_prefix("channel:").or(to.strip_prefix("user:"));
    bare.unwrap_or(to)
}

impl ChatChannel for SlackWorkspace {
    fn fits(&self, message: &ChatMessage) -> bool {
        let link = message.link.as_deref().unwrap_or_default();
        let parts = [&message.title, &message.block, &message.note, link];
        let units = parts.iter().map(|part| part.encode_utf16().count());
        units.sum::<usize>() <= MOST_UNITS
    }

    fn pause(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn send<'a>(&'a self, new: NewMessage<'a>) -> ChatFuture<'a, MessageRef> {
        Box::pin(async move {
            let mut body = content(new.message);
            body["channel"] = json!(channel_of(&new.target.to));
            body["unfurl_links"] = json!(false);
            body["unfurl_media"] = json!(false);
            if let Some(thread) = &new.target.thread {
                body["thread_ts"] = json!(thread);
            }
            let sent = self.ask("chat.postMessage", body).await?;
            MessageRef::named("Slack", sent["channel"].as_str(), sent["ts"].as_str())
        })
    }

    fn edit<'a>(&'a self, edit: MessageEdit<'a>) -> ChatFuture<'a, ()> {
        Box::pin(async move {
            let mut body = content(edit.message);
            body["channel"] = json!(edit.at.chat);
            body["ts"] = json!(edit.at.message);
            self.ask("chat.update", body).await.map(|_| ())
        })
    }

    fn remove<'a>(&'a self, at: &'a MessageRef, _key: &'a str) -> ChatFuture<'a, ()> {
        Box::pin(async move {
            let body = json!({ "channel": at.chat, "ts": at.message });
            self.ask("chat.delete", body).await.map(|_| ())
        })
    }

    fn updates<'a>(&'a self, from: ReadFrom<'a>) -> ChatFuture<'a, ChatUpdates> {
        Box::pin(self.feed.updates(from.cursor, |_| {
            let account = Arc::clone(&self.account);
            Box::pin(account.open())
        }))
    }

    /// Replies so that only the person sees it.
    fn reply<'a>(&'a self, to: &'a ChatPlace, text: &'a str) -> ChatFuture<'a, ()> {
        Box::pin(async move {
            let Some(person) = to.interaction.as_ref().filter(|_| !text.is_empty()) else {
                return Ok(());
            };
            let message = ChatMessage {
                title: text.to_owned(),
                ..ChatMessage::default()
            };
            let mut body = content(&message);
            body["channel"] = json!(to.chat);
            body["user"] = json!(person);
            self.ask("chat.postEphemeral", body).await.map(|_| ())
        })
    }

    fn whoami(&self) -> ChatFuture<'_, String> {
        Box::pin(async move {
            let known = self.ask("auth.test", json!({})).await?;
            // The app token is checked as well, because decisions arrive only through it.
            self.account.socket_address().await?;
            let (user, team) = (known["user"].as_str(), known["team"].as_str());
            let name = format!("{} in {}", user.unwrap_or("a bot"), team.unwrap_or("Slack"));
            Ok(name)
        })
    }
}

#[cfg(test)]
mod tests;
