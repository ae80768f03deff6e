//! A stand-in for Slack: the web interface and Socket Mode, as their documentation describes them.
//! It is not Slack.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::socket::{ChatSocket, ClientDid};
use super::{ChatCall, HttpsServer, Shared};
use crate::Machine;

pub const SLACK_APP: &str = "A0INTERLOCK";
pub const SLACK_TEAM: &str = "T0HOME";
pub const SLACK_BOT: &str = "U0BOT";

pub struct SlackStandIn {
    pub server: HttpsServer,
    pub state: Arc<Shared<SlackState>>,
}

#[derive(Default)]
pub struct SlackState {
    /// Envelopes in order. Each goes to a single connection.
    outgoing: Vec<String>,
    delivered: usize,
    /// Messages by channel and time: the body, with buttons.
    pub messages: BTreeMap<(String, String), Value>,
    pub calls: Vec<(String, Value)>,
    /// When messages were sent to each channel.
    pub sent: Vec<(String, Instant)>,
    /// Envelopes that were acknowledged, and when each was sent.
    pub acknowledged: Vec<(String, Instant)>,
    pub delivered_at: BTreeMap<String, Instant>,
    /// Connections since the start, and those that are open.
    pub opened: usize,
    pub open: usize,
    /// The number of further messages that are answered with 429.
    pub busy: usize,
    /// The address that `apps.connections.open` names instead of this server.
    pub socket_url: Option<String>,
    /// The answer to every call, such as garbage.
    pub answer: Option<(u16, Value)>,
    numbers: u64,
}

impl SlackStandIn {
    pub fn start(machine: &Machine) -> Self {
        let state = Arc::new(Shared::<SlackState>::default());
        let (serving, sockets) = (Arc::clone(&state), Arc::clone(&state));
        let port = Arc::new(std::sync::atomic::AtomicU16::new(0));
        let known = Arc::clone(&port);
        let server = HttpsServer::start_with_sockets(
            machine,
            move |call| {
                let port = known.load(std::sync::atomic::Ordering::SeqCst);
                slack_answer(&serving, port, call)
            },
            move |call, socket| serve(&sockets, call, socket),
        );
        port.store(server.port, std::sync::atomic::Ordering::SeqCst);
        Self { server, state }
    }

    /// Sends any envelope and returns its id.
    pub fn envelope(&self, kind: &str, payload: &Value) -> String {
        self.state.change(|state| {
            state.numbers += 1;
            let id = format!("envelope-{}", state.numbers);
            let envelope = json!({ "envelope_id": id, "type": kind, "payload": payload,
                "accepts_response_payload": kind != "events_api" });
            state.outgoing.push(envelope.to_string());
            id
        })
    }

    /// Sends a text unchanged.
    pub fn raw(&self, text: &str) {
        self.state
            .change(|state| state.outgoing.push(text.to_owned()));
    }

    /// Returns the event of a pressed button as Slack reports it.
    pub fn tap_payload(&self, user: &str, at: &(String, String), action: &str) -> Value {
        let (channel, ts) = at;
        let message = self.state.lock().messages[at].clone();
        let blocks = message["blocks"].as_array().cloned().unwrap_or_default();
        let buttons = blocks.iter().filter(|block| block["type"] == "actions");
        let buttons = buttons.filter_map(|block| block["elements"].as_array().cloned());
        let button = buttons.flatten().find(|one| one["action_id"] == action);
        let value = button.map_or(Value::Null, |button| button["value"].clone());
        let time = self.state.change(|state| {
            state.numbers += 1;
            format!("17000000{:02}.000100", state.numbers)
        });
        json!({
            "type": "block_actions", "api_app_id": SLACK_APP, "token": "legacy",
            "team": { "id": SLACK_TEAM, "domain": "home" },
            "user": { "id": user, "username": "ada", "name": "ada", "team_id": SLACK_TEAM },
            "channel": { "id": channel, "name": "ops" },
            "container": { "type": "message", "message_ts": ts, "channel_id": channel,
                "is_ephemeral": false },
            "message": { "type": "message", "bot_id": "B0", "user": SLACK_BOT, "ts": ts,
                "app_id": SLACK_APP, "blocks": blocks },
            "trigger_id": format!("t.{time}"), "response_url": "https://hooks.slack.com/actions/x",
            "actions": [{ "type": "button", "action_id": action, "block_id": "b", "value": value,
                "action_ts": time }],
        })
    }

    pub fn press(&self, user: &str, at: &(String, String), action: &str) -> String {
        let payload = self.tap_payload(user, at, action);
        self.envelope("interactive", &payload)
    }

    /// Returns the event of a message as Slack reports it.
    pub fn message_payload(&self, user: &str, channel: &str, text: &str) -> Value {
        let number = self.state.change(|state| {
            state.numbers += 1;
            state.numbers
        });
        json!({
            "type": "event_callback", "api_app_id": SLACK_APP, "team_id": SLACK_TEAM,
            "event_id": format!("Ev{number}"), "event_time": 1,
            "event": { "type": "message", "channel": channel, "channel_type": "channel",
                "user": user, "text": text, "ts": format!("1800.{number:06}"), "team": SLACK_TEAM },
        })
    }

    pub fn say(&self, user: &str, channel: &str, text: &str) -> String {
        let payload = self.message_payload(user, channel, text);
        self.envelope("events_api", &payload)
    }

    /// Returns the calls of one method.
    pub fn calls(&self, method: &str) -> Vec<Value> {
        let state = self.state.lock();
        let calls = state.calls.iter().filter(|(name, _)| name == method);
        calls.map(|(_, body)| body.clone()).collect()
    }

    /// Returns the texts that only one person could see, each with that person.
    pub fn told(&self) -> Vec<(String, String)> {
        let calls = self.calls("chat.postEphemeral").into_iter();
        calls
            .map(|call| {
                let text = call["blocks"][0]["elements"][0]["elements"][0]["text"].clone();
                let text = text.as_str().unwrap_or_default().to_owned();
                (call["user"].as_str().unwrap_or_default().to_owned(), text)
            })
            .collect()
    }

    pub fn is_acknowledged(&self, envelope: &str) -> bool {
        let state = self.state.lock();
        state.acknowledged.iter().any(|(id, _)| id == envelope)
    }

    /// Returns everything that a message shows, and the words of its buttons.
    pub fn shown(message: &Value) -> (String, Vec<String>) {
        let (mut text, mut buttons) = (Vec::new(), Vec::new());
        for block in message["blocks"].as_array().into_iter().flatten() {
            for element in block["elements"].as_array().into_iter().flatten() {
                if block["type"] == "actions" {
                    buttons.push(element["action_id"].as_str().unwrap().to_owned());
                }
                for part in element["elements"].as_array().into_iter().flatten() {
                    let shown = part["text"].as_str().or(part["url"].as_str());
                    text.push(shown.unwrap_or_default().to_owned());
                }
            }
        }
        (text.join("\n"), buttons)
    }
}

fn serve(shared: &Shared<SlackState>, call: &ChatCall, mut socket: ChatSocket) {
    if !call.path.starts_with("/link/?ticket=slack-ticket") {
        return;
    }
    shared.change(|state| {
        state.opened += 1;
        state.open += 1;
    });
    let hello = json!({ "type": "hello", "num_connections": 1,
        "connection_info": { "app_id": SLACK_APP }, "debug_info": { "host": "applink-1" } });
    let mut is_open = socket.send(&hello);
    while is_open {
        let next = shared.change(|state| {
            let text = state.outgoing.get(state.delivered).cloned()?;
            state.delivered += 1;
            let value: Value = serde_json::from_str(&text).unwrap_or_default();
            if let Some(id) = value["envelope_id"].as_str() {
                state.delivered_at.insert(id.to_owned(), Instant::now());
            }
            Some((text, value["type"] == "disconnect"))
        });
        if let Some((text, is_last)) = next {
            is_open = socket.send_text(&text) && !is_last;
        }
        match socket.read() {
            ClientDid::Sent(value) => shared.change(|state| {
                let id = value["envelope_id"].as_str().unwrap_or_default().to_owned();
                state.acknowledged.push((id, Instant::now()));
            }),
            ClientDid::Nothing => {}
            ClientDid::Left => is_open = false,
        }
    }
    socket.close(1000);
    shared.change(|state| state.open -= 1);
}

fn slack_answer(shared: &Shared<SlackState>, port: u16, call: &ChatCall) -> (u16, Value) {
    let method = call.path.trim_start_matches("/api/").to_owned();
    let body = call.json();
    shared.change(|state| {
        state.calls.push((method.clone(), body.clone()));
        if let Some(answer) = &state.answer {
            return answer.clone();
        }
        let wanted = match method.as_str() {
            "apps.connections.open" => "Bearer xapp-slack-app",
            _ => "Bearer xoxb-slack-bot",
        };
        if call.header("authorization") != wanted {
            return (200, json!({ "ok": false, "error": "invalid_auth" }));
        }
        let channel = body["channel"].as_str().unwrap_or_default().to_owned();
        let at = |ts: &Value| (channel.clone(), ts.as_str().unwrap_or_default().to_owned());
        let mut answer = match method.as_str() {
            "auth.test" => json!({ "url": "https://home.slack.com/", "team": "Home",
                "user": "interlock", "team_id": SLACK_TEAM, "user_id": SLACK_BOT, "bot_id": "B0" }),
            "apps.connections.open" => {
                let own = format!("wss://127.0.0.1:{port}/link/?ticket=slack-ticket&app_id=1");
                json!({ "url": state.socket_url.clone().unwrap_or(own) })
            }
            "chat.postMessage" if channel == "C0GONE" => {
                return (200, json!({ "ok": false, "error": "channel_not_found" }));
            }
            "chat.postMessage" if state.busy > 0 => {
                state.busy -= 1;
                return (429, json!({ "ok": false, "error": "ratelimited" }));
            }
            "chat.postMessage" => {
                state.numbers += 1;
                let ts = format!("1600.{:06}", state.numbers);
                // A user stands for the direct channel with that user.
                let channel = match channel.strip_prefix('U') {
                    Some(user) => format!("D{user}"),
                    None => channel,
                };
                state.sent.push((channel.clone(), Instant::now()));
                state
                    .messages
                    .insert((channel.clone(), ts.clone()), body.clone());
                json!({ "channel": channel, "ts": ts, "message": body })
            }
            "chat.update" => match state.messages.get_mut(&at(&body["ts"])) {
                Some(message) => {
                    *message = body.clone();
                    json!({ "channel": channel, "ts": body["ts"] })
                }
                None => return (200, json!({ "ok": false, "error": "message_not_found" })),
            },
            "chat.delete" => {
                state.messages.remove(&at(&body["ts"]));
                json!({})
            }
            "chat.postEphemeral" => json!({ "message_ts": "1.1" }),
            _ => return (200, json!({ "ok": false, "error": "unknown_method" })),
        };
        answer["ok"] = json!(true);
        (200, answer)
    })
}
