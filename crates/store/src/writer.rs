//! The one writer of a database. Everything that this process changes goes through its queue.
//!
//! A caller that waits for its change makes it on its own thread, on the one connection that
//! writes. The changes of all callers that wait at a moment are one [`WriteBatch`], which is one
//! transaction. All changes but the first are savepoints, so that a change that fails takes nothing
//! of the others with it. The caller that opened the batch leads it: as soon as the batch before it
//! is on the disk, it lets the callers that are queued make their changes, makes the deferred
//! changes, commits, and waits for the disk. Meanwhile others open the next batch. No change is
//! reported before its batch is on the disk.
//!
//! A deferred change has no caller that waits for it. It goes with the next batch of any caller,
//! and after a moment with one of its own. If the process dies first, the change is lost.
//!
//! What was committed can be read a moment before it is on the disk. Whatever is written because
//! of it is behind it in the same log, and so is never on the disk without it. A caller that
//! reports what it read waits for the disk first.

mod batch;
mod queue;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use rusqlite::Connection;

pub(crate) use batch::WriterConnection;
use batch::{BatchFailure, Committed, NotMade, WriteBatch};
use queue::{MAX_DEFERRED, QueuedChange, WriteQueue, fail_all};

use crate::disk::Disk;
use crate::error::{StoreError, StoreFailure};

/// How long a deferred change waits for the batch of a caller before it gets one of its own.
const DEFERRED_WAIT: Duration = Duration::from_millis(10);

/// The shortest and the longest pause before deferred changes that could not be written are tried
/// again. It doubles each time.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    /// A thread that locks several of these locks `disk` first, then `connection`, then the others.
    queue: Mutex<WriteQueue>,
    connection: Mutex<WriterConnection>,
    /// A change was made, or a batch was committed.
    progress: Condvar,
    /// The leader of a batch holds the disk until the batch, with its deferred changes, is over.
    disk: Mutex<Disk>,
    /// The last batch that may be read and may not be on the disk yet.
    last_committed: Mutex<WriteBatch>,
    /// Why nothing is read or written any more: what the disk did not take once, it may have
    /// forgotten, and say nothing of it the next time.
    disk_failure: OnceLock<String>,
}

impl Writer {
    pub(crate) fn new(path: PathBuf, connection: Connection) -> Result<Self, rusqlite::Error> {
        let disk = Disk::under(&connection)?;
        let last_committed = WriteBatch::default();
        last_committed.finish(Ok(()));
        Ok(Self {
            path,
            queue: Mutex::default(),
            connection: Mutex::new(WriterConnection::new(connection)),
            progress: Condvar::new(),
            disk: Mutex::new(disk),
            last_committed: Mutex::new(last_committed),
            disk_failure: OnceLock::new(),
        })
    }

    /// Makes a change and returns when it is on the disk. Of a change that fails
    /// nothing is written.
    pub(crate) fn write<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let (value, batch) = self.make_change(work)?;
        self.outcome(&batch)?;
        Ok(value)
    }

    /// Makes a change soon, without a caller that waits for it. The work may be done several times;
    /// `failed` is called if it will not be written, and must not use the writer.
    pub(crate) fn defer(
        self: &Arc<Self>,
        work: impl Fn(&Connection) -> Result<(), StoreError> + Send + 'static,
        failed: impl FnOnce(&StoreError) + Send + 'static,
    ) {
        let mut queue = self.queue();
        queue.defer(work, failed);
        let is_full = queue.deferred() > MAX_DEFERRED;
        let is_attended = std::mem::replace(&mut queue.is_attended, true);
        drop(queue);
        if is_full || !(is_attended || self.attend()) {
            // What cannot be written now stays queued.
            let _ = self.write_deferred();
        }
    }

    /// Returns when all changes that were deferred before are written or have failed. Each is tried
    /// once more at most: this is for the end of a process.
    pub(crate) fn flush(&self) {
        let mut queue = self.queue();
        let end = queue.next_number;
        queue.last_failure = None;
        drop(queue);
        loop {
            // A leader that has taken deferred changes holds the disk until they have ended.
            drop(lock(&self.disk));
            let mut queue = self.queue();
            if !queue.has_deferred_before(end) {
                return;
            }
            let last_failure = queue.last_failure.take();
            drop(queue);
            let written = last_failure.map_or_else(|| self.write_deferred(), Err);
            if let Err(error) = written {
                let given_up = self.queue().take_before(end);
                fail_all(given_up, &error);
            }
        }
    }

    /// Returns when all that this process has committed is on the disk.
    pub(crate) fn wait_for_disk(&self) -> Result<(), StoreError> {
        let last = lock(&self.last_committed).clone();
        let _ = last.wait();
        self.check_disk()
    }

    /// Returns when all that can be read is on the disk, whichever process committed it.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let _ = self.sync_disk(&lock(&self.disk));
        self.check_disk()
    }

    pub(crate) fn check_disk(&self) -> Result<(), StoreError> {
        match self.disk_failure.get() {
            Some(problem) => Err(self.failure().not_on_disk(problem)),
            None => Ok(()),
        }
    }

    /// The connection, if it is free and has no open batch: then it shows what any other would.
    pub(crate) fn idle_connection(&self) -> Option<MutexGuard<'_, WriterConnection>> {
        let connection = match self.connection.try_lock() {
            Ok(connection) => connection,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (!connection.has_open_batch()).then_some(connection)
    }

    pub(crate) fn connection(&self) -> MutexGuard<'_, WriterConnection> {
        lock(&self.connection)
    }

    fn queue(&self) -> MutexGuard<'_, WriteQueue> {
        lock(&self.queue)
    }

    pub(crate) fn failure(&self) -> StoreFailure<'_> {
        StoreFailure { path: &self.path }
    }

    /// Makes a change in the batch of all that wait now. The batch is over, or its leader brings it
    /// to the disk.
    fn make_change<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<(T, WriteBatch), E> {
        self.check_disk()?;
        let made = self.queued_connection().make_change(work);
        self.progress.notify_all();
        let (value, joined) = made.map_err(|not_made| match not_made {
            NotMade::Database(error) => self.failure().sql(&error).into(),
            NotMade::Failed(error) => error,
            NotMade::Panicked(panic) => resume_unwind(panic),
        })?;
        if joined.is_leader {
            self.lead(&joined.batch);
        }
        Ok((value, joined.batch))
    }

    /// Waits in the queue for the connection, and for a batch with room for another change.
    fn queued_connection(&self) -> MutexGuard<'_, WriterConnection> {
        self.queue().callers += 1;
        let connection = self.connection_unless(|connection| !connection.has_room_for_caller());
        self.queue().callers -= 1;
        connection
    }

    /// The connection, as soon as it is not in this state.
    fn connection_unless(
        &self,
        is_unready: impl Fn(&WriterConnection) -> bool,
    ) -> MutexGuard<'_, WriterConnection> {
        self.progress
            .wait_while(self.connection(), |connection| is_unready(connection))
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings a batch to the disk, and tells all that wait for it.
    fn lead(&self, batch: &WriteBatch) {
        let disk = lock(&self.disk);
        let mut deferred = Vec::new();
        let commit = || self.commit(batch, &disk, &mut deferred);
        let outcome = self.commit_or_abandon(batch, &disk, commit);
        if let Err(failure) = &outcome {
            self.return_deferred(deferred, failure);
        }
        batch.finish(outcome);
    }

    /// Others wait for the batch, also if its leader panics.
    fn commit_or_abandon(
        &self,
        batch: &WriteBatch,
        disk: &Disk,
        commit: impl FnOnce() -> Result<(), BatchFailure>,
    ) -> Result<(), BatchFailure> {
        catch_unwind(AssertUnwindSafe(commit)).unwrap_or_else(|_| {
            self.connection().roll_back_batch(batch);
            self.progress.notify_all();
            // It may have been committed already, and readers take it for written from now on.
            self.sync_disk(disk).and(Err(BatchFailure::GivenUp))
        })
    }

    fn commit(
        &self,
        batch: &WriteBatch,
        disk: &Disk,
        deferred: &mut Vec<QueuedChange>,
    ) -> Result<(), BatchFailure> {
        let mut connection = self.connection_unless(|connection| {
            self.queue().callers > 0 && connection.has_room_for_caller()
        });
        let committed = match self.disk_failure.get() {
            Some(problem) => {
                connection.roll_back();
                Err(BatchFailure::NotOnDisk(problem.clone()))
            }
            None => {
                self.make_deferred(&mut connection, deferred);
                // Before the commit, so that a reader of it knows that it is not on the disk.
                *lock(&self.last_committed) = batch.clone();
                connection.commit()
            }
        };
        drop(connection);
        self.progress.notify_all();
        match committed? {
            Committed::Nothing => Ok(()),
            Committed::Something => self.sync_disk(disk),
        }
    }

    fn sync_disk(&self, disk: &Disk) -> Result<(), BatchFailure> {
        disk.sync().map_err(|error| {
            let problem = self.disk_failure.get_or_init(|| error.to_string());
            BatchFailure::NotOnDisk(problem.clone())
        })
    }

    /// Makes as many deferred changes as the open batch has room for.
    fn make_deferred(&self, connection: &mut WriterConnection, made: &mut Vec<QueuedChange>) {
        while connection.has_room() {
            let Some(change) = self.queue().next_deferred() else {
                return;
            };
            let error = match connection.make_change(|connection| change.make(connection)) {
                Ok(_) => {
                    made.push(change);
                    continue;
                }
                Err(NotMade::Database(error)) => self.failure().sql(&error),
                Err(NotMade::Failed(error)) => error,
                Err(NotMade::Panicked(_)) => self.failure().failed("a deferred change panicked"),
            };
            if error.is_passing() {
                return self.requeue(vec![change], error);
            }
            change.fail(&error);
        }
    }

    /// The batch of these changes was not written.
    fn return_deferred(&self, changes: Vec<QueuedChange>, failure: &BatchFailure) {
        let error = self.batch_error(failure);
        if error.is_passing() || matches!(failure, BatchFailure::GivenUp) {
            self.requeue(changes, error);
        } else {
            fail_all(changes, &error);
        }
    }

    fn requeue(&self, changes: Vec<QueuedChange>, error: StoreError) {
        let too_many = self.queue().requeue(changes, error);
        let error = self.failure().failed("too many changes wait to be written");
        fail_all(too_many, &error);
    }

    /// Writes deferred changes, as many as one batch has room for. They go with a change that
    /// changes nothing. All fail if there is no batch to be had, unless that may pass.
    fn write_deferred(&self) -> Result<(), StoreError> {
        let made = self.make_change(|_| Ok::<_, StoreError>(()));
        if let Err(error) = &made
            && !error.is_passing()
        {
            let failed = self.queue().take_before(u64::MAX);
            fail_all(failed, error);
        }
        let ((), batch) = made?;
        self.outcome(&batch)
    }

    /// Starts a thread that writes the deferred changes. `false` if there is none to be had.
    fn attend(self: &Arc<Self>) -> bool {
        let writer = Arc::clone(self);
        let thread = std::thread::Builder::new().name("store writer".to_owned());
        let is_started = thread.spawn(move || writer.write_all_deferred()).is_ok();
        if !is_started {
            self.queue().is_attended = false;
        }
        is_started
    }

    fn write_all_deferred(&self) {
        let mut pause = DEFERRED_WAIT;
        loop {
            std::thread::sleep(pause);
            let mut queue = self.queue();
            if queue.deferred() == 0 {
                queue.is_attended = false;
                return;
            }
            drop(queue);
            let is_written = self.write_deferred().is_ok();
            pause = if is_written && self.queue().last_failure.is_none() {
                DEFERRED_WAIT
            } else {
                (pause * 2).clamp(RETRY_PAUSES.0, RETRY_PAUSES.1)
            };
        }
    }

    /// Returns when a batch is on the disk, or has failed.
    fn outcome(&self, batch: &WriteBatch) -> Result<(), StoreError> {
        let outcome = batch.wait().as_ref().copied();
        outcome.map_err(|failure| self.batch_error(failure))
    }

    fn batch_error(&self, failure: &BatchFailure) -> StoreError {
        let problem = "a change that was made at the same time could not be written";
        match failure {
            BatchFailure::NotCommitted(error) => self.failure().sql(error),
            BatchFailure::NotOnDisk(problem) => self.failure().not_on_disk(problem),
            BatchFailure::GivenUp => self.failure().failed(problem),
        }
    }
}

/// A thread that panicked has left nothing half done: its change was undone.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
