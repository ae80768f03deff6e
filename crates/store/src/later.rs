//! Deferred changes: callers do not wait for them, and they share one commit a moment later.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;

/// How long a change waits for others. If the process dies first, the change is lost.
const COMPANY: Duration = Duration::from_millis(10);

/// So many changes at most wait: who brings more writes them itself.
const MOST_WAITING: usize = 4096;

/// How long to wait before what could not be written is tried again: longer each time.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Queues changes whose callers do not wait, and writes the changes of a moment with one durable
/// commit, in their order. A change that cannot be written, because another process holds the
/// database or the disk is full, stays queued. It is tried again until it is written or all is
/// settled.
#[derive(Debug, Clone)]
pub struct DeferredWrites(Arc<DeferredShared>);

#[derive(Debug)]
struct DeferredShared {
    store: Arc<Store>,
    waiting: Mutex<DeferredQueue>,
    /// Held while changes are written, so that they keep their order.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct DeferredQueue {
    changes: Vec<Put>,
    /// A thread will see to them.
    is_attended: bool,
}

struct Put {
    work: DeferredWork,
    failed: ChangeFailed,
}

type ChangeFailed = Box<dyn FnOnce(&StoreError) + Send>;
type DeferredWork = Box<dyn Fn(&Change<'_>) -> Result<(), StoreError> + Send>;

impl fmt::Debug for Put {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Put(…)")
    }
}

impl DeferredWrites {
    pub fn new(store: Arc<Store>) -> Self {
        Self(Arc::new(DeferredShared {
            store,
            waiting: Mutex::default(),
            writing: Mutex::new(()),
        }))
    }

    /// Makes a change at once. The error says that it is not made, or not yet: what may be written
    /// later is, as [`DeferredWrites::change`] does it.
    pub fn change_now(
        &self,
        work: impl Fn(&Change<'_>) -> Result<(), StoreError> + Send + 'static,
        failed: impl FnOnce(&StoreError) + Send + 'static,
    ) -> Result<(), StoreError> {
        let made = self.0.store.change(&work);
        if made.as_ref().is_err_and(StoreError::is_passing) {
            self.change(work, failed);
        }
        made
    }

    /// Makes a change soon. The work may be done several times, but for the last for nothing;
    /// `failed` is called if it will not be written.
    pub fn change(
        &self,
        work: impl Fn(&Change<'_>) -> Result<(), StoreError> + Send + 'static,
        failed: impl FnOnce(&StoreError) + Send + 'static,
    ) {
        let mut waiting = self.0.waiting();
        waiting.changes.push(Put {
            work: Box::new(work),
            failed: Box::new(failed),
        });
        let is_full = waiting.changes.len() > MOST_WAITING;
        let attended = std::mem::replace(&mut waiting.is_attended, true);
        drop(waiting);
        if is_full || !(attended || self.attend()) {
            self.0.write(Otherwise::Keep);
        }
    }

    /// Returns when all that was put here before is written, or has failed: for the end of a
    /// process.
    pub fn settle(&self) {
        self.0.write(Otherwise::GiveUp);
    }

    /// Has a thread look after what waits. `false` if there is none to be had.
    fn attend(&self) -> bool {
        let shared = Arc::clone(&self.0);
        let look = move || {
            let mut pause = COMPANY;
            loop {
                std::thread::sleep(pause);
                let mut waiting = shared.waiting();
                if waiting.changes.is_empty() {
                    waiting.is_attended = false;
                    return;
                }
                drop(waiting);
                pause = if shared.write(Otherwise::Keep) {
                    COMPANY
                } else {
                    (pause * 2).clamp(PAUSES.0, PAUSES.1)
                };
            }
        };
        let thread = std::thread::Builder::new().name("store later".to_owned());
        let is_there = thread.spawn(look).is_ok();
        if !is_there {
            self.0.waiting().is_attended = false;
        }
        is_there
    }
}

impl DeferredShared {
    fn waiting(&self) -> MutexGuard<'_, DeferredQueue> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what waits. `false` if some of it was put back.
    fn write(&self, otherwise: Otherwise) -> bool {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = std::mem::take(&mut self.waiting().changes);
        if changes.is_empty() {
            return true;
        }
        let together = self
            .store
            .change(|change| changes.iter().try_for_each(|put| (put.work)(change)));
        match together {
            Ok(()) => return true,
            Err(error) if error.is_passing() => return self.not_now(changes, &error, otherwise),
            Err(_) => {}
        }
        // One that cannot be written keeps none of the others from it.
        let mut changes = changes.into_iter();
        while let Some(put) = changes.next() {
            match self.store.change(|change| (put.work)(change)) {
                Ok(()) => {}
                Err(error) if error.is_passing() => {
                    let left = [put].into_iter().chain(changes).collect();
                    return self.not_now(left, &error, otherwise);
                }
                Err(error) => (put.failed)(&error),
            }
        }
        true
    }

    /// None of these can be written now. They go back before those that came meanwhile.
    fn not_now(&self, mut changes: Vec<Put>, error: &StoreError, otherwise: Otherwise) -> bool {
        let mut given_up = Vec::new();
        match otherwise {
            Otherwise::Keep => {
                let mut waiting = self.waiting();
                changes.append(&mut waiting.changes);
                given_up = changes.split_off(changes.len().min(MOST_WAITING));
                waiting.changes = changes;
            }
            Otherwise::GiveUp => given_up.append(&mut changes),
        }
        for put in given_up {
            (put.failed)(error);
        }
        otherwise == Otherwise::GiveUp
    }
}

/// What becomes of changes that cannot be written now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Otherwise {
    Keep,
    GiveUp,
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use serde_json::json;

    use super::*;
    use crate::{AuditFilter, AuditKind, AuditOrder};

    fn store() -> (tempfile::TempDir, Arc<Store>) {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(directory.path()).unwrap());
        (directory, store)
    }

    fn append(later: &DeferredWrites, number: usize) {
        later.change(
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
    fn all_is_written_in_its_order_without_being_waited_for() {
        let (_directory, store) = store();
        let later = DeferredWrites::new(Arc::clone(&store));
        for number in 0..600 {
            append(&later, number);
        }
        let deadline = Instant::now() + Duration::from_mins(1);
        while numbers(&store).len() < 600 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(numbers(&store), (0..600).collect::<Vec<u64>>());
    }

    #[test]
    fn what_was_settled_is_on_the_disk() {
        let (_directory, store) = store();
        let later = DeferredWrites::new(Arc::clone(&store));
        append(&later, 7);
        later.settle();
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
        let later = DeferredWrites::new(Arc::clone(&store));
        let other = lock(directory.path());
        let failed = |error: &StoreError| panic!("{error}");
        let now = later.change_now(
            |change| {
                change.append(AuditKind::RunEnded, &json!({ "number": 0 }), 1)?;
                Ok(())
            },
            failed,
        );
        // The change has waited for longer than any call waits for the database.
        assert!(matches!(now, Err(StoreError::Locked { .. })), "{now:?}");
        append(&later, 1);
        assert!(!later.0.write(Otherwise::Keep));
        append(&later, 2);
        other.execute_batch("ROLLBACK").unwrap();
        let deadline = Instant::now() + Duration::from_mins(1);
        while numbers(&store).len() < 3 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(numbers(&store), [0, 1, 2]);
    }

    #[test]
    fn what_cannot_be_written_when_all_is_settled_has_failed() {
        let (directory, store) = store();
        let later = DeferredWrites::new(Arc::clone(&store));
        let _other = lock(directory.path());
        let failures = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let counted = Arc::clone(&failures);
            later.change(
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
        later.settle();
        assert_eq!(failures.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_change_that_fails_takes_no_other_with_it_and_says_so() {
        let (_directory, store) = store();
        let later = DeferredWrites::new(Arc::clone(&store));
        let failures = Arc::new(AtomicUsize::new(0));
        append(&later, 1);
        let counted = Arc::clone(&failures);
        later.change(
            |change| {
                change.append(AuditKind::RunEnded, &json!({ "number": 2 }), 1)?;
                Err(StoreError::Failed {
                    path: "somewhere".into(),
                    problem: "a test".to_owned(),
                })
            },
            move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
            },
        );
        append(&later, 3);
        later.settle();
        assert_eq!(numbers(&store), [1, 3]);
        assert_eq!(failures.load(Ordering::SeqCst), 1);
    }
}
