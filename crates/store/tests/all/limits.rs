//! How much is taken in: what is longer is refused, and nothing is written.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::{NOW, answer, code, decided, delivery, digest, request, verified};
use interlock_store::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, DeliveryState, MAX_DELIVERIES,
    MAX_DENY_REASON_BYTES, MAX_NAME_BYTES, MAX_PLAN_BYTES, MAX_PREVIEW_BYTES, RecordedOutcome,
    Store, StoreError,
};
use serde_json::json;

/// Puts a text into one field.
type Spoil<'a> = &'a dyn Fn(&mut ApprovalRequest, String);

fn open() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    (directory, store)
}

#[test]
fn what_is_too_large_or_empty_is_refused_and_nothing_is_written() {
    let (_directory, store) = open();
    let head = verified(&store);
    let long = "x".repeat(MAX_NAME_BYTES + 1);
    let fields: [(Spoil<'_>, usize); 9] = [
        (&|request, text| request.plan = text, MAX_PLAN_BYTES),
        (&|request, text| request.preview = text, MAX_PREVIEW_BYTES),
        (&|request, text| request.plan_digest = text, 128),
        (&|request, text| request.agent = text, MAX_NAME_BYTES),
        (&|request, text| request.session_key = text, MAX_NAME_BYTES),
        (&|request, text| request.host = text, MAX_NAME_BYTES),
        (&|request, text| request.node = Some(text), MAX_NAME_BYTES),
        (&|request, text| request.requester = text, MAX_NAME_BYTES),
        (&|request, text| request.binding = text, 32),
    ];
    for (spoil, most) in fields {
        let create = |text: String| {
            let mut asked = request("a");
            spoil(&mut asked, text);
            store.create_approval(&asked)
        };
        assert_eq!(code(create("x".repeat(most + 1))), "INPUT_TOO_LARGE");
        assert_eq!(code(create(String::new())), "INPUT_EMPTY");
        create("x".repeat(most)).unwrap();
    }
    let text = json!("x".repeat(1024 * 1024));
    let asked = ApprovalRequest {
        verdict: text,
        ..request("a")
    };
    assert_eq!(code(store.create_approval(&asked)), "INPUT_TOO_LARGE");
    assert_eq!(verified(&store).seq, head.seq + 9);

    let id = decided(&store, "a", ApprovalDecision::AllowOnce).id;
    let head = verified(&store);
    let deliver = |surface: &str| delivery(surface, DeliveryState::Sent, NOW);
    assert_eq!(
        code(store.record_delivery(&id, &deliver(&long))),
        "INPUT_TOO_LARGE"
    );
    let by = ApprovalAnswer {
        decider: &long,
        ..answer(&id, ApprovalDecision::Deny)
    };
    assert_eq!(code(store.decide(&by)), "INPUT_TOO_LARGE");
    let by = ApprovalAnswer {
        decider: "",
        ..answer(&id, ApprovalDecision::Deny)
    };
    assert_eq!(code(store.decide(&by)), "INPUT_EMPTY");
    let words = "x".repeat(MAX_DENY_REASON_BYTES + 1);
    for (reason, expected) in [(words.as_str(), "INPUT_TOO_LARGE"), ("", "INPUT_EMPTY")] {
        let by = ApprovalAnswer {
            reason: Some(reason),
            ..answer(&id, ApprovalDecision::Deny)
        };
        assert_eq!(code(store.decide(&by)), expected);
    }
    assert_eq!(
        code(store.claim(&id, &digest("a"), &long, NOW)),
        "INPUT_TOO_LARGE"
    );
    let large = RecordedOutcome::default().with_message("x".repeat(1024 * 1024));
    assert_eq!(
        code(store.finish_claim(&id, &large, NOW)),
        "INPUT_TOO_LARGE"
    );
    assert_eq!(verified(&store), head);
}

#[test]
fn the_largest_preview_fits_into_the_audit_however_it_is_escaped() {
    let (_directory, store) = open();
    let preview = "\u{1}".repeat(MAX_PREVIEW_BYTES);
    let asked = ApprovalRequest {
        preview,
        ..request("a")
    };
    let id = store.create_approval(&asked).unwrap().id;
    assert_eq!(store.approval(&id).unwrap().request, asked);
    verified(&store);
}

#[test]
fn deliveries_of_one_approval_are_bounded() {
    let (_directory, store) = open();
    let id = store.create_approval(&request("a")).unwrap().id;
    let sent = |number: usize| delivery(&format!("web:{number}"), DeliveryState::Sent, NOW);
    store
        .change(|change| {
            (0..MAX_DELIVERIES).try_for_each(|n| change.record_delivery(&id, &sent(n)).map(drop))
        })
        .unwrap_or_else(|error: StoreError| panic!("{error}"));
    let result = store.record_delivery(&id, &sent(MAX_DELIVERIES));
    assert_eq!(code(result), "APPROVAL_TOO_MANY_DELIVERIES");
}
