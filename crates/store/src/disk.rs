//! When a commit is on the disk.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use rusqlite::Connection;

/// The log of a database, which every commit is written to.
#[derive(Debug)]
pub(crate) struct Disk {
    /// None where the database waits for the disk by itself: because it has no such log, or the log
    /// cannot be opened.
    log: Option<File>,
}

impl Disk {
    /// From now on, commits of this connection do not wait for the disk.
    pub(crate) fn under(connection: &Connection) -> rusqlite::Result<Self> {
        // Read first, so that there is a log if there is ever to be one. It stays the same file as
        // long as any process has the database open.
        let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        let log = file_beside(connection, "-wal").filter(|_| mode.eq_ignore_ascii_case("wal"));
        let log = log.and_then(|log| File::open(log).ok());
        if log.is_some() {
            connection.execute_batch("PRAGMA synchronous = NORMAL")?;
        }
        Ok(Self { log })
    }

    #[cfg(test)]
    pub(crate) fn on(log: File) -> Self {
        Self { log: Some(log) }
    }

    /// Returns when all that was committed is on the disk. An error is for good: what the system
    /// did not write once, it may forget, and say nothing of it the next time.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match &self.log {
            Some(log) => log.sync_data(),
            None => Ok(()),
        }
    }
}

/// The file with this ending beside the database: where the database really is, whatever links lead there.
pub(crate) fn file_beside(connection: &Connection, ending: &str) -> Option<PathBuf> {
    let database = connection.path().filter(|path| !path.is_empty())?;
    Some(format!("{database}{ending}").into())
}
