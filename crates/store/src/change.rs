//! One transaction: everything that is done in it is on the disk together, or not at all.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Params, Row};

use crate::approvals::WrittenDocument;
use crate::audit::AuditHead;
use crate::database::Store;
use crate::error::{StoreError, StoreFailure};

/// A write transaction. Each operation of the store is a method of it, and of [`Store`] for callers
/// that need only that one. Operations write their own audit records; what else belongs to the same
/// change is added with [`Change::append`].
#[derive(Debug)]
pub struct Change<'a> {
    pub(crate) sql: Sql<'a>,
    /// The last audit record of this change. No other change adds one before this change ends.
    pub(crate) last_record: Cell<Option<AuditHead>>,
    pub(crate) store: &'a Store,
    /// The document that this change writes, for the file beside the database.
    pub(crate) written: RefCell<Option<WrittenDocument>>,
    /// Other processes may wait for what this change stores.
    pub(crate) is_awaited: Cell<bool>,
}

/// What is left to do when a change is on the disk.
struct AfterChange {
    written: Option<WrittenDocument>,
    is_awaited: bool,
}

impl Store {
    /// Does several operations as one change with one durable commit. On an error nothing is
    /// written, except for [`StoreError::NotOnDisk`]: then the result is unknown. The lock is taken
    /// at the start, so that nothing that was read in here can change before the end.
    ///
    /// The work must not call the store itself: it would wait for its own transaction.
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

    /// Makes a change soon, with the next commit of any caller or with one of its own. It is lost if
    /// the process dies before. The work may be done several times, until it is written; while that
    /// fails for a reason that may pass, the change stays queued. `failed` is called if it will not
    /// be written. Neither may call the store.
    pub fn change_deferred(
        self: &Arc<Self>,
        work: impl Fn(&Change<'_>) -> Result<(), StoreError> + Send + 'static,
        failed: impl FnOnce(&StoreError) + Send + 'static,
    ) {
        let store = Arc::clone(self);
        // A document that it writes gets its file when it is read next, and those that wait for a deferred
        // change find it at their next look.
        let work = move |connection: &Connection| store.make_change(connection, &work).map(drop);
        self.writer().defer(work, failed);
    }

    /// Makes a change at once. Where that fails for a reason that may pass, the change is deferred
    /// and the error says that it is not made yet.
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

    /// Returns when all changes that were deferred before are written or have failed: for the end
    /// of a process.
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
        // An operation that failed half-way must not be committed because its error was ignored.
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

    /// Several reads of one and the same state. All that this process wrote of it is on the disk.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&Sql<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let found = self.read_committed(work)?;
        self.writer().wait_for_disk()?;
        Ok(found)
    }

    /// The same without waiting for the disk. Whatever comes of it has to be written before it has
    /// an effect, or to wait for [`Store::sync`].
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

/// Runs statements and gives their errors a meaning.
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

    /// How many rows were changed.
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

    /// The number of the row; none where there was a conflict about which nothing is done.
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

    /// Rows up to and with the first one that is `enough`.
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
