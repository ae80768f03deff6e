//! Stand-ins for chat servers: HTTPS on loopback, in the shapes that the platforms document. They
//! are not the real servers. `tests/run-heavy matrix` and `telegram` use those.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Machine;
use crate::tls::Certified;

mod discord;
mod slack;
mod socket;

pub use discord::{DISCORD_APPLICATION, DISCORD_BOT, DiscordStandIn};
pub use slack::{SLACK_APP, SLACK_BOT, SLACK_TEAM, SlackStandIn};
pub use socket::ChatSocket;

/// The longest time that a stand-in waits for events, unless it is patient.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// One call as a server received it.
#[derive(Debug, Clone)]
pub struct ChatCall {
    pub method: String,
    pub path: String,
    pub head: String,
    pub body: String,
}

impl ChatCall {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }

    pub fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut lines = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name));
        lines.next().map_or("", |(_, value)| value)
    }
}

/// An HTTPS server whose answers a function supplies.
pub struct HttpsServer {
    pub port: u16,
    /// The number of accepted connections, whatever was sent on them.
    pub accepted: Arc<AtomicUsize>,
    /// The number of answered calls, over all connections.
    pub answered: Arc<AtomicUsize>,
    /// While this is set, every call breaks off.
    pub is_away: Arc<AtomicBool>,
}

impl HttpsServer {
    /// Starts a server, and writes its certificate authority to where this machine's gateway looks
    /// for it.
    pub fn start(
        machine: &Machine,
        answer: impl Fn(&ChatCall) -> (u16, Value) + Send + Sync + 'static,
    ) -> Self {
        Self::start_with_sockets(machine, answer, |_, _| {})
    }

    /// Starts a server with WebSockets. A function serves each of them until its end.
    pub fn start_with_sockets(
        machine: &Machine,
        answer: impl Fn(&ChatCall) -> (u16, Value) + Send + Sync + 'static,
        socket: impl Fn(&ChatCall, ChatSocket) + Send + Sync + 'static,
    ) -> Self {
        let certified = Certified::for_names(&["localhost", "127.0.0.1"]);
        let path = machine.root().join("chat-ca.pem");
        let mut roots = std::fs::read_to_string(&path).unwrap_or_default();
        roots.push_str(&certified.authority_pem());
        std::fs::write(&path, roots).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (accepted, is_away) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let answered = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&answered);
        let answer = move |call: &ChatCall| {
            let given = answer(call);
            counted.fetch_add(1, Ordering::SeqCst);
            given
        };
        let server = Self {
            port,
            accepted: Arc::clone(&accepted),
            answered,
            is_away: Arc::clone(&is_away),
        };
        let (certified, answer) = (Arc::new(certified), Arc::new((answer, socket)));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                accepted.fetch_add(1, Ordering::SeqCst);
                if is_away.load(Ordering::SeqCst) {
                    continue;
                }
                let (certified, answer) = (Arc::clone(&certified), Arc::clone(&answer));
                let is_away = Arc::clone(&is_away);
                std::thread::spawn(move || {
                    serve(&certified, stream, &is_away, &answer.0, &answer.1);
                });
            }
        });
        server
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }
}

/// Serves a connection until its client ends it, as the platforms do.
fn serve(
    certified: &Certified,
    stream: std::net::TcpStream,
    is_away: &AtomicBool,
    answer: &dyn Fn(&ChatCall) -> (u16, Value),
    socket: &dyn Fn(&ChatCall, ChatSocket),
) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    // Without this, an answer would wait until the client has confirmed earlier data.
    let _ = stream.set_nodelay(true);
    let mut stream = certified.accept(stream);
    let mut all = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        if let Some(call) = take_call(&mut all) {
            if is_away.load(Ordering::SeqCst) {
                return;
            }
            if call.header("upgrade").eq_ignore_ascii_case("websocket") {
                if let Some(open) = ChatSocket::accept(&call, stream) {
                    socket(&call, open);
                }
                return;
            }
            let (status, body) = answer(&call);
            let body = body.to_string();
            let location = match status {
                301..=308 => "Location: https://127.0.0.1:1/\r\n",
                429 => "Retry-After: 1\r\n",
                _ => "",
            };
            let reply = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{location}Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(reply.as_bytes());
            let _ = stream.flush();
            continue;
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(read) => all.extend_from_slice(&buffer[..read]),
        }
    }
}

/// Returns the first call once it has arrived completely.
fn take_call(all: &mut Vec<u8>) -> Option<ChatCall> {
    let at = all.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&all[..at]).into_owned();
    let length = head.lines().find_map(|line| {
        let line = line.to_lowercase();
        line.strip_prefix("content-length: ")?.parse().ok()
    });
    let length: usize = length.unwrap_or(0);
    if all.len() < at + 4 + length {
        return None;
    }
    let mut words = head.split(' ');
    let call = ChatCall {
        method: words.next().unwrap_or_default().to_owned(),
        path: words.next().unwrap_or_default().to_owned(),
        body: String::from_utf8_lossy(&all[at + 4..at + 4 + length]).into_owned(),
        head,
    };
    all.drain(..at + 4 + length);
    Some(call)
}

/// The state of a stand-in, with a signal for its changes.
#[derive(Default)]
pub struct Shared<T> {
    value: Mutex<T>,
    changed: Condvar,
    /// Whether the stand-in waits for events as long as a call asks, as the platforms do.
    pub is_patient: AtomicBool,
}

impl<T> Shared<T> {
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.value.lock().unwrap()
    }

    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let made = change(&mut self.lock());
        self.changed.notify_all();
        made
    }

    /// Waits until something is found, or for this long.
    fn wait<R>(&self, most: Duration, find: impl Fn(&T) -> Option<R>) -> Option<R> {
        let most = if self.is_patient.load(Ordering::SeqCst) {
            most
        } else {
            most.min(LONGEST_WAIT)
        };
        let until = Instant::now() + most;
        let mut value = self.lock();
        loop {
            if let Some(found) = find(&value) {
                return Some(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            value = self.changed.wait_timeout(value, left).unwrap().0;
        }
    }
}

/// A Matrix homeserver that supports the calls of Interlock.
pub struct MatrixStandIn {
    pub server: HttpsServer,
    pub state: Arc<Shared<MatrixState>>,
}

#[derive(Default)]
pub struct MatrixState {
    /// Every event, with its room, in order.
    pub events: Vec<(String, Value)>,
    transactions: BTreeMap<String, String>,
    pub encrypted: BTreeSet<String>,
    /// Rooms that answer 403 to everything.
    pub forbidden: BTreeSet<String>,
    /// The account data `m.direct`.
    pub direct: Value,
    pub rooms: Vec<String>,
    pub redacted: BTreeSet<String>,
    /// Calls, without the long polls.
    pub calls: Vec<ChatCall>,
    /// The number of further sends that are answered with 429.
    pub busy: usize,
    /// Messages with this text are refused.
    pub refused_text: Option<String>,
    /// The number of characters by which ids of sent messages are longer.
    pub longer_ids: usize,
}

pub const MATRIX_BOT: &str = "@interlock:test";

impl MatrixStandIn {
    pub fn start(machine: &Machine) -> Self {
        let state = Arc::new(Shared::<MatrixState>::default());
        let serving = Arc::clone(&state);
        let server = HttpsServer::start(machine, move |call| matrix_answer(&serving, call));
        Self { server, state }
    }

    fn add(&self, room: &str, sender: &str, kind: &str, content: &Value) -> String {
        self.state
            .change(|state| state.add(room, sender, kind, content))
    }

    /// Adds a person's reaction.
    pub fn react(&self, room: &str, sender: &str, event: &str, key: &str) -> String {
        let relation = json!({ "rel_type": "m.annotation", "event_id": event, "key": key });
        self.add(
            room,
            sender,
            "m.reaction",
            &json!({ "m.relates_to": relation }),
        )
    }

    /// Adds a person's message.
    pub fn say(&self, room: &str, sender: &str, text: &str) -> String {
        self.say_with(room, sender, &json!({ "msgtype": "m.text", "body": text }))
    }

    pub fn say_with(&self, room: &str, sender: &str, content: &Value) -> String {
        self.add(room, sender, "m.room.message", content)
    }

    /// Returns the messages that Interlock sent to a room, without edits: id and content.
    pub fn prompts(&self, room: &str) -> Vec<(String, Value)> {
        let state = self.state.lock();
        let own = state.events.iter().filter(|(at, event)| {
            at == room
                && event["sender"] == MATRIX_BOT
                && event["type"] == "m.room.message"
                && event["content"]["msgtype"] == "m.text"
                && event["content"]["m.relates_to"]["rel_type"] != "m.replace"
        });
        own.map(|(_, event)| {
            let id = event["event_id"].as_str().unwrap().to_owned();
            (id, event["content"].clone())
        })
        .collect()
    }

    /// Returns the present text of a message.
    pub fn shown(&self, event: &str) -> String {
        let state = self.state.lock();
        let body = |content: &Value| content["body"].as_str().unwrap_or_default().to_owned();
        let mut text = String::new();
        for (_, one) in &state.events {
            let content = &one["content"];
            if one["event_id"] == event {
                text = body(content);
            } else if content["m.relates_to"]["rel_type"] == "m.replace"
                && content["m.relates_to"]["event_id"] == event
            {
                text = body(&content["m.new_content"]);
            }
        }
        text
    }

    /// Returns the notices that Interlock sent to a room.
    pub fn notices(&self, room: &str) -> Vec<String> {
        let state = self.state.lock();
        let own = state.events.iter().filter(|(at, event)| {
            at == room && event["sender"] == MATRIX_BOT && event["content"]["msgtype"] == "m.notice"
        });
        own.map(|(_, event)| event["content"]["body"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Returns Interlock's own reactions to a message that were not removed.
    pub fn seeds(&self, event: &str) -> Vec<String> {
        let state = self.state.lock();
        let own = state.events.iter().filter(|(_, one)| {
            let id = one["event_id"].as_str().unwrap_or_default();
            one["type"] == "m.reaction"
                && one["sender"] == MATRIX_BOT
                && one["content"]["m.relates_to"]["event_id"] == event
                && !state.redacted.contains(id)
        });
        own.map(|(_, one)| {
            one["content"]["m.relates_to"]["key"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect()
    }
}

impl MatrixState {
    fn add(&mut self, room: &str, sender: &str, kind: &str, content: &Value) -> String {
        let id = format!("$event{}", self.events.len());
        let event = json!({ "event_id": id, "sender": sender, "type": kind, "content": content,
            "origin_server_ts": 1 });
        self.events.push((room.to_owned(), event));
        id
    }
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')];
            let digits = String::from_utf8_lossy(&digits).into_owned();
            bytes.push(u8::from_str_radix(&digits, 16).unwrap_or(b'?'));
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn matrix_answer(shared: &Shared<MatrixState>, call: &ChatCall) -> (u16, Value) {
    let (path, query) = call.path.split_once('?').unwrap_or((&call.path, ""));
    let parts: Vec<String> = path.split('/').skip(1).map(percent_decoded).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(key, _)| *key == name)
            .map(|(_, value)| percent_decoded(value))
    };
    if call.header("authorization") != "Bearer matrix-token" {
        return (401, json!({ "errcode": "M_UNKNOWN_TOKEN", "error": "no" }));
    }
    let gone = (
        404,
        json!({ "errcode": "M_NOT_FOUND", "error": "not found" }),
    );
    if parts.get(3) == Some(&"sync") {
        let wait = parameter("timeout")
            .and_then(|ms| ms.parse().ok())
            .unwrap_or(0);
        let from = parameter("since").and_then(|at| at.strip_prefix('s')?.parse().ok());
        let from: usize = from.unwrap_or_else(|| shared.lock().events.len());
        let find = |state: &MatrixState| (state.events.len() > from).then_some(state.events.len());
        let until = shared
            .wait(Duration::from_millis(wait), find)
            .unwrap_or(from);
        let state = shared.lock();
        let filter: Value = serde_json::from_str(&parameter("filter").unwrap()).unwrap();
        let most = filter["room"]["timeline"]["limit"].as_u64().unwrap();
        let mut rooms = serde_json::Map::new();
        for (at, (room, event)) in state.events[from..until].iter().enumerate().rev() {
            let room = rooms
                .entry(room.clone())
                .or_insert_with(|| json!({ "timeline": { "events": [] } }));
            let timeline = &mut room["timeline"];
            let events = timeline["events"].as_array_mut().unwrap();
            if events.len() as u64 == most {
                timeline["limited"] = json!(true);
                continue;
            }
            events.insert(0, event.clone());
            timeline["prev_batch"] = json!(format!("s{}", from + at));
        }
        return (
            200,
            json!({ "next_batch": format!("s{until}"), "rooms": { "join": rooms } }),
        );
    }
    shared.change(|state| {
        state.calls.push(call.clone());
        let forbidden = parts.iter().any(|part| state.forbidden.contains(*part));
        if forbidden {
            return (
                403,
                json!({ "errcode": "M_FORBIDDEN", "error": "not in the room" }),
            );
        }
        match (call.method.as_str(), &parts[3..]) {
            ("GET", ["account", "whoami"]) => (200, json!({ "user_id": MATRIX_BOT })),
            ("GET", ["joined_rooms"]) => (200, json!({ "joined_rooms": state.rooms })),
            ("POST", ["join", room]) => {
                state.rooms.push((*room).to_owned());
                (200, json!({ "room_id": room }))
            }
            ("POST", ["createRoom"]) => {
                let room = format!("!direct{}:test", state.rooms.len());
                state.rooms.push(room.clone());
                (200, json!({ "room_id": room }))
            }
            ("GET", ["user", _, "account_data", "m.direct"]) => {
                if state.direct.is_null() {
                    gone
                } else {
                    (200, state.direct.clone())
                }
            }
            ("PUT", ["user", _, "account_data", "m.direct"]) => {
                state.direct = call.json();
                (200, json!({}))
            }
            ("GET", ["rooms", room, "state", "m.room.encryption"]) => {
                if state.encrypted.contains(*room) {
                    (200, json!({ "algorithm": "m.megolm.v1.aes-sha2" }))
                } else {
                    gone
                }
            }
            ("PUT", ["rooms", room, "send", kind, key]) => {
                if state.busy > 0 {
                    state.busy -= 1;
                    let body = json!({ "errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 300 });
                    return (429, body);
                }
                let content = call.json();
                let refused = state.refused_text.as_deref();
                if refused.is_some_and(|text| content.to_string().contains(text)) {
                    return (400, json!({ "errcode": "M_TOO_LARGE", "error": "no" }));
                }
                let key = format!("{room}/{key}");
                let id = match state.transactions.get(&key) {
                    Some(id) => id.clone(),
                    None => {
                        let id = state.add(room, MATRIX_BOT, kind, &call.json());
                        state.transactions.insert(key, id.clone());
                        id
                    }
                };
                let id = format!("{id}{}", "x".repeat(state.longer_ids));
                (200, json!({ "event_id": id }))
            }
            ("GET", ["rooms", room, "messages"]) => {
                let place = |name: &str| -> usize {
                    let place = parameter(name).unwrap();
                    place.strip_prefix('s').unwrap().parse().unwrap()
                };
                let filter: Value = serde_json::from_str(&parameter("filter").unwrap()).unwrap();
                let senders = filter["senders"].as_array().unwrap();
                let between = state.events[place("to")..place("from")].iter().rev();
                let found =
                    between.filter(|(at, one)| at == room && senders.contains(&one["sender"]));
                let chunk: Vec<&Value> = found.map(|(_, one)| one).take(100).collect();
                (200, json!({ "chunk": chunk }))
            }
            ("GET", ["rooms", room, "relations", event, ..]) => {
                let found = state.events.iter().filter(|(at, one)| {
                    at == room
                        && one["content"]["m.relates_to"]["event_id"] == *event
                        && one["type"] == "m.reaction"
                });
                let chunk: Vec<&Value> = found.map(|(_, one)| one).collect();
                (200, json!({ "chunk": chunk }))
            }
            ("PUT", ["rooms", _, "redact", event, _]) => {
                state.redacted.insert((*event).to_owned());
                (200, json!({ "event_id": "$redaction" }))
            }
            _ => gone,
        }
    })
}

/// Telegram's bot interface, which supports the calls of Interlock.
pub struct TelegramStandIn {
    pub server: HttpsServer,
    pub state: Arc<Shared<TelegramState>>,
}

#[derive(Default)]
pub struct TelegramState {
    updates: Vec<Value>,
    /// Whether every answer also repeats confirmed updates.
    pub repeats: bool,
    /// Messages by number: chat, text, buttons.
    pub messages: BTreeMap<i64, Value>,
    pub calls: Vec<(String, Value)>,
    /// When messages were sent to each chat.
    pub sent: Vec<(i64, Instant)>,
    /// When messages were sent to a chat or edited there.
    pub touched: Vec<(i64, Instant)>,
}

impl TelegramStandIn {
    pub fn start(machine: &Machine) -> Self {
        let state = Arc::new(Shared::<TelegramState>::default());
        let serving = Arc::clone(&state);
        let server = HttpsServer::start(machine, move |call| telegram_answer(&serving, call));
        Self { server, state }
    }

    pub fn update(&self, kind: &str, body: &Value) {
        self.state.change(|state| {
            let number = state.updates.len() + 1;
            let mut update = json!({ "update_id": number });
            update[kind] = body.clone();
            state.updates.push(update);
        });
    }

    /// Reports that a person pressed a button.
    pub fn press(&self, person: i64, message: i64, data: &str) {
        let chat = self.state.lock().messages[&message]["chat"].clone();
        let from = json!({ "id": person, "is_bot": false });
        let message = json!({ "message_id": message, "chat": { "id": chat }, "date": 1 });
        let query =
            json!({ "id": format!("q{person}"), "from": from, "message": message, "data": data });
        self.update("callback_query", &query);
    }

    pub fn say(&self, person: i64, chat: i64, text: &str) {
        let message = json!({ "message_id": 9_000, "date": 1, "chat": { "id": chat },
            "from": { "id": person, "is_bot": false }, "text": text });
        self.update("message", &message);
    }

    pub fn prompts(&self) -> Vec<(i64, Value)> {
        let state = self.state.lock();
        state
            .messages
            .iter()
            .map(|(id, one)| (*id, one.clone()))
            .collect()
    }

    /// Returns the calls of one method.
    pub fn calls(&self, method: &str) -> Vec<Value> {
        let state = self.state.lock();
        let calls = state.calls.iter().filter(|(name, _)| name == method);
        calls.map(|(_, body)| body.clone()).collect()
    }
}

fn telegram_answer(shared: &Shared<TelegramState>, call: &ChatCall) -> (u16, Value) {
    let Some(method) = call.path.strip_prefix("/bottelegram-token/") else {
        return (401, json!({ "ok": false, "description": "Unauthorized" }));
    };
    let body = call.json();
    if method == "getUpdates" {
        let offset = body["offset"].as_i64().unwrap_or(0);
        let wait = Duration::from_secs(body["timeout"].as_u64().unwrap_or(0));
        let find = |state: &TelegramState| {
            let all = state.updates.iter();
            let new: Vec<Value> = match offset {
                -1 => all.last().cloned().into_iter().collect(),
                offset => all
                    .filter(|one| one["update_id"].as_i64().unwrap() >= offset)
                    .cloned()
                    .collect(),
            };
            let repeated = state.repeats.then(|| state.updates.clone());
            (!new.is_empty()).then(|| repeated.unwrap_or(new))
        };
        let new = shared.wait(wait, find).unwrap_or_default();
        return (200, json!({ "ok": true, "result": new }));
    }
    shared.change(|state| {
        state.calls.push((method.to_owned(), body.clone()));
        let result = match method {
            "sendMessage" => {
                let id = i64::try_from(state.messages.len()).unwrap() + 1;
                let chat = body["chat_id"].as_i64().unwrap_or_default();
                if chat == 403 {
                    let description = "Forbidden: bot was blocked by the user";
                    return (403, json!({ "ok": false, "description": description }));
                }
                state.sent.push((chat, Instant::now()));
                state.touched.push((chat, Instant::now()));
                if body.get("reply_parameters").is_none() {
                    let mut shown = body.clone();
                    shown["chat"] = json!(chat);
                    state.messages.insert(id, shown);
                }
                json!({ "message_id": id, "chat": { "id": chat } })
            }
            "editMessageText" => {
                let id = body["message_id"].as_i64().unwrap();
                let mut shown = body.clone();
                shown["chat"] = body["chat_id"].clone();
                let chat = body["chat_id"].as_i64().unwrap_or_default();
                state.touched.push((chat, Instant::now()));
                state.messages.insert(id, shown);
                json!({ "message_id": id })
            }
            "deleteMessage" => {
                state.messages.remove(&body["message_id"].as_i64().unwrap());
                json!(true)
            }
            "getMe" => json!({ "id": 1, "is_bot": true, "username": "interlock_bot" }),
            _ => json!(true),
        };
        (200, json!({ "ok": true, "result": result }))
    })
}
