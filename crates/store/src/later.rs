//! Changes that nobody waits for: made together, a moment later.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::change::Change;
use crate::database::Store;
use crate::error::StoreError;

/// How long a change waits for others. Whoever is killed meanwhile has not made it.
const COMPANY: Duration = Duration::from_millis(10);

/// So many changes at most wait: who brings more writes them itself.
const MOST_WAITING: usize = 4096;

/// Takes changes that nobody waits for, and writes those of a moment with one durable commit, in
/// their order.
#[derive(Debug, Clone)]
pub struct Later(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<Store>,
    waiting: Mutex<Waiting>,
    /// Held while changes are written, so that they keep their order.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: Vec<Put>,
    /// A thread will see to them.
    is_attended: bool,
}

struct Put {
    work: Work,
    failed: Box<dyn FnOnce(StoreError) + Send>,
}

type Work = Box<dyn Fn(&Change<'_>) -> Result<(), StoreError> + Send>;

impl fmt::Debug for Put {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Put(…)")
    }
}

impl Later {
    pub fn new(store: Arc<Store>) -> Self {
        Self(Arc::new(Shared {
            store,
            waiting: Mutex::default(),
            writing: Mutex::new(()),
        }))
    }

    /// Makes a change soon. The work may be done twice, the first time for nothing; `failed` is
    /// called if it cannot be written.
    pub fn change(
        &self,
        work: impl Fn(&Change<'_>) -> Result<(), StoreError> + Send + 'static,
        failed: impl FnOnce(StoreError) + Send + 'static,
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
            self.settle();
        }
    }

    /// Returns when all that was put here before is written, or has failed.
    pub fn settle(&self) {
        self.0.write();
    }

    /// Has a thread look after what waits. `false` if there is none to be had.
    fn attend(&self) -> bool {
        let shared = Arc::clone(&self.0);
        let look = move || {
            loop {
                std::thread::sleep(COMPANY);
                let mut waiting = shared.waiting();
                if waiting.changes.is_empty() {
                    waiting.is_attended = false;
                    return;
                }
                drop(waiting);
                shared.write();
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

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = std::mem::take(&mut self.waiting().changes);
        if changes.is_empty() {
            return;
        }
        let together = self
            .store
            .change(|change| changes.iter().try_for_each(|put| (put.work)(change)));
        if together.is_ok() {
            return;
        }
        // One that cannot be written keeps none of the others from it.
        for Put { work, failed } in changes {
            if let Err(error) = self.store.change(|change| work(change)) {
                failed(error);
            }
        }
    }
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

    fn append(later: &Later, number: usize) {
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
        let later = Later::new(Arc::clone(&store));
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
        let later = Later::new(Arc::clone(&store));
        append(&later, 7);
        later.settle();
        assert_eq!(numbers(&store), [7]);
    }

    #[test]
    fn a_change_that_fails_takes_no_other_with_it_and_says_so() {
        let (_directory, store) = store();
        let later = Later::new(Arc::clone(&store));
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
