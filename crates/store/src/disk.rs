//! Makes sure that a commit is on the disk.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use rusqlite::Connection;

/// The write-ahead log of a database, which every commit is written to.
#[derive(Debug)]
pub(crate) struct Disk {
    /// `None` if the database waits for the disk by itself: it has no write-ahead log, or the log
    /// cannot be opened.
    log: Option<File>,
}

impl Disk {
    /// Makes commits of this connection return without waiting for the disk.
    pub(crate) fn under(connection: &Connection) -> rusqlite::Result<Self> {
        // The query reads the database, which creates the log if the database uses one. The log
        // stays the same file as long as any process has the database open.
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

    /// Returns when everything that was committed is on the disk. An error is final: the system may
    /// forget data that it once failed to write, and report success the next time.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match &self.log {
            Some(log) => log.sync_data(),
            None => Ok(()),
        }
    }
}

/// Returns the path of the file with this ending beside the database. Links to the database are
/// resolved.
pub(crate) fn file_beside(connection: &Connection, ending: &str) -> Option<PathBuf> {
    let database = connection.path().filter(|path| !path.is_empty())?;
    Some(format!("{database}{ending}").into())
}
