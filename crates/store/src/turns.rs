//! The connection that writes, and whose turn it is.
//!
//! Changes that are made at the same time share a durable commit: who has made its change and sees
//! others waiting leaves the transaction open for them, and the last of them commits for all. None
//! is told that its change is written before it is on the disk. Each change is a savepoint of the
//! shared transaction, so that one that fails takes nothing of the others with it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rusqlite::Connection;

use crate::error::{Failure, StoreError};

/// So many turns in one transaction, also of changes that fail: other processes want to write, too,
/// and who has made its change waits for the end of it.
const MOST_TOGETHER: usize = 64;

#[derive(Debug)]
pub(crate) struct Turns {
    /// How many are about to take the connection in order to change something.
    waiting: AtomicUsize,
    writer: Mutex<Writer>,
    committed: Condvar,
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) connection: Connection,
    /// The transaction that is left open for those who wait.
    open: Option<Together>,
}

/// Changes that are committed together.
#[derive(Debug, Clone, Default)]
struct Together {
    turns: usize,
    changes: usize,
    outcome: Arc<OnceLock<Result<(), Lost>>>,
}

/// Why none of them was written.
#[derive(Debug)]
enum Lost {
    NotCommitted(rusqlite::Error),
    /// The database gave up the whole transaction because of one of them.
    GivenUp,
}

impl Turns {
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            writer: Mutex::new(Writer {
                connection,
                open: None,
            }),
            committed: Condvar::new(),
        }
    }

    /// Waits for the caller's turn, does the work in a transaction, and returns when it is on the
    /// disk. Of work that fails nothing is written.
    pub(crate) fn take<T, E: From<StoreError>>(
        &self,
        failure: Failure<'_>,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut writer = self.writer();
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        if let Err(error) = writer.begin() {
            drop(self.pass_on(writer));
            return Err(failure.sql(&error).into());
        }
        // Others may wait for this turn to end, also if it ends in a panic.
        let done = catch_unwind(AssertUnwindSafe(|| work(&writer.connection)));
        if !matches!(done, Ok(Ok(_))) {
            writer.take_back();
            drop(self.pass_on(writer));
            return done.unwrap_or_else(|panic| resume_unwind(panic));
        }
        let kept = writer.keep().map_err(|error| failure.sql(&error));
        let writer = self.pass_on(writer);
        self.wait(writer, &kept?, failure)?;
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn wait(
        &self,
        mut writer: MutexGuard<'_, Writer>,
        together: &Together,
        failure: Failure<'_>,
    ) -> Result<(), StoreError> {
        let outcome = loop {
            if let Some(outcome) = together.outcome.get() {
                break outcome;
            }
            let waiting = self.committed.wait(writer);
            writer = waiting.unwrap_or_else(PoisonError::into_inner);
        };
        outcome.as_ref().copied().map_err(|lost| match lost {
            Lost::NotCommitted(error) => failure.sql(error),
            Lost::GivenUp => StoreError::Failed {
                path: failure.path.to_owned(),
                problem: "a change that was made at the same time could not be written".to_owned(),
            },
        })
    }

    /// The turn is over: others go on in the same transaction, or it ends here.
    fn pass_on<'a>(&'a self, mut writer: MutexGuard<'a, Writer>) -> MutexGuard<'a, Writer> {
        let others_wait = self.waiting.load(Ordering::SeqCst) > 0;
        if !(others_wait && writer.has_room()) && writer.end() {
            self.committed.notify_all();
        }
        writer
    }

    /// The connection, if nobody has it and nothing waits to be committed: then it shows what any
    /// other would.
    pub(crate) fn at_rest(&self) -> Option<MutexGuard<'_, Writer>> {
        let writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        writer.open.is_none().then_some(writer)
    }

    /// Whoever panicked has left nothing half done: its savepoint was taken back.
    pub(crate) fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    fn begin(&mut self) -> rusqlite::Result<()> {
        if self.open.is_none() {
            run(&self.connection, "BEGIN IMMEDIATE")?;
            self.open = Some(Together::default());
        }
        self.open.get_or_insert_default().turns += 1;
        run(&self.connection, "SAVEPOINT own")
    }

    fn keep(&mut self) -> rusqlite::Result<Together> {
        run(&self.connection, "RELEASE own")?;
        let together = self.open.get_or_insert_default();
        together.changes += 1;
        Ok(together.clone())
    }

    fn take_back(&self) {
        if !self.is_given_up() {
            let _ = run(&self.connection, "ROLLBACK TO own");
            let _ = run(&self.connection, "RELEASE own");
        }
    }

    /// The database has no transaction any more: some errors end it.
    fn is_given_up(&self) -> bool {
        self.connection.is_autocommit()
    }

    fn has_room(&self) -> bool {
        let open = self.open.as_ref();
        !self.is_given_up() && open.is_some_and(|together| together.turns < MOST_TOGETHER)
    }

    /// Commits what was kept. `false` if there was no transaction.
    fn end(&mut self) -> bool {
        let Some(together) = self.open.take() else {
            return false;
        };
        let outcome = if self.is_given_up() {
            Err(Lost::GivenUp)
        } else if together.changes == 0 {
            run(&self.connection, "ROLLBACK").map_err(Lost::NotCommitted)
        } else {
            run(&self.connection, "COMMIT").map_err(Lost::NotCommitted)
        };
        if !self.connection.is_autocommit() {
            let _ = run(&self.connection, "ROLLBACK");
        }
        let _ = together.outcome.set(outcome);
        true
    }
}

fn run(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(drop)
}

#[cfg(test)]
mod tests;
