//! Slack: buttons, typed decisions, the socket and its ends. The server is a stand-in with the shapes that
//! Slack documents, not Slack.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::chat::SlackStandIn;
use testkit::{Machine, eventually};

use super::{Chatting, merge, secret_file};

pub(crate) const ADA: &str = "U0ADA";
pub(crate) const ROOM: &str = "C0OPS";

pub(crate) type MessageAt = (String, String);

pub(crate) fn config(machine: &Machine, slack: &SlackStandIn) -> Value {
    json!({
        "channels": { "slack": {
            "apiRoot": format!("{}/api", slack.server.url()), "allowPrivateNetwork": true,
            "tokenFile": secret_file(machine, "slack.token", "xoxb-slack-bot\n"),
            "appTokenFile": secret_file(machine, "slack-app.token", "xapp-slack-app\n"),
            "execApprovals": { "approvers": [ADA], "target": "channel" },
        } },
        "approvals": { "exec": {
            "enabled": true, "targets": [{ "channel": "slack", "to": ROOM }],
        } },
    })
}

pub(crate) fn chatting(change: &Value) -> (Chatting, SlackStandIn) {
    let machine = Machine::new();
    let slack = SlackStandIn::start(&machine);
    let mut config = config(&machine, &slack);
    merge(&mut config, change);
    (Chatting::start(machine, &config), slack)
}

pub(crate) fn prompt_of(chat: &Chatting, slack: &SlackStandIn, id: &str) -> (MessageAt, Value) {
    let short_id = chat.short_id(id);
    let find = || {
        let state = slack.state.lock();
        let mut all = state.messages.iter();
        let found = all.find(|(_, one)| SlackStandIn::shown(one).0.contains(&short_id));
        found.map(|(at, one)| (at.clone(), one.clone()))
    };
    eventually("the prompt comes", || find().is_some());
    find().unwrap()
}

/// What a message shows now.
pub(crate) fn shown(slack: &SlackStandIn, at: &MessageAt) -> (String, Vec<String>) {
    SlackStandIn::shown(&slack.state.lock().messages[at])
}

#[test]
fn a_button_allows_the_run_and_the_buttons_are_gone() {
    let (chat, slack) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("tapped");
    let (at, message) = prompt_of(&chat, &slack, &id);
    assert_eq!(at.0, ROOM);
    assert_eq!(
        (&message["unfurl_links"], &message["unfurl_media"]),
        (&json!(false), &json!(false))
    );
    let (text, buttons) = shown(&slack, &at);
    assert!(text.contains("/usr/bin/touch"), "{text}");
    assert_eq!(buttons, ["allow-once", "allow-always", "deny"]);
    slack.press(ADA, &at, "allow-always");
    eventually("always takes a second step", || {
        let told = slack.told();
        told.iter()
            .any(|(who, text)| who == ADA && text.starts_with("To store it for good"))
    });
    assert_eq!(chat.ending(&id), None);
    let envelope = slack.press(ADA, &at, "allow-once");
    let ended = chat.until_ended(&id);
    assert_eq!(ended, ("allow-once".to_owned(), format!("slack:{ADA}")));
    eventually("it runs", || file.exists());
    eventually("the message is edited", || {
        let (text, buttons) = shown(&slack, &at);
        text.starts_with(&format!("✅ Allowed once by slack:{ADA}")) && buttons.is_empty()
    });
    eventually("it was acknowledged", || slack.is_acknowledged(&envelope));
    let state = slack.state.lock();
    let sent = state.delivered_at[&envelope];
    let acknowledged = state.acknowledged.iter().find(|(id, _)| *id == envelope);
    let took = acknowledged.unwrap().1 - sent;
    assert!(took < Duration::from_secs(3), "{took:?}");
    drop(state);
    // A late tap gets the winner, from the button of before.
    let mut late = slack.tap_payload(ADA, &at, "deny");
    late["actions"][0]["value"] = json!(id);
    slack.envelope("interactive", &late);
    eventually("the winner is named", || {
        let told = slack.told();
        told.iter()
            .any(|(_, text)| text.contains("✅ Allowed once by"))
    });
}

#[test]
fn decisions_are_typed_in_the_channel_in_threads_and_as_commands_of_the_app() {
    let (chat, slack) = chatting(&json!({}));
    let (file, first) = chat.ask_marker("typed");
    let (at, _) = prompt_of(&chat, &slack, &first);
    slack.say(
        ADA,
        ROOM,
        &format!("approve {} allow-once", chat.short_id(&first)),
    );
    assert_eq!(chat.until_ended(&first).0, "allow-once");
    eventually("it runs", || file.exists());
    let (_, second) = chat.ask_marker("threaded");
    prompt_of(&chat, &slack, &second);
    let text = format!("/approve {} deny not &lt;now&gt;", chat.short_id(&second));
    let mut reply = slack.message_payload(ADA, ROOM, &text);
    reply["event"]["thread_ts"] = json!(at.1);
    slack.envelope("events_api", &reply);
    assert_eq!(chat.until_ended(&second).0, "deny");
    eventually("the reason is shown as it was typed", || {
        let (at, _) = prompt_of(&chat, &slack, &second);
        shown(&slack, &at).0.contains(": not <now>")
    });
    let (_, third) = chat.ask_marker("slash");
    prompt_of(&chat, &slack, &third);
    slack.envelope(
        "slash_commands",
        &json!({ "api_app_id": testkit::chat::SLACK_APP, "team_id": testkit::chat::SLACK_TEAM,
            "channel_id": ROOM, "user_id": ADA, "user_name": "ada", "command": "/approve",
            "text": format!("{} deny", chat.short_id(&third)), "trigger_id": "9.9.9",
            "response_url": "https://hooks.slack.com/commands/x" }),
    );
    assert_eq!(chat.until_ended(&third).0, "deny");
}

#[test]
fn approvers_get_direct_messages_and_a_channel_one_message_a_second() {
    let (chat, slack) = chatting(&json!({ "channels": { "slack": { "execApprovals": {
        "target": "both", "cleanupAfterResolve": true } } } }));
    let (_, id) = chat.ask_marker("direct");
    eventually("both chats get it", || {
        let state = slack.state.lock();
        let chats: Vec<&str> = state.messages.keys().map(|at| at.0.as_str()).collect();
        chats == [ROOM, "D0ADA"]
    });
    for number in 0..2 {
        chat.ask_marker(&format!("paced{number}"));
    }
    eventually("all are there", || slack.state.lock().messages.len() == 6);
    let sent = slack.state.lock().sent.clone();
    let mut last = std::collections::BTreeMap::<String, std::time::Instant>::new();
    for (channel, at) in sent {
        if let Some(before) = last.insert(channel, at) {
            let pause = at - before;
            assert!(pause >= Duration::from_millis(950), "{pause:?}");
        }
    }
    // The message goes with its approval.
    let direct = slack.state.lock().messages.keys().next().unwrap().clone();
    assert!(direct.0 == ROOM || direct.0 == "D0ADA");
    slack.say(
        ADA,
        "D0ADA",
        &format!("approve {} deny", chat.short_id(&id)),
    );
    assert_eq!(chat.until_ended(&id).0, "deny");
    eventually("its messages are removed", || {
        slack.state.lock().messages.len() == 4
    });
}

#[test]
fn a_busy_slack_is_waited_for_and_a_refusal_is_in_the_receipts() {
    let (chat, slack) = chatting(&json!({ "approvals": { "exec": { "targets": [
        { "channel": "slack", "to": ROOM }, { "channel": "slack", "to": "C0GONE" },
    ] } } }));
    slack.state.change(|state| state.busy = 2);
    let (_, id) = chat.ask_marker("busy");
    let (at, _) = prompt_of(&chat, &slack, &id);
    eventually("the other one failed", || {
        let receipts = chat.receipts(&id);
        receipts.iter().any(|(surface, state, why)| {
            surface == "slack:C0GONE" && state == "failed" && why.contains("channel_not_found")
        })
    });
    let calls = slack.calls("chat.postMessage");
    let to_room = calls.iter().filter(|call| call["channel"] == ROOM).count();
    assert_eq!(to_room, 3, "twice busy, then taken");
    slack.press(ADA, &at, "deny");
    assert_eq!(chat.until_ended(&id).0, "deny");
}

#[test]
fn a_socket_that_ends_is_opened_again() {
    let (chat, slack) = chatting(&json!({}));
    let (_, id) = chat.ask_marker("again");
    let (at, _) = prompt_of(&chat, &slack, &id);
    let ends = [
        json!({ "type": "disconnect", "reason": "refresh_requested", "debug_info": {} })
            .to_string(),
        "this is not JSON".to_owned(),
        "x".repeat(2 * 1024 * 1024),
    ];
    for (number, end) in ends.iter().enumerate() {
        slack.raw(end);
        eventually("there is another connection", || {
            let state = slack.state.lock();
            state.opened == number + 2 && state.open == 1
        });
    }
    slack.press(ADA, &at, "deny");
    assert_eq!(chat.until_ended(&id).0, "deny");
    // The ticket of a socket, and the tokens, are in no log.
    let log = std::fs::read_to_string(chat.machine.root().join("gateway.log")).unwrap();
    assert!(log.contains("a channel cannot be read"), "{log}");
    for secret in ["slack-ticket", "xoxb-", "xapp-"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn a_decision_elsewhere_is_shown_and_a_restart_sends_nothing_twice() {
    let (mut chat, slack) = chatting(&json!({}));
    let (_, id) = chat.ask_marker("elsewhere");
    let (at, _) = prompt_of(&chat, &slack, &id);
    // Slack has no idempotency key: a prompt that is not marked yet is sent again.
    eventually("it is marked", || {
        chat.receipts(&id).iter().any(|one| one.1 == "sent")
    });
    chat.restart();
    chat.machine.ok(&["approvals", "deny", &id]);
    eventually("the message is edited", || {
        let (text, buttons) = shown(&slack, &at);
        text.starts_with("❌ Denied") && buttons.is_empty()
    });
    assert_eq!(slack.calls("chat.postMessage").len(), 1);
    // The new gateway listens.
    let (_, second) = chat.ask_marker("after");
    let (at, _) = prompt_of(&chat, &slack, &second);
    slack.press(ADA, &at, "deny");
    assert_eq!(chat.until_ended(&second).0, "deny");
}
