//! The result of planning: what is done to which file.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::found::{Attributes, FileIdentity};
use crate::summary::PatchSummary;

/// The changes of a patch, and their summary.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Directories that must be created, parents first, relative to the base of the tree.
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) changes: Vec<PlannedChange>,
    pub(crate) summary: PatchSummary,
}

#[derive(Debug)]
pub(crate) struct PlannedChange {
    pub(crate) place: TreePlace,
    /// The name of the file in messages.
    pub(crate) shown: String,
    /// The SHA-256 of the content from which the change was computed.
    pub(crate) hash: Option<String>,
    pub(crate) action: ChangeAction,
}

/// A name in a directory. The directory is relative to the base of the tree.
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
    /// The file whose mode, owner and attributes the new file gets.
    pub(crate) like: Option<(TreePlace, Attributes)>,
}
