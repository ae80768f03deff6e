//! What can go wrong with the database, with a stable code and a remedy.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::pending::ApprovalError;

/// The reason why the store could not be opened, read or written. A failed operation has written
/// nothing, except for [`StoreError::NotOnDisk`], where the result is unknown.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("exec approvals changed; reload and retry")]
    DocumentChanged {
        /// The hash of the document that is stored now, if there is one.
        current_hash: Option<String>,
    },
    #[error("no audit record wrote the approvals document: {problem}; nothing runs by it")]
    DocumentUnrecorded { problem: String },
    #[error("the approvals document is not valid JSON: {problem}")]
    DocumentInvalid { problem: String },
    #[error("the approvals document has {bytes} bytes; at most {most} are stored")]
    DocumentTooLarge { bytes: usize, most: usize },
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    #[error("the {what} has {bytes} bytes; at most {most} are stored")]
    InputTooLarge {
        what: &'static str,
        bytes: usize,
        most: usize,
    },
    #[error("the {what} is empty")]
    InputEmpty { what: &'static str },
    #[error("failed to get random bytes: {problem}")]
    Random { problem: String },
    #[error("failed to open database {}: {problem}", path.display())]
    Unreadable { path: PathBuf, problem: String },
    #[error("database {} is damaged or is not a database: {problem}", path.display())]
    Corrupt { path: PathBuf, problem: String },
    #[error("database {} has been locked by another process for too long", path.display())]
    Locked { path: PathBuf },
    #[error("failed to write database {}: the disk is full", path.display())]
    DiskFull { path: PathBuf },
    #[error(
        "failed to write database {}: the disk did not take it ({problem}); nothing is read or written until this program is started again",
        path.display()
    )]
    NotOnDisk { path: PathBuf, problem: String },
    #[error("failed to write database {}: it is read-only", path.display())]
    ReadOnly { path: PathBuf },
    #[error("database {} was removed or replaced while this program had it open", path.display())]
    Removed { path: PathBuf },
    #[error("database {} is of version {found}; this program knows versions up to {known}", path.display())]
    Newer {
        path: PathBuf,
        found: usize,
        known: usize,
    },
    #[error("database {} failed: {problem}", path.display())]
    Failed { path: PathBuf, problem: String },
}

impl StoreError {
    /// Returns a stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::DocumentChanged { .. } => "DOCUMENT_CHANGED",
            Self::DocumentUnrecorded { .. } => "DOCUMENT_UNRECORDED",
            Self::DocumentInvalid { .. } => "DOCUMENT_INVALID",
            Self::DocumentTooLarge { .. } => "DOCUMENT_TOO_LARGE",
            Self::Approval(error) => error.code(),
            Self::InputTooLarge { .. } => "INPUT_TOO_LARGE",
            Self::InputEmpty { .. } => "INPUT_EMPTY",
            Self::Random { .. } => "RANDOM_UNAVAILABLE",
            Self::Unreadable { .. } => "STORE_UNREADABLE",
            Self::Corrupt { .. } => "STORE_CORRUPT",
            Self::Locked { .. } => "STORE_LOCKED",
            Self::DiskFull { .. } => "STORE_DISK_FULL",
            Self::NotOnDisk { .. } => "STORE_NOT_ON_DISK",
            Self::ReadOnly { .. } => "STORE_READ_ONLY",
            Self::Removed { .. } => "STORE_REMOVED",
            Self::Newer { .. } => "STORE_NEWER",
            Self::Failed { .. } => "STORE_FAILED",
        }
    }

    /// Whether the database cannot be written for now, while nothing is wrong with the change. The
    /// same change may succeed later.
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Locked { .. }
                | Self::DiskFull { .. }
                | Self::ReadOnly { .. }
                | Self::Unreadable { .. }
        )
    }

    /// Returns what to do next.
    pub fn remedy(&self) -> String {
        let directory = |path: &Path| shell_word(path.parent().unwrap_or(path));
        match self {
            Self::DocumentChanged { .. } => {
                "read the document again, make the change anew, and save".to_owned()
            }
            Self::DocumentUnrecorded { .. } => {
                "see the difference, then record or restore it: interlock doctor".to_owned()
            }
            Self::DocumentInvalid { .. } => "correct the document and save again".to_owned(),
            Self::DocumentTooLarge { .. } => {
                "remove allowlist entries that are no longer used".to_owned()
            }
            Self::Approval(error) => error.remedy().to_owned(),
            Self::InputTooLarge { .. } => "shorten it and try again".to_owned(),
            Self::InputEmpty { .. } => "name it and try again".to_owned(),
            Self::Random { .. } => "try again; if it stays so, look at /dev/urandom".to_owned(),
            Self::Unreadable { path, .. } | Self::Failed { path, .. } => {
                format!(
                    "look at the state directory and at the space on its disk: ls -la {0}; df {0}",
                    directory(path)
                )
            }
            Self::Corrupt { path, .. } => format!(
                "keep it and start anew: mv {0} {0}.damaged; then restore the policy: interlock doctor --restore-document",
                shell_word(path)
            ),
            Self::Locked { .. } => {
                "try again; if it stays so, end the Interlock process that hangs".to_owned()
            }
            Self::DiskFull { path } => {
                format!("free some space and try again: df {}", directory(path))
            }
            Self::NotOnDisk { path, .. } => format!(
                "look at the disk, then start Interlock again: dmesg; df {}",
                directory(path)
            ),
            Self::ReadOnly { path } => format!(
                "make it writable: chmod u+w {0} {1}",
                directory(path),
                shell_word(path)
            ),
            Self::Removed { path } => format!(
                "nothing more can be decided in it; look at the state directory, then run the command again: ls -la {}",
                directory(path)
            ),
            Self::Newer { .. } => {
                "install the newer Interlock again, or use another state directory".to_owned()
            }
        }
    }
}

/// Converts the errors of lower layers into store errors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreFailure<'a> {
    pub(crate) path: &'a Path,
}

impl StoreFailure<'_> {
    pub(crate) fn sql(self, error: &rusqlite::Error) -> StoreError {
        let path = self.path.to_owned();
        let problem = error.to_string();
        // Only this crate writes rows. A row that it cannot read back was written by another
        // program.
        if let rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::IntegralValueOutOfRange(..) = error
        {
            return StoreError::Corrupt { path, problem };
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                StoreError::Corrupt { path, problem }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                StoreError::Locked { path }
            }
            Some(ErrorCode::DiskFull) => StoreError::DiskFull { path },
            // SQLite reports a full disk this way if it cannot enlarge its shared memory.
            Some(ErrorCode::SystemIoFailure) if is_disk_full(&path) => {
                StoreError::DiskFull { path }
            }
            Some(ErrorCode::ReadOnly) => StoreError::ReadOnly { path },
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                StoreError::Unreadable { path, problem }
            }
            _ => StoreError::Failed { path, problem },
        }
    }

    pub(crate) fn not_on_disk(self, problem: &str) -> StoreError {
        StoreError::NotOnDisk {
            path: self.path.to_owned(),
            problem: problem.to_owned(),
        }
    }

    pub(crate) fn failed(self, problem: &str) -> StoreError {
        StoreError::Failed {
            path: self.path.to_owned(),
            problem: problem.to_owned(),
        }
    }

    pub(crate) fn io(self, source: &io::Error) -> StoreError {
        let path = self.path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                StoreError::DiskFull { path }
            }
            io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly { path },
            _ => StoreError::Unreadable {
                path,
                problem: source.to_string(),
            },
        }
    }
}

/// Whether the file system has no free block left for an ordinary user.
fn is_disk_full(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|system| system.f_bavail == 0)
}

/// Quotes the path as one shell word.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ',' | ':' | '@')
    };
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}
