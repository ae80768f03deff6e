//! The effect of a run: what it changed in a layer over the workspace, path by path, compared with
//! the workspace as it is now. This module changes nothing.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::changes::TreePlace;
use crate::effect_error::EffectError;
use crate::effect_scan::root_drift;
use crate::found::{self, FileIdentity, FoundEntry};
use crate::journal::hexadecimal;
use crate::layer::{self, LayerKind};
use crate::tree::{DirectoryTree, LinkScope};

/// The most paths in one commit, including those in new and removed directories.
pub const MAX_EFFECT_PATHS: usize = 20_000;
/// The most bytes of new content in one commit.
pub const MAX_EFFECT_BYTES: u64 = 1 << 30;

/// A layer, and the workspace beneath it.
#[derive(Debug, Clone)]
pub struct EffectSource {
    /// The upper directory of the overlay, with everything that the run changed.
    pub upper: PathBuf,
    /// A file that is created when the effect is committed, so that it is never committed again.
    pub committed: PathBuf,
    /// The workspace, by its canonical path, device and inode.
    pub root: PathBuf,
    pub device: u64,
    pub inode: u64,
    /// The clock of file times when the run started.
    pub started_ns: i64,
    /// How far that clock was ahead of the time since the system started.
    pub clock_ahead_ns: i64,
    /// The owner of new files, if it is not the user of this process.
    pub owner: Option<(u32, u32)>,
}

/// The changes of a run.
#[derive(Debug, Default)]
pub struct RunEffect {
    /// Every path, including those in new and removed directories, parents first.
    pub paths: Vec<EffectPath>,
    /// Pipes, sockets and devices, which are left out.
    pub skipped: Vec<String>,
    pub(crate) steps: Vec<EffectStep>,
    pub(crate) bytes: u64,
}

/// One path, as the workspace has it and as the run leaves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectPath {
    /// The path relative to the workspace.
    pub path: PathBuf,
    pub change: EffectChange,
    pub before: Option<EffectBefore>,
    pub after: Option<EffectAfter>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectChange {
    Created,
    Changed,
    Deleted,
    /// Only the permission bits of a directory changed.
    Mode,
}

impl EffectChange {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Deleted => "deleted",
            Self::Mode => "mode",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectKind {
    File,
    Directory,
    Link,
}

impl EffectKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Link => "link",
        }
    }
}

/// What exists under a name in the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectBefore {
    pub kind: EffectKind,
    pub device: u64,
    pub inode: u64,
    pub mode: u32,
    pub size: u64,
    pub modified_ns: i64,
    pub changed_ns: i64,
}

/// What the run leaves under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectAfter {
    pub kind: EffectKind,
    /// The permission bits. A link has none.
    pub mode: u32,
    pub size: u64,
    /// The hash of the content, or of a link's target. `None` for directories, and if hashes were
    /// not requested.
    pub sha256: Option<String>,
}

/// One operation of the commit.
#[derive(Debug)]
pub(crate) struct EffectStep {
    pub(crate) place: TreePlace,
    pub(crate) action: EffectAction,
}

#[derive(Debug)]
pub(crate) enum EffectAction {
    Create,
    Replace {
        old: FoundEntry,
        /// Whether the run changed the file itself, which then keeps its owner and attributes.
        in_place: bool,
    },
    Remove {
        old: FoundEntry,
    },
    SetMode {
        old: u32,
        new: u32,
    },
}

impl EffectStep {
    pub(crate) fn path(&self) -> PathBuf {
        self.place.directory.join(&self.place.name)
    }
}

/// Whether contents are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EffectHashes {
    /// Every file is hashed, because an approval binds the contents.
    All,
    None,
}

impl RunEffect {
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Returns how many paths have this kind of change.
    pub fn count(&self, change: EffectChange) -> usize {
        self.paths
            .iter()
            .filter(|path| path.change == change)
            .count()
    }

    /// Returns the SHA-256 of each path with its old identity and its new content, in hexadecimal.
    pub fn digest(&self, plan_digest: &str) -> String {
        let mut hash = Sha256::new();
        hash.update(b"interlock effect v1\0");
        let mut part = |bytes: &[u8]| {
            hash.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(bytes);
        };
        part(plan_digest.as_bytes());
        for path in &self.paths {
            part(path.path.as_os_str().as_bytes());
            part(path.change.as_str().as_bytes());
            part(format!("{:?}", path.before).as_bytes());
            part(format!("{:?}", path.after).as_bytes());
        }
        hexadecimal(&hash.finalize())
    }
}

impl EffectSource {
    /// Opens the workspace, without following links or entering other file systems.
    pub(crate) fn tree(&self) -> Result<DirectoryTree, EffectError> {
        DirectoryTree::open(&self.root, LinkScope::WithoutLinks).map_err(|_| root_drift())
    }

    /// Returns the bytes that the run leaves under a path, or the target of a link.
    pub fn read_after(&self, path: &EffectPath, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let kind = match path.after.as_ref().map(|after| after.kind) {
            Some(EffectKind::File) => LayerKind::File,
            Some(EffectKind::Link) => LayerKind::Link,
            Some(EffectKind::Directory) | None => return Ok(None),
        };
        layer::content(&self.upper.join(&path.path), kind, limit).map(Some)
    }

    /// Returns the bytes that the workspace has under a path, or the target of a link.
    pub fn read_before(&self, path: &EffectPath, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(before) = &path.before else {
            return Ok(None);
        };
        let mut tree = DirectoryTree::open(&self.root, LinkScope::WithoutLinks)?;
        let parent = path.path.parent().unwrap_or(Path::new(""));
        let directory = tree.directory(parent).map_err(io::Error::other)?;
        let name = path.path.file_name().unwrap_or_default();
        match before.kind {
            EffectKind::Directory => Ok(None),
            EffectKind::Link => {
                let target = found::link_target(&directory, name)?;
                Ok(Some(target.into_encoded_bytes()))
            }
            EffectKind::File => {
                use std::io::Read as _;
                let mut bytes = Vec::new();
                let file = found::open(&directory, name)?;
                file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
                if bytes.len() as u64 > limit {
                    return Err(io::ErrorKind::FileTooLarge.into());
                }
                Ok(Some(bytes))
            }
        }
    }
}

/// Returns the identity of what is replaced or removed.
impl EffectAction {
    pub(crate) fn old(&self) -> Option<FileIdentity> {
        match self {
            Self::Create | Self::SetMode { .. } => None,
            Self::Replace { old, .. } | Self::Remove { old } => Some(old.identity),
        }
    }
}
