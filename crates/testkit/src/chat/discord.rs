//! A stand-in for Discord: its HTTP interface and its gateway socket, as its documentation
//! describes them. It is not Discord.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::{Value, json};

use super::socket::{ChatSocket, ClientDid};
use super::{ChatCall, HttpsServer, Shared};
use crate::Machine;

pub const DISCORD_APPLICATION: &str = "100000000000000001";
pub const DISCORD_BOT: &str = "100000000000000002";

pub struct DiscordStandIn {
    pub server: HttpsServer,
    pub state: Arc<Shared<DiscordState>>,
}

#[derive(Default)]
pub struct DiscordState {
    /// The numbered events of the session. A resumed connection receives those after its last one.
    events: Vec<Value>,
    /// Messages that are sent unchanged to the next connection.
    outgoing: Vec<Value>,
    pub messages: BTreeMap<String, Value>,
    nonces: BTreeMap<String, String>,
    pub calls: Vec<(String, String, Value)>,
    pub sent: Vec<(String, Instant)>,
    /// What clients sent over the socket.
    pub heard: Vec<Value>,
    pub opened: usize,
    pub open: usize,
    /// The code with which the open connection is closed.
    pub close: Option<u16>,
    /// Whether sessions cannot be resumed.
    pub forgets: bool,
    pub heartbeat_ms: u64,
    /// Whether heartbeats are not answered.
    pub is_deaf: bool,
    /// The address that `/gateway/bot` names instead of this server.
    pub socket_url: Option<String>,
    pub starts_left: u64,
    pub answer: Option<(u16, Value)>,
    pub busy: usize,
}

impl DiscordStandIn {
    pub fn start(machine: &Machine) -> Self {
        let state = Arc::new(Shared::<DiscordState>::default());
        state.change(|state| {
            state.heartbeat_ms = 41_250;
            state.starts_left = 1_000;
        });
        let (serving, sockets) = (Arc::clone(&state), Arc::clone(&state));
        let port = Arc::new(AtomicU16::new(0));
        let (known, of_sockets) = (Arc::clone(&port), Arc::clone(&port));
        let server = HttpsServer::start_with_sockets(
            machine,
            move |call| discord_answer(&serving, known.load(Ordering::SeqCst), call),
            move |call, socket| serve(&sockets, of_sockets.load(Ordering::SeqCst), call, socket),
        );
        port.store(server.port, Ordering::SeqCst);
        Self { server, state }
    }

    /// Adds an event to the session.
    pub fn event(&self, kind: &str, event: &Value) {
        self.state.change(|state| {
            let number = state.events.len() + 2;
            let event = json!({ "op": 0, "t": kind, "s": number, "d": event });
            state.events.push(event);
        });
    }

    /// Sends the open connection a message that is not an event of the session.
    pub fn raw(&self, message: &Value) {
        self.state
            .change(|state| state.outgoing.push(message.clone()));
    }

    fn number() -> String {
        static NUMBER: Mutex<u64> = Mutex::new(300_000_000_000_000_000);
        let mut number = NUMBER.lock().unwrap();
        *number += 1;
        number.to_string()
    }

    /// Returns the event of a pressed button as Discord reports it.
    pub fn tap_event(&self, user: &str, message: &str, custom_id: &str) -> Value {
        let channel = self.state.lock().messages[message]["channel_id"].clone();
        let number = Self::number();
        json!({
            "id": number, "application_id": DISCORD_APPLICATION, "type": 3, "version": 1,
            "token": format!("interaction-{number}"), "channel_id": channel,
            "user": { "id": user, "username": "ada" },
            "message": { "id": message, "channel_id": channel,
                "author": { "id": DISCORD_BOT, "bot": true } },
            "data": { "custom_id": custom_id, "component_type": 2 },
        })
    }

    /// Presses the button of a message that carries this word.
    pub fn press(&self, user: &str, message: &str, word: &str) {
        let (_, buttons) = Self::shown(&self.state.lock().messages[message]);
        let pressed = buttons.iter().find(|id| id.starts_with(word));
        let pressed = pressed.cloned().unwrap_or_else(|| format!("{word}:none"));
        let event = self.tap_event(user, message, &pressed);
        self.event("INTERACTION_CREATE", &event);
    }

    /// Returns the event of a direct message as Discord reports it.
    pub fn message_event(&self, user: &str, channel: &str, text: &str) -> Value {
        json!({
            "id": Self::number(), "channel_id": channel, "type": 0, "content": text, "tts": false,
            "author": { "id": user, "username": "ada" }, "timestamp": "2026-01-01T00:00:00Z",
            "edited_timestamp": null, "mentions": [], "attachments": [], "embeds": [], "flags": 0,
        })
    }

    pub fn say(&self, user: &str, channel: &str, text: &str) {
        let event = self.message_event(user, channel, text);
        self.event("MESSAGE_CREATE", &event);
    }

    /// Returns the path and the body of each call whose path contains this part.
    pub fn calls(&self, part: &str) -> Vec<(String, Value)> {
        let state = self.state.lock();
        let calls = state
            .calls
            .iter()
            .filter(|(_, path, _)| path.contains(part));
        calls
            .map(|(_, path, body)| (path.clone(), body.clone()))
            .collect()
    }

    /// Returns the texts that only one person could see.
    pub fn told(&self) -> Vec<String> {
        let calls = self.calls("/webhooks/").into_iter();
        calls
            .map(|(_, body)| {
                assert_eq!(body["flags"], 68, "ephemeral: {body}");
                body["content"].as_str().unwrap().to_owned()
            })
            .collect()
    }

    /// Returns the text of a message, and the ids of its buttons.
    pub fn shown(message: &Value) -> (String, Vec<String>) {
        let rows = message["components"].as_array().into_iter().flatten();
        let buttons = rows.filter_map(|row| row["components"].as_array().cloned());
        let buttons = buttons.flatten();
        let ids = buttons.map(|button| button["custom_id"].as_str().unwrap().to_owned());
        let text = message["content"].as_str().unwrap_or_default();
        (text.to_owned(), ids.collect())
    }
}

fn serve(shared: &Shared<DiscordState>, port: u16, call: &ChatCall, mut socket: ChatSocket) {
    assert!(call.path.contains("v=10&encoding=json"), "{}", call.path);
    let every = shared.change(|state| {
        state.opened += 1;
        state.open += 1;
        state.heartbeat_ms
    });
    let mut is_open =
        socket.send(&json!({ "op": 10, "d": { "heartbeat_interval": every }, "s": null }));
    // The number of events that this connection received. `None` before it has a session.
    let mut got: Option<usize> = None;
    while is_open {
        let (next, raw, code) = shared.change(|state| {
            let next = got.and_then(|got| state.events.get(got).cloned());
            let raw = got.is_some().then(|| state.outgoing.pop()).flatten();
            (next, raw, state.close.take_if(|_| got.is_some()))
        });
        if let Some(next) = next {
            is_open = socket.send(&next);
            got = got.map(|got| got + 1);
        }
        if let Some(raw) = raw {
            is_open = match raw.as_str() {
                Some(text) => socket.send_text(text),
                None => socket.send(&raw),
            };
        }
        if let Some(code) = code {
            socket.close(code);
            break;
        }
        let sent = match socket.read() {
            ClientDid::Sent(sent) => sent,
            ClientDid::Nothing => continue,
            ClientDid::Left => break,
        };
        shared.change(|state| state.heard.push(sent.clone()));
        let (forgets, is_deaf) = {
            let state = shared.lock();
            (state.forgets, state.is_deaf)
        };
        let is_known = sent["d"]["token"] == "discord-token";
        match sent["op"].as_u64() {
            Some(1) if !is_deaf => is_open = socket.send(&json!({ "op": 11 })),
            Some(2 | 6) if !is_known => {
                socket.close(4004);
                break;
            }
            Some(2) => {
                let ready = json!({ "op": 0, "t": "READY", "s": 1, "d": {
                    "v": 10, "user": { "id": DISCORD_BOT, "bot": true }, "guilds": [],
                    "session_id": "session-1",
                    "resume_gateway_url": format!("wss://127.0.0.1:{port}"),
                    "application": { "id": DISCORD_APPLICATION, "flags": 0 },
                } });
                is_open = socket.send(&ready);
                got = Some(shared.lock().events.len());
            }
            Some(6) if forgets => is_open = socket.send(&json!({ "op": 9, "d": false })),
            Some(6) => {
                let from = usize::try_from(sent["d"]["seq"].as_u64().unwrap()).unwrap();
                let missed = shared.lock().events[from.saturating_sub(1)..].to_vec();
                got = Some(from.saturating_sub(1) + missed.len());
                is_open = missed.iter().all(|event| socket.send(event))
                    && socket.send(&json!({ "op": 0, "t": "RESUMED", "s": from, "d": {} }));
            }
            _ => {}
        }
    }
    shared.change(|state| state.open -= 1);
}

fn discord_answer(shared: &Shared<DiscordState>, port: u16, call: &ChatCall) -> (u16, Value) {
    let path = call.path.trim_start_matches("/api/v10").to_owned();
    let body = call.json();
    shared.change(|state| {
        let method = call.method.as_str();
        state
            .calls
            .push((method.to_owned(), path.clone(), body.clone()));
        if let Some(answer) = &state.answer {
            return answer.clone();
        }
        if call.header("authorization") != "Bot discord-token" {
            return (401, json!({ "message": "401: Unauthorized", "code": 0 }));
        }
        assert!(call.header("user-agent").starts_with("DiscordBot ("));
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match (method, parts.as_slice()) {
            ("GET", ["gateway", "bot"]) => {
                let own = format!("wss://127.0.0.1:{port}");
                (
                    200,
                    json!({ "url": state.socket_url.clone().unwrap_or(own), "shards": 1,
                    "session_start_limit": { "total": 1000, "remaining": state.starts_left,
                        "reset_after": 600_000, "max_concurrency": 1 } }),
                )
            }
            ("GET", ["users", "@me"]) => (
                200,
                json!({ "id": DISCORD_BOT, "username": "interlock", "bot": true }),
            ),
            ("POST", ["users", "@me", "channels"]) => {
                let user = body["recipient_id"].as_str().unwrap();
                (200, json!({ "id": format!("5{user}"), "type": 1 }))
            }
            ("POST", ["channels", channel, "messages"]) => {
                if *channel == "403" {
                    let refused = json!({ "message": "Missing Access", "code": 50001 });
                    return (403, refused);
                }
                if state.busy > 0 {
                    state.busy -= 1;
                    let busy = json!({ "message": "You are being rate limited.",
                        "retry_after": 0.3, "global": false });
                    return (429, busy);
                }
                let nonce = body["nonce"].as_str().unwrap_or_default().to_owned();
                let known = state.nonces.get(&nonce).filter(|_| !nonce.is_empty());
                if let Some(id) = known {
                    return (200, json!({ "id": id, "channel_id": channel }));
                }
                let id = format!("20000000000000{:04}", state.messages.len() + 1);
                state.sent.push(((*channel).to_owned(), Instant::now()));
                let mut message = body.clone();
                message["channel_id"] = json!(channel);
                state.messages.insert(id.clone(), message);
                state.nonces.insert(nonce, id.clone());
                (200, json!({ "id": id, "channel_id": channel }))
            }
            ("PATCH", ["channels", channel, "messages", id]) => {
                let mut message = body.clone();
                message["channel_id"] = json!(channel);
                match state.messages.get_mut(*id) {
                    Some(known) => *known = message,
                    None => {
                        let gone = json!({ "message": "Unknown Message", "code": 10008 });
                        return (404, gone);
                    }
                }
                (200, json!({ "id": id, "channel_id": channel }))
            }
            ("DELETE", ["channels", _, "messages", id]) => {
                state.messages.remove(*id);
                (204, Value::Null)
            }
            ("POST", ["interactions", _, _, "callback"]) => (204, Value::Null),
            ("POST", ["webhooks", application, _]) if *application == DISCORD_APPLICATION => {
                (200, json!({ "id": "1" }))
            }
            _ => (404, json!({ "message": "404: Not Found", "code": 0 })),
        }
    })
}
