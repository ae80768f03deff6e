use super::*;

fn message(change: impl FnOnce(&mut Value)) -> Value {
    let mut message = json!({
        "message_id": 7, "date": 1, "chat": { "id": 42 },
        "from": { "id": 42, "is_bot": false }, "text": "/approve kmnpz allow-once",
        "entities": [{ "type": "bot_command", "offset": 0, "length": 8 }],
    });
    change(&mut message);
    json!({ "update_id": 1, "message": message })
}

#[test]
fn a_plain_message_of_a_person_is_read() {
    let read = read_update(&message(|_| {}), "interlock_bot");
    assert!(matches!(read, Some(ChatUpdate::Typed { sender, .. }) if sender == "42"));
}

#[test]
fn a_command_for_this_bot_may_carry_its_name() {
    for named in [
        "/approve@interlock_bot kmnpz deny",
        "/approve@Interlock_Bot kmnpz deny",
    ] {
        let update = message(|message| message["text"] = json!(named));
        match read_update(&update, "interlock_bot") {
            Some(ChatUpdate::Typed { text, .. }) => assert_eq!(text, "/approve kmnpz deny"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn nothing_else_is_read() {
    let with = |key: &str, value: Value| message(|message| message[key] = value);
    for update in [
        with("from", json!({ "id": 42, "is_bot": true })),
        with("from", json!({ "id": 42 })),
        with("from", json!({ "id": "42", "is_bot": false })),
        with("forward_origin", json!({ "type": "user" })),
        with("via_bot", json!({ "id": 1 })),
        with("sender_chat", json!({ "id": 42 })),
        with("quote", json!({ "text": "x" })),
        with("edit_date", json!(5)),
        with("is_automatic_forward", json!(true)),
        with("sender_business_bot", json!({ "id": 9, "is_bot": true })),
        with("is_from_offline", json!(true)),
        with("text", json!("/approve@another_bot kmnpz allow-once")),
        with(
            "text",
            json!("/approve@interlock_bot@another kmnpz allow-once"),
        ),
        with(
            "entities",
            json!([{ "type": "code", "offset": 0, "length": 8 }]),
        ),
        with(
            "entities",
            json!([{ "type": "pre", "offset": 0, "length": 8 }]),
        ),
        with(
            "entities",
            json!([{ "type": "blockquote", "offset": 0, "length": 8 }]),
        ),
        json!({ "update_id": 1, "edited_message": message(|_| {})["message"] }),
        json!({ "update_id": 1, "channel_post": message(|_| {})["message"] }),
        json!({ "update_id": 1, "inline_query": {} }),
    ] {
        assert_eq!(read_update(&update, "interlock_bot"), None, "{update}");
    }
}

#[test]
fn taps_are_read_from_persons_and_known_buttons_only() {
    let tap = |from: Value, data: &str| {
        let query = json!({ "id": "q", "from": from, "data": data,
            "message": { "message_id": 7, "chat": { "id": 42 } } });
        read_update(
            &json!({ "update_id": 1, "callback_query": query }),
            "interlock_bot",
        )
    };
    let person = json!({ "id": 42, "is_bot": false });
    assert!(tap(person.clone(), "deny").is_some());
    assert_eq!(tap(person, "allow-everything"), None);
    assert_eq!(tap(json!({ "id": 42, "is_bot": true }), "deny"), None);
}

#[test]
fn the_text_is_literal_and_its_places_are_counted_in_units_of_utf_16() {
    let message = ChatMessage {
        title: "⏳ 𝄞".to_owned(),
        block: "*x* [a](http://evil) </pre> ``` @everyone".to_owned(),
        note: "/approve kmnpz deny".to_owned(),
        ..ChatMessage::default()
    };
    let (text, entities) = text(&message);
    let units: Vec<u16> = text.encode_utf16().collect();
    for (entity, part) in
        entities
            .as_array()
            .unwrap()
            .iter()
            .zip([&message.title, &message.block, &message.note])
    {
        let offset = usize::try_from(entity["offset"].as_u64().unwrap()).unwrap();
        let length = usize::try_from(entity["length"].as_u64().unwrap()).unwrap();
        let shown = String::from_utf16(&units[offset..offset + length]).unwrap();
        assert_eq!(&shown, part);
    }
    assert_eq!(keyboard(&message), json!({ "inline_keyboard": [] }));
}

#[test]
fn a_button_of_an_edited_message_says_so() {
    let tapped = |message: Value| {
        let query = json!({ "id": "q", "from": { "id": 42, "is_bot": false }, "data": "deny",
            "message": message });
        match read_update(
            &json!({ "update_id": 1, "callback_query": query }),
            "interlock_bot",
        ) {
            Some(ChatUpdate::Tapped { message, .. }) => message,
            other => panic!("{other:?}"),
        }
    };
    let message = json!({ "message_id": 7, "date": 1, "chat": { "id": 42 } });
    assert_eq!(tapped(message.clone()), TappedMessage::Unedited);
    let mut edited = message;
    edited["edit_date"] = json!(2);
    assert_eq!(tapped(edited), TappedMessage::Edited);
}
