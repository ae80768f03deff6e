//! The outcome of planning: what is done to which file.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::found::{Attributes, FileIdentity};
use crate::summary::PatchSummary;

/// The changes of a patch, and how to tell about them.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Directories that do not exist yet, parents first, relative to the base of the tree.
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) changes: Vec<PlannedChange>,
    pub(crate) summary: PatchSummary,
}

#[derive(Debug)]
pub(crate) struct PlannedChange {
    pub(crate) place: TreePlace,
    /// The name for messages.
    pub(crate) shown: String,
    /// SHA-256 of the content that was read to make the change.
    pub(crate) hash: Option<String>,
    pub(crate) action: ChangeAction,
}

/// A name in a directory; the directory is relative to the base of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreePlace {
    pub(crate) directory: PathBuf,
    pub(crate) name: OsString,
}

#[derive(Debug)]
pub(crate) enum ChangeAction {
    Create {
        content: NewContent,
    },
    Replace {
        content: NewContent,
        old: FileIdentity,
    },
    Remove {
        old: FileIdentity,
    },
}

#[derive(Debug)]
pub(crate) struct NewContent {
    pub(crate) bytes: Vec<u8>,
    /// The file whose mode, owner and attributes the new one takes.
    pub(crate) like: Option<(TreePlace, Attributes)>,
}
