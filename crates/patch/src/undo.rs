//! Undoes a patch, or removes what it kept aside. A failing patch and recovery use this.
//!
//! Both may be interrupted and started again: each step checks the present state and does only what
//! remains. A file that another process changed meanwhile is never overwritten or removed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;
use serde::Serialize;

use crate::commit::{CommitStep, Observer, move_to_free_name};
use crate::effect_commit;
use crate::found::{self, FileIdentity, FoundEntry, FoundKind};
use crate::journal::{Digest, JournalRecord, RecordedChange, RecordedKind, StagedNodes};
use crate::tree::{Directory, DirectoryTree, ResolveError};

/// A file that could not be restored without loss, because it was changed after the patch was
/// interrupted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conflict {
    /// The file, which stays as it is.
    pub path: String,
    /// The file with the version from before the patch, if there was one.
    pub kept: Option<String>,
}

/// Restores the old state of every file, then syncs it to disk.
pub(crate) fn undo(
    record: &JournalRecord,
    staged: Option<&StagedNodes>,
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
        match change.kind {
            RecordedKind::Content => conflicts.extend(undo.run()?),
            RecordedKind::Node => {
                let node = staged.map(|staged| {
                    let identity = staged.nodes.get(index).copied().flatten();
                    (identity, staged.at_ns)
                });
                conflicts.extend(undo.node(node)?);
            }
            RecordedKind::Mode { old, new } => {
                // If the bits are different by now, another process set them, and they stay.
                effect_commit::set_mode(&directory, change.name.0.as_ref(), new, old)?;
            }
        }
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
            // The directory is no longer empty, so another process uses it.
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
        if change.kind == RecordedKind::Node {
            for name in [record.new_name(index), record.old_name(index)] {
                remove_tree(&directory, name.as_ref())?;
            }
        }
        if change.new.is_some() {
            unlink(&directory, record.new_name(index).as_ref())?;
        }
        if change.old.is_some() && change.kind == RecordedKind::Content {
            unlink(&directory, record.old_name(index).as_ref())?;
        }
        observer(CommitStep::Cleaned)?;
    }
    Ok(())
}

/// Returns the directory of a change, or `None` if it no longer exists.
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
            // A link, or something that cannot be read, is not what the patch wrote.
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
        // On file systems without hard links, the hidden name disappears when the file is put in
        // place.
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

    /// Undoes a replacement. The old version is still in place, or it was exchanged and has the
    /// hidden name of the new version.
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

    /// Undoes a node of an effect. Before the nodes were recorded, none of them was put in place.
    fn node(&self, staged: Option<(Option<FileIdentity>, i64)>) -> io::Result<Option<Conflict>> {
        let new_name = self.record.new_name(self.index);
        let old_name = self.record.old_name(self.index);
        let (new_name, old_name) = (OsStr::new(&new_name), OsStr::new(&old_name));
        let Some((staged, at_ns)) = staged else {
            remove_tree(self.directory, new_name)?;
            return Ok(None);
        };
        let here = found::find(self.directory, self.name())?;
        let aside = found::find(self.directory, new_name)?;
        let is_placed = match (here, staged) {
            (Some(here), Some(staged)) => here.identity.inode == staged.inode,
            _ => false,
        };
        if is_placed {
            // Changes that another process made to the node meanwhile are not discarded.
            let is_changed = here.map(|here| here.identity) != staged
                || here.is_some_and(|here| here.kind == FoundKind::Directory)
                    && latest_below(self.directory, self.name())? > at_ns;
            if is_changed {
                let kept = [new_name, old_name]
                    .into_iter()
                    .find(|name| matches!(found::find(self.directory, name), Ok(Some(_))));
                return Ok(Some(self.conflict(kept)));
            }
        }
        let is_exchanged = is_placed
            && aside.is_some_and(|aside| {
                self.change
                    .old
                    .is_some_and(|old| old.inode == aside.identity.inode)
            });
        if is_exchanged {
            rustix::fs::renameat_with(
                self.directory,
                new_name,
                self.directory,
                self.name(),
                RenameFlags::EXCHANGE,
            )?;
        } else if is_placed {
            rustix::fs::renameat(self.directory, self.name(), self.directory, new_name)?;
        }
        if found::find(self.directory, old_name)?.is_some()
            && !move_to_free_name(self.directory, old_name, self.name())?
        {
            return Ok(Some(self.conflict(Some(old_name))));
        }
        let left = found::find(self.directory, new_name)?;
        let is_staged = left
            .is_some_and(|left| staged.is_some_and(|staged| staged.inode == left.identity.inode));
        if is_staged {
            remove_tree(self.directory, new_name)?;
        } else if left.is_some() {
            // This is the old version, and another process put something in its place.
            return Ok(Some(self.conflict(Some(new_name))));
        }
        Ok(None)
    }

    /// Restores an old version that was moved aside.
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

/// Returns the latest change of anything below a directory, in nanoseconds.
pub(crate) fn latest_below(directory: impl AsFd, name: &OsStr) -> io::Result<i64> {
    let opened = open_directory(directory.as_fd(), name)?;
    let mut latest = i64::MIN;
    for name in names(&opened)? {
        let stat = match rustix::fs::statat(&opened, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        latest = latest.max(found::changed_ns(&stat));
        if FoundEntry::from(&stat).kind == FoundKind::Directory {
            latest = latest.max(latest_below(&opened, &name)?);
        }
    }
    Ok(latest)
}

/// Opens a directory under a name, without following links or entering other mounts.
fn open_directory(directory: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(directory, name, flags, Mode::empty(), how) {
        Err(Errno::NOSYS) => Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?),
        opened => Ok(opened?),
    }
}

fn names(directory: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Removes what exists under a name, with everything in it. No link is followed and no other mount
/// is entered.
pub(crate) fn remove_tree(directory: impl AsFd, name: &OsStr) -> io::Result<()> {
    let directory = directory.as_fd();
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let opened = open_directory(directory, name)?;
    // The owner may have removed the write permission of the directory.
    let _ = rustix::fs::fchmod(&opened, Mode::from_raw_mode(0o700));
    for name in names(&opened)? {
        remove_tree(&opened, &name)?;
    }
    ignore(
        rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR),
        &[Errno::NOENT],
    )
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
