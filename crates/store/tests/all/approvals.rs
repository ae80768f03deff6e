//! The life of a pending approval: asked, shown, decided, claimed, ended, forgotten.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::common::{
    NOW, SURFACE, WAIT, answer, code, decided, delivery, digest, exit_outcome, request, shown,
    verified,
};
use interlock_store::{
    ApprovalAnswer, ApprovalDecision, ApprovalEnd, ApprovalEnding, ApprovalRequest, ApprovalsStore,
    Author, CLAIM_WINDOW_MS, ClaimState, Claiming, Decided, DeliveryState, FallbackAnswer, Lease,
    MAX_ENDED, MAX_ENDED_BYTES, NotAllowed, RecordedOutcome, Store, StoreError,
};

fn open() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    (directory, store)
}

#[test]
fn the_first_valid_answer_wins_and_others_learn_who_won() {
    let (_directory, store) = open();
    let id = decided(&store, "a", ApprovalDecision::AllowOnce).id;
    assert_eq!(
        store
            .decide(&answer(&id, ApprovalDecision::AllowOnce))
            .unwrap(),
        Decided::Same
    );
    let bob = |decision| ApprovalAnswer {
        decider: "bob",
        now_ms: NOW + 5,
        ..answer(&id, decision)
    };
    assert_eq!(
        store.decide(&bob(ApprovalDecision::AllowOnce)).unwrap(),
        Decided::Same
    );
    let winner = ApprovalEnd {
        ending: ApprovalEnding::Decision(ApprovalDecision::AllowOnce),
        decider: Some("alice".to_owned()),
        reason: None,
        at_ms: NOW + 1,
    };
    let lost = store.decide(&bob(ApprovalDecision::Deny)).unwrap();
    assert_eq!(
        lost,
        Decided::Lost {
            winner: winner.clone()
        }
    );
    let error = lost.into_result().unwrap_err();
    assert_eq!(error.code(), "APPROVAL_ALREADY_DECIDED");
    assert_eq!(
        error.to_string(),
        "the approval has been decided already: allow-once by alice"
    );
    assert_eq!(store.approval(&id).unwrap().ended, Some(winner));
}

#[test]
fn every_decision_is_read_back_as_it_was_given() {
    let (_directory, store) = open();
    let lease = |seconds, uses| {
        ApprovalDecision::Lease(Lease {
            expires_in: Duration::from_secs(seconds),
            max_uses: NonZeroU32::new(uses),
        })
    };
    for decision in [
        ApprovalDecision::AllowOnce,
        ApprovalDecision::AllowSession,
        ApprovalDecision::AllowAlways,
        ApprovalDecision::Deny,
        lease(3600, 3),
        lease(1, 0),
    ] {
        let id = decided(&store, "a", decision).id;
        let ended = store.approval(&id).unwrap().ended.unwrap();
        assert_eq!(ended.ending, ApprovalEnding::Decision(decision));
        assert_eq!(store.decide(&answer(&id, decision)).unwrap(), Decided::Same);
        let other = store.decide(&answer(&id, lease(3600, 4))).unwrap();
        assert!(matches!(other, Decided::Lost { .. }), "{other:?}");
    }
}

#[test]
fn the_same_lease_again_is_the_same_answer_to_the_millisecond() {
    let (_directory, store) = open();
    let lease = |microseconds| {
        ApprovalDecision::Lease(Lease {
            expires_in: Duration::from_micros(microseconds),
            max_uses: None,
        })
    };
    let id = decided(&store, "a", lease(5500)).id;
    for (microseconds, same) in [(5500, true), (5000, true), (6000, false)] {
        let outcome = store.decide(&answer(&id, lease(microseconds))).unwrap();
        assert_eq!(outcome == Decided::Same, same, "{microseconds}");
    }
}

#[test]
fn an_answer_is_refused_where_the_approval_was_not_shown() {
    let (_directory, store) = open();
    let id = store.create_approval(&request("a")).unwrap().id;
    assert_eq!(
        code(store.decide(&answer(&id, ApprovalDecision::AllowOnce))),
        "APPROVAL_NOT_SHOWN"
    );
    for (surface, state) in [
        ("web:2", DeliveryState::Sent),
        (SURFACE, DeliveryState::Failed),
    ] {
        assert!(
            store
                .record_delivery(&id, &delivery(surface, state, NOW))
                .unwrap()
        );
        assert_eq!(
            code(store.decide(&answer(&id, ApprovalDecision::AllowOnce))),
            "APPROVAL_NOT_SHOWN"
        );
    }
    let seen = delivery(SURFACE, DeliveryState::Seen, NOW);
    assert!(store.record_delivery(&id, &seen).unwrap());
    assert!(!store.record_delivery(&id, &seen).unwrap(), "recorded once");
    assert_eq!(
        store
            .decide(&answer(&id, ApprovalDecision::AllowOnce))
            .unwrap(),
        Decided::Won
    );
    assert_eq!(store.approval(&id).unwrap().deliveries.len(), 3);
}

#[test]
fn who_asked_never_decides() {
    let (_directory, store) = open();
    let id = shown(&store, "a").id;
    let own = "connection:agent";
    let sent = delivery(own, DeliveryState::Sent, NOW);
    store.record_delivery(&id, &sent).unwrap();
    for (decider, surface) in [(own, SURFACE), ("alice", own), (own, own)] {
        for decision in [ApprovalDecision::AllowOnce, ApprovalDecision::Deny] {
            let own = ApprovalAnswer {
                decider,
                surface,
                ..answer(&id, decision)
            };
            assert_eq!(code(store.decide(&own)), "APPROVAL_SELF_DECISION");
        }
    }
    assert_eq!(store.approval(&id).unwrap().ended, None);
}

#[test]
fn an_answer_to_another_plan_is_refused() {
    let (_directory, store) = open();
    let id = shown(&store, "a").id;
    let other = ApprovalAnswer {
        plan_digest: Some("plan-b"),
        ..answer(&id, ApprovalDecision::AllowOnce)
    };
    assert_eq!(code(store.decide(&other)), "APPROVAL_REQUEST_MISMATCH");
    let right = digest("a");
    let right = ApprovalAnswer {
        plan_digest: Some(&right),
        ..other
    };
    assert_eq!(store.decide(&right).unwrap(), Decided::Won);
    // Also when the answer is the one that was given.
    assert_eq!(code(store.decide(&other)), "APPROVAL_REQUEST_MISMATCH");
}

#[test]
fn no_answer_is_taken_once_the_time_is_up() {
    let (_directory, store) = open();
    let [late, in_time] = ["late", "in-time"].map(|name| shown(&store, name).id);
    let at = |id, now_ms| {
        store.decide(&ApprovalAnswer {
            now_ms,
            ..answer(id, ApprovalDecision::AllowOnce)
        })
    };
    assert_eq!(at(&in_time, NOW + WAIT - 1).unwrap(), Decided::Won);
    assert_eq!(code(at(&late, NOW + WAIT)), "APPROVAL_EXPIRED");
    assert_eq!(store.expire_due(NOW + WAIT - 1).unwrap(), vec![]);
    let expired = store.expire_due(NOW + WAIT).unwrap();
    let ids: Vec<_> = expired.iter().map(|expired| &expired.id).collect();
    assert_eq!(ids, [&late]);
    assert_eq!(
        store.expire_due(NOW + WAIT).unwrap(),
        vec![],
        "each is told once"
    );
    // Even if the clock goes back.
    assert_eq!(code(at(&late, NOW)), "APPROVAL_EXPIRED");
    let claim = store.claim(&late, &digest("late"), "gateway", NOW).unwrap();
    assert_eq!(claim, Claiming::NotAllowed(NotAllowed::Expired));
}

#[test]
fn many_that_are_due_expire_and_each_is_told_once() {
    let (_directory, store) = open();
    let created: HashSet<_> = (0..1203)
        .map(|number| {
            store
                .create_approval(&request(&number.to_string()))
                .unwrap()
                .id
        })
        .collect();
    let expired = store.expire_due(NOW + WAIT).unwrap();
    assert_eq!(expired.len(), created.len());
    let expired: HashSet<_> = expired.into_iter().map(|expired| expired.id).collect();
    assert_eq!(expired, created);
    assert_eq!(verified(&store).seq, 2 * 1203);
}

#[test]
fn allow_always_is_refused_where_nothing_could_be_stored() {
    let (_directory, store) = open();
    let asked = interlock_store::ApprovalRequest {
        always: None,
        ..request("a")
    };
    let id = store.create_approval(&asked).unwrap().id;
    store
        .record_delivery(&id, &delivery(SURFACE, DeliveryState::Sent, NOW))
        .unwrap();
    assert_eq!(
        code(store.decide(&answer(&id, ApprovalDecision::AllowAlways))),
        "APPROVAL_NOT_OFFERED"
    );
    assert_eq!(
        store
            .decide(&answer(&id, ApprovalDecision::AllowOnce))
            .unwrap(),
        Decided::Won
    );
}

#[test]
fn allow_always_and_the_entries_it_stores_are_one_change() {
    let (_directory, store) = open();
    let first = store.replace_document(None, "{}").unwrap();
    let id = shown(&store, "a").id;
    let alice = Author::new("alice").unwrap();
    let always = |base: &str| {
        store.change(|change| {
            let decided = change.decide(&answer(&id, ApprovalDecision::AllowAlways))?;
            change.replace_document_as(&alice, Some(base), "{\"n\":1}")?;
            Ok::<_, StoreError>(decided)
        })
    };
    let before = verified(&store);
    assert_eq!(code(always("stale")), "DOCUMENT_CHANGED");
    assert_eq!(
        store.approval(&id).unwrap().ended,
        None,
        "nothing was decided"
    );
    assert_eq!(verified(&store), before);
    assert_eq!(always(&first.hash).unwrap(), Decided::Won);
    assert_eq!(store.document().unwrap().unwrap().text, "{\"n\":1}");
}

#[test]
fn the_fallback_ends_undecided_approvals() {
    let (_directory, store) = open();
    let fall =
        |id: &str, allow, now_ms| store.decide_by_fallback(&FallbackAnswer { id, allow, now_ms });
    let [allowed, denied, taken, expired] = ["a", "b", "c", "d"].map(|name| shown(&store, name).id);
    assert_eq!(fall(&allowed, true, NOW).unwrap(), Decided::Won);
    assert_eq!(fall(&allowed, true, NOW).unwrap(), Decided::Same);
    assert!(matches!(
        fall(&allowed, false, NOW).unwrap(),
        Decided::Lost { .. }
    ));
    assert_eq!(fall(&denied, false, NOW + WAIT + 1).unwrap(), Decided::Won);
    assert_eq!(
        store
            .decide(&answer(&taken, ApprovalDecision::Deny))
            .unwrap(),
        Decided::Won
    );
    assert!(matches!(
        fall(&taken, true, NOW).unwrap(),
        Decided::Lost { .. }
    ));
    store.expire_due(NOW + WAIT).unwrap();
    assert_eq!(code(fall(&expired, true, NOW + WAIT)), "APPROVAL_EXPIRED");

    let claim = |id: &str, name| store.claim(id, &digest(name), "gateway", NOW + 9).unwrap();
    assert_eq!(claim(&allowed, "a"), Claiming::Claimed);
    assert_eq!(
        claim(&denied, "b"),
        Claiming::NotAllowed(NotAllowed::Denied)
    );
    assert_eq!(
        store.approval(&denied).unwrap().ended.unwrap().decider,
        None
    );
}

#[test]
fn an_allowed_run_is_claimed_once() {
    let (directory, store) = open();
    let id = decided(&store, "a", ApprovalDecision::AllowOnce).id;
    assert_eq!(
        code(store.claim(&id, "plan-b", "gateway", NOW)),
        "APPROVAL_REQUEST_MISMATCH"
    );
    assert_eq!(
        store.claim(&id, &digest("a"), "gateway", NOW + 2).unwrap(),
        Claiming::Claimed
    );
    let again = |store: &Store| store.claim(&id, &digest("a"), "gateway", NOW + 3).unwrap();
    let unfinished = Claiming::AlreadyClaimed {
        at_ms: NOW + 2,
        state: ClaimState::Unfinished,
    };
    assert_eq!(again(&store), unfinished);
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    assert_eq!(again(&store), unfinished);
    let outcome = exit_outcome(0);
    store.finish_claim(&id, &outcome, NOW + 4).unwrap();
    let state = ClaimState::Finished {
        at_ms: NOW + 4,
        outcome: Box::new(outcome.clone()),
    };
    assert_eq!(
        again(&store),
        Claiming::AlreadyClaimed {
            at_ms: NOW + 2,
            state
        }
    );
    store.finish_claim(&id, &outcome, NOW + 5).unwrap();
    assert_eq!(
        code(store.finish_claim(&id, &exit_outcome(1), NOW + 5)),
        "RUN_ENDED"
    );
    assert_eq!(code(store.mark_unknown(&id, NOW + 5)), "RUN_ENDED");
}

#[test]
fn what_was_not_allowed_is_not_claimed() {
    let (_directory, store) = open();
    let pending = shown(&store, "a").id;
    let denied = decided(&store, "a", ApprovalDecision::Deny).id;
    let late = decided(&store, "a", ApprovalDecision::AllowOnce).id;
    let claim = |id: &str, now_ms| store.claim(id, &digest("a"), "gateway", now_ms).unwrap();
    assert_eq!(
        claim(&pending, NOW),
        Claiming::NotAllowed(NotAllowed::Undecided)
    );
    assert_eq!(
        claim(&denied, NOW),
        Claiming::NotAllowed(NotAllowed::Denied)
    );
    let end = NOW + 1 + CLAIM_WINDOW_MS;
    assert_eq!(claim(&late, end), Claiming::NotAllowed(NotAllowed::TooLate));
    assert_eq!(claim(&late, end - 1), Claiming::Claimed);
}

#[test]
fn a_run_left_behind_by_a_crash_is_listed_and_marked_unknown() {
    let (directory, store) = open();
    let id = decided(&store, "a", ApprovalDecision::AllowOnce).id;
    assert_eq!(
        store.claim(&id, &digest("a"), "boot-1", NOW + 2).unwrap(),
        Claiming::Claimed
    );
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    let left = store.unfinished_claims().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(
        (left[0].id.as_str(), left[0].claimer.as_str()),
        (id.as_str(), "boot-1")
    );
    assert_eq!(left[0].session_key, "agent:main:main");
    store.mark_unknown(&id, NOW + 3).unwrap();
    store.mark_unknown(&id, NOW + 4).unwrap();
    assert_eq!(store.unfinished_claims().unwrap(), vec![]);
    let state = ClaimState::Unknown { at_ms: NOW + 3 };
    assert_eq!(
        store.claim(&id, &digest("a"), "boot-2", NOW + 5).unwrap(),
        Claiming::AlreadyClaimed {
            at_ms: NOW + 2,
            state
        }
    );
    // The supervisor outlived the gateway, and tells.
    store.finish_claim(&id, &exit_outcome(3), NOW + 6).unwrap();
    let claim = store.run_claim(&id).unwrap().unwrap();
    let outcome = Box::new(exit_outcome(3));
    assert_eq!(
        claim.state,
        ClaimState::Finished {
            at_ms: NOW + 6,
            outcome
        }
    );
}

/// Shown and denied.
fn deny(store: &Store, id: &str) {
    let sent = delivery(SURFACE, DeliveryState::Sent, NOW);
    assert!(store.record_delivery(id, &sent).unwrap());
    let outcome = store.decide(&answer(id, ApprovalDecision::Deny)).unwrap();
    assert_eq!(outcome, Decided::Won);
}

/// An agent asks and takes back as often as it likes.
#[test]
fn of_what_ended_without_a_run_only_the_newest_are_kept_for_a_day() {
    let (_directory, store) = open();
    let allowed = decided(&store, "allowed", ApprovalDecision::AllowOnce).id;
    let running = decided(&store, "running", ApprovalDecision::AllowOnce).id;
    let claim = store.claim(&running, &digest("running"), "gateway", NOW + 10);
    assert_eq!(claim.unwrap(), Claiming::Claimed);
    let waiting = shown(&store, "waiting").id;
    let other = store
        .create_approval(&ApprovalRequest {
            agent: "other".to_owned(),
            ..request("other")
        })
        .unwrap()
        .id;
    deny(&store, &other);
    let most = MAX_ENDED + 64;
    let ask = |number: usize| {
        let id = store
            .create_approval(&request(&number.to_string()))
            .unwrap()
            .id;
        deny(&store, &id);
        id
    };
    let ids: Vec<String> = (0..2 * most).map(ask).collect();
    let kept = |ids: &[String]| ids.iter().filter(|id| store.approval(id).is_ok()).count();
    assert!((MAX_ENDED..=most).contains(&kept(&ids)), "{}", kept(&ids));
    assert_eq!(kept(&ids[ids.len() - MAX_ENDED..]), MAX_ENDED);
    // What may run, runs or waits stays, and so does what belongs to another agent.
    assert_eq!(kept(&[allowed.clone(), running, waiting, other]), 4);
    let claim = store.claim(&allowed, &digest("allowed"), "gateway", NOW + 20);
    assert_eq!(claim.unwrap(), Claiming::Claimed);
    verified(&store);
}

#[test]
fn large_approvals_that_ended_make_room_for_newer_ones() {
    let (_directory, store) = open();
    let bytes = 8 << 20;
    let ids: Vec<String> = (0..20)
        .map(|number| {
            let large = ApprovalRequest {
                plan: "p".repeat(bytes),
                ..request(&number.to_string())
            };
            let id = store.create_approval(&large).unwrap().id;
            deny(&store, &id);
            id
        })
        .collect();
    let kept = ids.iter().filter(|id| store.approval(id).is_ok()).count();
    // The newest one came after the last look.
    let fit = usize::try_from(MAX_ENDED_BYTES).unwrap() / bytes;
    assert_eq!(
        kept, fit,
        "the room is for {fit}, with a little beside each"
    );
    assert!(store.approval(ids.last().unwrap()).is_ok());
}

#[test]
fn what_ended_a_day_ago_is_forgotten_and_can_never_run_again() {
    let (_directory, store) = open();
    let [ran, running, unknown] = ["a", "b", "c"].map(|name| {
        let id = decided(&store, name, ApprovalDecision::AllowOnce).id;
        let claim = store
            .claim(&id, &digest(name), "gateway", NOW + 10)
            .unwrap();
        assert_eq!(claim, Claiming::Claimed);
        id
    });
    let denied = decided(&store, "d", ApprovalDecision::Deny).id;
    let waiting = shown(&store, "e").id;
    store
        .finish_claim(&ran, &RecordedOutcome::default(), NOW + 20)
        .unwrap();
    store.mark_unknown(&unknown, NOW + 20).unwrap();
    let alive =
        || [&ran, &running, &unknown, &denied, &waiting].map(|id| store.approval(id).is_ok());
    assert_eq!(store.purge(NOW + CLAIM_WINDOW_MS).unwrap().approvals, 0);
    assert_eq!(store.purge(NOW + 1 + CLAIM_WINDOW_MS).unwrap().approvals, 1);
    assert_eq!(alive(), [true, true, true, false, true]);
    assert_eq!(
        store.purge(NOW + 10 + CLAIM_WINDOW_MS).unwrap().approvals,
        2
    );
    assert_eq!(alive(), [false, true, false, false, true]);
    // With whatever clock.
    for now in [i64::MIN, NOW, i64::MAX] {
        assert_eq!(
            code(store.claim(&ran, &digest("a"), "gateway", now)),
            "APPROVAL_NOT_FOUND"
        );
    }
    assert_eq!(
        store.purge(i64::MAX).unwrap().approvals,
        0,
        "one waits, one runs"
    );
    assert_eq!(
        code(store.finish_claim(&ran, &RecordedOutcome::default(), NOW)),
        "RUN_NOT_FOUND"
    );
    verified(&store);
}
