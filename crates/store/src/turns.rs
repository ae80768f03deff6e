//! The connection that writes, whose turn it is, and what is on the disk.
//!
//! Each change is made in its turn, in a transaction that is left open behind it. The thread that
//! holds the disk commits that transaction and waits for the disk; meanwhile others make their
//! changes in the next one, and share its commit. No change is reported as written before it is on
//! the disk. A change that fails takes nothing of the others with it: all but the first of a
//! transaction are savepoints.
//!
//! What was committed can be read a moment before it is on the disk. Whatever is done because of it
//! and written is behind it in the same log, and so is never on the disk without it. A caller that
//! reports what it read waits for the disk first.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use rusqlite::Connection;

use crate::disk::Disk;
use crate::error::{StoreError, StoreFailure};

/// So many turns in one transaction, also of changes that fail: other processes want to write, too,
/// and who has made its change waits for the end of it.
const MOST_TOGETHER: usize = 64;

#[derive(Debug)]
pub(crate) struct Turns {
    /// How many are about to take the connection in order to change something.
    waiting: AtomicUsize,
    writer: Mutex<WriterConnection>,
    /// A turn is over, or a transaction.
    moved: Condvar,
    /// May be taken by who has the connection, never the other way round.
    flush: Mutex<Flush>,
    /// Something is on the disk, or is lost.
    flushed: Condvar,
    /// Why nothing is written any more.
    lost: OnceLock<String>,
}

#[derive(Debug)]
pub(crate) struct WriterConnection {
    pub(crate) connection: Connection,
    /// The transaction that is not committed yet.
    open: Option<Together>,
    /// How many want to know when something has moved.
    watching: usize,
}

/// The way to the disk.
#[derive(Debug)]
struct Flush {
    /// None while a thread holds it.
    disk: Option<Disk>,
    /// How many want to know when something is on the disk.
    watching: usize,
    commits: u64,
    /// The last of the commits is not on the disk yet.
    is_under_way: bool,
}

/// Changes that are committed together.
#[derive(Debug, Clone, Default)]
struct Together {
    turns: usize,
    /// How many rows had been changed before.
    rows_before: u64,
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

/// What has been committed.
enum Committed {
    Nothing,
    Something,
}

impl Turns {
    pub(crate) fn new(connection: Connection) -> Result<Self, rusqlite::Error> {
        let disk = Disk::under(&connection)?;
        Ok(Self {
            waiting: AtomicUsize::new(0),
            writer: Mutex::new(WriterConnection {
                connection,
                open: None,
                watching: 0,
            }),
            moved: Condvar::new(),
            flush: Mutex::new(Flush {
                disk: Some(disk),
                watching: 0,
                commits: 0,
                is_under_way: false,
            }),
            flushed: Condvar::new(),
            lost: OnceLock::new(),
        })
    }

    /// Waits for the caller's turn, does the work in a transaction, and returns when it is on the
    /// disk. Of work that fails nothing is written.
    pub(crate) fn take<T, E: From<StoreError>>(
        &self,
        failure: StoreFailure<'_>,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.check(failure)?;
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
        let kept = writer.keep();
        if kept.is_err() {
            writer.take_back();
        }
        self.pass_on(writer);
        let kept = kept.map_err(|error| failure.sql(&error))?;
        self.put_on_disk(&kept, failure)?;
        done.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// What the disk did not take once, it may have forgotten: nothing is read or written any more.
    pub(crate) fn check(&self, failure: StoreFailure<'_>) -> Result<(), StoreError> {
        match self.lost.get() {
            Some(problem) => Err(failure.not_on_disk(problem)),
            None => Ok(()),
        }
    }

    /// The connection, where there is room for another change.
    fn turn(&self) -> MutexGuard<'_, WriterConnection> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut writer = self.writer();
        while !writer.has_room() {
            writer = self.watch(writer);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        writer
    }

    /// The turn is over, or the transaction: others go on.
    fn pass_on(&self, writer: MutexGuard<'_, WriterConnection>) {
        let is_watched = writer.watching > 0;
        drop(writer);
        if is_watched {
            self.moved.notify_all();
        }
    }

    /// Until something has moved.
    fn watch<'a>(
        &self,
        mut writer: MutexGuard<'a, WriterConnection>,
    ) -> MutexGuard<'a, WriterConnection> {
        writer.watching += 1;
        let moved = self.moved.wait(writer);
        let mut writer = moved.unwrap_or_else(PoisonError::into_inner);
        writer.watching -= 1;
        writer
    }

    /// Returns when a change that was kept is on the disk, or is lost. The thread that finds the
    /// disk free commits for all whose turn has come until then.
    fn put_on_disk(
        &self,
        together: &Together,
        failure: StoreFailure<'_>,
    ) -> Result<(), StoreError> {
        let mut flush = self.flush();
        let outcome = loop {
            if let Some(outcome) = together.outcome.get() {
                break outcome;
            }
            match flush.disk.take() {
                Some(disk) => {
                    drop(flush);
                    self.flush_all(&HeldDisk::new(self, disk), together);
                    flush = self.flush();
                }
                None => flush = self.wait_for_disk(flush),
            }
        };
        drop(flush);
        outcome.as_ref().copied().map_err(|lost| match lost {
            Lost::NotCommitted(error) => failure.sql(error),
            Lost::NotOnDisk(problem) => failure.not_on_disk(problem),
            Lost::GivenUp => StoreError::Failed {
                path: failure.path.to_owned(),
                problem: "a change that was made at the same time could not be written".to_owned(),
            },
        })
    }

    /// Commits what is open, and waits for the disk.
    fn flush_all(&self, held: &HeldDisk<'_>, together: &Together) {
        let outcome = match self.commit() {
            Ok(Committed::Nothing) => Ok(()),
            Ok(Committed::Something) => held.sync().map_err(|error| {
                let problem = error.to_string();
                Lost::NotOnDisk(self.lost.get_or_init(|| problem).clone())
            }),
            Err(lost) => Err(lost),
        };
        // Only this thread holds the disk, so only it sets the outcome.
        let _ = together.outcome.set(outcome);
    }

    /// Commits what is open, with all whose turn is to come now.
    fn commit(&self) -> Result<Committed, Lost> {
        let mut writer = self.writer();
        while self.waiting.load(Ordering::SeqCst) > 0 && writer.has_room() {
            writer = self.watch(writer);
        }
        let committed = match self.lost.get() {
            Some(problem) => {
                writer.give_up();
                Err(Lost::NotOnDisk(problem.clone()))
            }
            None => {
                // Recorded before the commit, so that a reader of it knows that it is not on the
                // disk.
                let mut flush = self.flush();
                flush.commits += 1;
                flush.is_under_way = true;
                drop(flush);
                writer.commit()
            }
        };
        self.pass_on(writer);
        committed
    }

    fn wait_for_disk<'a>(&self, mut flush: MutexGuard<'a, Flush>) -> MutexGuard<'a, Flush> {
        flush.watching += 1;
        let flushed = self.flushed.wait(flush);
        let mut flush = flushed.unwrap_or_else(PoisonError::into_inner);
        flush.watching -= 1;
        flush
    }

    /// Returns when all that this process has committed is on the disk.
    pub(crate) fn settle(&self, failure: StoreFailure<'_>) -> Result<(), StoreError> {
        let mut flush = self.flush();
        let last = flush.commits;
        while flush.is_under_way && flush.commits == last {
            flush = self.wait_for_disk(flush);
        }
        drop(flush);
        self.check(failure)
    }

    /// The same for everything that can be read, whichever process committed it.
    pub(crate) fn settle_all(&self, failure: StoreFailure<'_>) -> Result<(), StoreError> {
        let mut flush = self.flush();
        let disk = loop {
            match flush.disk.take() {
                Some(disk) => break disk,
                None => flush = self.wait_for_disk(flush),
            }
        };
        drop(flush);
        if let Err(error) = HeldDisk::new(self, disk).sync() {
            let _ = self.lost.set(error.to_string());
        }
        self.check(failure)
    }

    /// The connection, if it is free and nothing waits to be committed: then it shows what any
    /// other would.
    pub(crate) fn at_rest(&self) -> Option<MutexGuard<'_, WriterConnection>> {
        let writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        writer.open.is_none().then_some(writer)
    }

    /// A thread that panicked has left nothing half done: its savepoint was taken back.
    pub(crate) fn writer(&self) -> MutexGuard<'_, WriterConnection> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flush(&self) -> MutexGuard<'_, Flush> {
        self.flush.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The disk, while a thread holds it. Others wait for it, and get it back also from a thread that
/// panics: then the next holder gives up what was not committed.
struct HeldDisk<'a> {
    turns: &'a Turns,
    disk: Option<Disk>,
}

impl<'a> HeldDisk<'a> {
    fn new(turns: &'a Turns, disk: Disk) -> Self {
        let disk = Some(disk);
        Self { turns, disk }
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.as_ref().map_or(Ok(()), Disk::sync)
    }
}

impl Drop for HeldDisk<'_> {
    fn drop(&mut self) {
        // It may have been committed already, and others take it for written when this is over.
        if std::thread::panicking()
            && let Err(error) = self.sync()
        {
            let _ = self.turns.lost.set(error.to_string());
        }
        let mut flush = self.turns.flush();
        flush.disk = self.disk.take();
        flush.is_under_way = false;
        if flush.watching > 0 {
            self.turns.flushed.notify_all();
        }
    }
}

impl WriterConnection {
    fn begin(&mut self) -> rusqlite::Result<()> {
        if self.open.is_some() {
            run(&self.connection, "SAVEPOINT own")?;
        } else {
            run(&self.connection, "BEGIN IMMEDIATE")?;
        }
        let rows_before = self.connection.total_changes();
        let together = self.open.get_or_insert_with(|| Together {
            rows_before,
            ..Together::default()
        });
        together.turns += 1;
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

    fn commit(&mut self) -> Result<Committed, Lost> {
        let open = self.open.take();
        let Some(together) = open.filter(|_| !self.is_given_up()) else {
            return Err(Lost::GivenUp);
        };
        let is_empty = self.connection.total_changes() == together.rows_before;
        let committed = run(&self.connection, "COMMIT").map_err(Lost::NotCommitted);
        if !self.connection.is_autocommit() {
            let _ = run(&self.connection, "ROLLBACK");
        }
        committed?;
        Ok(if is_empty {
            Committed::Nothing
        } else {
            Committed::Something
        })
    }

    fn give_up(&mut self) {
        if self.open.take().is_some() && !self.is_given_up() {
            let _ = run(&self.connection, "ROLLBACK");
        }
    }
}

fn run(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(drop)
}

#[cfg(test)]
mod tests;
