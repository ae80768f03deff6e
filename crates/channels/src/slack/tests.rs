use super::*;
use crate::channel::{ChatTap, ChatUpdate, TappedMessage};
use crate::message::{ChatButton, ChatSubject};

fn own() -> SlackIdentity {
    SlackIdentity {
        app: "A1".to_owned(),
        team: "T1".to_owned(),
        user: "UBOT".to_owned(),
    }
}

fn message(change: impl FnOnce(&mut Value)) -> Value {
    let mut payload = json!({
        "type": "event_callback", "api_app_id": "A1", "team_id": "T1", "event_id": "Ev1",
        "event": {
            "type": "message", "channel": "C1", "user": "UADA", "ts": "7.1", "team": "T1",
            "client_msg_id": "x", "channel_type": "channel", "text": "approve kmnpz allow-once",
            "blocks": [{ "type": "rich_text", "block_id": "b", "elements": [
                { "type": "rich_text_section",
                  "elements": [{ "type": "text", "text": "approve kmnpz allow-once" }] },
            ] }],
        },
    });
    change(&mut payload);
    json!({ "envelope_id": "e", "type": "events_api", "payload": payload })
}

fn tap(change: impl FnOnce(&mut Value)) -> Value {
    let mut payload = json!({
        "type": "block_actions", "api_app_id": "A1", "team": { "id": "T1" },
        "user": { "id": "UADA", "team_id": "T1" }, "channel": { "id": "C1" },
        "container": { "type": "message", "message_ts": "7.1", "channel_id": "C1",
            "is_ephemeral": false },
        "message": { "ts": "7.1", "bot_id": "B1" },
        "actions": [{ "type": "button", "action_id": "deny", "value": "id-1", "action_ts": "8.1" }],
    });
    change(&mut payload);
    json!({ "envelope_id": "e", "type": "interactive", "payload": payload })
}

fn slash(change: impl FnOnce(&mut Value)) -> Value {
    let mut payload = json!({
        "api_app_id": "A1", "team_id": "T1", "channel_id": "C1", "user_id": "UADA",
        "command": "/approve", "text": "kmnpz deny not now", "trigger_id": "1.2.3",
    });
    change(&mut payload);
    json!({ "envelope_id": "e", "type": "slash_commands", "payload": payload })
}

fn rich(section: &str, element: &Value) -> Value {
    let elements = json!([{ "type": section, "elements": [element] }]);
    json!([{ "type": "rich_text", "elements": elements }])
}

#[test]
fn plain_messages_buttons_and_own_commands_of_persons_are_read() {
    let read = read_envelope(&message(|_| {}), &own());
    let Some(ChatUpdate::Typed { sender, place, .. }) = read else {
        panic!("{read:?}");
    };
    assert_eq!(
        (sender.as_str(), place.chat.as_str()),
        ("UADA", "C1"),
        "{place:?}"
    );
    assert_eq!(place.event.as_deref(), Some("Ev1"));
    // The shape of the documentation: without blocks.
    let plain = message(|payload| payload["event"]["blocks"] = Value::Null);
    assert!(read_envelope(&plain, &own()).is_some());
    let read = read_envelope(&tap(|_| {}), &own());
    let Some(ChatUpdate::Tapped { tap, names, .. }) = read else {
        panic!("{read:?}");
    };
    assert_eq!((tap, names.as_deref()), (ChatTap::Deny, Some("id-1")));
    let read = read_envelope(&slash(|_| {}), &own());
    assert!(
        matches!(&read, Some(ChatUpdate::Typed { text, .. }) if text == "/approve kmnpz deny not now"),
        "{read:?}"
    );
}

#[test]
fn messages_that_are_not_typed_by_a_person_just_now_are_not_read() {
    let with = |key: &str, value: Value| message(|payload| payload["event"][key] = value);
    for envelope in [
        with("subtype", json!("message_changed")),
        with("subtype", json!("bot_message")),
        with("subtype", json!("thread_broadcast")),
        with("bot_id", json!("B2")),
        with("bot_profile", json!({ "id": "B2" })),
        with("app_id", json!("A9")),
        with("edited", json!({ "user": "UADA", "ts": "8.0" })),
        with("hidden", json!(true)),
        with("attachments", json!([{ "is_share": true }])),
        with("files", json!([{ "id": "F1" }])),
        with("username", json!("ada")),
        with("user", json!("UBOT")),
        with("user", json!("")),
        with("user", json!(7)),
        with("team", json!("T2")),
        with("user_team", json!("T2")),
        with("source_team", json!("T2")),
        with("type", json!("reaction_added")),
        with("text", json!("hello")),
        with("text", json!("&gt; approve kmnpz allow-once")),
        with("text", json!("`approve kmnpz allow-once`")),
        with("text", json!("<@UBOT> approve kmnpz allow-once")),
        with("text", json!("hello\napprove kmnpz allow-once")),
        with("text", json!("\u{200b}approve kmnpz allow-once")),
        with("text", json!("\u{202e}approve kmnpz allow-once")),
        with(
            "blocks",
            rich("rich_text_preformatted", &json!({ "type": "text" })),
        ),
        with(
            "blocks",
            rich("rich_text_quote", &json!({ "type": "text" })),
        ),
        with("blocks", rich("rich_text_list", &json!({ "type": "text" }))),
        with(
            "blocks",
            rich(
                "rich_text_section",
                &json!({ "type": "text", "style": { "code": true } }),
            ),
        ),
        with("blocks", json!([{ "type": "section" }])),
        message(|payload| payload["api_app_id"] = json!("A2")),
        message(|payload| payload["team_id"] = json!("T2")),
        message(|payload| payload["event_id"] = Value::Null),
        message(|payload| payload["type"] = json!("url_verification")),
        json!({ "envelope_id": "e", "type": "events_api" }),
        json!({ "envelope_id": "e", "type": "options" }),
        json!([]),
        json!(null),
    ] {
        assert_eq!(read_envelope(&envelope, &own()), None, "{envelope}");
    }
}

#[test]
fn buttons_of_other_workspaces_apps_and_messages_are_not_read() {
    for envelope in [
        tap(|payload| payload["api_app_id"] = json!("A2")),
        tap(|payload| payload["team"]["id"] = json!("T2")),
        tap(|payload| payload["user"]["team_id"] = json!("T2")),
        tap(|payload| payload["user"]["id"] = json!("UBOT")),
        tap(|payload| payload["type"] = json!("message_action")),
        tap(|payload| payload["type"] = json!("view_submission")),
        tap(|payload| payload["container"]["type"] = json!("view")),
        tap(|payload| payload["container"]["is_ephemeral"] = json!(true)),
        tap(|payload| payload["channel"]["id"] = json!("C2")),
        tap(|payload| payload["message"]["ts"] = json!("9.9")),
        tap(|payload| payload["actions"] = json!([])),
        tap(|payload| payload["actions"][0]["type"] = json!("static_select")),
        tap(|payload| payload["actions"][0]["action_id"] = json!("allow-everything")),
        tap(|payload| payload["actions"][0]["value"] = Value::Null),
        tap(|payload| {
            let action = payload["actions"][0].clone();
            payload["actions"] = json!([action, action]);
        }),
        slash(|payload| payload["api_app_id"] = json!("A2")),
        slash(|payload| payload["team_id"] = json!("T2")),
        slash(|payload| payload["command"] = json!("/deploy")),
        slash(|payload| payload["trigger_id"] = Value::Null),
    ] {
        assert_eq!(read_envelope(&envelope, &own()), None, "{envelope}");
    }
}

#[test]
fn the_text_is_literal_and_buttons_name_their_approval() {
    let hostile = "``` *x* [a](http://evil) <@U1> <!channel> @everyone &amp; :smile:";
    let mut shown = ChatMessage {
        title: "<!here> t".to_owned(),
        block: hostile.to_owned(),
        note: "/approve kmnpz deny".to_owned(),
        buttons: vec![ChatButton {
            tap: ChatTap::Deny,
            label: "Deny",
        }],
        subject: Some(ChatSubject {
            id: "id-1".to_owned(),
            plan_digest: "d".to_owned(),
            body: Value::Null,
        }),
        ..ChatMessage::default()
    };
    let body = content(&shown);
    let block = &body["blocks"][0]["elements"][1];
    assert_eq!(block["type"], "rich_text_preformatted");
    assert_eq!(
        block["elements"][0],
        json!({ "type": "text", "text": hostile })
    );
    assert_eq!(body["text"], "&lt;!here&gt; t");
    let button = &body["blocks"][1]["elements"][0];
    assert_eq!(
        (&button["action_id"], &button["value"]),
        (&json!("deny"), &json!("id-1"))
    );
    shown.buttons.clear();
    assert_eq!(content(&shown)["blocks"].as_array().unwrap().len(), 1);
}

#[test]
fn what_a_tapped_message_shows_is_compared_and_anything_but_text_is_an_edit() {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let rich =
        |elements: Value| json!({ "type": "rich_text", "block_id": "x", "elements": elements });
    let prompt = rich(json!([
        { "type": "rich_text_section", "elements": [{ "type": "emoji", "name": "hourglass" }, text("title")] },
        { "type": "rich_text_preformatted", "border": 0, "elements": [text("block")] },
        { "type": "rich_text_section", "elements": [{ "type": "link", "url": "https://x/approve/1" }] },
    ]));
    let actions = json!({ "type": "actions", "elements": [
        { "type": "button", "text": { "type": "plain_text", "text": "Deny" } }] });
    let shown = |key: &str, value: Value| {
        let envelope = tap(|payload| payload["message"][key] = value);
        match read_envelope(&envelope, &own()) {
            Some(ChatUpdate::Tapped { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        shown("blocks", json!([prompt, actions])),
        TappedMessage::Shows("titleblock".to_owned())
    );
    let labeled = json!([{ "type": "rich_text_section",
        "elements": [{ "type": "link", "url": "https://x", "text": "ls" }] }]);
    for (key, value) in [
        ("edited", json!({ "user": "B1", "ts": "9.0" })),
        ("attachments", json!([{ "text": "rm -rf /" }])),
        ("files", json!([{ "id": "F1" }])),
        (
            "blocks",
            json!([{ "type": "image", "image_url": "https://x" }]),
        ),
        (
            "blocks",
            json!([prompt, { "type": "section", "text": text("ls") }]),
        ),
        ("blocks", json!([rich(labeled)])),
        (
            "blocks",
            json!([rich(json!([{ "type": "rich_text_list", "elements": [] }]))]),
        ),
    ] {
        assert_eq!(shown(key, value.clone()), TappedMessage::Edited, "{value}");
    }
    assert_eq!(
        shown("blocks", json!([])),
        TappedMessage::Shows(String::new())
    );
}
