//! Plans that were handed out to a gateway, and run ids that it chose.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::common::{NOW, code, exit_outcome, verified};
use interlock_store::{
    CLAIM_WINDOW_MS, ClaimState, Claiming, ForwardedClaim, IssuedPlan, Store, StoreError,
};

fn open() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    (directory, store)
}

fn hand_out(store: &Store, digest: &str, plan: &str, now_ms: i64) -> Result<(), StoreError> {
    store.change(|change| change.issue_plan(digest, plan, now_ms))
}

fn claim(store: &Store, id: &str, now_ms: i64) -> Result<Claiming, StoreError> {
    store.change(|change| {
        change.claim_forwarded(&ForwardedClaim {
            id,
            digest: "digest",
            agent: "main",
            session_key: "agent:main:main",
            claimer: "process",
            now_ms,
        })
    })
}

#[test]
fn the_first_and_the_newest_plan_under_a_digest_stay_until_they_are_forgotten_or_too_old() {
    let (directory, store) = open();
    hand_out(&store, "a", "first", NOW).unwrap();
    hand_out(&store, "a", "second", NOW + 1).unwrap();
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    let plan = |digest: &str, now_ms: i64| {
        let first = store.issued_plan(digest, IssuedPlan::First, now_ms);
        first.unwrap()
    };
    assert_eq!(plan("a", NOW + 1).as_deref(), Some("first"));
    let newest = store.issued_plan("a", IssuedPlan::Newest, NOW + 1).unwrap();
    assert_eq!(newest.as_deref(), Some("second"));
    assert_eq!(plan("b", NOW), None);
    // Counted from the last time that it was handed out.
    let over = NOW + 1 + CLAIM_WINDOW_MS;
    assert_eq!(plan("a", over - 1).as_deref(), Some("first"));
    assert_eq!(plan("a", over), None);
    store
        .change(|change| change.forget_issued_plan("a"))
        .unwrap();
    assert_eq!(plan("a", NOW), None);
    hand_out(&store, "a", "third", NOW + 2).unwrap();
    assert_eq!(plan("a", NOW + 2).as_deref(), Some("third"));
    // What is too old makes room for itself.
    hand_out(&store, "a", "fourth", NOW + 2 + CLAIM_WINDOW_MS).unwrap();
    assert_eq!(
        plan("a", NOW + 2 + CLAIM_WINDOW_MS).as_deref(),
        Some("fourth")
    );
}

#[test]
fn of_too_many_plans_the_oldest_go() {
    let (_directory, store) = open();
    store
        .change(|change| {
            for number in 0..4100 {
                change.issue_plan(&format!("d{number}"), "plan", NOW + number)?;
            }
            Ok::<_, StoreError>(())
        })
        .unwrap();
    let is_kept = |number: i64| {
        store
            .issued_plan(&format!("d{number}"), IssuedPlan::First, NOW)
            .unwrap()
            .is_some()
    };
    assert!(!is_kept(0) && !is_kept(3));
    assert!(is_kept(4) && is_kept(4099));
}

#[test]
fn a_run_id_is_claimed_once_and_forgotten_when_no_plan_could_use_it_any_more() {
    let (directory, store) = open();
    assert_eq!(claim(&store, "r", NOW).unwrap(), Claiming::Claimed);
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    let again = claim(&store, "r", NOW + 1).unwrap();
    let unfinished = Claiming::AlreadyClaimed {
        at_ms: NOW,
        state: ClaimState::Unfinished,
    };
    assert_eq!(again, unfinished);
    // One that has not ended is never forgotten.
    let over = NOW + CLAIM_WINDOW_MS;
    store.purge(over).unwrap();
    assert_eq!(claim(&store, "r", over).unwrap(), unfinished);
    store.finish_claim("r", &exit_outcome(0), NOW + 2).unwrap();
    store.purge(over - 1).unwrap();
    assert!(matches!(
        claim(&store, "r", over).unwrap(),
        Claiming::AlreadyClaimed { .. }
    ));
    store.purge(over).unwrap();
    assert_eq!(claim(&store, "r", over).unwrap(), Claiming::Claimed);
    verified(&store);
}

#[test]
fn ids_and_plans_have_a_size() {
    let (_directory, store) = open();
    for (id, expected) in [("", "INPUT_EMPTY"), (&*"x".repeat(1025), "INPUT_TOO_LARGE")] {
        assert_eq!(code(claim(&store, id, NOW)), expected);
        assert_eq!(code(hand_out(&store, id, "plan", NOW)), expected);
    }
}

/// The number of plans is bounded, and how large they are is up to the gateway.
#[test]
fn large_plans_make_room_for_newer_ones() {
    let (_directory, store) = open();
    let large = "p".repeat(8 << 20);
    let count = 20;
    for number in 0..count {
        hand_out(&store, &number.to_string(), &large, NOW + number).unwrap();
    }
    let is_there = |number: i64| {
        let plan = store.issued_plan(&number.to_string(), IssuedPlan::First, NOW + count);
        plan.unwrap().is_some()
    };
    // Each is there twice, as the first and as the newest one of its words: 16 fit into 256 MiB.
    let there: Vec<bool> = (0..count).map(is_there).collect();
    let expected: Vec<bool> = (0..count).map(|number| number >= count - 16).collect();
    assert_eq!(there, expected);
}
