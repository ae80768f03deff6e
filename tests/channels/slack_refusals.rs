//! Answers in Slack that do not count, text that attacks its reader, and servers that are not what they
//! should be.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use testkit::chat::SlackStandIn;
use testkit::{Machine, eventually};

use super::slack::{ADA, ROOM, chatting, config, prompt_of, shown};
use super::{Chatting, merge};

const EVE: &str = "U0EVE";

#[test]
fn strangers_bots_and_other_workspaces_decide_nothing() {
    let (chat, slack) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("s19");
    let (at, _) = prompt_of(&chat, &slack, &id);
    let text = format!("approve {} allow-once", chat.short_id(&id));
    for _ in 0..3 {
        slack.press(EVE, &at, "allow-once");
        slack.say(EVE, ROOM, &text);
    }
    // The approver's name, in another case, with a space, on another platform.
    for other in ["u0ada", "U0ADA ", "ada", "slack:U0ADA", "@ada:test", "*"] {
        slack.press(other, &at, "allow-once");
    }
    // The approver's id in another workspace, and for another app.
    let changed = |key: &[&str], value: &str| {
        let mut payload = slack.tap_payload(ADA, &at, "allow-once");
        let mut place = &mut payload;
        for part in key {
            place = &mut place[*part];
        }
        *place = json!(value);
        slack.envelope("interactive", &payload)
    };
    changed(&["team", "id"], "T0OTHER");
    changed(&["user", "team_id"], "T0OTHER");
    changed(&["api_app_id"], "A0OTHER");
    // In the approver's name: by a bot, by a workflow, by an app with the approver's token.
    for extra in [
        json!({ "bot_id": "B9" }),
        json!({ "subtype": "bot_message", "username": "ada" }),
        json!({ "app_id": "A9", "bot_profile": { "name": "Workflow" } }),
        json!({ "user_team": "T0OTHER" }),
    ] {
        let mut payload = slack.message_payload(ADA, ROOM, &text);
        merge(&mut payload["event"], &extra);
        slack.envelope("events_api", &payload);
    }
    let last = slack.say(EVE, ROOM, "hello");
    eventually("all of it was read", || slack.is_acknowledged(&last));
    eventually("the audit names them", || {
        let refused = chat.refusals();
        ["U0EVE", "u0ada", "ada", "slack:U0ADA", "*"]
            .iter()
            .all(|who| refused.contains(&format!("slack:{who} is not an approver")))
    });
    let of_eve = |text: &&String| text.starts_with("slack:U0EVE ");
    assert_eq!(chat.refusals().iter().filter(of_eve).count(), 1);
    let told = slack.told();
    assert_eq!(told.iter().filter(|(who, _)| who == EVE).count(), 1);
    assert_eq!(chat.ending(&id), None);
    slack.press(ADA, &at, "deny");
    assert_eq!(chat.until_ended(&id).1, format!("slack:{ADA}"));
    assert!(!file.exists());
}

#[test]
fn edits_quotes_code_copies_and_other_chats_do_not_count() {
    let (chat, slack) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("s20");
    let (at, message) = prompt_of(&chat, &slack, &id);
    let text = format!("approve {} allow-once", chat.short_id(&id));
    let edited = json!({ "type": "message", "subtype": "message_changed", "channel": ROOM,
        "ts": "9.1", "message": { "type": "message", "user": ADA, "text": text, "ts": "8.1",
            "edited": { "user": ADA, "ts": "9.0" } },
        "previous_message": { "text": "hello" } });
    let mut payload = slack.message_payload(ADA, ROOM, &text);
    payload["event"] = edited;
    slack.envelope("events_api", &payload);
    let share = json!({ "attachments": [{ "is_share": true, "text": text }] });
    let code = json!({ "blocks": [{ "type": "rich_text", "elements": [
        { "type": "rich_text_preformatted", "elements": [{ "type": "text", "text": text }] }] }] });
    for extra in [
        share,
        code,
        json!({ "edited": { "user": ADA, "ts": "9.0" } }),
    ] {
        let mut payload = slack.message_payload(ADA, ROOM, &text);
        merge(&mut payload["event"], &extra);
        slack.envelope("events_api", &payload);
    }
    slack.say(ADA, ROOM, &format!("&gt; {text}"));
    slack.say(ADA, ROOM, &format!("`{text}`"));
    slack.say(ADA, ROOM, &format!("```\n{text}\n```"));
    // A chat that did not get it, and one that an agent filled with a copy of the prompt.
    slack.say(ADA, "C0OTHER", &text);
    for copy in [(ROOM, "1700.000001"), ("C0OTHER", at.1.as_str())] {
        let copy = (copy.0.to_owned(), copy.1.to_owned());
        slack
            .state
            .change(|state| state.messages.insert(copy.clone(), message.clone()));
        slack.press(ADA, &copy, "allow-once");
    }
    eventually("it is unknown there", || {
        let told = slack.told();
        told.iter()
            .any(|(_, text)| text.ends_with("no such approval was sent to this chat"))
    });
    let last = slack.say(ADA, ROOM, "hello");
    eventually("all of it was read", || slack.is_acknowledged(&last));
    assert_eq!(chat.ending(&id), None);
    slack.press(ADA, &at, "deny");
    assert_eq!(chat.until_ended(&id).0, "deny");
    assert!(!file.exists());
}

#[test]
fn a_button_of_another_approval_and_a_repeated_event_do_not_count() {
    let (chat, slack) = chatting(&json!({ "commands": { "ownerAllowFrom": ["slack:U0ADA"] } }));
    let (file, first) = chat.ask_marker("first");
    let (_, second) = chat.ask_marker("second");
    let (at, _) = prompt_of(&chat, &slack, &first);
    prompt_of(&chat, &slack, &second);
    // The message of one, with the button of the other.
    let mut forged = slack.tap_payload(ADA, &at, "allow-once");
    forged["actions"][0]["value"] = json!(second);
    slack.envelope("interactive", &forged);
    eventually("it is recorded", || {
        let refused = chat.refusals();
        refused == [format!("slack:{ADA} pressed a button of another approval")]
    });
    assert_eq!((chat.ending(&first), chat.ending(&second)), (None, None));
    assert!(!file.exists());
    // Slack may send an event again. A directive counts once, and not again after another one.
    let say = |text: &str| slack.message_payload(ADA, ROOM, text);
    let (once, other) = (
        say("/exec agent:main:main ask=always"),
        say("/exec agent:main:main ask=off"),
    );
    for (payload, expected) in [(&once, 1), (&other, 2), (&once, 2)] {
        slack.envelope("events_api", payload);
        let last = slack.press(ADA, &at, "allow-always");
        eventually("it was read", || slack.is_acknowledged(&last));
        eventually("it was handled", || {
            let told = slack.told();
            told.iter().filter(|(_, text)| text.contains("ask")).count() >= expected
        });
    }
    let told = slack.told();
    let settings = told.iter().filter(|(_, text)| text.contains("ask="));
    assert!(settings.count() <= 2, "{told:?}");
    slack.say(
        ADA,
        ROOM,
        &format!("approve {} deny", chat.short_id(&first)),
    );
    assert_eq!(chat.until_ended(&first).0, "deny");
}

#[test]
fn hostile_text_is_literal_and_what_is_cut_can_only_be_denied() {
    let (chat, slack) = chatting(&json!({}));
    let words = "``` *x* [a](http://evil) <@U1> <!channel> @everyone :smile: &lt;b&gt;";
    let id = chat.ask(&format!("/usr/bin/printf %s '{words}'"));
    let (at, message) = prompt_of(&chat, &slack, &id);
    let (text, buttons) = shown(&slack, &at);
    assert!(text.contains(words), "{text}");
    assert!(buttons.contains(&"allow-once".to_owned()), "{buttons:?}");
    assert!(
        !message["text"].as_str().unwrap().contains('<'),
        "{message}"
    );
    assert_eq!(message["link_names"], false);
    let hidden = "/usr/bin/printf %s 'a\u{202e}b\u{2066}c\u{200b}d\u{ad}e\u{feff}f'";
    let id = chat.ask(hidden);
    let (_, message) = prompt_of(&chat, &slack, &id);
    let (text, _) = SlackStandIn::shown(&message);
    for character in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{ad}', '\u{feff}'] {
        assert!(!text.contains(character), "{character:?}: {text}");
    }
    let id = chat.ask(&format!("/usr/bin/printf %s {}", "x".repeat(20_000)));
    let (at, message) = prompt_of(&chat, &slack, &id);
    let (text, buttons) = SlackStandIn::shown(&message);
    assert!(text.encode_utf16().count() <= 4_010, "{}", text.len());
    assert!(text.contains("\n… cut\n"), "{text}");
    assert_eq!(buttons, ["deny"]);
    // Not even with the button of a prompt that is whole.
    let mut forged = slack.tap_payload(ADA, &at, "allow-once");
    forged["actions"][0]["value"] = json!(id);
    slack.envelope("interactive", &forged);
    eventually("it is refused", || {
        let told = slack.told();
        told.iter()
            .any(|(_, text)| text.contains("allow-once is refused"))
    });
    assert_eq!(chat.ending(&id), None);
}

/// A gateway whose Slack is set up before it starts.
fn starting(change: &Value, set: impl FnOnce(&SlackStandIn)) -> (Chatting, SlackStandIn) {
    let machine = Machine::new();
    let slack = SlackStandIn::start(&machine);
    set(&slack);
    let mut config = config(&machine, &slack);
    merge(&mut config, change);
    (Chatting::start(machine, &config), slack)
}

#[test]
fn a_socket_of_another_service_is_not_opened_and_secrets_that_come_back_are_masked() {
    let machine = Machine::new();
    let elsewhere = testkit::chat::HttpsServer::start(&machine, |_| (200, json!({})));
    let url = format!("wss://localhost:{}/link/?ticket=x", elsewhere.port);
    let (chat, slack) = starting(&json!({}), |slack| {
        slack.state.change(|state| state.socket_url = Some(url));
    });
    let (_, id) = chat.ask_marker("foreign");
    // No prompt goes where nothing can be heard.
    eventually("the receipt says why", || {
        let receipts = chat.receipts(&id);
        receipts.iter().any(|one| {
            one.2
                .contains("the service named a socket of another service")
        })
    });
    assert_eq!(elsewhere.accepted.load(Ordering::SeqCst), 0);
    assert_eq!(slack.state.lock().messages.len(), 0);
    // A server that repeats the token in its answers.
    let echo = json!({ "ok": false, "error": "bad token xoxb-slack-bot\u{202e}" });
    slack.state.change(|state| state.answer = Some((403, echo)));
    let (_, id) = chat.ask_marker("echo");
    eventually("it failed", || {
        let receipts = chat.receipts(&id);
        receipts.iter().any(|one| one.2.contains("bad token ••••"))
    });
    let log = std::fs::read_to_string(chat.machine.root().join("gateway.log")).unwrap();
    assert!(!log.contains("xoxb-slack-bot"), "{log}");
    for garbage in [
        json!(null),
        json!([1, 2]),
        json!({ "ok": "true" }),
        json!("x".repeat(100_000)),
    ] {
        slack
            .state
            .change(|state| state.answer = Some((200, garbage.clone())));
        let run = chat.machine.run(&["channels", "test", "--json"]);
        assert_eq!(run.code, 1, "{run:#?}");
    }
    // A redirect is not followed.
    slack
        .state
        .change(|state| state.answer = Some((302, json!({}))));
    let run = chat.machine.run(&["channels", "test", "--json"]);
    assert!(run.stdout.contains("status 302"), "{run:#?}");
}

/// An agent with the bot's token shows another command in the prompt of the real one. Slack marks no such
/// message as edited.
#[test]
fn a_prompt_that_another_program_changed_allows_nothing() {
    let (chat, slack) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("changed");
    let (at, message) = prompt_of(&chat, &slack, &id);
    let text = message["blocks"][0]["elements"][1]["elements"][0]["text"]
        .as_str()
        .unwrap();
    let other = text.replace("/usr/bin/touch", "/usr/bin/true");
    assert_ne!(other, text);
    let changed = |part: Value| {
        let mut payload = slack.tap_payload(ADA, &at, "allow-once");
        merge(&mut payload["message"], &part);
        payload
    };
    let mut blocks = message["blocks"].clone();
    blocks[0]["elements"][1]["elements"][0]["text"] = json!(other);
    for (number, payload) in [
        changed(json!({ "blocks": blocks })),
        changed(json!({ "edited": { "user": "B0", "ts": "9.0" } })),
        changed(json!({ "attachments": [{ "text": "/usr/bin/true" }] })),
    ]
    .iter()
    .enumerate()
    {
        slack.envelope("interactive", payload);
        eventually("it is refused", || {
            let told = slack.told();
            let refused = told.iter().filter(|(_, text)| {
                text.contains("allow-once is refused: it was not shown whole here")
            });
            refused.count() == number + 1
        });
    }
    assert_eq!(chat.ending(&id), None);
    assert!(!file.exists());
    // The prompt as it was sent counts.
    slack.press(ADA, &at, "allow-once");
    assert_eq!(chat.until_ended(&id).0, "allow-once");
    eventually("it runs", || file.exists());
}
