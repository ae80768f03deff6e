//! Commits the effect of a run to its workspace, all or nothing, with the journal and the recovery
//! of patches. New versions are copied aside and swapped in, and the versions that they replace
//! stay until everything is done.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::ControlFlow::{self, Break, Continue};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use sha2::{Digest as _, Sha256};

use crate::commit::{
    CommitStep, Observer, move_to_free_name, remove, replace, take_extended_attributes,
};
use crate::effect::{EffectAction, EffectHashes, EffectSource, EffectStep, RunEffect};
use crate::effect_error::EffectError;
use crate::effect_scan::{self, shown, unreadable};
use crate::error::ApplyError;
use crate::found::{self, FileIdentity, FoundKind};
use crate::journal::{
    CommitError, Journal, JournalDirectory, JournalRecord, StagedNodes, WorkspaceKey, hexadecimal,
};
use crate::layer::{self, LayerEntry, LayerKind};
use crate::plan::unresolved;
use crate::recover::{self, RecoveryReport};
use crate::reserved::{Reserved, ReservedPaths};
use crate::tree::{Directory, DirectoryTree};
use crate::undo;

/// Up to this many paths are synced individually. With more paths, the whole file system is synced
/// once.
const SYNCED_ONE_BY_ONE: usize = 4;

/// Where an effect is committed, besides its source.
#[derive(Debug, Clone)]
pub struct EffectTarget {
    /// The directory for the journals of patches.
    pub journal_dir: PathBuf,
    /// Paths that no effect may touch, besides the journals.
    pub reserved: ReservedPaths,
}

/// Returns what a layer would change in the workspace as it is now. This changes nothing and takes
/// no lock.
pub fn describe_effect(
    source: &EffectSource,
    target: &EffectTarget,
    hashes: EffectHashes,
) -> Result<RunEffect, EffectError> {
    let mut tree = source.tree()?;
    effect_scan::scan(source, &mut tree, &target.reserved()?, hashes)
}

/// Commits an effect, unless `judge` stops it, which sees exactly what is about to be done. Waits
/// for patches and commits of the same workspace, and first finishes or undoes an interrupted one.
pub fn commit_effect<T>(
    source: &EffectSource,
    target: &EffectTarget,
    hashes: EffectHashes,
    judge: impl FnOnce(&RunEffect) -> ControlFlow<T>,
) -> Result<ControlFlow<T, RunEffect>, EffectError> {
    commit_observed(source, target, hashes, judge, &|_| Ok(()))
}

/// Like [`commit_effect`]; `observer` sees each step, for tests that stop there.
#[doc(hidden)]
pub fn commit_effect_observed(
    source: &EffectSource,
    target: &EffectTarget,
    observer: &Observer<'_>,
) -> Result<RunEffect, EffectError> {
    let judge = |_: &RunEffect| Continue::<Infallible>(());
    match commit_observed(source, target, EffectHashes::None, judge, observer)? {
        Continue(effect) => Ok(effect),
        Break(never) => match never {},
    }
}

fn commit_observed<T>(
    source: &EffectSource,
    target: &EffectTarget,
    hashes: EffectHashes,
    judge: impl FnOnce(&RunEffect) -> ControlFlow<T>,
    observer: &Observer<'_>,
) -> Result<ControlFlow<T, RunEffect>, EffectError> {
    let journals = JournalDirectory::open(&target.journal_dir)?;
    let key = WorkspaceKey::new(&source.root);
    let fail = |error| {
        let shown = target.journal_dir.display().to_string();
        ApplyError::io(shown, "lock the workspace in", error)
    };
    let _lock = journals.lock(&key).map_err(fail)?;
    let mut report = RecoveryReport::default();
    recover::recover_workspace(&journals, &key, observer, &mut report).map_err(fail)?;
    if let Some(failed) = report.failed.first() {
        let reason = format!("{} ({})", failed.reason, failed.journal);
        return Err(ApplyError::RecoveryNeeded { reason }.into());
    }
    // The interrupted commit may have been of this layer.
    if source.committed.exists() {
        return Ok(Continue(RunEffect::default()));
    }
    let mut tree = source.tree()?;
    let effect = effect_scan::scan(source, &mut tree, &target.reserved()?, hashes)?;
    if let Break(stopped) = judge(&effect) {
        return Ok(Break(stopped));
    }
    if effect.steps.is_empty() {
        retire(&source.committed).map_err(|error| unreadable(&source.committed, error))?;
        return Ok(Continue(effect));
    }
    let mut work = EffectWork {
        source,
        tree: &mut tree,
        hashes: effect
            .paths
            .iter()
            .filter_map(|path| {
                let hash = path.after.as_ref()?.sha256.clone()?;
                Some((path.path.clone(), hash))
            })
            .collect(),
        effect: &effect,
        observer,
    };
    work.commit(&journals, &key)?;
    Ok(Continue(effect))
}

impl EffectTarget {
    fn reserved(&self) -> Result<Reserved, EffectError> {
        let mut reserved = self.reserved.clone();
        reserved.directories.push(self.journal_dir.clone());
        Reserved::new(&reserved).map_err(|error| unreadable(&self.journal_dir, error))
    }
}

struct EffectWork<'a> {
    source: &'a EffectSource,
    tree: &'a mut DirectoryTree,
    effect: &'a RunEffect,
    /// The hashes that the layer's contents must have, if an approval binds them.
    hashes: HashMap<PathBuf, String>,
    observer: &'a Observer<'a>,
}

impl EffectWork<'_> {
    fn commit(
        &mut self,
        journals: &JournalDirectory,
        key: &WorkspaceKey,
    ) -> Result<(), EffectError> {
        let observer = self.observer;
        let fail = |error| unreadable(&self.source.root, error);
        let record = JournalRecord::of_effect(self.source, self.effect);
        let journal = journals.write(key, &record).map_err(fail)?;
        let mut staged = StagedNodes::default();
        let done = observer(CommitStep::JournalWritten)
            .map_err(|error| unreadable(&self.source.root, error))
            .and_then(|()| self.carry_out(&journal, &record, &mut staged));
        let done = done.and_then(|()| match journal.commit() {
            Ok(()) => Ok(()),
            Err(CommitError::Undecided(error)) => Err(unreadable(&self.source.root, error)),
            Err(CommitError::Unknown(error)) => {
                let reason = error.to_string();
                Err(ApplyError::RecoveryNeeded { reason }.into())
            }
        });
        match done {
            Ok(()) => {
                // The effect is committed. If cleaning up fails, the journal stays, and the next
                // recovery cleans up.
                let _ = observer(CommitStep::Committed)
                    .and_then(|()| retire(&self.source.committed))
                    .and_then(|()| undo::clean_up(&record, self.tree, observer))
                    .and_then(|()| journal.remove())
                    .and_then(|()| observer(CommitStep::JournalRemoved));
                Ok(())
            }
            Err(EffectError::Apply(error)) if is_undecided(&error) => {
                Err(EffectError::Apply(error))
            }
            Err(error) => {
                let undone = undo::undo(&record, Some(&staged), self.tree, observer)
                    .and_then(|conflicts| journal.remove().map(|()| conflicts));
                let reason = error.to_string();
                Err(match undone {
                    Ok(conflicts) if conflicts.is_empty() => error,
                    Ok(conflicts) => ApplyError::Conflict { reason, conflicts }.into(),
                    Err(cause) => {
                        let reason = format!("{reason}; undoing it: {cause}");
                        ApplyError::RecoveryNeeded { reason }.into()
                    }
                })
            }
        }
    }

    fn carry_out(
        &mut self,
        journal: &Journal,
        record: &JournalRecord,
        staged: &mut StagedNodes,
    ) -> Result<(), EffectError> {
        for (index, step) in self.effect.steps.iter().enumerate() {
            let node = self.stage(record, index, step)?;
            staged.nodes.push(node);
            self.observe(CommitStep::Staged)?;
        }
        staged.at_ns = effect_scan::nanoseconds(rustix::time::ClockId::Realtime);
        // From here on, undoing must know which nodes belong to the commit.
        journal
            .note_staged(staged)
            .map_err(|error| unreadable(&self.source.root, error))?;
        for (index, step) in self.effect.steps.iter().enumerate() {
            self.swap(record, index, step)?;
            self.observe(CommitStep::Swapped)?;
        }
        self.check_removed(record)?;
        self.sync()?;
        self.observe(CommitStep::Synced)
    }

    fn observe(&self, step: CommitStep) -> Result<(), EffectError> {
        (self.observer)(step).map_err(|error| unreadable(&self.source.root, error))
    }

    fn directory(&mut self, step: &EffectStep) -> Result<Rc<Directory>, EffectError> {
        self.tree
            .directory(&step.place.directory)
            .map_err(|error| unresolved(&shown(&step.path()), error).into())
    }

    /// Copies the new version aside, with everything in it.
    fn stage(
        &mut self,
        record: &JournalRecord,
        index: usize,
        step: &EffectStep,
    ) -> Result<Option<FileIdentity>, EffectError> {
        let like = match &step.action {
            EffectAction::Create => None,
            EffectAction::Replace { old, in_place } => in_place.then_some(old),
            EffectAction::Remove { .. } | EffectAction::SetMode { .. } => return Ok(None),
        };
        let directory = self.directory(step)?;
        let (path, name) = (step.path(), record.new_name(index));
        let fail = |error| EffectError::from(ApplyError::io(shown(&path), "write", error));
        self.copy(directory.as_fd(), Path::new(&name), &path)?;
        if let Some(like) = like {
            // The run changed the file itself, so the file keeps its owner.
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&*directory, name.as_str(), flags, Mode::empty());
            let keeps_mode = |file: &OwnedFd| rustix::fs::fstat(file).map(|stat| stat.st_mode);
            if let Ok(file) = file {
                let mode = keeps_mode(&file).map_err(|error| fail(error.into()))?;
                let file = File::from(file);
                let (owner, group) = (like.attributes.owner, like.attributes.group);
                crate::commit::take_owner(&file, owner, group);
                if let Ok(old) = found::open(&directory, &step.place.name) {
                    take_extended_attributes(&file, &old);
                }
                rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777))
                    .map_err(|error| fail(error.into()))?;
            }
        }
        let staged = found::find(&directory, name.as_ref()).map_err(fail)?;
        Ok(staged.map(|staged| staged.identity))
    }

    /// Copies one node of the layer to a name in an open directory of the workspace.
    fn copy(&self, directory: BorrowedFd<'_>, name: &Path, path: &Path) -> Result<(), EffectError> {
        let from = self.source.upper.join(path);
        let fail = |error| EffectError::from(ApplyError::io(shown(path), "write", error));
        let entry = LayerEntry::read(&from).map_err(|error| unreadable(path, error))?;
        match entry.kind {
            LayerKind::File => self.copy_file(directory, name, path, &entry),
            LayerKind::Link => {
                let target = std::fs::read_link(&from).map_err(|error| unreadable(path, error))?;
                rustix::fs::symlinkat(&target, directory, name).map_err(|e| fail(e.into()))?;
                if let Some((uid, gid)) = self.source.owner {
                    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
                    rustix::fs::chownat(directory, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
                        .map_err(|error| fail(error.into()))?;
                }
                Ok(())
            }
            LayerKind::Directory { .. } => {
                let made = || -> io::Result<OwnedFd> {
                    rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o700))?;
                    let flags =
                        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
                };
                let made = made().map_err(fail)?;
                for below in layer::names(&from).map_err(|error| unreadable(path, error))? {
                    self.copy(made.as_fd(), &below, &path.join(&below))?;
                }
                self.own(&made).map_err(fail)?;
                rustix::fs::fchmod(&made, Mode::from_raw_mode(entry.permissions()))
                    .map_err(|error| fail(error.into()))
            }
            // Pipes, sockets and devices are never committed.
            LayerKind::Whiteout | LayerKind::Other => Ok(()),
        }
    }

    fn copy_file(
        &self,
        directory: BorrowedFd<'_>,
        name: &Path,
        path: &Path,
        entry: &LayerEntry,
    ) -> Result<(), EffectError> {
        let from = self.source.upper.join(path);
        let fail = |error| EffectError::from(ApplyError::io(shown(path), "write", error));
        let mut source = layer::open(&from).map_err(|error| unreadable(path, error))?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600));
        let mut file = File::from(file.map_err(|error| fail(error.into()))?);
        match self.hashes.get(path) {
            None => {
                io::copy(&mut source, &mut file).map_err(fail)?;
            }
            Some(expected) => {
                let hash = copy_and_hash(&mut source, &mut file).map_err(fail)?;
                if hash != *expected {
                    return Err(ApplyError::Changed { path: shown(path) }.into());
                }
            }
        }
        let finish = || -> io::Result<()> {
            self.own(file.as_fd())?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(entry.permissions()))?;
            // Build tools compare the times of files that a run wrote.
            let modified = Timespec {
                tv_sec: entry.metadata.mtime(),
                tv_nsec: entry.metadata.mtime_nsec(),
            };
            let times = Timestamps {
                last_access: modified,
                last_modification: modified,
            };
            rustix::fs::futimens(&file, &times)?;
            if self.syncs_one_by_one() {
                file.sync_all()?;
            }
            Ok(())
        };
        finish().map_err(fail)
    }

    fn own(&self, node: impl std::os::fd::AsFd) -> io::Result<()> {
        if let Some((uid, gid)) = self.source.owner {
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            rustix::fs::fchown(node, uid, gid)?;
        }
        Ok(())
    }

    /// Puts the new version in place, if the old version is still the one that was compared.
    fn swap(
        &mut self,
        record: &JournalRecord,
        index: usize,
        step: &EffectStep,
    ) -> Result<(), EffectError> {
        let directory = self.directory(step)?;
        let name = step.place.name.as_os_str();
        let (new, old) = (record.new_name(index), record.old_name(index));
        let is_as_it_was = match &step.action {
            EffectAction::Create => move_to_free_name(&directory, new.as_ref(), name),
            EffectAction::Replace { old: found, .. } => {
                replace(&directory, new.as_ref(), old.as_ref(), name, found.identity)
            }
            EffectAction::Remove { old: found } => {
                remove(&directory, old.as_ref(), name, found.identity)
            }
            EffectAction::SetMode { old, new } => set_mode(&directory, name.as_ref(), *old, *new),
        };
        match is_as_it_was {
            Ok(true) => Ok(()),
            Ok(false) => Err(EffectError::Drift {
                paths: vec![shown(&step.path())],
            }),
            Err(error) => Err(ApplyError::io(shown(&step.path()), "replace", error).into()),
        }
    }

    /// Checks that directories kept aside still contain what was compared, because removing them
    /// must not lose anything else.
    fn check_removed(&mut self, record: &JournalRecord) -> Result<(), EffectError> {
        for (index, step) in self.effect.steps.iter().enumerate() {
            let (EffectAction::Replace { old, .. } | EffectAction::Remove { old }) = &step.action
            else {
                continue;
            };
            if old.kind != FoundKind::Directory {
                continue;
            }
            let directory = self.directory(step)?;
            for aside in [record.new_name(index), record.old_name(index)] {
                let found = found::find(&directory, aside.as_ref())
                    .map_err(|error| unreadable(&step.path(), error))?;
                if found.is_some_and(|found| found.identity.inode == old.identity.inode) {
                    let later = undo::latest_below(&*directory, aside.as_ref())
                        .map_err(|error| unreadable(&step.path(), error))?;
                    if later > self.source.started_ns {
                        return Err(EffectError::Drift {
                            paths: vec![shown(&step.path())],
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn syncs_one_by_one(&self) -> bool {
        self.effect.paths.len() <= SYNCED_ONE_BY_ONE
    }

    fn sync(&mut self) -> Result<(), EffectError> {
        let fail = |error| unreadable(Path::new("."), error);
        if !self.syncs_one_by_one() {
            let top = self.tree.directory(Path::new(""));
            let top = top.map_err(|error| unresolved(".", error))?;
            return top.sync_file_system().map_err(fail);
        }
        for step in &self.effect.steps {
            let directory = self.directory(step)?;
            directory.sync().map_err(fail)?;
        }
        Ok(())
    }
}

fn is_undecided(error: &ApplyError) -> bool {
    matches!(error, ApplyError::RecoveryNeeded { .. })
}

pub(crate) fn copy_and_hash(source: &mut File, to: &mut dyn io::Write) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = source.read(&mut buffer)?;
        if length == 0 {
            return Ok(hexadecimal(&hash.finalize()));
        }
        hash.update(&buffer[..length]);
        to.write_all(&buffer[..length])?;
    }
}

/// Sets the permission bits. Returns `Ok(false)` if the directory does not have the expected bits.
pub(crate) fn set_mode(
    directory: &Directory,
    name: &Path,
    expected: u32,
    new: u32,
) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
            return Ok(false);
        }
        Err(error) => return Err(error.into()),
    };
    let mode = rustix::fs::fstat(&opened)?.st_mode & 0o7777;
    if mode & 0o777 != expected {
        return Ok(false);
    }
    // The higher bits belong to the owner of the workspace.
    rustix::fs::fchmod(&opened, Mode::from_raw_mode((mode & 0o7000) | new))?;
    Ok(true)
}

/// Marks a layer as committed, so that no later process commits it again.
pub(crate) fn retire(mark: &Path) -> io::Result<()> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(mark)?;
    file.sync_all()?;
    match mark.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
