use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rusqlite::Connection;

use super::batch::{BatchFailure, MAX_BATCH_CHANGES, WriteBatch};
use super::{Writer, lock};
use crate::disk::Disk;
use crate::error::{StoreError, StoreFailure};

mod deferred;

/// A database whose changes are all made at the same time: the first waits until the others wait.
struct Database {
    directory: tempfile::TempDir,
    writer: Arc<Writer>,
    /// How many writers know that their change is written.
    reported: AtomicUsize,
    begun: AtomicUsize,
}

const OTHERS: usize = 3;

fn failure() -> StoreFailure<'static> {
    StoreFailure {
        path: Path::new("test.db"),
    }
}

impl Database {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x INTEGER UNIQUE);")
            .unwrap();
        Self {
            directory,
            writer: Arc::new(Writer::new(path, connection).unwrap()),
            reported: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
        }
    }

    fn change(&self, work: impl FnOnce(&Connection)) -> Result<(), StoreError> {
        self.writer.write(|connection| {
            if self.begun.fetch_add(1, Ordering::SeqCst) == 0 {
                while self.writer.queue().callers < OTHERS {
                    std::thread::yield_now();
                }
            }
            work(connection);
            Ok::<_, StoreError>(())
        })?;
        self.reported.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// What another connection sees.
    fn on_disk(&self) -> i64 {
        count(&Connection::open(self.directory.path().join("test.db")).unwrap())
    }

    /// Makes one change in each of several threads; says which were written.
    fn together(&self, work: impl Fn(usize, &Connection) + Sync) -> Vec<bool> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..=OTHERS)
                .map(|number| {
                    let work = &work;
                    scope.spawn(move || self.change(|connection| work(number, connection)))
                })
                .collect();
            let ends = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            ends.map(|end| matches!(end, Ok(Ok(())))).collect()
        })
    }
}

fn insert(connection: &Connection, number: usize) {
    let number = i64::try_from(number).unwrap();
    connection
        .execute("INSERT INTO t VALUES (?1)", [number])
        .unwrap();
}

fn count(connection: &Connection) -> i64 {
    connection
        .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
        .unwrap()
}

#[test]
fn changes_that_are_made_at_the_same_time_are_committed_once_and_reported_after_it() {
    let database = Database::new();
    let all = i64::try_from(OTHERS).unwrap() + 1;
    let kept = database.together(|number, connection| {
        insert(connection, number);
        if count(connection) == all {
            assert_eq!(database.on_disk(), 0);
            assert_eq!(database.reported.load(Ordering::SeqCst), 0);
        }
    });
    assert_eq!(kept, [true; OTHERS + 1]);
    assert_eq!(database.on_disk(), all);
    assert!(database.writer.idle_connection().is_some());
}

#[test]
fn a_leader_that_panics_leaves_the_disk_and_the_connection_to_the_next_one() {
    let database = Database::new();
    let writer = &database.writer;
    database.begun.store(1, Ordering::SeqCst);
    let panics = || {
        let _disk = lock(&writer.disk);
        let _connection = writer.connection();
        panic!("with the disk");
    };
    let panicked = std::thread::scope(|scope| scope.spawn(panics).join());
    assert!(panicked.is_err());
    writer.wait_for_disk().unwrap();
    database.change(|connection| insert(connection, 1)).unwrap();
    assert_eq!(database.on_disk(), 1);
}

#[test]
fn a_batch_whose_leader_panics_has_failed_and_the_next_one_is_written() {
    let database = Database::new();
    let writer = &database.writer;
    let ((), joined) = writer
        .connection()
        .make_change(|connection| {
            insert(connection, 1);
            Ok::<_, StoreError>(())
        })
        .ok()
        .unwrap();
    let disk = lock(&writer.disk);
    let panics = || panic!("before the commit");
    let outcome = writer.commit_or_abandon(&joined.batch, &disk, panics);
    assert!(matches!(outcome, Err(BatchFailure::GivenUp)));
    drop(disk);
    database.begun.store(1, Ordering::SeqCst);
    database.change(|connection| insert(connection, 2)).unwrap();
    assert_eq!(database.on_disk(), 1);
}

#[test]
fn a_change_that_panics_takes_nothing_of_the_others_with_it() {
    let database = Database::new();
    let kept = database.together(|number, connection| {
        insert(connection, number);
        assert_ne!(number, 2, "this one fails");
    });
    assert_eq!(kept, [true, true, false, true]);
    assert_eq!(database.on_disk(), 3);
}

/// There is always a caller that waits, so the leader has no reason of its own to commit.
#[test]
fn a_change_does_not_wait_for_the_end_of_all_that_fail_after_it() {
    let database = Database::new();
    let failed = AtomicUsize::new(0);
    let is_over =
        || database.on_disk() > 0 || failed.load(Ordering::SeqCst) > 10 * MAX_BATCH_CHANGES;
    let fail = || {
        while !is_over() {
            let _ = database.writer.write(|_| {
                failed.fetch_add(1, Ordering::SeqCst);
                while database.writer.queue().callers == 0 && !is_over() {
                    std::thread::yield_now();
                }
                Err::<(), _>(StoreError::Failed {
                    path: "test.db".into(),
                    problem: "a test".to_owned(),
                })
            });
        }
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| database.change(|connection| insert(connection, 1)));
        while database.begun.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        for _ in 0..OTHERS {
            scope.spawn(fail);
        }
        first.join().unwrap().unwrap();
    });
    assert!(failed.load(Ordering::SeqCst) <= MAX_BATCH_CHANGES + OTHERS);
}

#[test]
fn no_change_is_reported_as_written_that_the_database_gave_up() {
    let database = Database::new();
    let given_up = AtomicUsize::new(0);
    let kept = database.together(|number, connection| {
        insert(connection, number);
        // The last of them, so that the others are in the same transaction.
        if count(connection) == i64::try_from(OTHERS).unwrap() + 1 {
            given_up.fetch_add(1, Ordering::SeqCst);
            connection.execute_batch("ROLLBACK").unwrap();
        }
    });
    assert_eq!(given_up.load(Ordering::SeqCst), 1);
    assert_eq!(kept, [false; OTHERS + 1]);
    assert_eq!(database.on_disk(), 0);
    database.change(|connection| insert(connection, 9)).unwrap();
    assert_eq!(database.on_disk(), 1);
}

#[test]
fn a_commit_that_fails_fails_for_all() {
    let database = Database::new();
    {
        let writer = database.writer.connection();
        let deferred = "PRAGMA foreign_keys = ON;
            CREATE TABLE parent (id INTEGER PRIMARY KEY);
            CREATE TABLE child (id REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED);";
        writer.connection.execute_batch(deferred).unwrap();
    }
    let kept = database.together(|number, connection| {
        insert(connection, number);
        if number == 1 {
            connection
                .execute_batch("INSERT INTO child VALUES (7)")
                .unwrap();
        }
    });
    assert_eq!(kept, [false; OTHERS + 1]);
    assert_eq!(database.on_disk(), 0);
    database.change(|connection| insert(connection, 9)).unwrap();
}

#[test]
fn while_one_waits_for_the_disk_others_make_their_changes_for_the_next_commit() {
    let database = Database::new();
    // As if the batch before waited for the disk.
    let disk = lock(&database.writer.disk);
    database.begun.store(1, Ordering::SeqCst);
    let made = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..=OTHERS {
            let (database, made) = (&database, &made);
            scope.spawn(move || {
                let change = |connection: &Connection| {
                    insert(connection, number);
                    made.fetch_add(1, Ordering::SeqCst);
                };
                database.change(change).unwrap();
            });
        }
        while made.load(Ordering::SeqCst) <= OTHERS {
            std::thread::yield_now();
        }
        assert_eq!(database.reported.load(Ordering::SeqCst), 0);
        assert_eq!(database.on_disk(), 0);
        drop(disk);
    });
    assert_eq!(database.reported.load(Ordering::SeqCst), OTHERS + 1);
    assert_eq!(database.on_disk(), i64::try_from(OTHERS).unwrap() + 1);
}

#[test]
fn the_first_of_a_transaction_that_fails_leaves_nothing() {
    let database = Database::new();
    database.begun.store(1, Ordering::SeqCst);
    let failed = database.writer.write(|connection| {
        insert(connection, 1);
        Err::<(), _>(failure().not_on_disk("a test"))
    });
    failed.unwrap_err();
    let given_up = database.writer.write(|connection| {
        insert(connection, 2);
        connection.execute_batch("ROLLBACK").unwrap();
        Err::<(), _>(failure().not_on_disk("a test"))
    });
    given_up.unwrap_err();
    database.change(|connection| insert(connection, 3)).unwrap();
    assert_eq!(database.on_disk(), 1);
}

/// There is nothing to be synced, and the system says so.
fn broken_disk() -> Disk {
    Disk::on(std::fs::File::open("/dev/null").unwrap())
}

#[test]
fn after_a_change_that_the_disk_did_not_take_nothing_is_written() {
    let database = Database::new();
    database.begun.store(1, Ordering::SeqCst);
    database.change(|connection| insert(connection, 1)).unwrap();
    *lock(&database.writer.disk) = broken_disk();
    let lost = database.change(|connection| insert(connection, 2));
    assert_eq!(lost.unwrap_err().code(), "STORE_NOT_ON_DISK");
    let refused = database.change(|_| panic!("this must not be worked on"));
    assert_eq!(refused.unwrap_err().code(), "STORE_NOT_ON_DISK");
    let on_disk = database.writer.wait_for_disk();
    assert_eq!(on_disk.unwrap_err().code(), "STORE_NOT_ON_DISK");
}

/// The system reports once that it could not write, and may say afterwards that all is well.
#[test]
fn what_was_made_behind_a_change_that_the_disk_did_not_take_is_lost_too() {
    let database = Database::new();
    database.begun.store(1, Ordering::SeqCst);
    // As if another batch waited for the disk.
    let disk = lock(&database.writer.disk);
    let made = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let behind = scope.spawn(|| {
            database.change(|connection| {
                insert(connection, 2);
                made.fetch_add(1, Ordering::SeqCst);
            })
        });
        while made.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        let problem = "a test".to_owned();
        database.writer.disk_failure.set(problem).unwrap();
        drop(disk);
        let lost = behind.join().unwrap();
        assert_eq!(lost.unwrap_err().code(), "STORE_NOT_ON_DISK");
    });
    assert_eq!(database.on_disk(), 0);
}

#[test]
fn a_change_that_writes_nothing_does_not_need_the_disk() {
    let database = Database::new();
    database.begun.store(1, Ordering::SeqCst);
    *lock(&database.writer.disk) = broken_disk();
    database
        .change(|connection| assert_eq!(count(connection), 0))
        .unwrap();
}

#[test]
fn a_reader_that_reports_what_it_read_waits_until_it_is_on_the_disk() {
    let database = Database::new();
    // As if a batch that is committed waited for the disk.
    let disk = lock(&database.writer.disk);
    let batch = WriteBatch::default();
    *lock(&database.writer.last_committed) = batch.clone();
    let (begun, reported) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for wait in [Writer::wait_for_disk, Writer::sync] {
            let (database, begun, reported) = (&database, &begun, &reported);
            scope.spawn(move || {
                begun.fetch_add(1, Ordering::SeqCst);
                wait(&database.writer).unwrap();
                reported.fetch_add(1, Ordering::SeqCst);
            });
        }
        while begun.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(reported.load(Ordering::SeqCst), 0);
        batch.finish(Ok(()));
        drop(disk);
    });
    assert_eq!(reported.load(Ordering::SeqCst), 2);
}
