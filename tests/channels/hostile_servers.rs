//! Servers that answer otherwise than they should, and rooms that an agent fills: no answer of an approver
//! is lost, and nothing is sent without end.

use std::sync::atomic::Ordering;

use serde_json::json;
use testkit::eventually;

use super::matrix::{chatting, prompt_of};
use super::{ADA, EVE, ROOM};

/// An agent writes more than the server gives at once, before the gateway reads on.
fn a_denial_is_heard_behind(texts: usize, length: usize) {
    let (chat, matrix) = chatting(&json!({}));
    let (file, id) = chat.ask_marker("flooded");
    let (event, _) = prompt_of(&chat, &matrix, &id);
    eventually("the seeds come", || matrix.seeds(&event).len() == 3);
    matrix.server.is_away.store(true, Ordering::SeqCst);
    matrix.react(ROOM, ADA, &event, "❌");
    let text = "x".repeat(length);
    for _ in 0..texts {
        matrix.say(ROOM, EVE, &text);
    }
    matrix.server.is_away.store(false, Ordering::SeqCst);
    assert_eq!(chat.until_ended(&id).0, "deny");
    // What comes behind it is read as well.
    let (_, next) = chat.ask_marker("next");
    let (event, _) = prompt_of(&chat, &matrix, &next);
    matrix.react(ROOM, ADA, &event, "❌");
    assert_eq!(chat.until_ended(&next).0, "deny");
    assert!(!file.exists());
}

#[test]
fn an_answer_that_others_pushed_out_of_the_room_is_heard() {
    a_denial_is_heard_behind(150, 10);
}

#[test]
fn a_room_that_fills_the_whole_answer_is_read_in_parts() {
    a_denial_is_heard_behind(150, 80_000);
}

#[test]
fn a_text_that_the_platform_refuses_is_no_reason_for_the_fallback() {
    let (chat, matrix) = chatting(&json!({}));
    matrix
        .state
        .change(|state| state.refused_text = Some("/usr/bin/touch".to_owned()));
    let (file, id) = chat.ask_marker("refused");
    let (event, content) = prompt_of(&chat, &matrix, &id);
    let body = content["body"].as_str().unwrap();
    assert!(
        body.contains("deny [reason] · its text is not taken here: open it to allow it"),
        "{body}"
    );
    assert!(body.contains(&format!("/approve/{id}")), "{body}");
    eventually("only Deny is seeded", || matrix.seeds(&event) == ["❌"]);
    matrix.react(ROOM, ADA, &event, "✅");
    eventually("it is refused", || !matrix.notices(ROOM).is_empty());
    assert_eq!(chat.ending(&id), None);
    matrix.react(ROOM, ADA, &event, "❌");
    assert_eq!(chat.until_ended(&id).0, "deny");
    // The end repeats the command, and is shown without it.
    eventually("the end is shown", || {
        matrix
            .shown(&event)
            .starts_with("❌ Denied by matrix:@ada:test")
    });
    assert!(!file.exists());
}

#[test]
fn lists_of_a_wrong_type_do_not_end_the_work_of_a_chat() {
    for wrong in [json!([1]), json!("x"), json!({ ADA: 7 }), json!(false)] {
        let (chat, matrix) = chatting(&json!({
            "channels": { "matrix": { "execApprovals": { "target": "dm" } } },
            "approvals": { "exec": { "enabled": false } },
        }));
        matrix.state.change(|state| state.direct = wrong);
        let (_, id) = chat.ask_marker("direct");
        let room = "!direct0:test";
        eventually("the prompt comes", || matrix.prompts(room).len() == 1);
        let (event, _) = matrix.prompts(room).remove(0);
        matrix.react(room, ADA, &event, "❌");
        assert_eq!(chat.until_ended(&id).0, "deny");
    }
}

#[test]
fn a_message_whose_name_cannot_be_kept_is_not_sent_again_and_again() {
    let (chat, matrix) = chatting(&json!({}));
    matrix.state.change(|state| state.longer_ids = 2_000);
    let (_, id) = chat.ask_marker("long-id");
    assert_eq!(chat.until_ended(&id).0, "fallback-deny");
    let receipts = chat.receipts(&id);
    assert!(
        receipts
            .iter()
            .any(|one| one.1 == "failed" && one.2.contains("place of the chat message")),
        "{receipts:?}"
    );
    let sent = matrix.prompts(ROOM).len();
    assert!((1..=2).contains(&sent), "{sent}");
}

#[test]
fn a_target_that_is_taken_away_counts_as_failed_and_the_fallback_decides() {
    let (chat, matrix) = chatting(&json!({}));
    matrix.server.is_away.store(true, Ordering::SeqCst);
    let (_, id) = chat.ask_marker("taken-away");
    eventually("it failed", || {
        chat.receipts(&id).iter().any(|one| one.1 == "failed")
    });
    chat.machine
        .ok(&["config", "set", "approvals.exec.enabled", "false"]);
    assert_eq!(chat.until_ended(&id).0, "fallback-deny");
}

#[test]
fn equal_plans_are_one_line_and_no_conversation_hides_what_another_one_asked() {
    let (chat, matrix) = chatting(&json!({}));
    for _ in 0..3 {
        chat.ask("/usr/bin/touch single");
    }
    for _ in 0..3 {
        chat.ask("/usr/bin/touch equal");
    }
    let other = chat.ask("/usr/bin/touch other");
    let shown = || {
        let last = matrix.prompts(ROOM).into_iter().nth(3);
        last.map(|(event, _)| matrix.shown(&event))
            .unwrap_or_default()
    };
    eventually("equal ones are one line", || {
        let text = shown();
        text.contains("⏳ ×3 ") && text.contains(&chat.short_id(&other))
    });
    assert!(shown().starts_with("⏳ 4 approvals wait"), "{}", shown());
}
