use super::read::place_in;
use super::*;
use ChatTap::{AllowAlways, AllowOnce, Deny};

fn event(kind: &str, sender: &str, content: &Value) -> Value {
    json!({ "type": kind, "sender": sender, "event_id": "$e", "content": content })
}

fn read(events: &Value) -> Vec<ChatUpdate> {
    let synced = json!({ "rooms": { "join": { "!r:x": { "timeline": { "events": events } } } } });
    read_updates(&synced, "@bot:x")
}

fn reaction(sender: &str, key: &str) -> Value {
    let relation = json!({ "rel_type": "m.annotation", "event_id": "$prompt", "key": key });
    event("m.reaction", sender, &json!({ "m.relates_to": relation }))
}

#[test]
fn reactions_of_others_are_read_with_and_without_the_variation_selector() {
    let events = json!([
        reaction("@ada:x", "✅"),
        reaction("@ada:x", "✅\u{fe0f}"),
        reaction("@ada:x", "❌"),
        reaction("@ada:x", "♾"),
        reaction("@ada:x", "♾\u{fe0f}"),
        reaction("@ada:x", "👍"),
        reaction("@bot:x", "✅"),
    ]);
    let taps: Vec<ChatTap> = read(&events)
        .into_iter()
        .map(|update| match update {
            ChatUpdate::Tapped {
                sender, place, tap, ..
            } => {
                assert_eq!(
                    (sender.as_str(), place.message.as_str()),
                    ("@ada:x", "$prompt")
                );
                tap
            }
            ChatUpdate::Typed { .. } | ChatUpdate::Replaced { .. } => panic!("{update:?}"),
        })
        .collect();
    assert_eq!(taps, [AllowOnce, AllowOnce, Deny, AllowAlways, AllowAlways]);
}

#[test]
fn only_plainly_typed_new_texts_are_read() {
    let text = "/approve kmnpz allow-once";
    let typed = |content: Value| read(&json!([event("m.room.message", "@ada:x", &content)])).len();
    assert_eq!(typed(json!({ "msgtype": "m.text", "body": text })), 1);
    for content in [
        json!({ "msgtype": "m.notice", "body": text }),
        json!({ "msgtype": "m.emote", "body": text }),
        json!({ "msgtype": "m.text", "body": text, "m.new_content": { "body": text },
            "m.relates_to": { "rel_type": "m.replace", "event_id": "$old" } }),
        json!({ "msgtype": "m.text", "body": text, "format": "org.matrix.custom.html",
            "formatted_body": format!("<pre><code>{text}</code></pre>") }),
        json!({ "msgtype": "m.text", "body": text, "format": "org.matrix.custom.html",
            "formatted_body": format!("<blockquote>{text}</blockquote>") }),
        json!({ "body": text }),
        json!({}),
    ] {
        assert_eq!(typed(content.clone()), 0, "{content}");
    }
    let content = json!({ "msgtype": "m.text", "body": text });
    let mut edited = event("m.room.message", "@ada:x", &content);
    edited["unsigned"] = json!({ "m.relations": { "m.replace": { "event_id": "$edit" } } });
    assert_eq!(read(&json!([edited])), [], "it said something else before");
}

#[test]
fn a_reaction_that_was_taken_back_is_none() {
    let redacted = json!({ "type": "m.reaction", "sender": "@ada:x", "event_id": "$e",
        "content": {}, "unsigned": { "redacted_because": {} } });
    assert_eq!(read(&json!([redacted])), []);
}

#[test]
fn invitations_are_taken_from_approvers_only() {
    let invitation = |sender: &str, to: &str| {
        let mut one = event("m.room.member", sender, &json!({ "membership": "invite" }));
        one["state_key"] = json!(to);
        one
    };
    let room = |events: Value| json!({ "invite_state": { "events": events } });
    let (ada, eve, bot) = ("@ada:x", "@eve:x", "@bot:x");
    let synced = json!({ "rooms": { "invite": {
        "!good:x": room(json!([invitation(ada, bot), invitation(eve, "@other:x")])),
        "!bad:x": room(json!([invitation(eve, bot)])),
        // What another server says of a room is not checked: an approver invited another account there.
        "!other:x": room(json!([invitation(eve, bot), invitation(ada, "@other:x")])),
        "!both:x": room(json!([invitation(eve, bot), invitation(ada, bot)])),
        "!empty:x": room(json!([])),
        "!odd:x": room(json!("x")),
    } } });
    assert_eq!(invitations(&synced, bot, &[ada.to_owned()]), ["!good:x"]);
}

#[test]
fn replacements_of_own_messages_are_read_and_those_of_others_are_not() {
    let replacing = |sender: &str| {
        let content = json!({ "msgtype": "m.text", "body": "* other",
            "m.new_content": { "msgtype": "m.text", "body": "other" },
            "m.relates_to": { "rel_type": "m.replace", "event_id": "$prompt" } });
        event("m.room.message", sender, &content)
    };
    let place = place_in("!r:x", "$prompt");
    let read = read(&json!([replacing("@bot:x"), replacing("@eve:x")]));
    assert_eq!(read, [ChatUpdate::Replaced { place }]);
}

#[test]
fn a_text_in_a_thread_is_for_its_root_and_a_reply_for_what_it_replies_to() {
    let replies_to = |relation: Value| {
        let content = json!({ "msgtype": "m.text", "body": "/exec", "m.relates_to": relation });
        match read(&json!([event("m.room.message", "@ada:x", &content)])).as_slice() {
            [ChatUpdate::Typed { replies_to, .. }] => replies_to.clone().unwrap_or_default(),
            other => panic!("{other:?}"),
        }
    };
    let thread = |is_falling_back: bool| {
        json!({ "rel_type": "m.thread", "event_id": "$root", "is_falling_back": is_falling_back,
            "m.in_reply_to": { "event_id": "$last" } })
    };
    assert_eq!(replies_to(thread(true)), "$root");
    assert_eq!(replies_to(thread(false)), "$last");
    assert_eq!(
        replies_to(json!({ "rel_type": "m.thread", "event_id": "$root" })),
        "$root"
    );
    assert_eq!(
        replies_to(json!({ "m.in_reply_to": { "event_id": "$last" } })),
        "$last"
    );
}

#[test]
fn nothing_in_a_command_is_markup_and_no_account_is_mentioned() {
    let message = ChatMessage {
        title: "⏳ kmnpz · main @ <b>x</b>".to_owned(),
        block: "command   echo '</pre></code><a href=\"http://evil\">x</a>' @room &amp;".to_owned(),
        note: "/approve kmnpz deny".to_owned(),
        ..ChatMessage::default()
    };
    let content = content(&message);
    let html = content["formatted_body"].as_str().unwrap();
    for tag in ["<a", "<b>", "</pre></code><"] {
        assert!(!html.contains(tag), "{html}");
    }
    assert_eq!(html.matches("</pre>").count(), 1);
    assert_eq!(content["m.mentions"], json!({}));
    assert!(content["body"].as_str().unwrap().contains(&message.block));
}
