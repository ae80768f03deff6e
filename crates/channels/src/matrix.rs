//! Matrix: `/sync`, messages and reactions. Interlock does not support end-to-end encryption, so
//! each send first checks the room and refuses an encrypted one.

use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::channel::{
    ChatChannel, ChatFailure, ChatFuture, ChatPlace, ChatTap, ChatUpdate, ChatUpdates, MessageEdit,
    MessageRef, NewMessage, ReadFrom,
};
use crate::direct::DirectChats;
use crate::http::{ServiceAccount, ServiceCall, ServiceReply, escaped};
use crate::message::ChatMessage;
use crate::rhythm::until_beat;
use crate::settings::AccountSetup;
use interlock_wire::Secret;

mod read;

use read::{invitations, read_any, read_updates};

/// The limit of a text. A Matrix event has at most 64 KiB, with what the server adds.
const MOST_BYTES: usize = 60_000;

const API: &str = "/_matrix/client/v3";

/// The reactions that Interlock adds to each prompt.
const SEEDS: [(ChatTap, &str); 3] = [
    (ChatTap::AllowOnce, "✅"),
    (ChatTap::Deny, "❌"),
    (ChatTap::AllowAlways, "♾️"),
];

/// The most events of a room in one sync.
const MOST_EVENTS: u32 = 100;

/// The types of events that Interlock reads.
const TYPES: &str = r#"["m.room.message","m.reaction"]"#;

fn sync_filter(most_events: u32) -> String {
    let none = r#"{"types":[]}"#;
    format!(
        r#"{{"presence":{none},"account_data":{none},"room":{{"account_data":{none},"ephemeral":{none},"state":{none},"timeline":{{"limit":{most_events},"types":{TYPES}}}}}}}"#
    )
}

/// One account.
#[derive(Debug)]
pub(crate) struct MatrixAccountChannel {
    account: ServiceAccount,
    user: String,
    direct: DirectChats,
}

impl MatrixAccountChannel {
    pub(crate) fn new(setup: &AccountSetup) -> Self {
        Self {
            account: ServiceAccount::new(setup),
            user: setup.own_id.clone().unwrap_or_default(),
            direct: DirectChats::default(),
        }
    }

    async fn ask(&self, call: ServiceCall) -> Result<ServiceReply, ChatFailure> {
        let call = call.bearer(&self.account.token);
        let mut reply = self.account.call(call).await?;
        if let Some(ms) = reply.json["retry_after_ms"].as_u64() {
            reply.retry_after = Some(Duration::from_millis(ms.clamp(100, 600_000)));
        }
        Ok(reply)
    }

    async fn ok(&self, call: ServiceCall) -> Result<Value, ChatFailure> {
        let reply = self.ask(call).await?;
        if reply.is_success() {
            Ok(reply.json)
        } else {
            Err(failure(&reply))
        }
    }

    /// Returns the room of a target. For a user it is the direct room, which is created at its
    /// first use.
    async fn room(&self, to: &str) -> Result<String, ChatFailure> {
        if !to.starts_with('@') {
            return Ok(to.to_owned());
        }
        if let Some(room) = self.direct.of(to) {
            return Ok(room);
        }
        let path = format!("{API}/user/{}/account_data/m.direct", escaped(&self.user));
        let reply = self.ask(ServiceCall::get(path.as_str())).await?;
        let mut listed = match reply.status {
            404 => json!({}),
            // If the account data is not a list of rooms, a new list replaces it.
            _ if reply.is_success() && !reply.json.is_object() => json!({}),
            _ if reply.is_success() => reply.json,
            _ => return Err(failure(&reply)),
        };
        let all_joined = format!("{API}/joined_rooms");
        let joined = self.ok(ServiceCall::get(all_joined)).await?["joined_rooms"].clone();
        let joined: Vec<&str> = strings(&joined).collect();
        let found = strings(&listed[to]).find(|room| joined.contains(room));
        let room = match found {
            Some(room) => room.to_owned(),
            None => {
                let body = json!({
                    "preset": "private_chat",
                    "is_direct": true,
                    "invite": [to],
                    "name": "Interlock",
                });
                let create = format!("{API}/createRoom");
                let made = self.ok(ServiceCall::post(create, &body)).await?;
                let room = made["room_id"].as_str().unwrap_or_default().to_owned();
                if room.is_empty() {
                    return Err(ChatFailure::Passing("the server made no room".to_owned()));
                }
                let mut rooms: Vec<String> = strings(&listed[to]).map(str::to_owned).collect();
                rooms.push(room.clone());
                listed[to] = json!(rooms);
                self.ok(ServiceCall::put(path, &listed)).await?;
                room
            }
        };
        self.direct.remember(to, &room);
        Ok(room)
    }

    async fn sync(
        &self,
        since: Option<&str>,
        time: Duration,
        most_events: u32,
    ) -> Result<ServiceReply, ChatFailure> {
        let filter = escaped(&sync_filter(most_events));
        let path = match since {
            Some(since) => format!(
                "{API}/sync?timeout={}&filter={filter}&since={}",
                time.as_millis(),
                escaped(since)
            ),
            None => format!("{API}/sync?timeout=0&filter={filter}"),
        };
        self.ask(ServiceCall::get(path).waiting(time)).await
    }

    /// Returns the updates of approvers that a sync left out, because others wrote so much in a
    /// room. An agent that writes a lot must not hide an approver's answer.
    async fn pushed_out(
        &self,
        synced: &Value,
        since: &str,
        approvers: &[String],
    ) -> Result<Vec<ChatUpdate>, ChatFailure> {
        let rooms = synced["rooms"]["join"].as_object().into_iter().flatten();
        let mut updates = Vec::new();
        for (room, joined) in rooms {
            let timeline = &joined["timeline"];
            let (true, Some(end)) = (timeline["limited"] == true, timeline["prev_batch"].as_str())
            else {
                continue;
            };
            let senders = approvers.iter().chain([&self.user]);
            let senders = json!(senders.collect::<Vec<_>>());
            let filter = format!(r#"{{"senders":{senders},"types":{TYPES}}}"#);
            let path = format!(
                "{API}/rooms/{}/messages?dir=b&limit={MOST_EVENTS}&from={}&to={}&filter={}",
                escaped(room),
                escaped(end),
                escaped(since),
                escaped(&filter)
            );
            let found = match self.ok(ServiceCall::get(path)).await {
                Ok(found) => found,
                // One unreadable room must not keep the account from reading the others.
                Err(ChatFailure::Refused(why)) => {
                    tracing::warn!(why, room, "what was left out of a room cannot be read");
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            let events = found["chunk"].as_array().into_iter().flatten().rev();
            updates.extend(events.filter_map(|event| read_any(room, event, &self.user)));
        }
        Ok(updates)
    }

    /// Refuses an encrypted room, because Interlock could not encrypt its messages.
    async fn check_plain(&self, room: &str) -> Result<(), ChatFailure> {
        let path = format!("{API}/rooms/{}/state/m.room.encryption", escaped(room));
        let reply = self.ask(ServiceCall::get(path)).await?;
        match reply.status {
            404 => Ok(()),
            _ if reply.is_success() => Err(ChatFailure::Refused(
                "the room is encrypted, and Interlock has no end-to-end encryption: use another room"
                    .to_owned(),
            )),
            _ => Err(failure(&reply)),
        }
    }

    async fn put_event(
        &self,
        room: &str,
        kind: &str,
        key: &str,
        content: Value,
    ) -> Result<String, ChatFailure> {
        let path = format!("{API}/rooms/{}/send/{kind}/{key}", escaped(room));
        let sent = self.ok(ServiceCall::put(path, &content)).await?;
        match sent["event_id"].as_str() {
            Some(event) => Ok(event.to_owned()),
            None => Err(ChatFailure::Passing("the server named no event".to_owned())),
        }
    }

    /// Removes Interlock's own reactions, so that an ended prompt has no buttons.
    async fn remove_seeds(&self, at: &MessageRef, key: &str) -> Result<(), ChatFailure> {
        let (room, event) = (escaped(&at.chat), escaped(&at.message));
        let path = format!(
            "/_matrix/client/v1/rooms/{room}/relations/{event}/m.annotation/m.reaction?limit=100"
        );
        let found = self.ok(ServiceCall::get(path)).await?;
        let events = found["chunk"].as_array().into_iter().flatten();
        let own = events.filter(|event| event["sender"] == self.user.as_str());
        for (number, seed) in own.enumerate() {
            let Some(id) = seed["event_id"].as_str() else {
                continue;
            };
            let path = format!("{API}/rooms/{room}/redact/{}/{key}r{number}", escaped(id));
            self.ok(ServiceCall::put(path, &json!({}))).await?;
        }
        Ok(())
    }
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str)
}

fn failure(reply: &ServiceReply) -> ChatFailure {
    let code = reply.json["errcode"].as_str().unwrap_or_default();
    let words = reply.json["error"].as_str().unwrap_or_default();
    reply.failure(format!("{code} {words}").trim())
}

/// Returns the text, and the same text as HTML in which only Interlock's own tags are markup.
fn content(message: &ChatMessage) -> Value {
    let mut body = format!("{}\n{}", message.title, message.block);
    let mut html = format!(
        "<code>{}</code><pre><code>{}</code></pre>",
        html_text(&message.title),
        html_text(&message.block)
    );
    if !message.note.is_empty() {
        body.push_str(&format!("\n{}", message.note));
        html.push_str(&format!("<code>{}</code>", html_text(&message.note)));
    }
    if let Some(link) = &message.link {
        body.push_str(&format!("\n{link}"));
        let link = html_text(link);
        html.push_str(&format!("<br><a href=\"{link}\">{link}</a>"));
    }
    json!({
        "msgtype": "m.text",
        "body": body,
        "format": "org.matrix.custom.html",
        "formatted_body": html,
        "m.mentions": {},
    })
}

fn html_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

impl ChatChannel for MatrixAccountChannel {
    fn fits(&self, message: &ChatMessage) -> bool {
        // An edit contains the text twice.
        content(message).to_string().len() <= MOST_BYTES
    }

    fn pause(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn send<'a>(&'a self, new: NewMessage<'a>) -> ChatFuture<'a, MessageRef> {
        Box::pin(async move {
            let room = self.room(&new.target.to).await?;
            self.check_plain(&room).await?;
            let mut content = content(new.message);
            if let Some(thread) = &new.target.thread {
                content["m.relates_to"] = json!({ "rel_type": "m.thread", "event_id": thread });
            }
            let event = self
                .put_event(&room, "m.room.message", new.key, content)
                .await?;
            Ok(MessageRef {
                chat: room,
                message: event,
            })
        })
    }

    fn send_buttons<'a>(&'a self, of: MessageEdit<'a>) -> BoxFuture<'a, ()> {
        let MessageEdit { at, message, key } = of;
        Box::pin(async move {
            for (number, (tap, seed)) in SEEDS.into_iter().enumerate() {
                if !message.buttons.iter().any(|button| button.tap == tap) {
                    continue;
                }
                let relation = json!({ "m.relates_to": {
                    "rel_type": "m.annotation", "event_id": at.message, "key": seed,
                } });
                let key = format!("{key}s{number}");
                if let Err(failure) = self.put_event(&at.chat, "m.reaction", &key, relation).await {
                    tracing::debug!(%failure, "a prompt has no seeds");
                    break;
                }
            }
        })
    }

    fn edit<'a>(&'a self, edit: MessageEdit<'a>) -> ChatFuture<'a, ()> {
        Box::pin(async move {
            let MessageEdit { at, message, key } = edit;
            let new = content(message);
            let mut content = new.clone();
            content["body"] = json!(format!("* {}", message.title));
            content["formatted_body"] = json!(format!("* {}", html_text(&message.title)));
            content["m.new_content"] = new;
            content["m.relates_to"] = json!({ "rel_type": "m.replace", "event_id": at.message });
            self.put_event(&at.chat, "m.room.message", key, content)
                .await?;
            if message.buttons.is_empty()
                && let Err(failure) = self.remove_seeds(at, key).await
            {
                tracing::debug!(%failure, "seeds were not removed");
            }
            Ok(())
        })
    }

    fn remove<'a>(&'a self, at: &'a MessageRef, key: &'a str) -> ChatFuture<'a, ()> {
        Box::pin(async move {
            let (room, event) = (escaped(&at.chat), escaped(&at.message));
            let path = format!("{API}/rooms/{room}/redact/{event}/{key}");
            self.ok(ServiceCall::put(path, &json!({}))).await?;
            Ok(())
        })
    }

    fn updates<'a>(&'a self, from: ReadFrom<'a>) -> ChatFuture<'a, ChatUpdates> {
        Box::pin(async move {
            let mut reply = self.sync(from.cursor, until_beat(), MOST_EVENTS).await?;
            if reply.is_too_long {
                reply = self.sync(from.cursor, Duration::ZERO, 1).await?;
            }
            if !reply.is_success() {
                return Err(failure(&reply));
            }
            let synced = reply.json;
            for room in invitations(&synced, &self.user, from.approvers) {
                let path = format!("{API}/join/{}", escaped(&room));
                if let Err(failure) = self.ok(ServiceCall::post(path, &json!({}))).await {
                    tracing::warn!(%failure, "an invitation could not be accepted");
                }
            }
            Ok(ChatUpdates {
                // Before the first cursor is stored, all events are old.
                updates: match from.cursor {
                    Some(since) => {
                        let mut all = self.pushed_out(&synced, since, from.approvers).await?;
                        all.extend(read_updates(&synced, &self.user));
                        all
                    }
                    None => Vec::new(),
                },
                cursor: synced["next_batch"].as_str().map(str::to_owned),
            })
        })
    }

    fn reply<'a>(&'a self, to: &'a ChatPlace, text: &'a str) -> ChatFuture<'a, ()> {
        Box::pin(async move {
            let content = json!({
                "msgtype": "m.notice",
                "body": text,
                "m.mentions": {},
                "m.relates_to": { "m.in_reply_to": { "event_id": to.message } },
            });
            let key = Secret::generate()
                .map_err(|_| ChatFailure::Passing("the system has no random numbers".to_owned()))?;
            self.check_plain(&to.chat).await?;
            self.put_event(&to.chat, "m.room.message", key.expose(), content)
                .await?;
            Ok(())
        })
    }

    fn whoami(&self) -> ChatFuture<'_, String> {
        Box::pin(async move {
            let path = format!("{API}/account/whoami");
            let known = self.ok(ServiceCall::get(path)).await?;
            let user = known["user_id"].as_str().unwrap_or_default();
            if user == self.user {
                Ok(user.to_owned())
            } else {
                let why = format!("the token is of {user}, and userId is {}", self.user);
                Err(ChatFailure::Refused(why))
            }
        })
    }
}

#[cfg(test)]
mod tests;
