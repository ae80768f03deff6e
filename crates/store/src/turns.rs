//! The connection that writes, whose turn it is, and what is on the disk.
//!
//! Each change is made in its turn, in a transaction that is left open behind it. Whoever has the disk
//! commits that transaction and waits for the disk; meanwhile others make their changes in the next
//! one, and share its commit. None is told that its change is written before it is on the disk. A
//! change that fails takes nothing of the others with it: all but the first of a transaction are
//! savepoints.
//!
//! What was committed can be read a moment before it is on the disk. Whatever is done because of it and
//! written is behind it in the same log, and so is never on the disk without it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rusqlite::Connection;

use crate::disk::Disk;
use crate::error::{Failure, StoreError};

/// So many turns in one transaction, also of changes that fail: other processes want to write, too,
/// and who has made its change waits for the end of it.
const MOST_TOGETHER: usize = 64;

#[derive(Debug)]
pub(crate) struct Turns {
    /// How many are about to take the connection in order to change something.
    waiting: AtomicUsize,
    writer: Mutex<Writer>,
    /// A turn is over, or a transaction.
    moved: Condvar,
    /// Taken before the connection by who has made its change; never the other way round.
    disk: Mutex<Disk>,
    /// How many are about to take it.
    waiting_for_disk: AtomicUsize,
    /// Why nothing is written any more.
    lost: OnceLock<String>,
}

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) connection: Connection,
    /// The transaction that nobody has committed yet.
    open: Option<Together>,
    /// How many want to know when something has moved.
    watching: usize,
}

/// Changes that are committed together.
#[derive(Debug, Clone, Default)]
struct Together {
    turns: usize,
    outcome: Arc<OnceLock<Result<(), Lost>>>,
}

/// Why none of them was written.
#[derive(Debug)]
enum Lost {
    NotCommitted(rusqlite::Error),
    /// The database gave up the whole transaction because of one of them.
    GivenUp,
    /// And nothing is written any more.
    NotOnDisk(String),
}

impl Turns {
    pub(crate) fn new(connection: Connection, path: &Path) -> rusqlite::Result<Self> {
        let disk = Disk::under(&connection, path)?;
        Ok(Self {
            waiting: AtomicUsize::new(0),
            writer: Mutex::new(Writer {
                connection,
                open: None,
                watching: 0,
            }),
            moved: Condvar::new(),
            disk: Mutex::new(disk),
            waiting_for_disk: AtomicUsize::new(0),
            lost: OnceLock::new(),
        })
    }

    /// Waits for the caller's turn, does the work in a transaction, and returns when it is on the
    /// disk. Of work that fails nothing is written.
    pub(crate) fn take<T, E: From<StoreError>>(
        &self,
        failure: Failure<'_>,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        if let Some(problem) = self.lost.get() {
            return Err(failure.not_on_disk(problem).into());
        }
        let mut writer = self.turn();
        if let Err(error) = writer.begin() {
            self.pass_on(writer);
            return Err(failure.sql(&error).into());
        }
        // Others may wait for this turn to end, also if it ends in a panic.
        let done = catch_unwind(AssertUnwindSafe(|| work(&writer.connection)));
        if !matches!(done, Ok(Ok(_))) {
            writer.take_back();
            self.pass_on(writer);
            return done.unwrap_or_else(|panic| resume_unwind(panic));
        }
        let kept = writer.keep().map_err(|error| failure.sql(&error));
        self.pass_on(writer);
        self.put_on_disk(&kept?, failure)?;
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The connection, where there is room for another change.
    fn turn(&self) -> MutexGuard<'_, Writer> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut writer = self.writer();
        while !writer.has_room() {
            writer = self.watch(writer);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        writer
    }

    /// The turn is over, or the transaction: others go on.
    fn pass_on(&self, writer: MutexGuard<'_, Writer>) {
        if writer.watching > 0 {
            self.moved.notify_all();
        }
    }

    /// Until something has moved.
    fn watch<'a>(&self, mut writer: MutexGuard<'a, Writer>) -> MutexGuard<'a, Writer> {
        writer.watching += 1;
        let moved = self.moved.wait(writer);
        let mut writer = moved.unwrap_or_else(PoisonError::into_inner);
        writer.watching -= 1;
        writer
    }

    /// Returns when a change that was kept is on the disk, or is lost. Whoever comes first commits for
    /// all whose turn has come until then.
    fn put_on_disk(&self, together: &Together, failure: Failure<'_>) -> Result<(), StoreError> {
        self.waiting_for_disk.fetch_add(1, Ordering::SeqCst);
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting_for_disk.fetch_sub(1, Ordering::SeqCst);
        let outcome = together.outcome.get_or_init(|| {
            let mut writer = self.writer();
            while self.waiting.load(Ordering::SeqCst) > 0 && writer.has_room() {
                writer = self.watch(writer);
            }
            let committed = writer.commit();
            self.pass_on(writer);
            committed?;
            disk.sync().map_err(|error| {
                let problem = error.to_string();
                Lost::NotOnDisk(self.lost.get_or_init(|| problem).clone())
            })
        });
        drop(disk);
        if self.waiting_for_disk.load(Ordering::SeqCst) > 0 {
            // Where both share a processor, the disk need not rest until all this is told.
            std::thread::yield_now();
        }
        outcome.as_ref().copied().map_err(|lost| match lost {
            Lost::NotCommitted(error) => failure.sql(error),
            Lost::NotOnDisk(problem) => failure.not_on_disk(problem),
            Lost::GivenUp => StoreError::Failed {
                path: failure.path.to_owned(),
                problem: "a change that was made at the same time could not be written".to_owned(),
            },
        })
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
        if self.open.is_some() {
            run(&self.connection, "SAVEPOINT own")?;
        } else {
            run(&self.connection, "BEGIN IMMEDIATE")?;
        }
        self.open.get_or_insert_default().turns += 1;
        Ok(())
    }

    fn keep(&mut self) -> rusqlite::Result<Together> {
        let together = self.open.get_or_insert_default();
        if together.turns > 1 {
            run(&self.connection, "RELEASE own")?;
        }
        Ok(together.clone())
    }

    /// What a change did that failed.
    fn take_back(&mut self) {
        let is_first = self
            .open
            .as_ref()
            .is_none_or(|together| together.turns <= 1);
        let is_given_up = self.is_given_up();
        if is_first {
            if !is_given_up {
                let _ = run(&self.connection, "ROLLBACK");
            }
            self.open = None;
        } else if !is_given_up {
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
        open.is_none_or(|together| together.turns < MOST_TOGETHER && !self.is_given_up())
    }

    fn commit(&mut self) -> Result<(), Lost> {
        if self.open.take().is_none() || self.is_given_up() {
            return Err(Lost::GivenUp);
        }
        let committed = run(&self.connection, "COMMIT").map_err(Lost::NotCommitted);
        if !self.connection.is_autocommit() {
            let _ = run(&self.connection, "ROLLBACK");
        }
        committed
    }
}

fn run(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(drop)
}

#[cfg(test)]
mod tests;
