//! Discord: buttons, direct messages, the gateway socket, and what does not count. The server is a stand-in
//! with the shapes that Discord documents, not Discord.

use serde_json::{Value, json};
use testkit::chat::DiscordStandIn;
use testkit::{Machine, eventually};

use super::{Chatting, merge, secret_file};

const ADA: &str = "42000000000000001";
const EVE: &str = "66000000000000001";
/// The channel with Ada alone, as the stand-in names it, and one of a server.
const DIRECT: &str = "542000000000000001";
const ROOM: &str = "70000000000000001";

fn chatting(change: &Value) -> (Chatting, DiscordStandIn) {
    let machine = Machine::new();
    let discord = DiscordStandIn::start(&machine);
    (started(machine, &discord, change), discord)
}

fn started(machine: Machine, discord: &DiscordStandIn, change: &Value) -> Chatting {
    let mut config = json!({ "channels": { "discord": {
        "apiRoot": format!("{}/api", discord.server.url()), "allowPrivateNetwork": true,
        "tokenFile": secret_file(&machine, "discord.token", "discord-token\n"),
        "execApprovals": { "approvers": [ADA] },
    } } });
    merge(&mut config, change);
    Chatting::start(machine, &config)
}

/// Approvals go to a channel of a server, and to no approver alone.
fn in_server() -> Value {
    json!({
        "channels": { "discord": { "execApprovals": { "target": "channel" } } },
        "approvals": { "exec": {
            "enabled": true, "targets": [{ "channel": "discord", "to": ROOM }],
        } },
    })
}

fn prompt_of(chat: &Chatting, discord: &DiscordStandIn, id: &str) -> (String, Value) {
    let short_id = chat.short_id(id);
    let find = || {
        let state = discord.state.lock();
        let mut all = state.messages.iter();
        let found = all.find(|(_, one)| {
            one["message_reference"].is_null()
                && one["content"]
                    .as_str()
                    .unwrap_or_default()
                    .contains(&short_id)
        });
        found.map(|(at, one)| (at.clone(), one.clone()))
    };
    eventually("the prompt comes", || find().is_some());
    find().unwrap()
}

fn shown(discord: &DiscordStandIn, message: &str) -> (String, Vec<String>) {
    DiscordStandIn::shown(&discord.state.lock().messages[message])
}

fn words(buttons: &[String]) -> Vec<&str> {
    let words = buttons.iter().map(|id| id.split(':').next().unwrap());
    words.collect()
}

#[test]
fn a_button_allows_the_run_and_the_buttons_are_gone() {
    let (chat, discord) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("tapped");
    let (message, sent) = prompt_of(&chat, &discord, &id);
    assert_eq!(sent["channel_id"], DIRECT);
    assert_eq!(sent["allowed_mentions"], json!({ "parse": [] }));
    assert_eq!((&sent["flags"], sent.get("embeds")), (&json!(4), None));
    assert_eq!(sent["enforce_nonce"], true);
    let (text, buttons) = shown(&discord, &message);
    assert!(text.starts_with("```\n⏳ "), "{text}");
    assert_eq!(words(&buttons), ["allow-once", "allow-always", "deny"]);
    // Only direct messages are read.
    let identified = discord.state.lock().heard[0].clone();
    assert_eq!(
        (&identified["op"], &identified["d"]["intents"]),
        (&json!(2), &json!(4096))
    );
    discord.press(ADA, &message, "allow-always");
    eventually("always takes a second step", || {
        let told = discord.told();
        told.iter()
            .any(|text| text.contains("To store it for good"))
    });
    assert_eq!(chat.ending(&id), None);
    discord.press(ADA, &message, "allow-once");
    let ended = chat.until_ended(&id);
    assert_eq!(ended, ("allow-once".to_owned(), format!("discord:{ADA}")));
    eventually("it runs", || file.exists());
    eventually("the message is edited", || {
        let (text, buttons) = shown(&discord, &message);
        text.contains(&format!("✅ Allowed once by discord:{ADA}")) && buttons.is_empty()
    });
    // Each was acknowledged, without a word to be seen.
    let acknowledged = discord.calls("/callback");
    assert_eq!(acknowledged.len(), 2, "{acknowledged:?}");
    assert!(
        acknowledged
            .iter()
            .all(|(_, body)| *body == json!({ "type": 6 }))
    );
    let late = discord.tap_event(ADA, &message, &format!("deny:{id}"));
    discord.event("INTERACTION_CREATE", &late);
    eventually("a late tap gets the winner", || {
        let told = discord.told();
        told.iter().any(|text| text.contains("✅ Allowed once by"))
    });
}

#[test]
fn decisions_are_typed_in_direct_messages_by_persons_only() {
    let (chat, discord) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("typed");
    let (message, _) = prompt_of(&chat, &discord, &id);
    let text = format!("/approve {} allow-once", chat.short_id(&id));
    for extra in [
        json!({ "author": { "bot": true } }),
        json!({ "author": { "id": EVE } }),
        json!({ "webhook_id": "1" }),
        json!({ "application_id": "1" }),
        json!({ "edited_timestamp": "2026-01-01T00:00:01Z" }),
        json!({ "message_reference": { "type": 1, "message_id": "1" },
            "message_snapshots": [{ "message": { "content": text } }], "content": "" }),
        json!({ "content": format!("> {text}") }),
        json!({ "content": format!("```\n{text}\n```") }),
        json!({ "guild_id": "1", "channel_id": ROOM }),
    ] {
        let mut event = discord.message_event(ADA, DIRECT, &text);
        merge(&mut event, &extra);
        discord.event("MESSAGE_CREATE", &event);
    }
    let edit = discord.message_event(ADA, DIRECT, &text);
    discord.event("MESSAGE_UPDATE", &edit);
    // A direct channel that did not get it.
    discord.say(ADA, "599", &text);
    let told = |part: &str| {
        let state = discord.state.lock();
        let mut all = state.messages.values();
        all.any(|one| one["content"].as_str().unwrap_or_default().contains(part))
    };
    eventually("it is unknown there", || {
        told("no such approval was sent to this chat")
    });
    assert_eq!(
        chat.refusals(),
        [format!("discord:{EVE} is not an approver")]
    );
    assert_eq!(chat.ending(&id), None);
    assert!(!file.exists());
    let mut event = discord.message_event(ADA, DIRECT, &text);
    event["type"] = json!(19);
    event["message_reference"] = json!({ "message_id": message, "channel_id": DIRECT });
    discord.event("MESSAGE_CREATE", &event);
    assert_eq!(chat.until_ended(&id).0, "allow-once");
    eventually("it runs", || file.exists());
}

#[test]
fn a_channel_of_a_server_has_buttons_and_strangers_get_one_refusal_that_only_they_see() {
    let (chat, discord) = chatting(&in_server());
    let (file, id) = chat.ask_marker("server");
    let (message, sent) = prompt_of(&chat, &discord, &id);
    assert_eq!(sent["channel_id"], ROOM);
    // Nothing is typed there, so what takes words is not offered.
    let (text, buttons) = shown(&discord, &message);
    assert_eq!(words(&buttons), ["allow-once", "deny"]);
    assert!(!text.contains("/approve "), "{text}");
    let tap = |user: &str, change: &dyn Fn(&mut Value)| {
        let mut event = discord.tap_event(user, &message, &format!("allow-once:{id}"));
        event["member"] = json!({ "user": event["user"] });
        event["user"] = Value::Null;
        event["guild_id"] = json!("1");
        change(&mut event);
        discord.event("INTERACTION_CREATE", &event);
    };
    for _ in 0..3 {
        tap(EVE, &|_| {});
    }
    // Of another application, of a bot, on a copy, on a message of another channel, for another approval.
    tap(ADA, &|event| event["application_id"] = json!("1"));
    tap(ADA, &|event| event["member"]["user"]["bot"] = json!(true));
    tap(ADA, &|event| event["message"]["author"]["id"] = json!(EVE));
    tap(ADA, &|event| event["message"]["id"] = json!("1"));
    tap(ADA, &|event| {
        event["channel_id"] = json!("71");
        event["message"]["channel_id"] = json!("71");
    });
    tap(ADA, &|event| {
        event["data"]["custom_id"] = json!("allow-once:other");
    });
    // The id of a user of another platform.
    tap("telegram:42", &|_| {});
    eventually("the audit has them", || {
        let refused = chat.refusals();
        refused.contains(&format!("discord:{EVE} is not an approver"))
            && refused.contains(&format!(
                "discord:{ADA} pressed a button of another approval"
            ))
            && refused.contains(&"discord:telegram:42 is not an approver".to_owned())
    });
    let refused = chat.refusals();
    let of_eve = |text: &&String| text.contains(EVE);
    assert_eq!(refused.iter().filter(of_eve).count(), 1, "{refused:?}");
    assert_eq!(chat.ending(&id), None);
    assert!(!file.exists());
    tap(ADA, &|_| {});
    assert_eq!(chat.until_ended(&id).0, "allow-once");
    eventually("it runs", || file.exists());
}

#[test]
fn what_would_leave_its_block_or_is_cut_can_only_be_denied() {
    let (chat, discord) = chatting(&json!({}));
    let plain = "*x* [a](http://evil) <@42> @everyone @here || ~~ \\ `x` </pre>";
    let id = chat.ask(&format!("/usr/bin/printf %s '{plain}'"));
    let (message, _) = prompt_of(&chat, &discord, &id);
    let (text, buttons) = shown(&discord, &message);
    assert!(text.contains(plain), "{text}");
    assert!(words(&buttons).contains(&"allow-once"), "{text}");
    for command in [
        "/usr/bin/printf %s 'a ``` @everyone'".to_owned(),
        format!("/usr/bin/printf %s {}", "x".repeat(20_000)),
    ] {
        let id = chat.ask(&command);
        let (message, _) = prompt_of(&chat, &discord, &id);
        let (text, buttons) = shown(&discord, &message);
        assert_eq!(text.matches("```").count(), 2, "{text}");
        assert!(text.encode_utf16().count() <= 2_000, "{}", text.len());
        assert!(text.contains("\n… cut\n"), "{text}");
        assert!(text.contains("not all of it is shown here"), "{text}");
        assert_eq!(words(&buttons), ["deny"]);
        let forged = discord.tap_event(ADA, &message, &format!("allow-once:{id}"));
        discord.event("INTERACTION_CREATE", &forged);
        eventually("it is refused", || {
            let short_id = chat.short_id(&id);
            let told = discord.told();
            told.iter()
                .any(|text| text.contains(&format!("{short_id}: allow-once is refused")))
        });
        assert_eq!(chat.ending(&id), None);
    }
}

#[test]
fn a_session_is_resumed_and_nothing_that_happened_meanwhile_is_lost() {
    let (mut chat, discord) = chatting(&json!({}));
    let (_, first) = chat.ask_marker("resumed");
    let (message, _) = prompt_of(&chat, &discord, &first);
    // Discord asks for another connection, closes one, or sends what nothing can read.
    for (number, end) in [
        json!({ "op": 7, "d": null }),
        json!({ "op": 9, "d": true }),
        json!("no JSON"),
    ]
    .iter()
    .enumerate()
    {
        discord.raw(end);
        eventually("the session is resumed", || {
            let state = discord.state.lock();
            let resumed = state.heard.iter().filter(|sent| sent["op"] == 6);
            resumed.count() == number + 1 && state.open == 1
        });
    }
    // Pressed while the gateway is away.
    chat.gateway.kill();
    discord.press(ADA, &message, "deny");
    chat.gateway = super::start_gateway(&chat.machine, &[]);
    assert_eq!(chat.until_ended(&first).0, "deny");
    // A session that Discord has forgotten is begun anew.
    let (_, second) = chat.ask_marker("forgotten");
    let (message, _) = prompt_of(&chat, &discord, &second);
    discord.state.change(|state| state.forgets = true);
    chat.restart();
    eventually("another session begins", || {
        let state = discord.state.lock();
        let begun = state.heard.iter().filter(|sent| sent["op"] == 2);
        begun.count() == 2 && state.open == 1
    });
    discord.press(ADA, &message, "deny");
    assert_eq!(chat.until_ended(&second).0, "deny");
    // Every prompt was sent once.
    assert_eq!(discord.state.lock().messages.len(), 2);
}

#[test]
fn heartbeats_are_sent_and_a_connection_without_answers_is_left() {
    let machine = Machine::new();
    let discord = DiscordStandIn::start(&machine);
    discord.state.change(|state| state.heartbeat_ms = 1_000);
    let _chat = started(machine, &discord, &json!({}));
    let beats = || {
        let state = discord.state.lock();
        state.heard.iter().filter(|sent| sent["op"] == 1).count()
    };
    eventually("heartbeats come", || beats() >= 2);
    assert_eq!(discord.state.lock().opened, 1);
    discord.state.change(|state| state.is_deaf = true);
    eventually("the connection is left for another", || {
        discord.state.lock().opened >= 2
    });
}

#[test]
fn limits_refusals_and_foreign_sockets_are_heeded() {
    let machine = Machine::new();
    let discord = DiscordStandIn::start(&machine);
    let elsewhere = testkit::chat::HttpsServer::start(&machine, |_| (200, json!({})));
    let url = format!("wss://localhost:{}", elsewhere.port);
    discord
        .state
        .change(|state| state.socket_url = Some(url.clone()));
    let targets = json!({ "approvals": { "exec": { "enabled": true, "targets": [
        { "channel": "discord", "to": "403" } ] } } });
    let mut chat = started(machine, &discord, &targets);
    let (_, id) = chat.ask_marker("foreign");
    let fails = |chat: &Chatting, id: &str, part: &str| {
        let receipts = chat.receipts(id);
        receipts.iter().any(|one| one.2.contains(part))
    };
    eventually("the receipt says why", || {
        fails(&chat, &id, "the service named a socket of another service")
    });
    assert_eq!(
        elsewhere.accepted.load(std::sync::atomic::Ordering::SeqCst),
        0
    );
    discord.state.change(|state| {
        state.socket_url = None;
        state.busy = 1;
    });
    // What was refused is not tried again for a minute.
    chat.restart();
    let (_, id) = chat.ask_marker("busy");
    let (message, _) = prompt_of(&chat, &discord, &id);
    eventually("the other target refused it", || {
        fails(&chat, &id, "50001 Missing Access")
    });
    discord.press(ADA, &message, "deny");
    assert_eq!(chat.until_ended(&id).0, "deny");
    // A server that repeats the token.
    let echo = json!({ "message": "discord-token is wrong", "code": 0 });
    discord
        .state
        .change(|state| state.answer = Some((401, echo)));
    let run = chat.machine.run(&["channels", "test", "--json"]);
    assert!(run.stdout.contains("•••• is wrong"), "{run:#?}");
    let log = std::fs::read_to_string(chat.machine.root().join("gateway.log")).unwrap();
    assert!(!log.contains("discord-token"), "{log}");
}

#[test]
fn a_bot_without_starts_left_waits() {
    let machine = Machine::new();
    let discord = DiscordStandIn::start(&machine);
    discord.state.change(|state| state.starts_left = 0);
    let chat = started(machine, &discord, &json!({}));
    let (_, id) = chat.ask_marker("limited");
    // By the listener, and before the prompt.
    eventually("it was asked", || discord.calls("/gateway/bot").len() >= 2);
    // It waits, and that is no failure.
    assert_eq!(discord.state.lock().opened, 0);
    let receipts = chat.receipts(&id);
    assert!(receipts.iter().all(|one| one.1 != "failed"), "{receipts:?}");
}

#[test]
fn a_prompt_that_another_program_changed_can_only_be_denied() {
    let (chat, discord) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("changed");
    let (message, _) = prompt_of(&chat, &discord, &id);
    let press = |word: &str| {
        let mut event = discord.tap_event(ADA, &message, &format!("{word}:{id}"));
        event["message"]["edited_timestamp"] = json!("2026-01-01T00:00:01Z");
        discord.event("INTERACTION_CREATE", &event);
    };
    press("allow-once");
    eventually("it is refused", || {
        let told = discord.told();
        told.iter()
            .any(|text| text.contains("allow-once is refused: it was not shown whole here"))
    });
    assert_eq!(chat.ending(&id), None);
    press("deny");
    assert_eq!(chat.until_ended(&id).0, "deny");
    assert!(!file.exists());
}
