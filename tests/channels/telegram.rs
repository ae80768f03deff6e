//! Telegram: buttons, typed decisions, limits.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::chat::TelegramStandIn;
use testkit::{Machine, eventually};

use super::{Chatting, merge, secret_file};

pub(super) const ADA: i64 = 4242;

pub(super) fn chatting(change: &Value) -> (Chatting, TelegramStandIn) {
    let machine = Machine::new();
    let telegram = TelegramStandIn::start(&machine);
    let token = secret_file(&machine, "telegram.token", "telegram-token\n");
    let mut config = json!({ "channels": { "telegram": {
        "apiRoot": telegram.server.url(), "tokenFile": token, "allowPrivateNetwork": true,
        "execApprovals": { "approvers": [ADA.to_string()] },
    } } });
    merge(&mut config, change);
    (Chatting::start(machine, &config), telegram)
}

fn prompt(telegram: &TelegramStandIn, part: &str) -> (i64, Value) {
    let find = || {
        let mut all = telegram.prompts().into_iter();
        all.find(|(_, message)| message["text"].as_str().unwrap().contains(part))
    };
    eventually("the prompt comes", || find().is_some());
    find().unwrap()
}

fn buttons(message: &Value) -> Vec<String> {
    let rows = message["reply_markup"]["inline_keyboard"].as_array();
    let all = rows.into_iter().flatten();
    let all = all.flat_map(|row| row.as_array().cloned().unwrap_or_default());
    all.map(|button| button["callback_data"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_button_allows_the_run_and_the_buttons_are_gone() {
    let (chat, telegram) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("tapped");
    let (number, message) = prompt(&telegram, &chat.short_id(&id));
    assert_eq!(message["chat"], ADA);
    assert_eq!(message.get("parse_mode"), None);
    assert_eq!(message["link_preview_options"]["is_disabled"], true);
    assert_eq!(buttons(&message), ["allow-once", "allow-always", "deny"]);
    // A stranger's tap, a bot's, one on another message and one with other data.
    telegram.press(666, number, "allow-once");
    telegram.update(
        "callback_query",
        &json!({ "id": "b", "from": { "id": ADA, "is_bot": true },
        "message": { "message_id": number, "chat": { "id": ADA } }, "data": "allow-once" }),
    );
    telegram.update(
        "callback_query",
        &json!({ "id": "c", "from": { "id": ADA, "is_bot": false },
        "message": { "message_id": 777, "chat": { "id": ADA } }, "data": "allow-once" }),
    );
    telegram.press(ADA, number, "allow-everything");
    eventually("the stranger is refused", || {
        let refused = chat.refusals();
        refused == ["telegram:666 is not an approver"]
    });
    telegram.press(ADA, number, "allow-always");
    eventually("always takes a second step", || {
        let answers = telegram.calls("answerCallbackQuery");
        answers.iter().any(|answer| {
            answer["text"]
                .as_str()
                .unwrap_or_default()
                .starts_with("To store it for good")
        })
    });
    assert_eq!(chat.ending(&id), None);
    telegram.press(ADA, number, "allow-once");
    let ended = chat.until_ended(&id);
    assert_eq!(ended, ("allow-once".to_owned(), "telegram:4242".to_owned()));
    eventually("it runs", || file.exists());
    eventually("the message is edited", || {
        let (_, message) = telegram.prompts().remove(0);
        let text = message["text"].as_str().unwrap();
        text.starts_with("✅ Allowed once by telegram:4242")
            && message["reply_markup"]["inline_keyboard"] == json!([])
    });
    // A late tap gets the winner.
    telegram.press(ADA, number, "deny");
    eventually("the winner is named", || {
        let answers = telegram.calls("answerCallbackQuery");
        answers.iter().any(|answer| {
            answer["text"]
                .as_str()
                .unwrap_or_default()
                .contains("✅ Allowed once by")
        })
    });
}

#[test]
fn typed_decisions_count_from_persons_and_new_messages_only() {
    let (chat, telegram) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("typed");
    let short_id = chat.short_id(&id);
    prompt(&telegram, &short_id);
    let text = format!("/approve {short_id} allow-once");
    let from = json!({ "id": ADA, "is_bot": false });
    let message = |extra: Value| {
        let mut message = json!({ "message_id": 50, "date": 1, "chat": { "id": ADA }, "from": from,
            "text": text });
        merge(&mut message, &extra);
        message
    };
    telegram.update("edited_message", &message(json!({ "edit_date": 2 })));
    telegram.update(
        "message",
        &message(json!({ "forward_origin": { "type": "user" } })),
    );
    telegram.update("message", &message(json!({ "via_bot": { "id": 5 } })));
    telegram.update("message", &message(json!({ "sender_chat": { "id": -5 } })));
    telegram.update("message", &message(json!({ "quote": { "text": text } })));
    telegram.update("message", &message(json!({ "from": { "is_bot": true } })));
    for sent_for_her in [
        json!({ "sender_business_bot": { "id": 5, "is_bot": true } }),
        json!({ "is_from_offline": true }),
    ] {
        telegram.update("message", &message(sent_for_her));
    }
    let for_another = format!("/approve@another_bot {short_id} allow-once");
    telegram.update("message", &message(json!({ "text": for_another })));
    let code = json!({ "entities": [{ "type": "code", "offset": 0, "length": 5 }] });
    telegram.update("message", &message(code));
    telegram.say(ADA, -100, &text);
    eventually("another chat is told nothing of it", || {
        let said = telegram.calls("sendMessage");
        said.iter()
            .any(|one| one["text"] == format!("{short_id}: no such approval was sent to this chat"))
    });
    assert_eq!(chat.ending(&id), None);
    assert!(!file.exists());
    telegram.say(ADA, ADA, &format!("/approve@interlock_bot {short_id} deny"));
    assert_eq!(chat.until_ended(&id).0, "deny");
}

#[test]
fn a_text_that_does_not_fit_has_no_allow_and_a_chat_gets_one_message_a_second() {
    let (chat, telegram) = chatting(&json!({}));
    let long = format!("/usr/bin/printf %s {}", "x".repeat(5_000));
    let id = chat.ask(&long);
    let (number, message) = prompt(&telegram, &chat.short_id(&id));
    let text = message["text"].as_str().unwrap();
    assert!(text.encode_utf16().count() <= 4096, "{}", text.len());
    assert!(text.contains("\n… cut\n"), "{text}");
    assert!(text.contains("not all of it is shown here"), "{text}");
    assert_eq!(buttons(&message), ["deny"]);
    // Not even with data that the message did not offer.
    telegram.press(ADA, number, "allow-once");
    eventually("it is refused", || {
        let answers = telegram.calls("answerCallbackQuery");
        answers.iter().any(|one| {
            one["text"]
                .as_str()
                .unwrap_or_default()
                .contains("allow-once is refused")
        })
    });
    assert_eq!(chat.ending(&id), None);
    for number in 0..2 {
        chat.ask_marker(&format!("paced{number}"));
    }
    eventually("all are there", || telegram.prompts().len() == 3);
    let sent = telegram.state.lock().sent.clone();
    for pair in sent.windows(2) {
        let pause = pair[1].1 - pair[0].1;
        assert!(pause >= Duration::from_millis(950), "{pause:?}");
    }
}

#[test]
fn a_token_in_a_variable_is_used_and_no_run_inherits_it() {
    let machine = Machine::new();
    let telegram = TelegramStandIn::start(&machine);
    let config = json!({ "channels": { "telegram": {
        "apiRoot": telegram.server.url(), "botToken": { "source": "env", "id": "CHAT_TOKEN" },
        "allowPrivateNetwork": true, "execApprovals": { "approvers": [ADA.to_string()] },
    } } });
    let chat = Chatting::start_with(machine, &config, &[("CHAT_TOKEN", "telegram-token")]);
    let file = chat.machine.work().join("environment");
    let id = chat.ask(&format!("/usr/bin/printenv > {}", file.display()));
    prompt(&telegram, &chat.short_id(&id));
    chat.machine.ok(&["approvals", "approve", &id]);
    eventually("it runs", || {
        std::fs::read_to_string(&file).is_ok_and(|text| text.contains("PATH="))
    });
    assert!(
        !std::fs::read_to_string(&file)
            .unwrap()
            .contains("telegram-token")
    );
}

/// Each of these calls would else look up a name, read the authorities and shake hands.
#[test]
fn calls_that_wait_for_news_use_their_connection_again() {
    let (_chat, telegram) = chatting(&json!({}));
    let count = |number: &std::sync::atomic::AtomicUsize| number.load(Ordering::SeqCst);
    eventually("it listens", || count(&telegram.server.answered) >= 3);
    let (answered, accepted) = (
        count(&telegram.server.answered),
        count(&telegram.server.accepted),
    );
    eventually("it has asked again", || {
        count(&telegram.server.answered) >= answered + 3
    });
    assert_eq!(count(&telegram.server.accepted), accepted);
}

#[test]
fn a_prompt_that_another_program_changed_can_only_be_denied() {
    let (chat, telegram) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("changed");
    let (number, _) = prompt(&telegram, &chat.short_id(&id));
    let press = |data: &str| {
        let message = json!({ "message_id": number, "chat": { "id": ADA }, "date": 1,
            "edit_date": 2, "text": "command   /usr/bin/true" });
        let from = json!({ "id": ADA, "is_bot": false });
        let query = json!({ "id": "q", "from": from, "message": message, "data": data });
        telegram.update("callback_query", &query);
    };
    press("allow-once");
    eventually("it is refused", || {
        let answers = telegram.calls("answerCallbackQuery");
        answers.iter().any(|answer| {
            let text = answer["text"].as_str().unwrap_or_default();
            text.contains("allow-once is refused: it was not shown whole here")
        })
    });
    assert_eq!(chat.ending(&id), None);
    press("deny");
    assert_eq!(chat.until_ended(&id).0, "deny");
    assert!(!file.exists());
}

#[test]
fn updates_that_come_again_or_with_absurd_numbers_are_not_new() {
    let (chat, telegram) = chatting(&json!({
        "commands": { "ownerAllowFrom": [format!("telegram:{ADA}")] },
    }));
    let set = |setting: &str| {
        telegram.say(ADA, ADA, &format!("/exec agent:main:main ask={setting}"));
        let words = format!("ask={setting}");
        eventually("it is set", || {
            let said = telegram.calls("sendMessage");
            said.iter()
                .any(|one| one["text"].as_str().unwrap_or_default().contains(&words))
        });
    };
    set("always");
    set("off");
    // The server gives all of it again, with every answer from now on.
    telegram.state.change(|state| state.repeats = true);
    let (_, id) = chat.ask_marker("again");
    let (number, _) = prompt(&telegram, &chat.short_id(&id));
    telegram.press(ADA, number, "deny");
    assert_eq!(chat.until_ended(&id).0, "deny");
    let said = telegram.calls("sendMessage");
    let settings = said
        .iter()
        .filter(|one| one["text"].as_str().unwrap_or_default().contains("ask="));
    assert_eq!(settings.count(), 2, "{said:#?}");
}
