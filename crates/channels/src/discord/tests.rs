use interlock_wire::Secret;

use super::read::{DiscordIdentity, read_message, read_tap};
use super::*;
use crate::address::ServiceAddress;
use crate::channel::{ChatTap, ChatUpdate, TappedMessage};
use crate::message::{ChatButton, ChatSubject};

fn own() -> DiscordIdentity {
    DiscordIdentity {
        application: "100".to_owned(),
        user: "101".to_owned(),
    }
}

fn message(change: impl FnOnce(&mut Value)) -> Value {
    let mut event = json!({
        "id": "900", "channel_id": "500", "type": 0, "content": "/approve kmnpz allow-once",
        "author": { "id": "42", "username": "ada", "bot": false }, "timestamp": "t",
        "edited_timestamp": null, "mentions": [], "attachments": [], "embeds": [], "flags": 0,
    });
    change(&mut event);
    event
}

fn tap(change: impl FnOnce(&mut Value)) -> Value {
    let mut event = json!({
        "id": "901", "application_id": "100", "type": 3, "token": "tok", "channel_id": "500",
        "user": { "id": "42", "username": "ada" },
        "message": { "id": "700", "channel_id": "500", "author": { "id": "101", "bot": true } },
        "data": { "custom_id": "deny:id-1", "component_type": 2 },
    });
    change(&mut event);
    event
}

#[test]
fn direct_messages_and_buttons_of_persons_are_read() {
    let read = read_message(&message(|_| {}), &own());
    assert!(
        matches!(&read, Some(ChatUpdate::Typed { sender, .. }) if sender == "42"),
        "{read:?}"
    );
    let reply = message(|event| {
        event["type"] = json!(19);
        event["message_reference"] = json!({ "message_id": "700", "channel_id": "500" });
    });
    let read = read_message(&reply, &own());
    assert!(
        matches!(&read, Some(ChatUpdate::Typed { replies_to: Some(to), .. }) if to == "700"),
        "{read:?}"
    );
    let in_server = tap(|event| {
        event["member"] = json!({ "user": event["user"] });
        event["user"] = Value::Null;
        event["guild_id"] = json!("1");
    });
    for event in [tap(|_| {}), in_server] {
        let (update, id, token) = read_tap(&event, &own()).unwrap();
        let ChatUpdate::Tapped {
            sender, tap, names, ..
        } = update
        else {
            panic!("{update:?}");
        };
        assert_eq!((sender.as_str(), tap), ("42", ChatTap::Deny));
        assert_eq!(names.as_deref(), Some("id-1"));
        assert_eq!((id.as_str(), token.as_str()), ("901", "tok"));
    }
}

#[test]
fn messages_that_are_not_typed_by_a_person_just_now_are_not_read() {
    let with = |key: &str, value: Value| message(|event| event[key] = value);
    for event in [
        with("author", json!({ "id": "42", "bot": true })),
        with("author", json!({ "id": "42", "system": true })),
        with("author", json!({ "id": "101" })),
        with("author", json!({ "id": 42 })),
        with("guild_id", json!("1")),
        with("webhook_id", json!("5")),
        with("application_id", json!("5")),
        with("interaction_metadata", json!({ "id": "5" })),
        with("edited_timestamp", json!("t2")),
        with("message_snapshots", json!([{ "message": {} }])),
        with(
            "message_reference",
            json!({ "type": 1, "message_id": "700" }),
        ),
        with("flags", json!(1 << 14)),
        with("attachments", json!([{ "id": "1" }])),
        with("embeds", json!([{ "type": "rich" }])),
        with("poll", json!({})),
        with("type", json!(7)),
        with("type", json!(20)),
        with("type", json!("0")),
        with("content", json!("hello")),
        with("content", json!("> /approve kmnpz allow-once")),
        with("content", json!("`/approve kmnpz allow-once`")),
        with("content", json!("||/approve kmnpz allow-once||")),
        with("content", json!("hello\n/approve kmnpz allow-once")),
        json!({}),
        json!(null),
    ] {
        assert_eq!(read_message(&event, &own()), None, "{event}");
    }
}

#[test]
fn buttons_of_other_applications_bots_and_messages_are_not_read() {
    for event in [
        tap(|event| event["type"] = json!(2)),
        tap(|event| event["type"] = json!(5)),
        tap(|event| event["application_id"] = json!("200")),
        tap(|event| event["message"]["author"]["id"] = json!("102")),
        tap(|event| event["message"]["webhook_id"] = json!("1")),
        tap(|event| event["message"]["channel_id"] = json!("501")),
        tap(|event| event["channel_id"] = json!("501")),
        tap(|event| event["user"] = json!({ "id": "42", "bot": true })),
        tap(|event| event["user"] = Value::Null),
        tap(|event| event["member"] = json!({ "user": { "id": "43" } })),
        tap(|event| event["data"]["component_type"] = json!(3)),
        tap(|event| event["data"]["custom_id"] = json!("deny")),
        tap(|event| event["data"]["custom_id"] = json!("allow-everything:id-1")),
        tap(|event| event["token"] = Value::Null),
        json!({}),
    ] {
        assert!(read_tap(&event, &own()).is_none(), "{event}");
    }
}

#[test]
fn the_text_cannot_leave_its_block_and_nothing_is_mentioned() {
    let setup_of = |block: &str| ChatMessage {
        title: "⏳ kmnpz".to_owned(),
        block: block.to_owned(),
        note: "/approve kmnpz deny".to_owned(),
        link: Some("https://gateway.example/approve/1".to_owned()),
        buttons: vec![ChatButton {
            tap: ChatTap::AllowOnce,
            label: "Allow once",
        }],
        subject: Some(ChatSubject {
            id: "3f2504e0-4f89-41d3-9a0c-0305e82c3301".to_owned(),
            plan_digest: "d".to_owned(),
            body: Value::Null,
        }),
    };
    let message = setup_of("*x* <@U1> @everyone [a](http://evil) \\` `x`");
    let body = content(&message);
    let text = body["content"].as_str().unwrap();
    assert_eq!(text.matches("```").count(), 2, "{text}");
    assert!(text.contains(&message.block), "{text}");
    assert!(
        text.ends_with("```\n<https://gateway.example/approve/1>"),
        "{text}"
    );
    assert_eq!(body["allowed_mentions"], json!({ "parse": [] }));
    assert_eq!(body["flags"], 4);
    let button = body["components"][0]["components"][0]["custom_id"].as_str();
    assert!(button.unwrap().len() <= 100, "{button:?}");
    let bot = DiscordBot {
        account: Arc::new(DiscordAccount(ServiceAccount::with_token(
            ServiceAddress::check("https://discord.com/api", false).unwrap(),
            Secret::default(),
        ))),
        feed: SocketFeed::default(),
        direct: DirectChats::default(),
    };
    assert!(bot.fits(&message));
    for block in ["a ``` b", &"x".repeat(2_000)] {
        assert!(!bot.fits(&setup_of(block)), "{block}");
    }
    // A name of an agent's choice leaves room for nothing else: the message is cut, and still sent.
    let mut long = ChatMessage {
        title: "⏳ kmnpz · main @ gateway · ".to_owned() + &"\\u{ad}".repeat(1_000),
        ..message.clone()
    };
    crate::message::cut(&bot, &mut long);
    assert!(bot.fits(&long));
    assert!(long.title.starts_with("⏳ kmnpz · main @ gateway · ") && long.title.ends_with('…'));
    assert_eq!(
        (&long.note, &long.buttons),
        (&message.note, &message.buttons)
    );
    let title = ChatMessage {
        title: "```".to_owned(),
        ..message
    };
    assert!(!bot.fits(&title));
    assert_eq!(text_fences(&content(&title)), 2);
}

fn text_fences(body: &Value) -> usize {
    body["content"].as_str().unwrap().matches("```").count()
}

#[test]
fn a_button_of_an_edited_message_says_so() {
    let tapped = |time: Value| match read_tap(
        &tap(|event| event["message"]["edited_timestamp"] = time),
        &own(),
    ) {
        Some((ChatUpdate::Tapped { message, .. }, ..)) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(tapped(Value::Null), TappedMessage::Unedited);
    assert_eq!(tapped(json!("2026-01-01T00:00:01Z")), TappedMessage::Edited);
}
