//! One transaction: all of its operations reach the disk together, or none does.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::approvals::WrittenDocument;
use crate::audit::AuditHead;
use crate::database::Store;
use crate::error::{StoreError, StoreFailure};

/// A write transaction. Each operation of the store is a method of `Change`, and also of [`Store`]
/// for callers that need only that operation. Operations write their own audit records. Callers add
/// other records of the same change with [`Change::append`].
#[derive(Debug)]
pub struct Change<'a> {
    pub(crate) sql: Sql<'a>,
    /// The last audit record of this change. No other change adds a record before this change ends.
    pub(crate) last_record: Cell<Option<AuditHead>>,
    pub(crate) store: &'a Store,
    /// The document that this change writes, for the file `approvals.recorded` beside the database.
    pub(crate) written: RefCell<Option<WrittenDocument>>,
    /// Whether other processes may wait for what this change stores.
    pub(crate) is_awaited: Cell<bool>,
}

/// The work that remains after a change is on the disk.
struct AfterChange {
    written: Option<WrittenDocument>,
    is_awaited: bool,
}

impl Store {
    /// Makes several operations as one change with one durable commit. On an error nothing is
    /// written, except for [`StoreError::NotOnDisk`], where the result is unknown. The write lock
    /// is taken at the start, so values that `work` reads cannot change before the commit.
    ///
    /// `work` must not call the store: it would wait for its own transaction.
    pub fn change<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Change<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (value, after) = self
            .writer()
            .write(|connection| self.make_change(connection, work))?;
        if after.is_awaited {
            self.bell().ring();
        }
        if let Some(written) = after.written {
            self.keep_recorded(&written);
        }
        Ok(value)
    }

    /// Makes a change soon, with the next commit of any caller or with a commit of its own. The
    /// change is lost if the process dies first. `work` may run several times until its change is
    /// written. While writing fails for a passing reason, the change stays queued. `failed` is
    /// called if the change will not be written. Neither closure may call the store.
    pub fn change_deferred(
        self: &Arc<Self>,
        work: impl Fn(&Change<'_>) -> Result<(), StoreError> + Send + 'static,
        failed: impl FnOnce(&StoreError) + Send + 'static,
    ) {
        let store = Arc::clone(self);
        // The follow-up work is dropped. The next read of the document writes its file, and
        // processes that wait for a deferred change find it at their next look.
        let work = move |connection: &Connection| store.make_change(connection, &work).map(drop);
        self.writer().defer(work, failed);
    }

    /// Makes a change at once. If that fails for a passing reason, the change is deferred, and the
    /// returned error says that it is not made yet.
    pub fn change_or_defer(
        self: &Arc<Self>,
        work: impl Fn(&Change<'_>) -> Result<(), StoreError> + Send + 'static,
        failed: impl FnOnce(&StoreError) + Send + 'static,
    ) -> Result<(), StoreError> {
        let made = self.change(&work);
        if made.as_ref().is_err_and(StoreError::is_passing) {
            self.change_deferred(work, failed);
        }
        made
    }

    /// Returns when all changes deferred before this call are written or have failed. Call this at
    /// the end of a process.
    pub fn flush(&self) {
        self.writer().flush();
    }

    fn make_change<T, E: From<StoreError>>(
        &self,
        connection: &Connection,
        work: impl FnOnce(&Change<'_>) -> Result<T, E>,
    ) -> Result<(T, AfterChange), E> {
        let change = Change {
            sql: Sql::new(connection, self.failure()),
            last_record: Cell::new(None),
            store: self,
            written: RefCell::new(None),
            is_awaited: Cell::new(false),
        };
        let value = work(&change)?;
        // The caller may have ignored the error of an operation that failed halfway. Such a change
        // must not be committed.
        if change.sql.failed.get() {
            let problem = "a part of the change could not be written";
            return Err(self.failure().failed(problem).into());
        }
        let after = AfterChange {
            written: change.written.take(),
            is_awaited: change.is_awaited.get(),
        };
        Ok((value, after))
    }

    /// Runs several reads on one snapshot. Everything that this process wrote of the result is on
    /// the disk.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&Sql<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let found = self.read_committed(work)?;
        self.writer().wait_for_disk()?;
        Ok(found)
    }

    /// Like [`Store::read`], but without waiting for the disk. Before the result has an effect, the
    /// caller must write what follows from it, or wait for [`Store::sync`].
    pub(crate) fn read_committed<T>(
        &self,
        work: impl FnOnce(&Sql<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let failure = self.failure();
        self.reading(|connection| {
            let transaction = connection
                .unchecked_transaction()
                .map_err(|error| failure.sql(&error))?;
            work(&Sql::new(&transaction, failure))
        })
    }
}

/// Runs statements and converts their errors into store errors.
#[derive(Debug)]
pub(crate) struct Sql<'a> {
    connection: &'a Connection,
    failure: StoreFailure<'a>,
    failed: Cell<bool>,
}

impl<'a> Sql<'a> {
    fn new(connection: &'a Connection, failure: StoreFailure<'a>) -> Self {
        Self {
            connection,
            failure,
            failed: Cell::new(false),
        }
    }

    /// Returns the number of changed rows.
    pub(crate) fn execute(
        &self,
        statement: &str,
        values: impl Params,
    ) -> Result<usize, StoreError> {
        self.connection
            .prepare_cached(statement)
            .and_then(|mut statement| statement.execute(values))
            .map_err(|error| self.error(&error))
    }

    /// Returns the number of the inserted row, or `None` if the statement ignored a conflict.
    pub(crate) fn insert(
        &self,
        statement: &str,
        values: impl Params,
    ) -> Result<Option<i64>, StoreError> {
        let inserted = self.execute(statement, values)?;
        Ok((inserted > 0).then(|| self.connection.last_insert_rowid()))
    }

    pub(crate) fn optional<T>(
        &self,
        statement: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, StoreError> {
        self.connection
            .prepare_cached(statement)
            .and_then(|mut statement| statement.query_row(values, read).optional())
            .map_err(|error| self.error(&error))
    }

    pub(crate) fn one<T>(
        &self,
        statement: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.connection
            .prepare_cached(statement)
            .and_then(|mut statement| statement.query_row(values, read))
            .map_err(|error| self.error(&error))
    }

    pub(crate) fn all<T>(
        &self,
        statement: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        self.connection
            .prepare_cached(statement)
            .and_then(|mut statement| statement.query_map(values, read)?.collect())
            .map_err(|error| self.error(&error))
    }

    /// Returns the rows up to and including the first row that is `enough`.
    pub(crate) fn until<T>(
        &self,
        statement: &str,
        values: impl Params,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
        mut enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, StoreError> {
        let run = || {
            let mut statement = self.connection.prepare_cached(statement)?;
            let mut rows = statement.query(values)?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                let value = read(row)?;
                let last = enough(&value);
                found.push(value);
                if last {
                    break;
                }
            }
            Ok(found)
        };
        run().map_err(|error| self.error(&error))
    }

    pub(crate) fn corrupt(&self, problem: &str) -> StoreError {
        self.failed.set(true);
        StoreError::Corrupt {
            path: self.failure.path.to_owned(),
            problem: problem.to_owned(),
        }
    }

    fn error(&self, error: &rusqlite::Error) -> StoreError {
        self.failed.set(true);
        self.failure.sql(error)
    }
}
