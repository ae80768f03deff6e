//! The state or outcome of a session, in `status.json`.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::TranscriptError;
use super::segment::create_private;
use crate::session_record::SessionRecord;

/// The outcome of the session's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase", deny_unknown_fields)]
pub enum SessionOutcome {
    Running,
    Exited {
        code: i32,
    },
    Signalled {
        signal: i32,
    },
    /// Ended because its time limit was reached.
    TimedOut {
        signal: Option<i32>,
    },
    /// The end was not observed.
    Lost,
}

impl SessionOutcome {
    pub fn is_final(self) -> bool {
        self != Self::Running
    }
}

/// The totals of a transcript: `bytes` = kept bytes + `dropped_bytes` + `lost_bytes`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Totals {
    /// Everything the session wrote.
    pub bytes: u64,
    /// The number of newlines in these bytes.
    pub lines: u64,
    /// Bytes that the rolling tail dropped to stay within the quota.
    pub dropped_bytes: u64,
    /// Bytes that could not be written: full disk, unwritable transcript.
    pub lost_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TranscriptStatus {
    pub outcome: SessionOutcome,
    pub started_ms: u64,
    pub ended_ms: Option<u64>,
    /// As of the last write of this file. Exact once the outcome is final.
    pub totals: Totals,
    /// The session of the transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionRecord>,
}

impl TranscriptStatus {
    pub fn path(dir: &Path) -> PathBuf {
        dir.join("status.json")
    }

    pub fn read(dir: &Path) -> Result<Self, TranscriptError> {
        let path = Self::path(dir);
        let text = fs::read(&path).map_err(TranscriptError::file("read", &path))?;
        serde_json::from_slice(&text).map_err(|error| TranscriptError::Damaged {
            path,
            reason: error.to_string(),
        })
    }

    /// Writes the status by rename: a reader sees either the old status or the new one. The next
    /// supervisor also uses this to mark a session whose end was not observed. Without room for a
    /// second file, the old one is overwritten.
    pub fn write(&self, dir: &Path) -> Result<(), TranscriptError> {
        let path = Self::path(dir);
        let attempt = || {
            let text = serde_json::to_vec(self)?;
            let new = dir.join("status.new");
            let _ = fs::remove_file(&new);
            let written = create_private(&new)
                .and_then(|mut file| file.write_all(&text))
                .and_then(|()| fs::rename(&new, &path));
            if written.is_err() {
                let _ = fs::remove_file(&new);
            }
            written
        };
        attempt()
            .or_else(|error| {
                if is_full(&error) && fs::remove_file(reserve(dir)).is_ok() {
                    return attempt();
                }
                Err(error)
            })
            .or_else(|error| {
                if is_full(&error) && self.write_over(&path).is_ok() {
                    return Ok(());
                }
                Err(error)
            })
            .map_err(TranscriptError::file("write", &path))
    }

    /// Overwrites the file in one write, and only if the text fits into the file's present blocks
    /// on disk. Spaces fill up the length of a longer old text, so that a reader finds one whole
    /// text.
    fn write_over(&self, path: &Path) -> io::Result<()> {
        let file = fs::OpenOptions::new().write(true).open(path)?;
        let metadata = file.metadata()?;
        let mut text = serde_json::to_vec(self)?;
        let old_length = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
        if text.len() as u64 > metadata.blocks() * 512 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        text.resize(text.len().max(old_length), b' ');
        file.write_all_at(&text, 0)
    }
}

/// Creates the block that is released when the status finds no room. A failure is ignored.
pub(super) fn hold_reserve(dir: &Path) {
    if let Ok(mut file) = create_private(&reserve(dir)) {
        let _ = file.write_all(&[0; 4096]);
    }
}

pub(super) fn release_reserve(dir: &Path) {
    let _ = fs::remove_file(reserve(dir));
}

fn reserve(dir: &Path) -> PathBuf {
    dir.join("reserve")
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
