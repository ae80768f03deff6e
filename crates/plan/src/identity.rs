//! The identity of pinned files, and the check that they are unchanged.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

use interlock_programs::Executable;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::account::AccountError;
use crate::known::{
    HashLimitReached, Writers, is_young, known_content, read_sha256, times_tell_at,
};

/// A file in its state when the plan was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PinnedFile {
    /// The path by which the file was found.
    pub found: String,
    pub canonical: String,
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    /// The hash of the content, if the running user could change the file.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sha256: Option<String>,
}

/// The part of a plan that is no longer as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Drift {
    #[error("{0} is gone")]
    Gone(String),
    #[error("{path} cannot be read: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("{0} is another file now")]
    Replaced(String),
    #[error("{0} was changed")]
    Changed(String),
    #[error(
        "{0} cannot be bound: it is larger than 1 GiB, or reading it takes longer than 5 s; use a smaller program, or a sandbox"
    )]
    TooLarge(String),
    #[error("{0} is there now, and would be used instead")]
    Appeared(String),
    #[error("{path} leads to {now} now, not to {before}")]
    Moved {
        path: String,
        before: String,
        now: String,
    },
}

impl Drift {
    pub(crate) fn of(path: &str, error: &io::Error) -> Self {
        match error.kind() {
            _ if HashLimitReached::is_cause_of(error) => Self::TooLarge(path.to_owned()),
            io::ErrorKind::NotFound => Self::Gone(path.to_owned()),
            _ => Self::Unreadable {
                path: path.to_owned(),
                reason: error.to_string(),
            },
        }
    }
}

impl From<AccountError> for Drift {
    fn from(error: AccountError) -> Self {
        Self::Unreadable {
            path: "the run's files".to_owned(),
            reason: error.to_string(),
        }
    }
}

impl PinnedFile {
    /// Pins a resolved file in its present state.
    pub fn of(executable: &Executable) -> Result<Self, Drift> {
        let path = executable.canonical.as_str();
        let file = open_regular(path).map_err(|error| Drift::of(path, &error));
        let (metadata, sha256) = match file {
            Ok(file) => {
                let metadata = file.metadata().map_err(|error| Drift::of(path, &error))?;
                let sha256 = if executable.mutable {
                    let known = known_content(&file, Writers::Possible);
                    Some(known.map_err(|error| Drift::of(path, &error))?.sha256)
                } else {
                    None
                };
                (metadata, sha256)
            }
            // The file is executable but not readable, so only its identity can be pinned.
            Err(Drift::Unreadable { .. }) if !executable.mutable => {
                let metadata = std::fs::metadata(path).map_err(|error| Drift::of(path, &error))?;
                (metadata, None)
            }
            Err(drift) => return Err(drift),
        };
        Ok(Self::new(executable, &metadata, sha256))
    }

    fn new(executable: &Executable, metadata: &Metadata, sha256: Option<String>) -> Self {
        Self {
            found: executable.found.clone(),
            canonical: executable.canonical.clone(),
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            mtime_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            ctime_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            sha256,
        }
    }

    /// Pins a file by its content, which is always read, even if only root could change it.
    pub fn with_content(executable: &Executable) -> Result<Self, Drift> {
        let path = executable.canonical.as_str();
        let drift = |error: io::Error| Drift::of(path, &error);
        let file = open_regular(path).map_err(drift)?;
        // The metadata is read first: a write during the reading of the content does not match
        // these times.
        let metadata = file.metadata().map_err(drift)?;
        let sha256 = read_sha256(&file).map_err(drift)?;
        Ok(Self::new(executable, &metadata, Some(sha256)))
    }

    /// Checks that the found path still leads to the same file with the same content.
    pub fn check(&self) -> Result<(), Drift> {
        self.check_marks()?;
        let path = self.canonical.as_str();
        if let Some(before) = &self.sha256 {
            let file = open_regular(path).map_err(|error| Drift::of(path, &error))?;
            self.check_metadata(&file.metadata().map_err(|error| Drift::of(path, &error))?)?;
            let now = read_sha256(&file).map_err(|error| Drift::of(path, &error))?;
            if now != *before {
                return Err(Drift::Changed(self.canonical.clone()));
            }
        }
        Ok(())
    }

    /// Like [`Self::check`], but reads the content only if the times might not reveal a change.
    pub fn check_again(&self) -> Result<(), Drift> {
        let path = self.canonical.as_str();
        let tells = !is_young(self.ctime_ns)
            && times_tell_at(path).map_err(|error| Drift::of(path, &error))?;
        if tells {
            self.check_marks()
        } else {
            self.check()
        }
    }

    /// Checks that the found path still leads to the same file with the same size and times.
    pub fn check_marks(&self) -> Result<(), Drift> {
        let now =
            std::fs::canonicalize(&self.found).map_err(|error| Drift::of(&self.found, &error))?;
        if now.to_str() != Some(self.canonical.as_str()) {
            return Err(Drift::Moved {
                path: self.found.clone(),
                before: self.canonical.clone(),
                now: now.display().to_string(),
            });
        }
        let path = self.canonical.as_str();
        let metadata = std::fs::metadata(path).map_err(|error| Drift::of(path, &error))?;
        self.check_metadata(&metadata)
    }

    /// Checks an opened file, so that it cannot be replaced between the check and its use.
    pub fn check_metadata(&self, metadata: &Metadata) -> Result<(), Drift> {
        if (metadata.dev(), metadata.ino()) != (self.device, self.inode) {
            return Err(Drift::Replaced(self.canonical.clone()));
        }
        let same = metadata.size() == self.size
            && nanoseconds(metadata.mtime(), metadata.mtime_nsec()) == self.mtime_ns
            && nanoseconds(metadata.ctime(), metadata.ctime_nsec()) == self.ctime_ns;
        if same {
            Ok(())
        } else {
            Err(Drift::Changed(self.canonical.clone()))
        }
    }
}

fn nanoseconds(seconds: i64, rest: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

/// Opens a regular file for reading. A FIFO or device in its place never blocks and is never read.
pub(crate) fn open_regular(path: &str) -> io::Result<File> {
    let flags =
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ))
    }
}

/// The hash of a regular file at a canonical path, if it can be read within the limits.
pub(crate) fn content_sha256(path: &str) -> Option<String> {
    let file = open_regular(path).ok()?;
    Some(known_content(&file, Writers::Possible).ok()?.sha256)
}

/// Bytes as hexadecimal: two lower-case digits each.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
