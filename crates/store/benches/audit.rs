//! How long a search among a million audit records takes, with the count of all that match.

#![allow(clippy::expect_used, clippy::unwrap_used)] // a bench that cannot be set up is to stop

use std::time::{Duration, Instant};

use interlock_store::{AuditFilter, AuditKind, Change, Store, StoreError};
use serde_json::json;

const RECORDS: u64 = 1_000_000;
const BATCH: u64 = 10_000;
const ROUNDS: usize = 21;

/// A second between two records.
const SPACING_MS: i64 = 1000;

fn main() {
    // `cargo test --benches` only sees whether it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let start = Instant::now();
    for batch in 0..RECORDS / BATCH {
        let first = batch * BATCH + 1;
        store
            .change(|change| (first..first + BATCH).try_for_each(|number| append(change, number)))
            .unwrap();
    }
    println!("{RECORDS} records in {:?}", start.elapsed());
    let agents = [None, Some("main"), Some("rare")];
    let kinds = [None, Some(AuditKind::Verdict), Some(AuditKind::Decision)];
    let last_ms = RECORDS.cast_signed() * SPACING_MS;
    let times = [None, Some(last_ms / 2), Some(last_ms - 100 * SPACING_MS)];
    for limit in [50, 1000] {
        for agent in agents {
            for kind in kinds {
                for since_ms in times {
                    let agent = agent.map(str::to_owned);
                    print_time(
                        &store,
                        &AuditFilter {
                            kind,
                            agent,
                            since_ms,
                            limit: Some(limit),
                            ..AuditFilter::default()
                        },
                    );
                }
            }
        }
    }
}

/// One in a thousand is of another agent, one in a hundred is a decision.
fn append(change: &Change<'_>, number: u64) -> Result<(), StoreError> {
    let agent = if number.is_multiple_of(1000) {
        "rare"
    } else {
        "main"
    };
    let kind = match number % 100 {
        0 => AuditKind::Decision,
        other if other % 3 == 0 => AuditKind::Verdict,
        other if other % 3 == 1 => AuditKind::RunStarted,
        _ => AuditKind::RunEnded,
    };
    let body = json!({
        "agent": agent,
        "command": "cargo build --release",
        "planDigest": "0".repeat(64),
        "reasons": ["allowlist"],
        "runId": number.to_string(),
        "sessionKey": "agent:main:main",
        "verdict": "allow",
    });
    let time_ms = number.cast_signed() * SPACING_MS;
    change.append(kind, &body, time_ms).map(drop)
}

fn print_time(store: &Store, filter: &AuditFilter) {
    let mut times: Vec<Duration> = Vec::new();
    let mut found = 0;
    let mut total = 0;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let page = store.audit_page(filter).expect("a page");
        times.push(start.elapsed());
        (found, total) = (page.records.len(), page.total);
    }
    times.sort();
    let (best, median) = (times[0], times[ROUNDS / 2]);
    let kind = filter.kind.map(AuditKind::as_str);
    println!(
        "agent {:?} kind {kind:?} since {:?}: {found} of {total}, best {best:.2?}, median {median:.2?}",
        filter.agent, filter.since_ms
    );
}
