//! Changes that no caller waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::{AuditFilter, AuditKind, AuditOrder, Store, StoreError};

fn store() -> (tempfile::TempDir, Arc<Store>) {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(directory.path()).unwrap());
    (directory, store)
}

fn append(store: &Arc<Store>, number: usize) {
    store.change_deferred(
        move |change| {
            let record = json!({ "number": number });
            change.append(AuditKind::RunEnded, &record, 1)?;
            Ok(())
        },
        |error| panic!("{error}"),
    );
}

fn numbers(store: &Store) -> Vec<u64> {
    let filter = AuditFilter {
        order: AuditOrder::OldestFirst,
        ..AuditFilter::default()
    };
    let records = store.audit_log(&filter).unwrap();
    let numbers = records
        .iter()
        .filter_map(|record| record.body["number"].as_u64());
    numbers.collect()
}

#[test]
fn deferred_changes_are_written_in_their_order() {
    let (_directory, store) = store();
    for number in 0..600 {
        append(&store, number);
    }
    let deadline = Instant::now() + Duration::from_mins(1);
    while numbers(&store).len() < 600 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(numbers(&store), (0..600).collect::<Vec<u64>>());
}

#[test]
fn what_was_flushed_is_on_the_disk() {
    let (_directory, store) = store();
    append(&store, 7);
    store.flush();
    assert_eq!(numbers(&store), [7]);
}

/// A connection that keeps all others from writing.
fn lock(directory: &std::path::Path) -> rusqlite::Connection {
    let path = directory.join(crate::database::DATABASE_NAME);
    let other = rusqlite::Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

#[test]
fn what_cannot_be_written_while_others_hold_the_database_is_written_afterwards() {
    let (directory, store) = store();
    let other = lock(directory.path());
    let failed = |error: &StoreError| panic!("{error}");
    let now = store.change_or_defer(
        |change| {
            change.append(AuditKind::RunEnded, &json!({ "number": 0 }), 1)?;
            Ok(())
        },
        failed,
    );
    // The change has waited for longer than any call waits for the database.
    assert!(matches!(now, Err(StoreError::Locked { .. })), "{now:?}");
    append(&store, 1);
    store.writer().write_deferred().unwrap_err();
    append(&store, 2);
    other.execute_batch("ROLLBACK").unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    while numbers(&store).len() < 3 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(numbers(&store), [0, 1, 2]);
}

#[test]
fn what_cannot_be_written_when_all_is_flushed_has_failed() {
    let (directory, store) = store();
    let _other = lock(directory.path());
    let failures = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let counted = Arc::clone(&failures);
        store.change_deferred(
            |change| {
                change.append(AuditKind::RunEnded, &json!({}), 1)?;
                Ok(())
            },
            move |error| {
                assert!(error.is_passing());
                counted.fetch_add(1, Ordering::SeqCst);
            },
        );
    }
    store.flush();
    assert_eq!(failures.load(Ordering::SeqCst), 3);
}

#[test]
fn a_change_that_fails_takes_no_other_with_it_and_says_so() {
    let (_directory, store) = store();
    let failures = Arc::new(AtomicUsize::new(0));
    append(&store, 1);
    let counted = Arc::clone(&failures);
    store.change_deferred(
        |change| {
            change.append(AuditKind::RunEnded, &json!({ "number": 2 }), 1)?;
            Err(StoreError::Failed {
                path: "test.db".into(),
                problem: "a test".to_owned(),
            })
        },
        move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        },
    );
    append(&store, 3);
    store.flush();
    assert_eq!(numbers(&store), [1, 3]);
    assert_eq!(failures.load(Ordering::SeqCst), 1);
}

#[test]
fn a_deferred_change_that_panics_takes_no_other_with_it_and_has_failed() {
    let (_directory, store) = store();
    let failures = Arc::new(AtomicUsize::new(0));
    append(&store, 1);
    let counted = Arc::clone(&failures);
    store.change_deferred(
        |_| panic!("this one fails"),
        move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            panic!("the report fails, too");
        },
    );
    append(&store, 3);
    store.flush();
    assert_eq!(numbers(&store), [1, 3]);
    assert_eq!(failures.load(Ordering::SeqCst), 1);
}

#[test]
fn a_deferred_change_goes_with_the_next_change_that_a_caller_waits_for() {
    let (_directory, store) = store();
    // As if a thread attended to them, but did not come to it.
    store.writer().queue().is_attended = true;
    append(&store, 1);
    append(&store, 2);
    let body = json!({ "number": 3 });
    store.append(AuditKind::RunStarted, &body, 1).unwrap();
    assert_eq!(numbers(&store), [3, 1, 2]);
}

#[test]
fn deferred_changes_fail_when_the_disk_has_failed() {
    let (_directory, store) = store();
    let failures = Arc::new(AtomicUsize::new(0));
    store.writer().queue().is_attended = true;
    let counted = Arc::clone(&failures);
    store.change_deferred(
        |_| Ok(()),
        move |error| {
            assert_eq!(error.code(), "STORE_NOT_ON_DISK");
            counted.fetch_add(1, Ordering::SeqCst);
        },
    );
    let problem = "a test".to_owned();
    store.writer().disk_failure.set(problem).unwrap();
    store.writer().write_deferred().unwrap_err();
    assert_eq!(failures.load(Ordering::SeqCst), 1);
}

#[test]
fn a_full_batch_leaves_room_for_deferred_changes() {
    let (_directory, store) = store();
    store.writer().queue().is_attended = true;
    append(&store, 1);
    let mut connection = store.writer().connection();
    let mut leader = None;
    while connection.has_room_for_caller() {
        let made = connection.make_change(|_| Ok::<_, StoreError>(()));
        let ((), joined) = made.ok().unwrap();
        leader = leader.or(Some(joined.batch));
    }
    drop(connection);
    store.writer().lead(&leader.unwrap());
    assert_eq!(numbers(&store), [1]);
}
