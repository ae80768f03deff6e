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
            ChatUpdate::Typed { .. } => panic!("{update:?}"),
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
    let invite = |sender: &str| json!({ "invite_state": { "events": [event("m.room.member", sender, &json!({ "membership": "invite" }))] } });
    let synced = json!({ "rooms": { "invite": {
        "!good:x": invite("@ada:x"), "!bad:x": invite("@eve:x") } } });
    assert_eq!(invitations(&synced, &["@ada:x".to_owned()]), ["!good:x"]);
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
