//! Summarizes what a patch did, or would do.

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::found::FoundKind;
use crate::journal::hexadecimal;
use crate::plan::{Now, TouchedName};

/// The files of a patch by their outcome, each once. Files that end as they began are `unchanged`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PatchSummary {
    pub added: Vec<FileSummary>,
    pub modified: Vec<FileSummary>,
    pub deleted: Vec<FileSummary>,
    pub moved: Vec<MoveSummary>,
    pub unchanged: Vec<String>,
}

/// A file, relative to the workspace if it is inside, and how many lines were added and removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileSummary {
    pub path: String,
    pub lines_added: usize,
    pub lines_removed: usize,
    #[serde(skip)]
    pub hashes: Hashes,
}

/// A file with a new name, possibly also changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MoveSummary {
    pub from: String,
    pub to: String,
    pub lines_added: usize,
    pub lines_removed: usize,
    #[serde(skip)]
    pub hashes: Hashes,
}

/// The SHA-256 of a file's content, in hexadecimal, for records. `None` if there is no content, or
/// if it could not be read: a link, or a file that is only deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hashes {
    pub before: Option<String>,
    pub after: Option<String>,
}

impl PatchSummary {
    /// Whether no file changes at all.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty()
            && self.modified.is_empty()
            && self.deleted.is_empty()
            && self.moved.is_empty()
    }

    pub(crate) fn of(entries: &[TouchedName]) -> Self {
        let mut summary = Self::default();
        for entry in entries {
            let file = FileSummary {
                path: entry.shown.clone(),
                lines_added: entry.added,
                lines_removed: entry.removed,
                hashes: Hashes {
                    before: entry.hash.clone(),
                    after: match &entry.now {
                        Now::File(bytes) => Some(sha256(bytes)),
                        Now::AsFound | Now::Absent => None,
                    },
                },
            };
            let origin = entry
                .moved_from
                .map(|index| &entries[index])
                .filter(|origin| origin.found.is_some());
            match (&entry.now, &entry.found, origin) {
                (Now::File(_), _, Some(origin)) => summary.moved.push(MoveSummary {
                    from: origin.shown.clone(),
                    to: file.path,
                    lines_added: file.lines_added,
                    lines_removed: file.lines_removed,
                    hashes: Hashes {
                        before: origin.hash.clone(),
                        ..file.hashes
                    },
                }),
                (Now::File(_), None, None) => summary.added.push(file),
                (Now::File(_), Some(_), None) => summary.modified.push(file),
                (Now::Absent, Some(_), _) if !entry.moved_away => summary.deleted.push(file),
                (Now::AsFound, Some(found), _) if found.kind == FoundKind::File => {
                    summary.unchanged.push(file.path);
                }
                _ => {}
            }
        }
        summary
    }
}

/// Prints one file per line, with a letter for its outcome.
impl std::fmt::Display for PatchSummary {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_empty() {
            return out.write_str("Success. No file was changed.");
        }
        out.write_str("Success. Updated the following files:")?;
        let files = [
            ("A", &self.added),
            ("M", &self.modified),
            ("D", &self.deleted),
        ];
        for (letter, files) in files {
            for file in files {
                write!(out, "\n{letter} {}", file.path)?;
            }
        }
        for moved in &self.moved {
            write!(out, "\nR {} -> {}", moved.from, moved.to)?;
        }
        Ok(())
    }
}

/// Returns a hash as in [`Hashes`].
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}
