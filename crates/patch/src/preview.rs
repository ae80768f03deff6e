//! Shows what a patch is about to do, file by file, so that it can be judged first.

use std::io::Read as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::changes::{ChangeAction, Plan, PlannedChange};
use crate::error::ApplyError;
use crate::found::{self, FileIdentity, FoundEntry, FoundKind};
use crate::plan::unresolved;
use crate::summary::sha256;
use crate::tree::{Directory, DirectoryTree};

/// One file as a patch finds it and leaves it. Two equal values mean that the same happens to the
/// same file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileChange {
    /// The absolute path. No directory in it is a link.
    pub path: PathBuf,
    /// The name in messages: relative to the workspace if the file is inside.
    pub shown: String,
    /// `None` if nothing has the name before the patch.
    pub before: Option<FileBefore>,
    /// `None` if nothing has the name after the patch.
    pub after: Option<FileAfter>,
}

/// The identity of a file that a patch replaces or removes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileBefore {
    pub device: u64,
    pub inode: u64,
    pub mode: u32,
    pub is_link: bool,
    /// The hash of the content, or of a link's target. `None` if the user may not read it.
    pub sha256: Option<String>,
}

/// The file that a patch writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FileAfter {
    pub sha256: String,
    /// The permission bits, if they are taken from another file. Otherwise the file gets those of a
    /// new file.
    pub mode: Option<u32>,
}

/// The changes of a patch, with the contents before and after.
#[derive(Debug)]
pub struct Preview<'a> {
    plan: &'a Plan,
    tree: &'a mut DirectoryTree,
    changes: Vec<FileChange>,
}

impl<'a> Preview<'a> {
    pub(crate) fn new(plan: &'a Plan, tree: &'a mut DirectoryTree) -> Result<Self, ApplyError> {
        let mut changes = Vec::with_capacity(plan.changes.len());
        for change in &plan.changes {
            changes.push(file_change(tree, change)?);
        }
        Ok(Self {
            plan,
            tree,
            changes,
        })
    }

    /// Returns the changes in the order in which they are made.
    pub fn changes(&self) -> &[FileChange] {
        &self.changes
    }

    /// Returns the bytes that the change with this index writes.
    pub fn after(&self, index: usize) -> Option<&[u8]> {
        match &self.plan.changes.get(index)?.action {
            ChangeAction::Create { content } | ChangeAction::Replace { content, .. } => {
                Some(&content.bytes)
            }
            ChangeAction::Remove { .. } => None,
        }
    }

    /// Returns the bytes that the change with this index replaces or removes, or the target of a
    /// link. At most `limit` bytes are read; a longer file is an error.
    pub fn before(&mut self, index: usize, limit: u64) -> Result<Option<Vec<u8>>, ApplyError> {
        let (Some(change), Some(file)) = (self.plan.changes.get(index), self.changes.get(index))
        else {
            return Ok(None);
        };
        let Some(before) = &file.before else {
            return Ok(None);
        };
        let fail = |error| ApplyError::io(&change.shown, "read", error);
        let directory = self
            .tree
            .directory(&change.place.directory)
            .map_err(|error| unresolved(&change.shown, error))?;
        let bytes = if before.is_link {
            let target = found::link_target(&directory, &change.place.name).map_err(fail)?;
            target.into_encoded_bytes()
        } else {
            let mut bytes = Vec::new();
            let file = found::open(&directory, &change.place.name).map_err(fail)?;
            let limit = limit.saturating_add(1);
            file.take(limit).read_to_end(&mut bytes).map_err(fail)?;
            bytes
        };
        if bytes.len() as u64 > limit {
            return Err(ApplyError::TooLarge {
                what: format!("`{}`", change.shown),
                limit: format!("{limit} bytes can be shown"),
            });
        }
        if before.sha256.as_deref() != Some(sha256(&bytes).as_str()) {
            return Err(ApplyError::Changed {
                path: change.shown.clone(),
            });
        }
        Ok(Some(bytes))
    }
}

fn file_change(tree: &mut DirectoryTree, change: &PlannedChange) -> Result<FileChange, ApplyError> {
    let shown = &change.shown;
    let (directory, _, missing) = tree
        .deepest(&change.place.directory)
        .map_err(|error| unresolved(shown, error))?;
    let fail = |error| ApplyError::io(shown, "look at", error);
    let real = directory.real_path().map_err(fail)?;
    let real = real.ok_or_else(|| ApplyError::Changed {
        path: shown.clone(),
    })?;
    let name = &change.place.name;
    let old = match &change.action {
        ChangeAction::Create { .. } => None,
        ChangeAction::Replace { old, .. } | ChangeAction::Remove { old } => Some(old),
    };
    let changed = || ApplyError::Changed {
        path: shown.clone(),
    };
    let before = match old {
        None => None,
        Some(identity) => {
            let found = found::find(&directory, name).map_err(fail)?;
            let found = found
                .filter(|found| found.identity == *identity)
                .ok_or_else(changed)?;
            let hash = hash_of(&directory, change, &found, identity);
            Some(FileBefore {
                device: found.device,
                inode: found.identity.inode,
                mode: found.attributes.mode,
                is_link: found.kind == FoundKind::Link,
                sha256: hash,
            })
        }
    };
    let after = match &change.action {
        ChangeAction::Create { content } | ChangeAction::Replace { content, .. } => {
            Some(FileAfter {
                sha256: sha256(&content.bytes),
                mode: content
                    .like
                    .as_ref()
                    .map(|(_, attributes)| attributes.mode & 0o1777),
            })
        }
        ChangeAction::Remove { .. } => None,
    };
    Ok(FileChange {
        path: real.join(missing).join(name),
        shown: shown.clone(),
        before,
        after,
    })
}

/// Returns the plan's hash of the content, or else the hash of what exists.
fn hash_of(
    directory: &Directory,
    change: &PlannedChange,
    found: &FoundEntry,
    identity: &FileIdentity,
) -> Option<String> {
    if found.kind == FoundKind::Link {
        let target = found::link_target(directory, &change.place.name).ok()?;
        return Some(sha256(target.as_encoded_bytes()));
    }
    if let Some(hash) = &change.hash {
        return Some(hash.clone());
    }
    let (_, hash) = found::count_lines(directory, &change.place.name, found.kind);
    let again = found::find(directory, &change.place.name).ok()??;
    hash.filter(|_| again.identity == *identity)
}
