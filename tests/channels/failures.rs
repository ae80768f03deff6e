//! Targets that fail: receipts, retries, the fallback (S-24), and rooms that Interlock does not write to.

use std::sync::atomic::Ordering;

use serde_json::json;
use testkit::eventually;

use super::matrix::{chatting, prompt_of};
use super::{ADA, ROOM};

#[test]
fn when_every_target_fails_the_receipts_say_why_and_the_fallback_decides() {
    let (chat, matrix) = chatting(&json!({ "approvals": { "exec": { "targets": [
        { "channel": "matrix", "to": "!forbidden:test" },
        { "channel": "matrix", "to": "!encrypted:test" },
    ] } } }));
    matrix.state.change(|state| {
        state.forbidden.insert("!forbidden:test".to_owned());
        state.encrypted.insert("!encrypted:test".to_owned());
    });
    let (file, id) = chat.ask_marker("s24");
    let (ending, _) = chat.until_ended(&id);
    assert_eq!(ending, "fallback-deny");
    let receipts = chat.receipts(&id);
    let why = |surface: &str| {
        let found = receipts
            .iter()
            .find(|one| one.0 == surface && one.1 == "failed");
        found.map(|one| one.2.clone()).unwrap_or_default()
    };
    assert!(
        why("matrix:!forbidden:test").contains("M_FORBIDDEN"),
        "{receipts:?}"
    );
    assert!(
        why("matrix:!encrypted:test").contains("the room is encrypted"),
        "{receipts:?}"
    );
    // Nothing was written to the encrypted room.
    assert_eq!(matrix.prompts("!encrypted:test").len(), 0);
    assert!(!file.exists());
}

#[test]
fn an_approval_that_another_surface_shows_is_not_decided_by_the_fallback() {
    let (chat, matrix) = chatting(&json!({}));
    matrix
        .state
        .change(|state| state.forbidden.insert(ROOM.to_owned()));
    let mut approver = chat.gateway.connect(&["operator.approvals"]);
    let (_, id) = chat.ask_marker("watched");
    eventually("the target failed", || {
        chat.receipts(&id).iter().any(|one| one.1 == "failed")
    });
    let asked = approver.event("exec.approval.requested", |payload| {
        payload["id"] == id.as_str()
    });
    assert_eq!(asked["id"], id.as_str());
    assert_eq!(chat.ending(&id), None);
}

#[test]
fn a_server_that_is_away_or_busy_is_tried_again_and_gets_one_message() {
    let (chat, matrix) = chatting(&json!({}));
    // Another surface, so that nothing is decided meanwhile.
    let _approver = chat.gateway.connect(&["operator.approvals"]);
    matrix.server.is_away.store(true, Ordering::SeqCst);
    let (_, id) = chat.ask_marker("away");
    eventually("it failed", || {
        chat.receipts(&id).iter().any(|one| one.1 == "failed")
    });
    matrix.state.change(|state| state.busy = 2);
    matrix.server.is_away.store(false, Ordering::SeqCst);
    let (event, _) = prompt_of(&chat, &matrix, &id);
    assert_eq!(matrix.prompts(ROOM).len(), 1);
    matrix.react(ROOM, ADA, &event, "❌");
    assert_eq!(chat.until_ended(&id).0, "deny");
}

#[test]
fn a_room_that_becomes_encrypted_gets_no_further_prompt() {
    let (chat, matrix) = chatting(&json!({}));
    let _approver = chat.gateway.connect(&["operator.approvals"]);
    let (_, first) = chat.ask_marker("plain");
    prompt_of(&chat, &matrix, &first);
    matrix
        .state
        .change(|state| state.encrypted.insert(ROOM.to_owned()));
    let (_, second) = chat.ask_marker("secret");
    eventually("it is refused", || {
        let receipts = chat.receipts(&second);
        receipts
            .iter()
            .any(|one| one.2.contains("the room is encrypted"))
    });
    assert_eq!(matrix.prompts(ROOM).len(), 1);
}
