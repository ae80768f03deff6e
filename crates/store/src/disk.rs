//! When a commit is on the disk.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

/// The log of a database, which every commit is written to.
#[derive(Debug)]
pub(crate) struct Disk {
    /// None where the database waits for the disk by itself, because it has no such log.
    log: Option<PathBuf>,
    file: Option<File>,
}

impl Disk {
    /// From now on, commits of this connection do not wait for the disk.
    pub(crate) fn under(connection: &Connection, path: &Path) -> rusqlite::Result<Self> {
        let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        let is_log = mode.eq_ignore_ascii_case("wal");
        if is_log {
            connection.execute_batch("PRAGMA synchronous = NORMAL")?;
        }
        let mut log = path.to_owned().into_os_string();
        log.push("-wal");
        Ok(Self {
            log: is_log.then(|| log.into()),
            file: None,
        })
    }

    #[cfg(test)]
    pub(crate) fn on(log: &Path) -> Self {
        Self {
            log: Some(log.to_owned()),
            file: None,
        }
    }

    /// Returns when all that was committed is on the disk. An error is for good: what the system did not
    /// write once, it may forget, and say nothing of it the next time.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        let Some(log) = &self.log else {
            return Ok(());
        };
        let file = match &mut self.file {
            Some(file) => file,
            // It stays the same file as long as somebody has the database open.
            none => none.insert(File::open(log)?),
        };
        file.sync_data()
    }
}
