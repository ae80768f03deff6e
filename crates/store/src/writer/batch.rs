//! The connection that writes, and the batch of changes that its next commit contains.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use rusqlite::Connection;

/// The most changes in one commit, including those that fail. Other processes want to write too,
/// and the first caller of a batch waits for the last one.
pub(super) const MAX_BATCH_CHANGES: usize = 64;

/// The most changes in a batch that callers wait for, so that deferred changes always have room.
const MAX_BATCH_CALLERS: usize = 48;

/// Changes that are committed together, and the outcome of the whole batch.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteBatch(Arc<OnceLock<Result<(), BatchFailure>>>);

/// The reason why nothing of a batch was written.
#[derive(Debug)]
pub(super) enum BatchFailure {
    NotCommitted(rusqlite::Error),
    /// The database rolled back the whole transaction because of one of its changes.
    GivenUp,
    /// The disk failed, so nothing is written any more.
    NotOnDisk(String),
}

impl WriteBatch {
    /// Returns when the batch is on the disk, or has failed.
    pub(super) fn wait(&self) -> &Result<(), BatchFailure> {
        self.0.wait()
    }

    /// Sets the outcome. Only the leader of a batch may call this, and only once.
    pub(super) fn finish(&self, outcome: Result<(), BatchFailure>) {
        let _ = self.0.set(outcome);
    }
}

/// The only connection of this process that writes.
#[derive(Debug)]
pub(crate) struct WriterConnection {
    pub(crate) connection: Connection,
    open: Option<OpenBatch>,
}

/// A batch whose transaction is not committed yet.
#[derive(Debug)]
struct OpenBatch {
    batch: WriteBatch,
    /// How many changes the batch contains, including those that failed.
    changes: usize,
    /// How many rows the connection had changed before the batch began.
    rows_before: u64,
}

/// The batch that a change belongs to.
pub(super) struct JoinedBatch {
    pub(super) batch: WriteBatch,
    /// Whether the change opened the batch, so that its caller must commit the batch.
    pub(super) is_leader: bool,
}

/// The reason why a change was not made. Such a change leaves nothing behind.
pub(super) enum NotMade<E> {
    Database(rusqlite::Error),
    Failed(E),
    Panicked(Box<dyn Any + Send>),
}

/// What a commit wrote.
pub(super) enum Committed {
    Nothing,
    Something,
}

impl WriterConnection {
    pub(super) fn new(connection: Connection) -> Self {
        let open = None;
        Self { connection, open }
    }

    /// Makes a change in the open batch, or opens a batch. A panic is caught, because other callers
    /// wait for the connection.
    pub(super) fn make_change<T, E>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<(T, JoinedBatch), NotMade<E>> {
        let joined = self.join_batch().map_err(NotMade::Database)?;
        let is_savepoint = !joined.is_leader;
        let made = match catch_unwind(AssertUnwindSafe(|| work(&self.connection))) {
            Ok(Ok(value)) if is_savepoint => match run(&self.connection, "RELEASE change") {
                Ok(()) => Ok(value),
                Err(error) => Err(NotMade::Database(error)),
            },
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(NotMade::Failed(error)),
            Err(panic) => Err(NotMade::Panicked(panic)),
        };
        if made.is_err() && !is_savepoint {
            self.roll_back();
        } else if made.is_err() && !self.is_given_up() {
            let _ = run(&self.connection, "ROLLBACK TO change");
            let _ = run(&self.connection, "RELEASE change");
        }
        made.map(|value| (value, joined))
    }

    fn join_batch(&mut self) -> rusqlite::Result<JoinedBatch> {
        if let Some(open) = &mut self.open {
            run(&self.connection, "SAVEPOINT change")?;
            open.changes += 1;
            return Ok(JoinedBatch {
                batch: open.batch.clone(),
                is_leader: false,
            });
        }
        run(&self.connection, "BEGIN IMMEDIATE")?;
        let batch = WriteBatch::default();
        self.open = Some(OpenBatch {
            batch: batch.clone(),
            changes: 1,
            rows_before: self.connection.total_changes(),
        });
        Ok(JoinedBatch {
            batch,
            is_leader: true,
        })
    }

    /// Ends the open batch, if there is one, without writing any of it.
    pub(super) fn roll_back(&mut self) {
        if self.open.take().is_some() && !self.is_given_up() {
            let _ = run(&self.connection, "ROLLBACK");
        }
    }

    /// Rolls back this batch if it is still the open one. The next batch must not be rolled back.
    pub(super) fn roll_back_batch(&mut self, batch: &WriteBatch) {
        let open = self.open.as_ref();
        if open.is_some_and(|open| Arc::ptr_eq(&open.batch.0, &batch.0)) {
            self.roll_back();
        }
    }

    /// Whether the database has ended the transaction by itself, as some errors make it do.
    fn is_given_up(&self) -> bool {
        self.connection.is_autocommit()
    }

    pub(super) fn has_open_batch(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn has_room_for_caller(&self) -> bool {
        self.has_room_below(MAX_BATCH_CALLERS)
    }

    pub(super) fn has_room(&self) -> bool {
        self.has_room_below(MAX_BATCH_CHANGES)
    }

    fn has_room_below(&self, most: usize) -> bool {
        let open = self.open.as_ref();
        open.is_none_or(|open| open.changes < most && !self.is_given_up())
    }

    /// Commits the open batch. It is not on the disk yet when this returns.
    pub(super) fn commit(&mut self) -> Result<Committed, BatchFailure> {
        let open = self.open.take();
        let Some(open) = open.filter(|_| !self.is_given_up()) else {
            return Err(BatchFailure::GivenUp);
        };
        let is_empty = self.connection.total_changes() == open.rows_before;
        let committed = run(&self.connection, "COMMIT").map_err(BatchFailure::NotCommitted);
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
}

fn run(connection: &Connection, statement: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(statement)?.execute([]).map(drop)
}
