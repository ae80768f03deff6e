//! The outcome of planning: what is done to which file.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::found::{Attributes, Identity};
use crate::summary::Summary;

/// The changes of a patch, and how to tell about them.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Directories that do not exist yet, parents first, relative to the base of the tree.
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) changes: Vec<Change>,
    pub(crate) summary: Summary,
}

#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) place: Place,
    /// The name for messages.
    pub(crate) shown: String,
    /// SHA-256 of the content that was read to make the change.
    pub(crate) hash: Option<String>,
    pub(crate) action: Action,
}

/// A name in a directory; the directory is relative to the base of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) directory: PathBuf,
    pub(crate) name: OsString,
}

#[derive(Debug)]
pub(crate) enum Action {
    Create { content: Content },
    Replace { content: Content, old: Identity },
    Remove { old: Identity },
}

#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) bytes: Vec<u8>,
    /// The file whose mode, owner and attributes the new one takes.
    pub(crate) like: Option<(Place, Attributes)>,
}
