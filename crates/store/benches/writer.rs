//! How many changes the writer takes in a second when several threads wait for theirs, and what
//! deferred changes cost beside them.

#![allow(clippy::expect_used, clippy::unwrap_used)] // a bench that cannot be set up is to stop

use std::sync::Arc;
use std::time::Instant;

use interlock_store::{AuditKind, Store};
use serde_json::json;

const CHANGES: usize = 1600;
const ROUNDS: usize = 5;

/// Whether each thread also defers a change for each one that it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deferred {
    None,
    OneEach,
}

fn main() {
    for threads in [1, 2, 8, 32] {
        print_rate(threads, Deferred::None);
    }
    for threads in [1, 8] {
        print_rate(threads, Deferred::OneEach);
    }
}

fn print_rate(threads: usize, deferred: Deferred) {
    let mut rates: Vec<f64> = (0..ROUNDS).map(|_| rate(threads, deferred)).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[ROUNDS / 2];
    println!("{threads:>2} threads, deferred {deferred:?}: {median:.0} changes a second");
}

/// Changes in a second that callers waited for; the time includes writing what was deferred.
fn rate(threads: usize, deferred: Deferred) -> f64 {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(directory.path()).unwrap());
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for number in 0..CHANGES / threads {
                    append(&store, number);
                    if deferred == Deferred::OneEach {
                        store.change_deferred(
                            move |change| {
                                let body = json!({ "agent": "main", "number": number });
                                change.append(AuditKind::RunEnded, &body, 1).map(drop)
                            },
                            |error| eprintln!("{error}"),
                        );
                    }
                }
            });
        }
    });
    store.flush();
    #[allow(clippy::cast_precision_loss)] // a few thousand
    let changes = CHANGES as f64;
    changes / start.elapsed().as_secs_f64()
}

fn append(store: &Store, number: usize) {
    let body = json!({ "agent": "main", "number": number });
    store
        .append(AuditKind::Verdict, &body, 1)
        .expect("a record");
}
