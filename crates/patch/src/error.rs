//! Why a patch was not applied. Each error has a stable code and a hint.

use std::io;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::nearest::Nearest;
use crate::undo::Conflict;

/// A refused or failed patch. No file has changed, except for [`ApplyError::Conflict`] and
/// [`ApplyError::RecoveryNeeded`].
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(
        "hunk {hunk} of `{path}` does not match: patch line {patch_line} expects `{expected}`{}",
        nearest_text(nearest.as_ref())
    )]
    ContextMismatch {
        path: String,
        hunk: usize,
        patch_line: usize,
        expected: String,
        nearest: Option<Nearest>,
    },
    #[error("`{path}` is outside of the workspace: {reason}")]
    OutsideWorkspace { path: String, reason: &'static str },
    #[error("`{path}` is {kind}, which a patch does not change")]
    Link { path: String, kind: &'static str },
    #[error("`{path}` exists already")]
    Exists { path: String },
    #[error("`{path}` does not exist")]
    NotFound { path: String },
    #[error("`{path}` is not a regular file: {reason}")]
    NotAFile { path: String, reason: &'static str },
    #[error("`{path}` belongs to Interlock, and no patch changes it")]
    Reserved { path: String },
    #[error("`{path}` was changed by another process while the patch was applied")]
    Changed { path: String },
    #[error("{what} is more than a patch may take: {limit}")]
    TooLarge { what: String, limit: String },
    #[error("no permission to {action} `{path}`")]
    Permission {
        path: String,
        action: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("failed to {action} `{path}`: {source}")]
    Io {
        path: String,
        action: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the journal directory `{path}` cannot be used: {reason}")]
    Journal { path: String, reason: String },
    #[error(
        "{reason}; undoing it left what others wrote meanwhile: {}",
        conflict_text(conflicts)
    )]
    Conflict {
        reason: String,
        conflicts: Vec<Conflict>,
    },
    #[error("an interrupted patch could be neither finished nor undone: {reason}")]
    RecoveryNeeded { reason: String },
}

impl ApplyError {
    /// Returns the stable name of the error.
    pub fn code(&self) -> &'static str {
        self.code_and_hint().0
    }

    /// Returns what the reader can do next.
    pub fn hint(&self) -> &'static str {
        self.code_and_hint().1
    }

    /// Returns the file that the error is about, as written in the patch if possible.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::ContextMismatch { path, .. }
            | Self::OutsideWorkspace { path, .. }
            | Self::Link { path, .. }
            | Self::Exists { path }
            | Self::NotFound { path }
            | Self::NotAFile { path, .. }
            | Self::Reserved { path }
            | Self::Changed { path }
            | Self::Permission { path, .. }
            | Self::Io { path, .. }
            | Self::Journal { path, .. } => Some(path),
            Self::TooLarge { .. } | Self::Conflict { .. } | Self::RecoveryNeeded { .. } => None,
        }
    }

    fn code_and_hint(&self) -> (&'static str, &'static str) {
        match self {
            Self::ContextMismatch { .. } => (
                "PATCH_CONTEXT_MISMATCH",
                "read the file again and copy the lines as they are",
            ),
            Self::OutsideWorkspace { .. } => (
                "PATCH_OUTSIDE_WORKSPACE",
                "name a file inside the workspace; the owner can lift the limit with tools.exec.applyPatch.workspaceOnly=false",
            ),
            Self::Link { .. } => ("PATCH_LINK", "name the file that the link stands for"),
            Self::Exists { .. } => (
                "PATCH_EXISTS",
                "use `*** Update File:`, or delete the file earlier in the same patch",
            ),
            Self::NotFound { .. } => (
                "PATCH_NOT_FOUND",
                "check the path; `*** Add File:` makes a new file",
            ),
            Self::NotAFile { .. } => ("PATCH_NOT_A_FILE", "only regular files can be patched"),
            Self::Reserved { .. } => (
                "PATCH_RESERVED",
                "the owner changes these files with `interlock config` or `interlock approvals`",
            ),
            Self::Changed { .. } => ("PATCH_CHANGED", "read the file again and retry"),
            Self::TooLarge { .. } => ("PATCH_TOO_LARGE", "split the patch"),
            Self::Permission { .. } => ("PATCH_PERMISSION", "ask the owner of the file"),
            Self::Io { .. } => ("PATCH_IO", "see the cause; nothing was changed"),
            Self::Journal { .. } => (
                "PATCH_JOURNAL",
                "give a directory that only the running user can write",
            ),
            Self::Conflict { .. } => (
                "PATCH_CONFLICT",
                "compare the files with the versions that were kept, then retry",
            ),
            Self::RecoveryNeeded { .. } => (
                "PATCH_RECOVERY_NEEDED",
                "remove the cause; the next start or patch tries again",
            ),
        }
    }

    /// Returns the error for a failed system call.
    pub(crate) fn io(
        path: impl Into<String>,
        action: &'static str,
        error: impl Into<io::Error>,
    ) -> Self {
        let (path, source) = (path.into(), error.into());
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::Permission {
                    path,
                    action,
                    source,
                }
            }
            _ => Self::Io {
                path,
                action,
                source,
            },
        }
    }
}

impl Serialize for ApplyError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(None)?;
        out.serialize_entry("code", self.code())?;
        out.serialize_entry("message", &self.to_string())?;
        out.serialize_entry("hint", self.hint())?;
        if let Some(path) = self.path() {
            out.serialize_entry("path", path)?;
        }
        if let Self::ContextMismatch {
            hunk,
            patch_line,
            expected,
            nearest,
            ..
        } = self
        {
            out.serialize_entry("hunk", hunk)?;
            out.serialize_entry("patchLine", patch_line)?;
            out.serialize_entry("expected", expected)?;
            out.serialize_entry("nearest", nearest)?;
        }
        if let Self::Conflict { conflicts, .. } = self {
            out.serialize_entry("conflicts", conflicts)?;
        }
        out.end()
    }
}

fn nearest_text(nearest: Option<&Nearest>) -> String {
    match nearest {
        Some(nearest) => {
            let note = nearest
                .note
                .map(|note| format!(" ({note})"))
                .unwrap_or_default();
            format!(
                "; the nearest match is line {}: `{}`{note}",
                nearest.line, nearest.text
            )
        }
        None => "; nothing in the file is similar".to_owned(),
    }
}

fn conflict_text(conflicts: &[Conflict]) -> String {
    let one = |conflict: &Conflict| match &conflict.kept {
        Some(kept) => format!("`{}` (its earlier version is `{kept}`)", conflict.path),
        None => format!("`{}`", conflict.path),
    };
    conflicts.iter().map(one).collect::<Vec<_>>().join(", ")
}
