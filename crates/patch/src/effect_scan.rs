//! Finds out what a run did by comparing its layer, name by name, with the workspace as it is now.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::changes::TreePlace;
use crate::effect::{
    EffectAction, EffectAfter, EffectBefore, EffectChange, EffectHashes, EffectKind, EffectPath,
    EffectSource, EffectStep, MAX_EFFECT_BYTES, MAX_EFFECT_PATHS, RunEffect,
};
use crate::effect_error::EffectError;
use crate::error::ApplyError;
use crate::found::{self, FoundEntry, FoundKind};
use crate::layer::{self, LayerEntry, LayerKind, LayerOrigin};
use crate::reserved::Reserved;
use crate::tree::{Directory, DirectoryTree, ResolveError};

/// How far the clock may seem to be set back before its times are not trusted.
const CLOCK_TOLERANCE_NS: i64 = 1_000_000_000;

/// The longest path below a workspace. A run can nest directories deeper than any program can reach
/// by one path, and the workspace's own path comes first.
const MOST_PATH_BYTES: usize = 3_000;

/// Compares a layer with its workspace. The caller holds the lock of the workspace, or only
/// displays the effect.
pub(crate) fn scan(
    source: &EffectSource,
    tree: &mut DirectoryTree,
    reserved: &Reserved,
    hashes: EffectHashes,
) -> Result<RunEffect, EffectError> {
    let ahead =
        nanoseconds(rustix::time::ClockId::Realtime) - nanoseconds(rustix::time::ClockId::Boottime);
    if ahead < source.clock_ahead_ns - CLOCK_TOLERANCE_NS {
        return Err(EffectError::Drift {
            paths: vec!["(the clock was set back, so that times of files say nothing)".to_owned()],
        });
    }
    let top = tree.directory(Path::new("")).map_err(|_| root_drift())?;
    let found = (top.id().device, top.id().inode);
    if found != (source.device, source.inode) {
        return Err(root_drift());
    }
    let mut scan = EffectScan {
        source,
        tree,
        reserved,
        hashes,
        effect: RunEffect::default(),
        drift: Vec::new(),
        moved: Vec::new(),
        copied: Vec::new(),
    };
    scan.directory(Path::new(""), &top)?;
    scan.check_moved();
    if scan.drift.is_empty() {
        Ok(scan.effect)
    } else {
        Err(EffectError::Drift { paths: scan.drift })
    }
}

pub(crate) fn root_drift() -> EffectError {
    EffectError::Drift {
        paths: vec![". (the workspace is another directory now)".to_owned()],
    }
}

pub(crate) fn nanoseconds(clock: rustix::time::ClockId) -> i64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec)
}

struct EffectScan<'a> {
    source: &'a EffectSource,
    tree: &'a mut DirectoryTree,
    reserved: &'a Reserved,
    hashes: EffectHashes,
    effect: RunEffect,
    /// Paths that changed in the workspace since the run started.
    drift: Vec<String>,
    /// Copies of files that no longer exist under their names in the workspace, in directories that
    /// changed. Either the run renamed or linked the files, or the host removed them.
    moved: Vec<(String, LayerOrigin)>,
    /// Inodes of the workspace that the run changed under their own names.
    copied: Vec<u64>,
}

impl EffectScan<'_> {
    /// Compares a directory that exists in both.
    fn directory(&mut self, relative: &Path, host: &Directory) -> Result<(), EffectError> {
        let upper = self.source.upper.join(relative);
        let names = layer::names(&upper).map_err(|error| unreadable(relative, error))?;
        for name in names {
            self.name(relative, &name, host)?;
        }
        Ok(())
    }

    fn name(&mut self, parent: &Path, name: &Path, host: &Directory) -> Result<(), EffectError> {
        let relative = parent.join(name);
        let path = self.source.upper.join(&relative);
        let entry = LayerEntry::read(&path).map_err(|error| unreadable(&relative, error))?;
        let stat = host
            .stat(name.as_os_str())
            .map_err(|error| unreadable(&relative, error))?;
        let found = stat.as_ref().map(FoundEntry::from);
        if self
            .reserved
            .holds(host, name.as_os_str(), found.as_ref())
            .map_err(|error| unreadable(&relative, error))?
            && entry.kind != LayerKind::Other
        {
            let path = shown(&relative);
            return Err(EffectError::Reserved { path });
        }
        let before = stat.as_ref().and_then(before_of);
        let place = TreePlace {
            directory: parent.to_owned(),
            name: name.as_os_str().to_owned(),
        };
        match (entry.kind, found) {
            (LayerKind::Other, _) => self.effect.skipped.push(shown(&relative)),
            // Both the run and the host removed the name.
            (LayerKind::Whiteout, None) => {}
            (LayerKind::Whiteout, Some(old)) => {
                if self.old_entry(&relative, host, before)? {
                    self.step(place, EffectAction::Remove { old });
                }
            }
            (LayerKind::Directory { is_opaque: false }, Some(old))
                if old.kind == FoundKind::Directory && entry.origin != LayerOrigin::None =>
            {
                self.merged(&relative, place, &entry, &old, before)?;
            }
            // The workspace had nothing there when the run created the directory.
            (LayerKind::Directory { is_opaque: false }, Some(old))
                if old.kind == FoundKind::Directory =>
            {
                self.drifted(&relative);
            }
            // A directory that was copied from the workspace is never renamed, so the host removed
            // it.
            (LayerKind::Directory { .. }, None) if entry.origin != LayerOrigin::None => {
                self.drifted(&relative);
            }
            (_, None) => {
                if entry.origin != LayerOrigin::None && self.is_later(host)? {
                    self.moved.push((shown(&relative), entry.origin.clone()));
                }
                self.new_entry(&relative, &entry, EffectChange::Created, None)?;
                self.step(place, EffectAction::Create);
            }
            (_, Some(old)) => self.replaced(&relative, place, &entry, old, (host, before))?,
        }
        Ok(())
    }

    /// Whether names in a directory changed since the run started.
    fn is_later(&self, directory: &Directory) -> Result<bool, EffectError> {
        let stat = rustix::fs::fstat(directory)
            .map_err(|error| unreadable(Path::new("."), error.into()))?;
        Ok(found::changed_ns(&stat) > self.source.started_ns)
    }

    /// Checks renamed or linked files: the original of each must be among what the run removed or
    /// changed.
    fn check_moved(&mut self) {
        let mut originals = std::mem::take(&mut self.copied);
        let before = self
            .effect
            .paths
            .iter()
            .filter_map(|path| path.before.as_ref());
        originals.extend(before.map(|before| before.inode));
        for (shown, origin) in std::mem::take(&mut self.moved) {
            if !originals.iter().any(|inode| origin.can_be(*inode)) {
                self.drift.push(shown);
            }
        }
    }

    fn merged(
        &mut self,
        relative: &Path,
        place: TreePlace,
        entry: &LayerEntry,
        old: &FoundEntry,
        before: Option<EffectBefore>,
    ) -> Result<(), EffectError> {
        if !entry.origin.can_be(old.identity.inode) {
            self.drifted(relative);
            return Ok(());
        }
        let host = match self.tree.directory(relative) {
            Ok(host) => host,
            Err(error) => return Err(unreachable_path(relative, error)),
        };
        let (new, mode) = (entry.permissions(), old.attributes.mode & 0o777);
        if new != mode {
            let is_later = before
                .as_ref()
                .is_some_and(|before| before.changed_ns > self.source.started_ns);
            if is_later {
                self.drifted(relative);
            }
            self.push(EffectPath {
                path: relative.to_owned(),
                change: EffectChange::Mode,
                before,
                after: Some(EffectAfter {
                    kind: EffectKind::Directory,
                    mode: new,
                    size: 0,
                    sha256: None,
                }),
            })?;
            self.step(place, EffectAction::SetMode { old: mode, new });
        }
        self.directory(relative, &host)
    }

    fn replaced(
        &mut self,
        relative: &Path,
        place: TreePlace,
        entry: &LayerEntry,
        old: FoundEntry,
        (host, before): (&Directory, Option<EffectBefore>),
    ) -> Result<(), EffectError> {
        let in_place = entry.kind == LayerKind::File
            && old.kind == FoundKind::File
            && entry.origin != LayerOrigin::None
            && entry.origin.can_be(old.identity.inode);
        if in_place {
            self.copied.push(old.identity.inode);
        }
        if in_place && is_untouched(entry, before.as_ref()) {
            return Ok(());
        }
        match old.kind {
            // The content of the directory was removed.
            FoundKind::Directory => {
                if !self.old_entry(relative, host, before)? {
                    return Ok(());
                }
                self.new_entry(relative, entry, EffectChange::Created, None)?;
            }
            _ => {
                let is_later = before
                    .as_ref()
                    .is_none_or(|before| before.changed_ns > self.source.started_ns);
                if is_later {
                    self.drifted(relative);
                    return Ok(());
                }
                self.new_entry(relative, entry, EffectChange::Changed, before)?;
            }
        }
        self.step(place, EffectAction::Replace { old, in_place });
        Ok(())
    }

    /// Records something that the run removed, with everything in it. Returns `false` if the
    /// workspace changed it meanwhile.
    fn old_entry(
        &mut self,
        relative: &Path,
        parent: &Directory,
        before: Option<EffectBefore>,
    ) -> Result<bool, EffectError> {
        let Some(before) = before else {
            // The workspace has a pipe, socket or device here, and no run changes one.
            self.drifted(relative);
            return Ok(false);
        };
        if before.changed_ns > self.source.started_ns {
            self.drifted(relative);
            return Ok(false);
        }
        let is_directory = before.kind == EffectKind::Directory;
        self.push(EffectPath {
            path: relative.to_owned(),
            change: EffectChange::Deleted,
            before: Some(before),
            after: None,
        })?;
        if !is_directory {
            return Ok(true);
        }
        let directory = match self.tree.directory(relative) {
            Ok(directory) => directory,
            Err(error) => return Err(unreachable_path(relative, error)),
        };
        if directory.device() != parent.device() {
            return Err(unreachable_path(relative, ResolveError::Outside));
        }
        let mut is_as_it_was = true;
        for name in list(&directory).map_err(|error| unreadable(relative, error))? {
            let below = relative.join(&name);
            let stat = directory
                .stat(name.as_os_str())
                .map_err(|error| unreadable(&below, error))?;
            let found = stat.as_ref().map(FoundEntry::from);
            if self
                .reserved
                .holds(&directory, name.as_os_str(), found.as_ref())
                .map_err(|error| unreadable(&below, error))?
            {
                let path = shown(&below);
                return Err(EffectError::Reserved { path });
            }
            let before = stat.as_ref().and_then(before_of);
            is_as_it_was &= self.old_entry(&below, &directory, before)?;
        }
        Ok(is_as_it_was)
    }

    /// Records something that the run created, with everything in it.
    fn new_entry(
        &mut self,
        relative: &Path,
        entry: &LayerEntry,
        change: EffectChange,
        before: Option<EffectBefore>,
    ) -> Result<(), EffectError> {
        let path = self.source.upper.join(relative);
        let kind = match entry.kind {
            LayerKind::File => EffectKind::File,
            LayerKind::Link => EffectKind::Link,
            LayerKind::Directory { .. } => EffectKind::Directory,
            // In a new directory, no name can hide something of the workspace.
            LayerKind::Whiteout => return Ok(()),
            LayerKind::Other => {
                if self.effect.skipped.len() >= MAX_EFFECT_PATHS {
                    return Err(EffectError::TooLarge {
                        what: format!("more than {MAX_EFFECT_PATHS} pipes, sockets and devices"),
                        limit: format!("{MAX_EFFECT_PATHS} of them"),
                    });
                }
                self.effect.skipped.push(shown(relative));
                return Ok(());
            }
        };
        let size = match kind {
            EffectKind::Directory => 0,
            _ => entry.metadata.len(),
        };
        self.effect.bytes = self.effect.bytes.saturating_add(size);
        if self.effect.bytes > MAX_EFFECT_BYTES {
            return Err(EffectError::TooLarge {
                what: format!("{} bytes of new content", self.effect.bytes),
                limit: format!("{MAX_EFFECT_BYTES} bytes"),
            });
        }
        let fail = |error| unreadable(relative, error);
        let sha256 = match (kind, self.hashes) {
            (EffectKind::File, EffectHashes::All) => Some(hash_file(&path).map_err(fail)?),
            (EffectKind::Link, EffectHashes::All) => {
                let target = std::fs::read_link(&path).map_err(fail)?;
                Some(crate::summary::sha256(target.as_os_str().as_bytes()))
            }
            _ => None,
        };
        self.push(EffectPath {
            path: relative.to_owned(),
            change,
            before,
            after: Some(EffectAfter {
                kind,
                mode: if kind == EffectKind::Link {
                    0
                } else {
                    entry.permissions()
                },
                size,
                sha256,
            }),
        })?;
        if kind == EffectKind::Directory {
            for name in layer::names(&path).map_err(fail)? {
                let below = relative.join(name);
                let path = self.source.upper.join(&below);
                let entry = LayerEntry::read(&path).map_err(|error| unreadable(&below, error))?;
                self.new_entry(&below, &entry, EffectChange::Created, None)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, place: TreePlace, action: EffectAction) {
        self.effect.steps.push(EffectStep { place, action });
    }

    fn push(&mut self, path: EffectPath) -> Result<(), EffectError> {
        let length = path.path.as_os_str().len();
        if length > MOST_PATH_BYTES {
            return Err(EffectError::TooLarge {
                what: format!("a path of {length} bytes"),
                limit: format!("{MOST_PATH_BYTES} bytes"),
            });
        }
        if self.effect.paths.len() >= MAX_EFFECT_PATHS {
            return Err(EffectError::TooLarge {
                what: format!("more than {MAX_EFFECT_PATHS} paths"),
                limit: format!("{MAX_EFFECT_PATHS} paths"),
            });
        }
        self.effect.paths.push(path);
        Ok(())
    }

    fn drifted(&mut self, relative: &Path) {
        self.drift.push(shown(relative));
    }
}

/// Whether the file was copied to the layer but not changed, for example because it was opened for
/// writing.
fn is_untouched(entry: &LayerEntry, before: Option<&EffectBefore>) -> bool {
    let modified = entry
        .metadata
        .mtime()
        .saturating_mul(1_000_000_000)
        .saturating_add(entry.metadata.mtime_nsec());
    before.is_some_and(|before| {
        before.size == entry.metadata.len()
            && before.modified_ns == modified
            && before.mode & 0o777 == entry.permissions()
    })
}

#[allow(
    clippy::unnecessary_cast,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss
)]
fn before_of(stat: &rustix::fs::Stat) -> Option<EffectBefore> {
    let found = FoundEntry::from(stat);
    let kind = match found.kind {
        FoundKind::File => EffectKind::File,
        FoundKind::Link => EffectKind::Link,
        FoundKind::Directory => EffectKind::Directory,
        FoundKind::Other => return None,
    };
    let modified_ns = (stat.st_mtime as i64)
        .saturating_mul(1_000_000_000)
        .saturating_add(stat.st_mtime_nsec as i64);
    Some(EffectBefore {
        kind,
        device: found.device,
        inode: found.identity.inode,
        mode: found.attributes.mode,
        size: stat.st_size as u64,
        modified_ns,
        changed_ns: found::changed_ns(stat),
    })
}

/// Returns the names in a directory of the workspace.
pub(crate) fn list(directory: &Directory) -> io::Result<Vec<PathBuf>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(readable)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(PathBuf::from(name));
        }
    }
    names.sort();
    Ok(names)
}

fn hash_file(path: &Path) -> io::Result<String> {
    let mut file = layer::open(path)?;
    crate::effect_commit::copy_and_hash(&mut file, &mut io::sink())
}

/// Formats a path for messages, on one line.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string().escape_debug().to_string()
}

pub(crate) fn unreadable(path: &Path, error: io::Error) -> EffectError {
    ApplyError::io(shown(path), "read", error).into()
}

fn unreachable_path(path: &Path, error: ResolveError) -> EffectError {
    match error {
        ResolveError::Io(error) => unreadable(path, error),
        // No run could have changed anything behind a link or in another file system.
        _ => EffectError::Drift {
            paths: vec![shown(path)],
        },
    }
}
