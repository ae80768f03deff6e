//! Reads an OpenClaw state directory. Version 2026.5 keeps the approvals document in a JSON file,
//! version 2026.9 in a SQLite database. Nothing in the directory is changed: a database is read
//! from a copy.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use interlock_config::Json5Text;
use interlock_policy::Document;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use serde_json::Value;

use super::ImportedValue;

const CONFIG: &str = "openclaw.json";
const DOCUMENT: &str = "exec-approvals.json";
const DATABASE: &str = "state/openclaw.sqlite";

/// The longest text file that is read.
const MAX_TEXT_BYTES: u64 = 4 * 1024 * 1024;
/// The largest database that is copied.
const MAX_DATABASE_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// Where the approvals document was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentForm {
    Json,
    Sqlite,
}

impl DocumentForm {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Sqlite => "sqlite",
        }
    }
}

/// A state directory that was read.
#[derive(Debug, Clone)]
pub struct OpenClawState {
    /// The version of OpenClaw that the config names.
    pub version: Option<String>,
    pub form: Option<DocumentForm>,
    pub(super) config: Option<Value>,
    pub(super) document: Option<Document>,
    /// Parts that could not be read, and are reported as not imported.
    pub(super) problems: Vec<ImportedValue>,
}

/// Why nothing can be imported. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenClawStateError {
    #[error("{} is not a directory that can be read: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{} holds no state of OpenClaw: neither {CONFIG}, {DOCUMENT} nor {DATABASE} is there", path.display())]
    Empty { path: PathBuf },
    #[error("failed to read {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
}

impl OpenClawStateError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Directory { .. } | Self::Empty { .. } => "IMPORT_SOURCE_MISSING",
            Self::Unreadable { .. } => "IMPORT_UNREADABLE",
        }
    }

    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Directory { .. } | Self::Empty { .. } => {
                "name the state directory of OpenClaw with --from; usually it is ~/.openclaw"
            }
            Self::Unreadable { .. } => {
                "stop OpenClaw (openclaw gateway stop), have it check its state (openclaw doctor), and import again"
            }
        }
    }
}

impl OpenClawState {
    pub fn read(directory: &Path) -> Result<Self, OpenClawStateError> {
        let unusable = |source| OpenClawStateError::Directory {
            path: directory.to_owned(),
            source,
        };
        if !fs::metadata(directory).map_err(unusable)?.is_dir() {
            return Err(unusable(io::ErrorKind::NotADirectory.into()));
        }
        let mut problems = Vec::new();
        let config = read_json(&directory.join(CONFIG))?;
        let in_database = read_database(&directory.join(DATABASE))?;
        let in_file = read_json(&directory.join(DOCUMENT))?;
        if config.is_none() && in_database.is_none() && in_file.is_none() {
            return Err(OpenClawStateError::Empty {
                path: directory.to_owned(),
            });
        }
        let form = match (&in_database, &in_file) {
            (Some(_), file) => {
                if file.is_some() {
                    let what = "an older document; the one in the database is in force there";
                    problems.push(ImportedValue::new(DOCUMENT, what));
                }
                Some(DocumentForm::Sqlite)
            }
            (None, Some(_)) => Some(DocumentForm::Json),
            (None, None) => None,
        };
        let document = in_database.or(in_file);
        let document = document.and_then(|value| known_document(&value, &mut problems));
        let version = config.as_ref().and_then(|config| {
            let version = config.pointer("/meta/lastTouchedVersion")?;
            version.as_str().map(str::to_owned)
        });
        Ok(Self {
            version,
            form,
            config,
            document,
            problems,
        })
    }
}

/// The document without unknown parts, and without the secret of its socket.
fn known_document(value: &Value, problems: &mut Vec<ImportedValue>) -> Option<Document> {
    let mut value = value.clone();
    if let Some(object) = value.as_object_mut() {
        // The socket and its token belong to the other program.
        object.remove("socket");
    }
    let left = |problem: &interlock_policy::Problem| {
        ImportedValue::new(problem.path.clone(), problem.message.clone())
    };
    match Document::import(&value) {
        Ok((document, left_out)) => {
            problems.extend(left_out.iter().map(left));
            Some(document)
        }
        Err(refused) => {
            problems.extend(refused.iter().map(left));
            None
        }
    }
}

/// Reads a file. Returns `None` if it does not exist.
fn read_text(path: &Path) -> Result<Option<Vec<u8>>, OpenClawStateError> {
    let unreadable = |reason: String| OpenClawStateError::Unreadable {
        path: path.to_owned(),
        reason,
    };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error.to_string())),
        // Check before opening, because opening a pipe would wait for a writer.
        Ok(metadata) if !metadata.is_file() => {
            return Err(unreadable("it is not a regular file".to_owned()));
        }
        Ok(_) => {}
    }
    let mut text = Vec::new();
    let file = fs::File::open(path).map_err(|error| unreadable(error.to_string()))?;
    file.take(MAX_TEXT_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|error| unreadable(error.to_string()))?;
    Ok(Some(text))
}

fn parse(path: &Path, text: &[u8]) -> Result<Value, OpenClawStateError> {
    let name = path.display().to_string();
    let json5 = Json5Text::parse_bytes(&name, text).map_err(|problem| {
        // Report only the place and the kind of the mistake, because the text may contain secrets.
        OpenClawStateError::Unreadable {
            path: path.to_owned(),
            reason: problem.message,
        }
    })?;
    Ok(json5.value())
}

fn read_json(path: &Path) -> Result<Option<Value>, OpenClawStateError> {
    let text = read_text(path)?;
    text.map(|text| parse(path, &text)).transpose()
}

/// Reads the document from a copy of the database and of its write-ahead log.
fn read_database(path: &Path) -> Result<Option<Value>, OpenClawStateError> {
    let unreadable = |reason: String| OpenClawStateError::Unreadable {
        path: path.to_owned(),
        reason,
    };
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error.to_string())),
        Ok(metadata) => metadata,
    };
    if !metadata.is_file() || metadata.len() > MAX_DATABASE_BYTES {
        return Err(unreadable("it is not a database of usual size".to_owned()));
    }
    let copied = || -> io::Result<(tempfile::TempDir, PathBuf)> {
        let directory = tempfile::tempdir()?;
        let copy = directory.path().join("openclaw.sqlite");
        fs::copy(path, &copy)?;
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        match fs::copy(
            Path::new(&log),
            directory.path().join("openclaw.sqlite-wal"),
        ) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        Ok((directory, copy))
    };
    let (_directory, copy) = copied().map_err(|error| unreadable(error.to_string()))?;
    let text = query(&copy).map_err(|error| unreadable(error.to_string()))?;
    text.map(|text| parse(path, text.as_bytes())).transpose()
}

fn query(path: &Path) -> rusqlite::Result<Option<String>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(path, flags)?;
    let has_table: i64 = database.query_row(
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'exec_approvals_config'",
        [],
        |row| row.get(0),
    )?;
    if has_table == 0 {
        return Ok(None);
    }
    let current = "SELECT raw_json FROM exec_approvals_config WHERE length(raw_json) <= ?1
                   ORDER BY config_key = 'current' DESC, updated_at_ms DESC LIMIT 1";
    let most = i64::try_from(MAX_TEXT_BYTES).unwrap_or(i64::MAX);
    database
        .query_row(current, [most], |row| row.get(0))
        .optional()
}
