//! Grants: what a decision for a session or a lease allows, and never more.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::num::NonZeroU32;
use std::time::Duration;

use crate::common::{NOW, code, content, decided, digest, exit_outcome, verified, worker};
use interlock_store::{
    ApprovalDecision, AuditFilter, AuditKind, CLAIM_WINDOW_MS, ClaimState, Claiming, GrantKey,
    Lease, MAX_SESSION_GRANT_MS, NotAllowed, Store,
};

fn lease(uses: u32) -> ApprovalDecision {
    ApprovalDecision::Lease(Lease {
        expires_in: Duration::from_mins(1),
        max_uses: NonZeroU32::new(uses),
    })
}

fn key(content_digest: &str) -> GrantKey<'_> {
    GrantKey {
        content_digest,
        agent: "main",
        session_key: "agent:main:main",
        host: "gateway",
        node: None,
    }
}

fn open() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    (directory, store)
}

fn uses(store: &Store, name: &str, now_ms: i64) -> bool {
    let content = content(name);
    store
        .use_grant(&key(&content), "gateway", now_ms)
        .unwrap()
        .is_some()
}

#[test]
fn a_session_grant_allows_the_same_content_until_the_session_ends_or_a_day_has_passed() {
    let (_directory, store) = open();
    assert!(!uses(&store, "a", NOW));
    decided(&store, "a", ApprovalDecision::AllowSession);
    for _ in 0..5 {
        assert!(uses(&store, "a", NOW + MAX_SESSION_GRANT_MS));
    }
    assert!(!uses(&store, "a", NOW + MAX_SESSION_GRANT_MS + 1));
    assert_eq!(store.end_session("agent:main:other", NOW).unwrap(), 0);
    assert!(uses(&store, "a", NOW));
    assert_eq!(store.end_session("agent:main:main", NOW).unwrap(), 1);
    assert!(!uses(&store, "a", NOW));
}

#[test]
fn a_grant_allows_nothing_that_differs_in_any_part() {
    let (_directory, store) = open();
    decided(&store, "a", ApprovalDecision::AllowSession);
    let content = content("a");
    let right = key(&content);
    for wrong in [
        GrantKey {
            content_digest: "content-b",
            ..right
        },
        GrantKey {
            agent: "other",
            ..right
        },
        GrantKey {
            session_key: "agent:main:other",
            ..right
        },
        GrantKey {
            host: "node",
            ..right
        },
        GrantKey {
            node: Some("node-7"),
            ..right
        },
        GrantKey {
            node: Some(""),
            ..right
        },
    ] {
        assert_eq!(
            store.use_grant(&wrong, "gateway", NOW).unwrap(),
            None,
            "{wrong:?}"
        );
    }
    assert!(store.use_grant(&right, "gateway", NOW).unwrap().is_some());
}

#[test]
fn once_always_and_deny_grant_nothing() {
    let (_directory, store) = open();
    for decision in [
        ApprovalDecision::AllowOnce,
        ApprovalDecision::AllowAlways,
        ApprovalDecision::Deny,
    ] {
        decided(&store, "a", decision);
    }
    assert!(!uses(&store, "a", NOW));
    assert_eq!(store.grants(NOW).unwrap(), vec![]);
}

#[test]
fn a_lease_ends_with_its_time() {
    let (_directory, store) = open();
    decided(&store, "a", lease(0));
    assert!(uses(&store, "a", NOW + 60_000));
    assert!(!uses(&store, "a", NOW + 60_001));
}

#[test]
fn a_lease_counts_the_approved_run_among_its_uses() {
    let (_directory, store) = open();
    let id = decided(&store, "a", lease(3)).id;
    assert_eq!(
        store.claim(&id, &digest("a"), "gateway", NOW + 2).unwrap(),
        Claiming::Claimed
    );
    let content = content("a");
    let left = || {
        let used = store.use_grant(&key(&content), "gateway", NOW + 2).unwrap();
        used.map(|used| used.uses_left.unwrap())
    };
    assert_eq!([left(), left(), left()], [Some(1), Some(0), None]);
}

#[test]
fn an_approved_run_whose_lease_was_used_up_meanwhile_does_not_start() {
    let (_directory, store) = open();
    let id = decided(&store, "a", lease(1)).id;
    assert!(uses(&store, "a", NOW + 2));
    let claim = store.claim(&id, &digest("a"), "gateway", NOW + 2).unwrap();
    assert_eq!(claim, Claiming::NotAllowed(NotAllowed::GrantEnded));
}

#[test]
fn the_end_of_the_session_also_ends_an_approved_run_that_has_not_begun() {
    let (_directory, store) = open();
    let id = decided(&store, "a", ApprovalDecision::AllowSession).id;
    store.end_session("agent:main:main", NOW + 2).unwrap();
    let claim = store.claim(&id, &digest("a"), "gateway", NOW + 2).unwrap();
    assert_eq!(claim, Claiming::NotAllowed(NotAllowed::GrantEnded));
}

#[test]
fn a_run_under_a_grant_is_a_claim_with_an_outcome() {
    let (directory, store) = open();
    let approval = decided(&store, "a", lease(2));
    let content = content("a");
    let used = store
        .use_grant(&key(&content), "boot-1", NOW + 2)
        .unwrap()
        .unwrap();
    assert_eq!(used.approval_id, approval.id);
    assert_eq!(used.decider, "alice");
    drop(store);
    let store = Store::open(directory.path()).unwrap();
    let left = store.unfinished_claims().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(
        (&left[0].id, left[0].claimer.as_str()),
        (&used.run_id, "boot-1")
    );
    assert_eq!(left[0].grant_id.as_ref(), Some(&used.grant_id));
    store
        .finish_claim(&used.run_id, &exit_outcome(0), NOW + 3)
        .unwrap();
    let claim = store.run_claim(&used.run_id).unwrap().unwrap();
    assert!(matches!(claim.state, ClaimState::Finished { .. }));
    let purged = store.purge(NOW + CLAIM_WINDOW_MS + 60_001).unwrap();
    assert_eq!((purged.approvals, purged.claims, purged.grants), (1, 1, 1));
}

#[test]
fn a_revoked_grant_allows_nothing_and_the_audit_says_who_took_it_back() {
    let (_directory, store) = open();
    decided(&store, "a", ApprovalDecision::AllowSession);
    let grant = store.grants(NOW + 1).unwrap().remove(0);
    store.revoke_grant(&grant.id, "bob", NOW + 2).unwrap();
    assert!(!uses(&store, "a", NOW + 3));
    assert_eq!(
        code(store.revoke_grant(&grant.id, "bob", NOW + 2)),
        "GRANT_NOT_FOUND"
    );
    let filter = AuditFilter {
        kind: Some(AuditKind::Decision),
        limit: Some(1),
        ..AuditFilter::default()
    };
    let record = store.audit_log(&filter).unwrap().remove(0);
    assert_eq!(record.body["decision"], "revoked");
    assert_eq!(record.body["decider"], "bob");
    assert_eq!(record.body["grantId"], grant.id);
}

#[test]
fn an_uncounted_grant_is_used_before_a_counted_one() {
    let (_directory, store) = open();
    decided(&store, "a", lease(1));
    decided(&store, "a", ApprovalDecision::AllowSession);
    for _ in 0..3 {
        assert!(uses(&store, "a", NOW + 1));
    }
    let counted = store.grants(NOW + 1).unwrap();
    assert_eq!(
        counted
            .iter()
            .find(|grant| grant.max_uses.is_some())
            .unwrap()
            .uses,
        0
    );
}

const USES: u32 = 50;

fn use_all(store: &Store) -> u32 {
    (0..USES)
        .map(|_| u32::from(uses(store, "a", NOW + 2)))
        .sum()
}

#[test]
fn threads_never_use_a_grant_more_often_than_it_allows() {
    let (directory, store) = open();
    decided(&store, "a", lease(USES));
    // Two with connections of their own, two that share one.
    let used: u32 = std::thread::scope(|scope| {
        let own = || use_all(&Store::open(directory.path()).unwrap());
        let shared = || use_all(&store);
        let threads = [
            scope.spawn(own),
            scope.spawn(own),
            scope.spawn(shared),
            scope.spawn(shared),
        ];
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(used, USES);
    assert_eq!(
        store.unfinished_claims().unwrap().len(),
        usize::try_from(USES).unwrap()
    );
    verified(&store);
}

const WORKER: &str = "INTERLOCK_STORE_GRANT_WORKER";

/// Not a test of its own: the body of the processes that the next test starts.
#[test]
fn grant_worker() {
    if let Some(directory) = std::env::var_os(WORKER) {
        let store = Store::open(std::path::Path::new(&directory)).unwrap();
        println!("used={}", use_all(&store));
    }
}

#[test]
fn processes_never_use_a_grant_more_often_than_it_allows() {
    let (directory, store) = open();
    decided(&store, "a", lease(USES));
    let workers = [(); 3].map(|()| worker("grants::grant_worker", WORKER, directory.path()));
    let mut used = 0;
    for worker in workers {
        let output = worker.wait_with_output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let (_, count) = text.split_once("used=").unwrap();
        used += count
            .split_whitespace()
            .next()
            .unwrap()
            .parse::<u32>()
            .unwrap();
    }
    assert_eq!(used, USES);
    verified(&store);
}
