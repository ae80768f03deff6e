//! What an approval costs with ten thousand others waiting, beside what the disk costs anyway.

#![allow(clippy::expect_used, clippy::unwrap_used)] // a bench that cannot be set up is to stop

use std::cell::RefCell;
use std::time::{Duration, Instant};

use interlock_store::{
    ApprovalAnswer, ApprovalDecision, ApprovalRequest, AuditKind, CreatedApproval, Delivery,
    DeliveryState, Store, StoreError,
};
use serde_json::json;

const PENDING: usize = 10_000;
const NOW: i64 = 1_750_000_000_000;
const ROUNDS: u32 = 300;

fn main() {
    print_ratio();
    divan::main();
}

fn request() -> ApprovalRequest {
    ApprovalRequest {
        plan: format!("{{\"argv\":[\"{}\"]}}", "x".repeat(2000)),
        plan_digest: "0".repeat(64),
        content_digest: "1".repeat(64),
        verdict: json!({ "verdict": "ask", "reasons": ["allowlist miss"] }),
        binding: "native".to_owned(),
        preview: "cargo build --release".to_owned(),
        agent: "main".to_owned(),
        session_key: "agent:main:main".to_owned(),
        host: "gateway".to_owned(),
        node: None,
        requester: "connection:agent".to_owned(),
        created_at_ms: NOW,
        expires_at_ms: NOW + 1_800_000,
        always: None,
    }
}

struct Desk {
    _directory: tempfile::TempDir,
    store: Store,
    waiting: RefCell<Vec<CreatedApproval>>,
    bare: rusqlite::Connection,
}

impl Desk {
    /// So many pending approvals, shown; and another database of one row, as durable.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let waiting: Result<Vec<_>, StoreError> =
            store.change(|change| (0..PENDING).map(|_| create(change)).collect());
        let bare = rusqlite::Connection::open(directory.path().join("bare.db")).unwrap();
        bare.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE bare (n INTEGER) STRICT; INSERT INTO bare VALUES (0);",
        )
        .unwrap();
        Self {
            waiting: RefCell::new(waiting.unwrap()),
            _directory: directory,
            store,
            bare,
        }
    }

    /// One that waits; another one takes its place, so that there are always as many.
    fn next(&self) -> CreatedApproval {
        let next = self.store.change(create).expect("an approval");
        self.waiting.borrow_mut().push(next);
        let length = self.waiting.borrow().len();
        self.waiting.borrow_mut().swap_remove(length / 2)
    }

    fn decide_and_claim(&self, approval: &CreatedApproval) {
        let digest = "0".repeat(64);
        let answer = ApprovalAnswer {
            id: &approval.id,
            decision: ApprovalDecision::AllowOnce,
            decider: "alice",
            surface: "web:1",
            reason: None,
            plan_digest: Some(&digest),
            now_ms: NOW + 1,
        };
        let _ = divan::black_box(self.store.decide(&answer).expect("a decision"));
        let claim = self.store.claim(&approval.id, &digest, "gateway", NOW + 2);
        let _ = divan::black_box(claim.expect("a claim"));
    }

    fn two_bare_commits(&self) {
        for _ in 0..2 {
            let changed = self.bare.execute("UPDATE bare SET n = n + 1", []);
            divan::black_box(changed.expect("a commit"));
        }
    }
}

fn create(change: &interlock_store::Change<'_>) -> Result<CreatedApproval, StoreError> {
    let created = change.create_approval(&request())?;
    let sent = Delivery {
        surface: "web:1".to_owned(),
        state: DeliveryState::Sent,
        at_ms: NOW,
        detail: None,
    };
    change.record_delivery(&created.id, &sent)?;
    Ok(created)
}

/// Both in turn in one run, so that whatever else the machine does falls on both.
fn print_ratio() {
    let desk = Desk::new();
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let approval = desk.next();
        ours.push(time(|| desk.decide_and_claim(&approval)));
        bare.push(time(|| desk.two_bare_commits()));
    }
    let (ours, bare) = (median(ours), median(bare));
    let ratio = ours.as_secs_f64() / bare.as_secs_f64();
    println!(
        "decide and claim {ours:?}, two bare commits {bare:?}, ratio {ratio:.2} (medians of {ROUNDS})"
    );
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[divan::bench(sample_count = 200)]
fn decide_and_claim_with_10000_pending(bencher: divan::Bencher<'_, '_>) {
    let desk = Desk::new();
    bencher
        .with_inputs(|| desk.next())
        .bench_local_values(|approval| desk.decide_and_claim(&approval));
}

#[divan::bench(sample_count = 200)]
fn two_bare_commits(bencher: divan::Bencher<'_, '_>) {
    let desk = Desk::new();
    bencher.bench_local(|| desk.two_bare_commits());
}

#[divan::bench(sample_count = 200)]
fn append(bencher: divan::Bencher<'_, '_>) {
    let desk = Desk::new();
    let body = json!({ "agent": "main", "verdict": "allow", "reasons": ["allowlist"], "planDigest": "0".repeat(64) });
    bencher.bench_local(|| {
        desk.store
            .append(AuditKind::Verdict, &body, NOW)
            .expect("a record")
    });
}

#[divan::bench(args = [0, 5_000, 9_950])]
fn list_50_of_10000(bencher: divan::Bencher<'_, '_>, offset: usize) {
    let desk = Desk::new();
    bencher.bench_local(|| {
        desk.store
            .pending_approvals(NOW, offset, 50)
            .expect("a page")
    });
}

#[divan::bench]
fn find_by_short_id(bencher: divan::Bencher<'_, '_>) {
    let desk = Desk::new();
    let approval = desk.next();
    bencher.bench_local(|| {
        desk.store
            .approval(&approval.short_id)
            .expect("an approval")
    });
}
