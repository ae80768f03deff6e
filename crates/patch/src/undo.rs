//! Takes a patch back, or removes what it kept aside. Used when a patch fails and by recovery.
//!
//! Both may be interrupted and started again: each step looks at what is there and does only what
//! is still missing. A file that another process changed in the meantime is never overwritten or
//! removed.

use std::ffi::OsStr;
use std::io;
use std::rc::Rc;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use serde::Serialize;

use crate::commit::{CommitStep, Observer, move_to_free_name};
use crate::found::{self, FoundEntry};
use crate::journal::{Digest, JournalRecord, RecordedChange};
use crate::tree::{Directory, DirectoryTree, ResolveError};

/// A file that could not be restored without loss, because it was changed after the patch was
/// interrupted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conflict {
    /// The file, left as it is.
    pub path: String,
    /// The file that holds the version from before the patch, if there was one.
    pub kept: Option<String>,
}

/// Brings every file back to its old state, then writes that to disk.
pub(crate) fn undo(
    record: &JournalRecord,
    tree: &mut DirectoryTree,
    observer: &Observer<'_>,
) -> io::Result<Vec<Conflict>> {
    let mut conflicts = Vec::new();
    let mut devices: Vec<Rc<Directory>> = Vec::new();
    for (index, change) in record.changes.iter().enumerate().rev() {
        let Some(directory) = directory(tree, change)? else {
            continue;
        };
        let undo = Undo {
            record,
            index,
            change,
            directory: &directory,
        };
        conflicts.extend(undo.run()?);
        if devices
            .iter()
            .all(|known| known.device() != directory.device())
        {
            devices.push(directory);
        }
        observer(CommitStep::Undone)?;
    }
    for path in record.directories.iter().rev() {
        let (Some(parent), Some(name)) = (path.0.parent(), path.0.file_name()) else {
            continue;
        };
        match tree.directory(parent) {
            // The directory is not empty any more: another process uses it.
            Ok(parent) => ignore(
                rustix::fs::unlinkat(&*parent, name, AtFlags::REMOVEDIR),
                &[Errno::NOENT, Errno::NOTEMPTY, Errno::EXIST, Errno::NOTDIR],
            )?,
            Err(ResolveError::Missing) => {}
            Err(error) => return Err(io::Error::other(error)),
        }
    }
    devices
        .iter()
        .try_for_each(|directory| directory.sync_file_system())?;
    Ok(conflicts)
}

/// Removes what was kept aside, after the patch was committed.
pub(crate) fn clean_up(
    record: &JournalRecord,
    tree: &mut DirectoryTree,
    observer: &Observer<'_>,
) -> io::Result<()> {
    for (index, change) in record.changes.iter().enumerate() {
        let Some(directory) = directory(tree, change)? else {
            continue;
        };
        if change.new.is_some() {
            unlink(&directory, record.new_name(index).as_ref())?;
        }
        if change.old.is_some() {
            unlink(&directory, record.old_name(index).as_ref())?;
        }
        observer(CommitStep::Cleaned)?;
    }
    Ok(())
}

/// The directory of a change; `None` when it is gone, and everything in it.
fn directory(
    tree: &mut DirectoryTree,
    change: &RecordedChange,
) -> io::Result<Option<Rc<Directory>>> {
    match tree.directory(&change.directory.0) {
        Ok(directory) => Ok(Some(directory)),
        Err(ResolveError::Missing) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

struct Undo<'a> {
    record: &'a JournalRecord,
    index: usize,
    change: &'a RecordedChange,
    directory: &'a Directory,
}

impl Undo<'_> {
    fn run(&self) -> io::Result<Option<Conflict>> {
        let new_name = self.record.new_name(self.index);
        let old_name = self.record.old_name(self.index);
        let (new_name, old_name) = (OsStr::new(&new_name), OsStr::new(&old_name));
        let new = found::find(self.directory, new_name)?;
        let old = found::find(self.directory, old_name)?;
        let here = found::find(self.directory, self.name())?;
        let conflict = match (&self.change.new, &self.change.old) {
            (Some(digest), None) => self.undo_create(digest, new, here)?,
            (_, Some(_)) if old.is_some() => self.put_back(old_name, here)?,
            (Some(digest), Some(_)) => self.undo_replace(digest, new_name, new, here)?,
            (None, _) => None,
        };
        let keeps_new = conflict
            .as_ref()
            .is_some_and(|conflict| conflict.kept == Some(self.shown(new_name)));
        if self.change.new.is_some() && !keeps_new {
            unlink(self.directory, new_name)?;
        }
        Ok(conflict)
    }

    fn name(&self) -> &OsStr {
        self.change.name.0.as_os_str()
    }

    fn shown(&self, name: &OsStr) -> String {
        self.record
            .base
            .0
            .join(&self.change.directory.0)
            .join(name)
            .display()
            .to_string()
    }

    fn conflict(&self, kept: Option<&OsStr>) -> Conflict {
        Conflict {
            path: self.shown(self.name()),
            kept: kept.map(|name| self.shown(name)),
        }
    }

    /// Whether the file under `name` has exactly the content that the patch wrote.
    fn is_ours(&self, digest: &Digest, name: &OsStr) -> io::Result<bool> {
        match found::open(self.directory, name) {
            Ok(file) => Ok(file.metadata()?.is_file() && digest.matches(file)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            // A link or something that cannot be read: not what the patch wrote.
            Err(_) => Ok(false),
        }
    }

    fn undo_create(
        &self,
        digest: &Digest,
        new: Option<FoundEntry>,
        here: Option<FoundEntry>,
    ) -> io::Result<Option<Conflict>> {
        let Some(here) = here else { return Ok(None) };
        // Where hard links are missing, the hidden name is gone once the file is in place.
        let put_by_us = new.is_none_or(|new| new.identity.inode == here.identity.inode);
        if !put_by_us {
            return Ok(None);
        }
        if self.is_ours(digest, self.name())? {
            unlink(self.directory, self.name())?;
            return Ok(None);
        }
        Ok(new.map(|_| self.conflict(None)))
    }

    /// The old version is still in place, or it was exchanged and has the hidden name of the new
    /// one.
    fn undo_replace(
        &self,
        digest: &Digest,
        new_name: &OsStr,
        new: Option<FoundEntry>,
        here: Option<FoundEntry>,
    ) -> io::Result<Option<Conflict>> {
        let Some(new) = new else { return Ok(None) };
        let expected = self.change.old;
        if here.is_some_and(|here| Some(here.identity) == expected) {
            return Ok(None);
        }
        let exchanged = Some(new.identity) == expected;
        if !exchanged && self.is_ours(digest, new_name)? {
            return Ok(None);
        }
        if here.is_some() && !self.is_ours(digest, self.name())? {
            return Ok(Some(self.conflict(Some(new_name))));
        }
        rustix::fs::renameat(self.directory, new_name, self.directory, self.name())?;
        Ok(None)
    }

    /// The old version was moved aside.
    fn put_back(&self, old_name: &OsStr, here: Option<FoundEntry>) -> io::Result<Option<Conflict>> {
        if let (Some(_), Some(digest)) = (here, &self.change.new)
            && self.is_ours(digest, self.name())?
        {
            rustix::fs::renameat(self.directory, old_name, self.directory, self.name())?;
            return Ok(None);
        }
        let back = move_to_free_name(self.directory, old_name, self.name())?;
        Ok((!back).then(|| self.conflict(Some(old_name))))
    }
}

fn unlink(directory: &Directory, name: &OsStr) -> io::Result<()> {
    ignore(
        rustix::fs::unlinkat(directory, name, AtFlags::empty()),
        &[Errno::NOENT],
    )
}

fn ignore(result: Result<(), Errno>, harmless: &[Errno]) -> io::Result<()> {
    match result {
        Err(error) if !harmless.contains(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
