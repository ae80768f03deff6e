//! Carries out a plan so that, after a crash at any point, all files are old or, after recovery,
//! all files are new.
//!
//! 1. The journal is on disk before anything else is touched.
//! 2. New versions are written aside, in the directories where they belong.
//! 3. Each new version is put in place, and the old version is kept aside. Nothing is lost yet, so
//!    everything can be undone.
//! 4. Everything is synced. Then the commit mark is written to the journal: from here on the patch
//!    counts as applied.
//! 5. The old versions are removed, and then the journal.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::rc::Rc;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, XattrFlags};
use rustix::io::Errno;

use crate::changes::{ChangeAction, NewContent, Plan, PlannedChange};
use crate::error::ApplyError;
use crate::found::{self, FileIdentity};
use crate::journal::{CommitError, JournalDirectory, JournalRecord, WorkspaceKey};
use crate::plan::unresolved;
use crate::tree::{Directory, DirectoryTree};
use crate::undo;
use crate::workspace::Workspace;

/// A step of a commit, for tests that stop there.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitStep {
    JournalWritten,
    DirectoryMade,
    Staged,
    Swapped,
    Synced,
    Committed,
    Cleaned,
    Undone,
    JournalRemoved,
}

/// A function that is called at each step. If it returns an error, the patch stops as if the step
/// had failed.
#[doc(hidden)]
pub type Observer<'a> = dyn Fn(CommitStep) -> io::Result<()> + 'a;

/// Up to this many files are synced individually. With more files, the whole file system is synced
/// once.
const SYNCED_ONE_BY_ONE: usize = 4;

pub(crate) fn commit(
    journals: &JournalDirectory,
    key: &WorkspaceKey,
    workspace: &Workspace,
    tree: &mut DirectoryTree,
    plan: &Plan,
    observer: &Observer<'_>,
) -> Result<(), ApplyError> {
    let fail = |error| {
        ApplyError::io(
            workspace.root.display().to_string(),
            "write the journal for",
            error,
        )
    };
    let record = JournalRecord::new(workspace, plan).map_err(fail)?;
    let journal = journals.write(key, &record).map_err(fail)?;
    let mut work = CommitWork {
        tree,
        plan,
        record: &record,
        observer,
    };
    let outcome = observer(CommitStep::JournalWritten)
        .map_err(fail)
        .and_then(|()| work.carry_out());
    let outcome = outcome.and_then(|()| match journal.commit() {
        Ok(()) => Ok(()),
        Err(CommitError::Undecided(error)) => Err(fail(error)),
        Err(CommitError::Unknown(error)) => Err(ApplyError::RecoveryNeeded {
            reason: error.to_string(),
        }),
    });
    match outcome {
        Ok(()) => {
            // The patch is applied. If cleaning up fails, the journal stays, and the next recovery
            // cleans up.
            let _ = observer(CommitStep::Committed)
                .and_then(|()| undo::clean_up(&record, work.tree, observer))
                .and_then(|()| journal.remove())
                .and_then(|()| observer(CommitStep::JournalRemoved));
            Ok(())
        }
        Err(error @ ApplyError::RecoveryNeeded { .. }) => Err(error),
        Err(error) => {
            let undone = undo::undo(&record, None, work.tree, observer)
                .and_then(|conflicts| journal.remove().map(|()| conflicts));
            let reason = error.to_string();
            Err(match undone {
                Ok(conflicts) if conflicts.is_empty() => error,
                Ok(conflicts) => ApplyError::Conflict { reason, conflicts },
                Err(cause) => ApplyError::RecoveryNeeded {
                    reason: format!("{reason}; undoing it: {cause}"),
                },
            })
        }
    }
}

struct CommitWork<'a> {
    tree: &'a mut DirectoryTree,
    plan: &'a Plan,
    record: &'a JournalRecord,
    observer: &'a Observer<'a>,
}

impl CommitWork<'_> {
    fn carry_out(&mut self) -> Result<(), ApplyError> {
        let plan = self.plan;
        for directory in &plan.directories {
            let shown = directory.display().to_string();
            self.tree
                .make_directory(directory)
                .map_err(|error| unresolved(&shown, error))?;
            self.observe(CommitStep::DirectoryMade)?;
        }
        for (index, change) in plan.changes.iter().enumerate() {
            self.stage(index, change)?;
            self.observe(CommitStep::Staged)?;
        }
        for (index, change) in plan.changes.iter().enumerate() {
            self.swap(index, change)?;
            self.observe(CommitStep::Swapped)?;
        }
        self.sync()?;
        self.observe(CommitStep::Synced)
    }

    fn observe(&self, step: CommitStep) -> Result<(), ApplyError> {
        (self.observer)(step).map_err(|error| ApplyError::io("the workspace", "work in", error))
    }

    fn directory(&mut self, change: &PlannedChange) -> Result<Rc<Directory>, ApplyError> {
        self.tree
            .directory(&change.place.directory)
            .map_err(|error| unresolved(&change.shown, error))
    }

    /// Writes the new version aside.
    fn stage(&mut self, index: usize, change: &PlannedChange) -> Result<(), ApplyError> {
        let (ChangeAction::Create { content } | ChangeAction::Replace { content, .. }) =
            &change.action
        else {
            return Ok(());
        };
        let directory = self.directory(change)?;
        let like = match &content.like {
            Some((place, _)) => Some(
                self.tree
                    .directory(&place.directory)
                    .map_err(|error| unresolved(&change.shown, error))?,
            ),
            None => None,
        };
        self.write(
            &directory,
            like.as_deref(),
            &self.record.new_name(index),
            content,
        )
        .map_err(|error| ApplyError::io(&change.shown, "write", error))
    }

    fn write(
        &self,
        directory: &Directory,
        like: Option<&Directory>,
        name: &str,
        content: &NewContent,
    ) -> io::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A file that takes over another file's mode is private until it has that mode.
        let mode = if like.is_some() { 0o600 } else { 0o666 };
        let mut file = File::from(rustix::fs::openat(
            directory,
            name,
            flags,
            Mode::from_raw_mode(mode),
        )?);
        file.write_all(&content.bytes)?;
        if let (Some(directory), Some((place, attributes))) = (like, &content.like) {
            take_owner(&file, attributes.owner, attributes.group);
            // If the old file can no longer be opened, the swap will detect that.
            if let Ok(like) = found::open(directory, &place.name) {
                take_extended_attributes(&file, &like);
            }
            // Drops the set-user and set-group bits, as the kernel does when a file is written: new
            // content must not inherit the right to act as the owner.
            rustix::fs::fchmod(&file, Mode::from_raw_mode(attributes.mode & 0o1777))?;
        }
        if self.syncs_one_by_one() {
            file.sync_all()?;
        }
        Ok(())
    }

    /// Puts the new version in place, if the old version is still the one that was read.
    fn swap(&mut self, index: usize, change: &PlannedChange) -> Result<(), ApplyError> {
        let directory = self.directory(change)?;
        let name = change.place.name.as_os_str();
        let (new, old) = (self.record.new_name(index), self.record.old_name(index));
        let unchanged = match &change.action {
            ChangeAction::Create { .. } => create(&directory, new.as_ref(), name),
            ChangeAction::Replace { old: identity, .. } => {
                replace(&directory, new.as_ref(), old.as_ref(), name, *identity)
            }
            ChangeAction::Remove { old: identity } => {
                remove(&directory, old.as_ref(), name, *identity)
            }
        };
        match unchanged {
            Ok(true) => Ok(()),
            Ok(false) => Err(ApplyError::Changed {
                path: change.shown.clone(),
            }),
            Err(error) => Err(ApplyError::io(&change.shown, "replace", error)),
        }
    }

    fn syncs_one_by_one(&self) -> bool {
        self.plan.changes.len() <= SYNCED_ONE_BY_ONE
    }

    fn sync(&mut self) -> Result<(), ApplyError> {
        let one_by_one = self.syncs_one_by_one();
        let made = self
            .plan
            .directories
            .iter()
            .filter_map(|path| path.parent());
        let touched = self
            .plan
            .changes
            .iter()
            .map(|change| change.place.directory.as_path());
        let mut done = HashSet::new();
        for path in made.chain(touched) {
            let shown = path.display().to_string();
            let directory = self
                .tree
                .directory(path)
                .map_err(|error| unresolved(&shown, error))?;
            let synced = if one_by_one {
                if done.insert((directory.device(), Some(path))) {
                    directory.sync()
                } else {
                    Ok(())
                }
            } else if done.insert((directory.device(), None)) {
                directory.sync_file_system()
            } else {
                Ok(())
            };
            synced.map_err(|error| ApplyError::io(shown, "sync", error))?;
        }
        Ok(())
    }
}

/// Returns `Ok(false)` if the name already exists. The new file keeps its hidden name until the
/// end, so that recovery knows that the patch put the file in place.
fn create(directory: &Directory, new: &OsStr, name: &OsStr) -> io::Result<bool> {
    match rustix::fs::linkat(directory, new, directory, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
            move_to_free_name(directory, new, name)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns `Ok(false)` if the old version is no longer the expected one. It is then back in its
/// place.
pub(crate) fn replace(
    directory: &Directory,
    new: &OsStr,
    old: &OsStr,
    name: &OsStr,
    expected: FileIdentity,
) -> io::Result<bool> {
    match rustix::fs::renameat_with(directory, new, directory, name, RenameFlags::EXCHANGE) {
        Ok(()) => {
            let unchanged = is_at(directory, new, expected)?;
            if !unchanged {
                rustix::fs::renameat_with(directory, new, directory, name, RenameFlags::EXCHANGE)?;
            }
            Ok(unchanged)
        }
        Err(Errno::NOENT) => Ok(false),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            Ok(remove(directory, old, name, expected)? && move_to_free_name(directory, new, name)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Like [`replace`], but without a new version.
pub(crate) fn remove(
    directory: &Directory,
    old: &OsStr,
    name: &OsStr,
    expected: FileIdentity,
) -> io::Result<bool> {
    match rustix::fs::renameat(directory, name, directory, old) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let unchanged = is_at(directory, old, expected)?;
    if !unchanged {
        move_to_free_name(directory, old, name)?;
    }
    Ok(unchanged)
}

fn is_at(directory: &Directory, name: &OsStr, expected: FileIdentity) -> io::Result<bool> {
    Ok(found::find(directory, name)?.is_some_and(|found| found.identity == expected))
}

/// Renames without replacing. Returns `Ok(false)` if the name is taken.
pub(crate) fn move_to_free_name(
    directory: &Directory,
    from: &OsStr,
    to: &OsStr,
) -> io::Result<bool> {
    match rustix::fs::renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            if directory.stat(to)?.is_some() {
                return Ok(false);
            }
            rustix::fs::renameat(directory, from, directory, to)?;
            Ok(true)
        }
        Err(error) => Err(error.into()),
    }
}

/// Sets owner and group. If the user may not give files away, it sets at least the group.
pub(crate) fn take_owner(file: &File, owner: u32, group: u32) {
    let Ok(stat) = rustix::fs::fstat(file) else {
        return;
    };
    if (stat.st_uid, stat.st_gid) == (owner, group) {
        return;
    }
    let group = Some(Gid::from_raw(group));
    if rustix::fs::fchown(file, Some(Uid::from_raw(owner)), group).is_err() {
        let _ = rustix::fs::fchown(file, None, group);
    }
}

/// Copies access lists and the user's own attributes. A file system without them is not an error.
pub(crate) fn take_extended_attributes(file: &File, like: &File) {
    let mut names = vec![0; 4096];
    let Ok(length) = rustix::fs::flistxattr(like, names.as_mut_slice()) else {
        return;
    };
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        if name.starts_with(b"user.") || name == b"system.posix_acl_access" {
            let mut value = vec![0; 64 * 1024];
            if let Ok(length) = rustix::fs::fgetxattr(like, name, value.as_mut_slice()) {
                let _ = rustix::fs::fsetxattr(file, name, &value[..length], XattrFlags::empty());
            }
        }
    }
}
