//! Opens the database. A command has a budget of a few milliseconds in all, so a database of the
//! present version, which is the usual case, is opened without looking at migrations.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rusqlite_migration::Migrations;

use crate::document::KnownDocument;
use crate::error::{StoreError, StoreFailure};
use crate::schema::MIGRATIONS;
use crate::seal::{SEAL_KEY_NAME, SealKey};
use crate::watch::Bell;
use crate::writer::Writer;

/// The name of the database file in the state directory.
pub const DATABASE_NAME: &str = "interlock.db";

/// How often a statement retries while another process holds the lock of the database: for about
/// five seconds in all.
const BUSY_TRIES: i32 = 5000;

/// The size of the statement cache. It holds every statement of this crate, so a server prepares
/// each one only once.
const PREPARED_STATEMENTS: usize = 128;

/// What the log beside the database keeps of its size once its content is in the database: large changes
/// make it grow.
pub const MAX_LOG_BYTES: u64 = 16 << 20;

/// The open store. One per process is enough; it can be shared between threads. Other processes
/// may have the same file open.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    writer: Arc<Writer>,
    /// A second connection for reads during a write. Most processes never need it.
    reader: Mutex<Option<Connection>>,
    state_dir: PathBuf,
    /// The inode of the file that was opened. `None` if it could not be read.
    opened_file: Option<u64>,
    key: SealKey,
    bell: Bell,
    /// The document that was last checked and found to be recorded. The same document needs no
    /// second check.
    pub(crate) known_document: Mutex<Option<KnownDocument>>,
}

impl Store {
    /// Opens the database of this state directory. A missing database is created with mode 0600.
    pub fn open(state_dir: &Path) -> Result<Self, StoreError> {
        let path = state_dir.join(DATABASE_NAME);
        let failure = StoreFailure { path: &path };
        prepare_file(&path, state_dir).map_err(|source| failure.io(&source))?;
        let key = SealKey::load_or_create(state_dir).map_err(|source| StoreError::Unreadable {
            path: state_dir.join(SEAL_KEY_NAME),
            problem: source.to_string(),
        })?;
        let connection = configure(connect(&path, failure)?, failure)?;
        let bell = Bell::of(&connection);
        let opened_file = file_identity(&path);
        let writer = Writer::new(path.clone(), connection).map_err(|error| failure.sql(&error))?;
        let store = Self {
            bell,
            path,
            writer: Arc::new(writer),
            reader: Mutex::new(None),
            state_dir: state_dir.to_owned(),
            opened_file,
            key,
            known_document: Mutex::new(None),
        };
        store.adopt()?;
        Ok(store)
    }

    /// Fails if the path no longer names the file that is open. The open file then never changes
    /// again, so a wait for a change must check this too.
    pub fn check_in_place(&self) -> Result<(), StoreError> {
        if self.opened_file == file_identity(&self.path) {
            return Ok(());
        }
        Err(StoreError::Removed {
            path: self.path.clone(),
        })
    }

    /// Returns the directory of the database.
    pub fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    pub(crate) fn key(&self) -> &SealKey {
        &self.key
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn writer(&self) -> &Arc<Writer> {
        &self.writer
    }

    /// Returns when everything that can be read now is on the disk, whichever process wrote it.
    /// Callers wait for this before they report what other processes have written.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.writer.sync()
    }

    /// Reads what was committed. A read never waits for a commit.
    pub(crate) fn reading<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.writer.check_disk()?;
        if let Some(writer) = self.writer.idle_connection() {
            return work(&writer.connection);
        }
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match reader.take() {
            Some(connection) => connection,
            None => {
                let connection = connect(&self.path, self.failure())?;
                prepare_connection(&connection).map_err(|error| self.failure().sql(&error))?;
                connection
            }
        };
        work(reader.insert(connection))
    }

    /// Frees caches if the connection is idle.
    pub fn shrink(&self) {
        if let Ok(mut reader) = self.reader.try_lock() {
            *reader = None;
        }
        if let Some(writer) = self.writer.idle_connection() {
            // Memory that cannot be freed stays in use.
            let _ = writer.connection.execute_batch("PRAGMA shrink_memory");
            writer.connection.flush_prepared_statement_cache();
        }
    }

    /// Rewrites the file, so that it is no larger than its content.
    pub(crate) fn rebuild_file(&self) -> Result<(), StoreError> {
        let failure = self.failure();
        let connection = connect(&self.path, failure)?;
        prepare_connection(&connection)
            .and_then(|()| connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);"))
            .map_err(|error| failure.sql(&error))
    }

    #[cfg(test)]
    pub(crate) fn connection(&self) -> impl std::ops::Deref<Target = Connection> {
        struct Own<'a>(std::sync::MutexGuard<'a, crate::writer::WriterConnection>);
        impl std::ops::Deref for Own<'_> {
            type Target = Connection;
            fn deref(&self) -> &Connection {
                &self.0.connection
            }
        }
        Own(self.writer.connection())
    }

    pub(crate) fn failure(&self) -> StoreFailure<'_> {
        StoreFailure { path: &self.path }
    }
}

/// Identifies the file by its inode alone, as SQLite does to detect a moved file. Must never open
/// the file: closing any descriptor of it would drop SQLite's locks.
fn file_identity(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|metadata| metadata.ino())
}

fn connect(path: &Path, failure: StoreFailure<'_>) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|error| failure.sql(&error))
}

fn prepare_connection(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait))?;
    connection.set_prepared_statement_cache_capacity(PREPARED_STATEMENTS);
    // Gives each statement one plan, whatever its values are. Otherwise SQLite plans it again for
    // new values.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.execute_batch(&format!(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA journal_size_limit = {MAX_LOG_BYTES};"
    ))
}

fn configure(
    mut connection: Connection,
    failure: StoreFailure<'_>,
) -> Result<Connection, StoreError> {
    let sql = |error: rusqlite::Error| failure.sql(&error);
    prepare_connection(&connection).map_err(sql)?;
    let current = MIGRATIONS.len();
    let found = version(&connection).map_err(sql)?;
    if found > current {
        return Err(StoreError::Newer {
            path: failure.path.to_owned(),
            found,
            known: current,
        });
    }
    if found < current {
        migrate(&mut connection, failure)?;
    }
    Ok(connection)
}

/// Waits for another process. SQLite's own busy handler retries more and more rarely, up to a tenth
/// of a second apart. It would starve, because it misses the short gaps that a busy writer leaves.
fn wait(tries: i32) -> bool {
    // The length of the pause varies, so that the retries do not fall into step with that writer.
    let pause = Duration::from_micros(500 + 250 * u64::from(tries.unsigned_abs() % 4));
    std::thread::sleep(pause);
    tries < BUSY_TRIES
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    // Interlock never writes a negative version; such a file counts as newer than every known one.
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

/// Takes a lock of its own, so that two first starts at the same time do not both create the
/// tables.
fn migrate(connection: &mut Connection, failure: StoreFailure<'_>) -> Result<(), StoreError> {
    let lock = lock_file(failure.path).map_err(|source| failure.io(&source))?;
    lock.lock().map_err(|source| failure.io(&source))?;
    connection
        .pragma_update(None, "journal_mode", "WAL")
        .map_err(|error| failure.sql(&error))?;
    match Migrations::from_slice(MIGRATIONS).to_latest(connection) {
        Ok(()) => Ok(()),
        Err(rusqlite_migration::Error::RusqliteError { err, .. }) => Err(failure.sql(&err)),
        Err(rusqlite_migration::Error::MigrationDefinition(
            rusqlite_migration::MigrationDefinitionError::DatabaseTooFarAhead,
        )) => {
            let found = version(connection).map_err(|error| failure.sql(&error))?;
            Err(StoreError::Newer {
                path: failure.path.to_owned(),
                found,
                known: MIGRATIONS.len(),
            })
        }
        Err(error) => Err(StoreError::Failed {
            path: failure.path.to_owned(),
            problem: error.to_string(),
        }),
    }
}

fn lock_file(database: &Path) -> io::Result<File> {
    let path = database.with_extension("db.lock");
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
}

/// Makes sure that the file exists with mode 0600.
///
/// The file itself is never opened here: closing any descriptor of it would drop the locks that
/// SQLite holds on it elsewhere in this process. A new file is made under another name and linked
/// to this path.
fn prepare_file(path: &Path, state_dir: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        )),
        Ok(metadata) if metadata.mode() & 0o077 != 0 => {
            std::fs::set_permissions(path, Permissions::from_mode(0o600))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let empty = tempfile::Builder::new()
                .prefix(".interlock-db-")
                .tempfile_in(state_dir)?
                .into_temp_path();
            match empty.persist_noclobber(path) {
                Ok(()) => Ok(()),
                // Another process created the file first, and that file serves as well.
                Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                Err(error) => Err(error.error),
            }
        }
        Err(error) => Err(error),
    }
}
