//! S-04 and S-05: text that attacks its reader.

use serde_json::json;
use testkit::eventually;

use super::matrix::{chatting, prompt_of};
use super::{ADA, ROOM};

#[test]
fn hidden_characters_are_spelled_out_as_on_every_surface() {
    let (chat, matrix) = chatting(&json!({}));
    let hidden = "/usr/bin/printf %s 'a\u{202e}b\u{2066}c\u{200b}d\u{ad}e\u{feff}f\u{a0}g\rh' /usr/bin/c\u{430}t";
    let id = chat.ask(hidden);
    let (_, content) = prompt_of(&chat, &matrix, &id);
    let shown = chat.machine.ok(&["approvals", "pending", "--json"]).json();
    let command = shown["approvals"][0]["command"]
        .as_str()
        .unwrap()
        .to_owned();
    for text in [
        content["body"].as_str().unwrap(),
        content["formatted_body"].as_str().unwrap(),
    ] {
        for character in [
            '\u{202e}', '\u{2066}', '\u{200b}', '\u{ad}', '\u{feff}', '\u{a0}', '\r',
        ] {
            assert!(!text.contains(character), "{character:?}: {text}");
        }
    }
    // The same text as in the terminal.
    assert!(
        content["body"].as_str().unwrap().contains(&command),
        "{command}"
    );
}

#[test]
fn markup_of_every_platform_is_shown_literally_and_pings_no_account() {
    let (chat, matrix) = chatting(&json!({}));
    let words = "``` *x* [a](http://evil) <@U1> <!channel> @everyone @room </pre></code><b>x</b>";
    let id = chat.ask(&format!("/usr/bin/printf %s '{words}'"));
    let (event, content) = prompt_of(&chat, &matrix, &id);
    assert!(content["body"].as_str().unwrap().contains(words));
    let html = content["formatted_body"].as_str().unwrap();
    assert_eq!(content["m.mentions"], json!({}));
    for tag in ["<b>", "<@U1>", "<!channel>", "</pre></code><b"] {
        assert!(!html.contains(tag), "{tag}: {html}");
    }
    // The one link is Interlock's own.
    assert_eq!(html.matches("<a ").count(), 1, "{html}");
    // It is shown whole, so it can be allowed.
    eventually("it can be allowed", || {
        matrix.seeds(&event).contains(&"✅".to_owned())
    });
}

#[test]
fn what_is_too_long_for_the_platform_is_cut_and_can_only_be_denied() {
    let (chat, matrix) = chatting(&json!({}));
    let id = chat.ask(&format!("/usr/bin/printf %s '{}'", "<".repeat(20_000)));
    let (event, content) = prompt_of(&chat, &matrix, &id);
    let body = content["body"].as_str().unwrap();
    assert!(content.to_string().len() < 64 * 1024);
    assert!(body.contains("\n… cut\n"), "{}", body.len());
    assert!(body.contains("deny [reason] · not all of it is shown here"));
    eventually("only Deny is seeded", || matrix.seeds(&event) == ["❌"]);
    matrix.react(ROOM, ADA, &event, "✅");
    eventually("it is refused", || !matrix.notices(ROOM).is_empty());
    assert_eq!(chat.ending(&id), None);
}

#[test]
fn what_a_preview_changed_is_shown_whole_and_decided_in_chat() {
    let (chat, matrix) = chatting(&json!({}));
    let spaces = chat
        .machine
        .root()
        .join("home/.local/share/interlock/workspaces");
    let log = spaces.join("main/log");
    let arguments = json!({ "command": "echo one-line >> log", "effects": "preview" });
    let body = json!({ "tool": "exec", "args": arguments });
    let bearer = format!("Bearer {}", chat.token);
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
    ];
    for (number, (reaction, ending)) in [("❌", "deny"), ("✅", "allow-once")]
        .into_iter()
        .enumerate()
    {
        let reply = chat.post("/tools/invoke", &headers, &body.to_string());
        assert_eq!(reply.status, 200, "{reply:?}");
        eventually("its effect waits", || {
            matrix.prompts(ROOM).len() == number + 1
        });
        let (event, content) = matrix.prompts(ROOM).pop().unwrap();
        let text = content["body"].as_str().unwrap();
        for words in ["+one-line", "log", "allow-once"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!log.exists());
        let pending = chat.machine.ok(&["approvals", "pending", "--json"]).json();
        let id = pending["approvals"][0]["id"].as_str().unwrap().to_owned();
        eventually("the seeds come", || {
            matrix.seeds(&event).contains(&reaction.to_owned())
        });
        matrix.react(ROOM, ADA, &event, reaction);
        assert_eq!(chat.until_ended(&id).0, ending);
    }
    eventually("the second one is committed", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text == "one-line\n")
    });
}
