//! Several processes with the same database: one decision, one claim, whichever process is faster.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::common::{NOW, answer, shown, verified, worker};
use interlock_store::{
    ApprovalAnswer, ApprovalDecision, ApprovalSummary, Claiming, Decided, Store,
};

const WORKER: &str = "INTERLOCK_STORE_RACE_WORKER";
const APPROVALS: usize = 60;

/// The ids of all that waits, with the digests of their plans.
fn pending(store: &Store) -> Vec<(String, String)> {
    let page = store.pending_approvals(NOW, 0, APPROVALS).unwrap();
    let pair = |one: ApprovalSummary| (one.id, one.plan_digest);
    page.approvals.into_iter().map(pair).collect()
}

/// Decides and claims all that it sees, and tells what it won.
fn race(
    store: &Store,
    approvals: &[(String, String)],
    decider: &str,
    decision: ApprovalDecision,
) -> String {
    let mut told = String::new();
    for (id, plan_digest) in approvals {
        let own = ApprovalAnswer {
            decider,
            plan_digest: Some(plan_digest),
            ..answer(id, decision)
        };
        match store.decide(&own).unwrap() {
            Decided::Won => told += &format!("won {id} {}\n", decision.as_str()),
            Decided::Same => panic!("no other process gives this answer"),
            Decided::Lost { winner } => assert_ne!(winner.decider.as_deref(), Some(decider)),
        }
        let claim = store.claim(id, plan_digest, decider, NOW + 2);
        match claim.unwrap() {
            Claiming::Claimed => told += &format!("claimed {id} -\n"),
            Claiming::AlreadyClaimed { .. } => {}
            Claiming::NotAllowed(reason) => panic!("{reason}"),
        }
    }
    told
}

/// Not a test of its own: the body of the processes that the next test starts.
#[test]
fn race_worker() {
    let Some(directory) = std::env::var_os(WORKER) else {
        return;
    };
    let store = Store::open(Path::new(&directory)).unwrap();
    let approvals: Vec<_> = std::fs::read_to_string(Path::new(&directory).join("ids"))
        .unwrap()
        .lines()
        .map(|id| store.approval(id).unwrap())
        .map(|approval| (approval.id, approval.request.plan_digest))
        .collect();
    print!(
        "\n{}",
        race(&store, &approvals, "worker", ApprovalDecision::AllowAlways)
    );
}

fn check(store: &Store, told: &str) {
    let mut won = BTreeMap::new();
    let mut claimed = BTreeSet::new();
    for line in told.lines() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["won", id, decision] => assert_eq!(won.insert(id, decision), None, "{id}"),
            ["claimed", id, _] => assert!(claimed.insert(id), "{id}"),
            _ => {} // of the test program itself
        }
    }
    assert_eq!((won.len(), claimed.len()), (APPROVALS, APPROVALS));
    for (id, decision) in won {
        let approval = store.approval(id).unwrap();
        assert_eq!(approval.ended.unwrap().ending.as_str(), decision);
        assert!(approval.claim.is_some());
    }
    assert_eq!(pending(store), vec![]);
    // Prompt, delivery, decision and start of each: none lost, none twice.
    assert_eq!(verified(store).seq, 4 * APPROVALS as u64);
}

#[test]
fn two_processes_decide_and_claim_each_approval_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let ids: Vec<_> = (0..APPROVALS)
        .map(|n| shown(&store, &n.to_string()).id)
        .collect();
    std::fs::write(directory.path().join("ids"), ids.join("\n")).unwrap();
    let approvals = pending(&store);
    let other = worker("race_worker", WORKER, directory.path());
    let mut told = race(&store, &approvals, "alice", ApprovalDecision::AllowOnce);
    let output = other.wait_with_output().unwrap();
    assert!(output.status.success());
    told += &String::from_utf8(output.stdout).unwrap();
    check(&store, &told);
}

#[test]
fn threads_decide_and_claim_each_approval_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for number in 0..APPROVALS {
        shown(&store, &number.to_string());
    }
    let approvals = pending(&store);
    let run = |decider: &'static str, decision| {
        let (approvals, directory) = (&approvals, directory.path());
        move || {
            race(
                &Store::open(directory).unwrap(),
                approvals,
                decider,
                decision,
            )
        }
    };
    let told: String = std::thread::scope(|scope| {
        let threads = [
            scope.spawn(run("alice", ApprovalDecision::AllowOnce)),
            scope.spawn(run("bob", ApprovalDecision::AllowAlways)),
            scope.spawn(run("carol", ApprovalDecision::AllowSession)),
        ];
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    check(&store, &told);
}
