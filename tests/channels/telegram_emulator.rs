//! The same against an emulator of Telegram's bot interface, `telegram-test-api` from npm: another reading of
//! Telegram's documentation than Interlock's own stand-in, but not Telegram. It runs where
//! `INTERLOCK_TELEGRAM_EMULATOR` names the directory of its modules; `tests/run-heavy telegram` makes one.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::chat::HttpsServer;
use testkit::{Machine, eventually};

use super::{Chatting, secret_file};

const ADA: i64 = 4242;
const TOKEN: &str = "1:emulated";

/// The emulator, which speaks HTTP, and a server in front of it that speaks TLS. Both end with the test.
struct Emulator {
    child: Child,
    port: u16,
    front: HttpsServer,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn post(port: u16, path: &str, body: &str) -> (u16, Value) {
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let reply = testkit::mcp::raw(port, request.as_bytes());
    let body = serde_json::from_str(&reply.body).unwrap_or(Value::Null);
    (reply.status, body)
}

impl Emulator {
    fn start(machine: &Machine) -> Option<Self> {
        let Some(modules) = std::env::var_os("INTERLOCK_TELEGRAM_EMULATOR").map(PathBuf::from)
        else {
            println!("skipped: INTERLOCK_TELEGRAM_EMULATOR is not set (tests/run-heavy telegram)");
            return None;
        };
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let script = format!(
            "const TelegramServer = require({});\n\
             new TelegramServer({{ host: '127.0.0.1', port: {port}, storeTimeout: 3600 }}).start();",
            json!(modules.join("telegram-test-api"))
        );
        let child = Command::new("node")
            .args(["-e", &script])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the emulator listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        let front = HttpsServer::start(machine, move |call| post(port, &call.path, &call.body));
        Some(Self { child, port, front })
    }

    /// Everything that the bot wrote: number, text and buttons.
    fn messages(&self) -> Vec<(i64, String, usize)> {
        let (_, history) = post(
            self.port,
            "/getUpdatesHistory",
            &json!({ "token": TOKEN }).to_string(),
        );
        let all = history["result"].as_array().cloned().unwrap_or_default();
        let own = all
            .iter()
            .filter(|one| one["message"]["chat_id"].is_number());
        own.map(|one| {
            let rows = one["message"]["reply_markup"]["inline_keyboard"].as_array();
            let buttons = rows.and_then(|rows| rows.first()?.as_array().map(Vec::len));
            (
                one["messageId"].as_i64().unwrap(),
                one["message"]["text"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                buttons.unwrap_or(0),
            )
        })
        .collect()
    }

    fn say(&self, person: &Value, text: &str) {
        let message = json!({ "botToken": TOKEN, "from": person, "date": 1,
            "chat": { "id": ADA, "type": "private" }, "text": text });
        post(self.port, "/sendMessage", &message.to_string());
    }

    fn press(&self, person: &Value, message: i64, data: &str) {
        let query = json!({ "botToken": TOKEN, "from": person, "data": data,
            "message": { "message_id": message, "chat": { "id": ADA, "type": "private" } } });
        post(self.port, "/sendCallback", &query.to_string());
    }
}

#[test]
fn approvals_are_decided_with_an_emulated_telegram() {
    let machine = Machine::new();
    let Some(emulator) = Emulator::start(&machine) else {
        return;
    };
    let config = json!({ "channels": { "telegram": {
        "apiRoot": emulator.front.url(), "allowPrivateNetwork": true,
        "tokenFile": secret_file(&machine, "telegram.token", TOKEN),
        "execApprovals": { "approvers": [ADA.to_string()] },
    } } });
    let mut chat = Chatting::start(machine, &config);
    let prompt = |chat: &Chatting, id: &str| {
        let short_id = chat.short_id(id);
        let find = || {
            let mut all = emulator.messages().into_iter();
            all.rfind(|(_, text, _)| text.contains(&short_id))
        };
        eventually("the prompt comes", || find().is_some());
        find().unwrap()
    };
    let (ada, eve) = (
        json!({ "id": ADA, "is_bot": false, "first_name": "Ada" }),
        json!({ "id": 666, "is_bot": false, "first_name": "Ada" }),
    );
    // By a button; not by a stranger of the same name, and not by a bot.
    let (file, first) = chat.ask_marker("pressed");
    let (number, _, buttons) = prompt(&chat, &first);
    assert_eq!(buttons, 3);
    emulator.press(&eve, number, "allow-once");
    emulator.press(&json!({ "id": ADA, "is_bot": true }), number, "allow-once");
    eventually("the stranger is refused", || {
        chat.refusals() == ["telegram:666 is not an approver"]
    });
    assert_eq!(chat.ending(&first), None);
    emulator.press(&ada, number, "allow-once");
    assert_eq!(chat.until_ended(&first).1, "telegram:4242");
    eventually("it runs", || file.exists());
    eventually("the message is edited, without buttons", || {
        let (_, text, buttons) = prompt(&chat, &first);
        text.starts_with("✅ Allowed once by telegram:4242") && buttons == 0
    });
    // Typed.
    let (_, second) = chat.ask_marker("typed");
    prompt(&chat, &second);
    emulator.say(&ada, &format!("/approve {} deny", chat.short_id(&second)));
    assert_eq!(chat.until_ended(&second).0, "deny");
    // A gateway that was killed goes on.
    let (_, third) = chat.ask_marker("killed");
    let (number, _, _) = prompt(&chat, &third);
    eventually("it is marked", || {
        chat.receipts(&third).iter().any(|one| one.1 == "sent")
    });
    chat.restart();
    emulator.press(&ada, number, "deny");
    assert_eq!(chat.until_ended(&third).0, "deny");
    eventually("the end is shown", || {
        prompt(&chat, &third).1.starts_with("❌ Denied")
    });
}
