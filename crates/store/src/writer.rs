//! The only writer of a database. Everything that this process changes goes through its queue.
//!
//! A caller that waits for its change makes it on its own thread, on the only connection that
//! writes. The changes of all callers that wait at the same time form one [`WriteBatch`], which is
//! one transaction. All changes but the first are savepoints, so that a failed change does not undo
//! the others. The caller that opened the batch leads it. As soon as the previous batch is on the
//! disk, the leader lets the queued callers make their changes, makes the deferred changes,
//! commits, and waits for the disk. Meanwhile other callers open the next batch. No change is
//! reported before its batch is on the disk.
//!
//! A deferred change has no waiting caller. It goes with the next batch of any caller, or after a
//! moment with a batch of its own. If the process dies first, the change is lost.
//!
//! Other readers can see a commit a moment before it is on the disk. A change that depends on such
//! a read comes later in the same log, so it is never on the disk without that commit. A caller
//! that reports what it read must wait for the disk first.

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

/// How long a deferred change waits for the batch of a caller before it gets a batch of its own.
const DEFERRED_WAIT: Duration = Duration::from_millis(10);

/// The shortest and the longest pause before deferred changes that failed are tried again. The
/// pause doubles each time.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

#[derive(Debug)]
pub(crate) struct Writer {
    path: PathBuf,
    /// A thread that locks several of these locks `disk` first, then `connection`, then the others.
    queue: Mutex<WriteQueue>,
    connection: Mutex<WriterConnection>,
    /// Signals that a change was made or a batch was committed.
    progress: Condvar,
    /// The leader of a batch holds this lock until the batch, with its deferred changes, is over.
    disk: Mutex<Disk>,
    /// The last batch that readers may see and that may not be on the disk yet.
    last_committed: Mutex<WriteBatch>,
    /// Why nothing is read or written any more. The system may have forgotten data that the disk
    /// failed to write, and may report success the next time.
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

    /// Makes a change and returns when it is on the disk. A change that fails writes nothing.
    pub(crate) fn write<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let (value, batch) = self.make_change(work)?;
        self.outcome(&batch)?;
        Ok(value)
    }

    /// Makes a change soon, without a waiting caller. `work` may run several times. `failed` is
    /// called if the change will not be written, and must not use the writer.
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
            // A change that cannot be written now stays queued.
            let _ = self.write_deferred();
        }
    }

    /// Returns when all changes deferred before this call are written or have failed. Each is tried
    /// at most once more, because the process is about to end.
    pub(crate) fn flush(&self) {
        let mut queue = self.queue();
        let end = queue.next_number;
        queue.last_failure = None;
        drop(queue);
        loop {
            // A leader that has taken deferred changes holds the disk lock until they are written,
            // have failed or are queued again.
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

    /// Returns when everything that this process committed is on the disk.
    pub(crate) fn wait_for_disk(&self) -> Result<(), StoreError> {
        let last = lock(&self.last_committed).clone();
        let _ = last.wait();
        self.check_disk()
    }

    /// Returns when everything that can be read is on the disk, whichever process committed it.
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

    /// Returns the connection if it is free and has no open batch. It then shows the same data as
    /// any other connection.
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

    /// Makes a change in the batch of all callers that wait now. If the change opened the batch,
    /// this returns after the batch is on the disk or has failed.
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

    /// Waits for the connection, and for a batch with room for another change.
    fn queued_connection(&self) -> MutexGuard<'_, WriterConnection> {
        self.queue().callers += 1;
        let connection = self.connection_unless(|connection| !connection.has_room_for_caller());
        self.queue().callers -= 1;
        connection
    }

    /// Returns the connection as soon as it is not in this state.
    fn connection_unless(
        &self,
        is_unready: impl Fn(&WriterConnection) -> bool,
    ) -> MutexGuard<'_, WriterConnection> {
        self.progress
            .wait_while(self.connection(), |connection| is_unready(connection))
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings a batch to the disk, and wakes all callers that wait for it.
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

    /// Ends the batch even if its leader panics, because other callers wait for it.
    fn commit_or_abandon(
        &self,
        batch: &WriteBatch,
        disk: &Disk,
        commit: impl FnOnce() -> Result<(), BatchFailure>,
    ) -> Result<(), BatchFailure> {
        catch_unwind(AssertUnwindSafe(commit)).unwrap_or_else(|_| {
            self.connection().roll_back_batch(batch);
            self.progress.notify_all();
            // The batch may be committed already, and readers will take it as written. So it must
            // reach the disk.
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
                // This comes before the commit, so that a reader of the commit knows that it is not
                // on the disk yet.
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

    /// Queues the deferred changes of a batch that was not written again, or fails them for good.
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

    /// Writes deferred changes, as many as one batch has room for. A change that changes nothing
    /// opens the batch. If no batch can be opened, all deferred changes fail, unless the reason may
    /// pass.
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

    /// Starts a thread that writes the deferred changes. Returns `false` if the thread cannot be
    /// started.
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

/// Locks a mutex even if it is poisoned. A thread that panicked left nothing half done: its change
/// was rolled back.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
