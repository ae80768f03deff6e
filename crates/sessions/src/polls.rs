//! The cursors of all pollers, in the session's directory. After a restart no poller reads anything
//! twice, and concurrent polls lose nothing.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use interlock_transcript::{
    Cursor, DEFAULT_POLL_CHARS, Polls, ShownOutput, TranscriptError, TranscriptReader,
    TranscriptStatus,
};
use rustix::fs::FlockOperation;

use super::ProcessError;

/// Where this reader's last poll ended.
pub(super) fn cursor(directory: &Path, reader: &str) -> Result<Cursor, ProcessError> {
    Ok(read(directory)?.cursor(reader))
}

/// Returns the output that is new to this reader, and moves its cursor behind it.
pub(super) fn poll(
    directory: &Path,
    reader: &str,
    spool: &TranscriptReader,
) -> Result<(ShownOutput, Cursor, TranscriptStatus), ProcessError> {
    // The cursor file itself cannot be the lock, because each write replaces it.
    let lock = directory.join("polls.lock");
    let lock = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(&lock)
        .map_err(failed("open", &lock))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)
        .map_err(|error| failed("lock", directory)(error.into()))?;
    let mut polls = read(directory)?;
    let before = polls.cursor(reader);
    let polled = polls.poll(reader, spool, DEFAULT_POLL_CHARS)?;
    let after = polls.cursor(reader);
    if after != before {
        write(directory, &polls)?;
    }
    Ok((polled.shown, after, polled.status))
}

/// Reads the cursors. Unreadable cursors count as absent: every poller then reads from the start.
fn read(directory: &Path) -> Result<Polls, ProcessError> {
    let path = path(directory);
    match fs::read(&path) {
        Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Polls::default()),
        Err(error) => Err(failed("read", &path)(error)),
    }
}

fn write(directory: &Path, polls: &Polls) -> Result<(), ProcessError> {
    let path = path(directory);
    let new = directory.join("polls.new");
    let written = serde_json::to_vec(polls)
        .map_err(io::Error::from)
        .and_then(|text| {
            OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&new)?
                .write_all(&text)
        })
        .and_then(|()| fs::rename(&new, &path));
    written.map_err(failed("write", &path))
}

fn path(directory: &Path) -> PathBuf {
    directory.join("polls.json")
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ProcessError {
    let path = path.to_path_buf();
    move |source| {
        TranscriptError::File {
            action,
            path,
            source,
        }
        .into()
    }
}
