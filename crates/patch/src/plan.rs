//! Works out in memory what a patch will do to the files, before anything is written.
//!
//! The operations run on entries that start as the files on disk and record what happens to them.
//! The difference between start and end is the plan: at most one change per file, however often the
//! patch names the file.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use crate::changes::{ChangeAction, NewContent, Plan, PlannedChange, TreePlace};
use crate::edit::{self, HunkError};
use crate::error::ApplyError;
use crate::found::{self, Attributes, FoundEntry, FoundKind};
use crate::lines::FileLines;
use crate::patch::{Hunk, Operation, Patch};
use crate::summary::{PatchSummary, sha256};
use crate::tree::{DirectoryId, DirectoryTree, LinkScope, ResolveError};
use crate::workspace::Workspace;

/// The most bytes of file contents that one patch may read and write. All of it is in memory until
/// it is written.
pub(crate) const MAX_PLAN_BYTES: usize = 512 * 1024 * 1024;
/// The most links in a row before the path counts as endless.
const MAX_LINKS: usize = 40;

/// Works out the plan. Reads files, but writes none.
pub(crate) fn plan(
    patch: &Patch,
    workspace: &Workspace,
    tree: &mut DirectoryTree,
) -> Result<Plan, ApplyError> {
    let mut planner = Planner {
        workspace,
        tree,
        entries: Vec::new(),
        by_key: HashMap::new(),
        bytes: 0,
    };
    for operation in patch.operations() {
        planner.operation(operation)?;
    }
    planner.finish()
}

struct Planner<'a> {
    workspace: &'a Workspace,
    tree: &'a mut DirectoryTree,
    entries: Vec<TouchedName>,
    by_key: HashMap<TouchedKey, usize>,
    /// The bytes of new contents so far.
    bytes: usize,
}

/// A file name that is equal for all paths that lead to it: an existing directory, and the rest of
/// the path.
type TouchedKey = (DirectoryId, PathBuf);

/// A name that the patch touches, as found and in its present state.
pub(crate) struct TouchedName {
    place: TreePlace,
    pub(crate) shown: String,
    /// Directories that must be created for the file, with their keys.
    missing: Vec<(TouchedKey, PathBuf)>,
    pub(crate) found: Option<FoundEntry>,
    /// The hash of the content as found, once it was read.
    pub(crate) hash: Option<String>,
    pub(crate) now: Now,
    like: Option<(TreePlace, Attributes)>,
    pub(crate) added: usize,
    pub(crate) removed: usize,
    pub(crate) moved_from: Option<usize>,
    pub(crate) moved_away: bool,
}

pub(crate) enum Now {
    AsFound,
    Absent,
    File(Vec<u8>),
}

impl TouchedName {
    fn exists(&self) -> bool {
        match self.now {
            Now::AsFound => self.found.is_some(),
            Now::Absent => false,
            Now::File(_) => true,
        }
    }

    /// Returns the file whose mode and owner the present content has.
    fn attributes(&self) -> Option<(TreePlace, Attributes)> {
        let own = self
            .found
            .as_ref()
            .filter(|found| found.kind == FoundKind::File);
        self.like
            .clone()
            .or_else(|| own.map(|found| (self.place.clone(), found.attributes)))
    }
}

impl Planner<'_> {
    fn operation(&mut self, operation: &Operation) -> Result<(), ApplyError> {
        match operation {
            Operation::Add { path, lines } => self.add(path, lines),
            Operation::Delete { path } => self.delete(path),
            Operation::Update {
                path,
                move_to,
                hunks,
            } => self.update(path, move_to.as_deref(), hunks),
        }
    }

    fn add(&mut self, path: &str, lines: &[String]) -> Result<(), ApplyError> {
        let index = self.entry(path)?;
        if self.entries[index].exists() {
            return Err(ApplyError::Exists {
                path: path.to_owned(),
            });
        }
        let mut bytes = Vec::with_capacity(lines.iter().map(|line| line.len() + 1).sum());
        for line in lines {
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
        self.reserve(path, bytes.len())?;
        let entry = &mut self.entries[index];
        entry.now = Now::File(bytes);
        entry.added += lines.len();
        Ok(())
    }

    fn delete(&mut self, path: &str) -> Result<(), ApplyError> {
        let index = self.entry(path)?;
        let entry = &self.entries[index];
        if !entry.exists() {
            return Err(ApplyError::NotFound {
                path: path.to_owned(),
            });
        }
        let (removed, hash) = match (&entry.now, &entry.found) {
            (Now::File(bytes), _) => (FileLines::new(bytes).len(), None),
            (_, Some(found)) => {
                refuse_other_kinds(path, found.kind)?;
                let directory = self
                    .tree
                    .directory(&entry.place.directory)
                    .map_err(|error| unresolved(path, error))?;
                found::count_lines(&directory, &entry.place.name, found.kind)
            }
            _ => (0, None),
        };
        let entry = &mut self.entries[index];
        entry.hash = entry.hash.take().or(hash);
        entry.now = Now::Absent;
        entry.removed += removed;
        if let Some(origin) = entry.moved_from.take() {
            self.entries[origin].moved_away = false;
        }
        Ok(())
    }

    fn update(
        &mut self,
        path: &str,
        move_to: Option<&str>,
        hunks: &[Hunk],
    ) -> Result<(), ApplyError> {
        let mut source = self.entry(path)?;
        let target = move_to
            .map(|target| self.entry(target))
            .transpose()?
            .filter(|target| *target != source);
        if target.is_none() {
            let followed = self.follow(path, source);
            source = followed.map_err(|error| self.reserved_first(path, error))?;
        }
        let old = self.content(path, source)?;
        let edited = edit::edit(&old, hunks).map_err(|error| hunk_error(path, error))?;
        if let (None, true) = (target, edited.bytes == old) {
            if let Now::File(bytes) = &mut self.entries[source].now {
                *bytes = old;
            }
            return Ok(());
        }
        self.reserve(path, edited.bytes.len())?;
        let Some(target) = target else {
            let entry = &mut self.entries[source];
            entry.now = Now::File(edited.bytes);
            entry.added += edited.added;
            entry.removed += edited.removed;
            return Ok(());
        };
        if self.entries[target].exists() {
            return Err(ApplyError::Exists {
                path: move_to.unwrap_or(path).to_owned(),
            });
        }
        let like = self.entries[source].attributes();
        let entry = &mut self.entries[source];
        let (added, removed) = (entry.added + edited.added, entry.removed + edited.removed);
        entry.now = Now::Absent;
        entry.moved_away = true;
        let origin = entry.moved_from.take().unwrap_or(source);
        let entry = &mut self.entries[target];
        entry.now = Now::File(edited.bytes);
        entry.like = like;
        (entry.added, entry.removed) = (added, removed);
        entry.moved_from = Some(origin);
        Ok(())
    }

    /// Returns the present bytes of a file that is to be updated. Bytes that only the plan holds
    /// are moved out of the entry.
    fn content(&mut self, path: &str, index: usize) -> Result<Vec<u8>, ApplyError> {
        let entry = &mut self.entries[index];
        let found = match (&mut entry.now, &entry.found) {
            (Now::File(bytes), _) => return Ok(std::mem::take(bytes)),
            (Now::AsFound, Some(found)) => found,
            _ => {
                return Err(ApplyError::NotFound {
                    path: path.to_owned(),
                });
            }
        };
        refuse_other_kinds(path, found.kind)?;
        if found.kind == FoundKind::Link {
            return Err(ApplyError::Link {
                path: path.to_owned(),
                kind: "a symbolic link",
            });
        }
        if found.links > 1 && self.tree.scope() == LinkScope::Beneath {
            return Err(ApplyError::Link {
                path: path.to_owned(),
                kind: "a hard link",
            });
        }
        let size = usize::try_from(found.identity.size).unwrap_or(usize::MAX);
        let limit = MAX_PLAN_BYTES.saturating_sub(self.bytes);
        if size > limit {
            return Err(too_large(path));
        }
        let directory = self
            .tree
            .directory(&entry.place.directory)
            .map_err(|error| unresolved(path, error))?;
        let bytes = found::read(&directory, &entry.place.name, found, path)?;
        entry.hash.get_or_insert_with(|| sha256(&bytes));
        Ok(bytes)
    }

    fn reserve(&mut self, path: &str, bytes: usize) -> Result<(), ApplyError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_PLAN_BYTES {
            Err(too_large(path))
        } else {
            Ok(())
        }
    }

    /// Returns the entry for a path of the patch.
    fn entry(&mut self, name: &str) -> Result<usize, ApplyError> {
        let relative = self.workspace.relative(name);
        let entry = relative.and_then(|relative| self.entry_at(name, &relative));
        // The error for a reserved path is more helpful than a general one.
        entry.map_err(|error| self.reserved_first(name, error))
    }

    fn reserved_first(&self, name: &str, error: ApplyError) -> ApplyError {
        match error {
            ApplyError::OutsideWorkspace { .. } | ApplyError::Link { .. }
                if self.workspace.is_reserved(name) =>
            {
                ApplyError::Reserved {
                    path: name.to_owned(),
                }
            }
            error => error,
        }
    }

    fn entry_at(&mut self, name: &str, relative: &Path) -> Result<usize, ApplyError> {
        let Some(file_name) = relative.file_name() else {
            return Err(ApplyError::NotAFile {
                path: name.to_owned(),
                reason: "it is a directory",
            });
        };
        let parent = relative.parent().unwrap_or(Path::new(""));
        let (directory, existing, missing) = self
            .tree
            .deepest(parent)
            .map_err(|error| unresolved(name, error))?;
        let key = (directory.id(), missing.join(file_name));
        if let Some(index) = self.by_key.get(&key) {
            return Ok(*index);
        }
        let found = if missing.as_os_str().is_empty() {
            found::find(&directory, file_name)
                .map_err(|error| ApplyError::io(name, "look at", error))?
        } else {
            None
        };
        let first = missing.components().next();
        let first = first.map_or(file_name, Component::as_os_str);
        let reserved = self.workspace.reserved();
        let is_reserved = reserved.holds(&directory, first, found.as_ref());
        if is_reserved.map_err(|error| ApplyError::io(name, "look at", error))? {
            return Err(ApplyError::Reserved {
                path: name.to_owned(),
            });
        }
        let missing = missing
            .ancestors()
            .filter(|part| !part.as_os_str().is_empty())
            .map(|part| ((directory.id(), part.to_owned()), existing.join(part)))
            .collect();
        self.entries.push(TouchedName {
            place: TreePlace {
                directory: parent.to_owned(),
                name: file_name.to_owned(),
            },
            shown: self.workspace.shown(relative),
            missing,
            found,
            hash: None,
            now: Now::AsFound,
            like: None,
            added: 0,
            removed: 0,
            moved_from: None,
            moved_away: false,
        });
        self.by_key.insert(key, self.entries.len() - 1);
        Ok(self.entries.len() - 1)
    }

    /// Returns the file that an update of `index` means. A link is refused in a limited workspace,
    /// and followed otherwise.
    fn follow(&mut self, name: &str, mut index: usize) -> Result<usize, ApplyError> {
        for _ in 0..MAX_LINKS {
            let entry = &self.entries[index];
            let is_link = entry
                .found
                .as_ref()
                .is_some_and(|found| found.kind == FoundKind::Link);
            if !is_link || !matches!(entry.now, Now::AsFound) {
                return Ok(index);
            }
            let path = entry.place.directory.join(&entry.place.name);
            if self.tree.scope() == LinkScope::Beneath {
                return Err(if self.tree.link_stays_inside(&path) {
                    ApplyError::Link {
                        path: name.to_owned(),
                        kind: "a symbolic link",
                    }
                } else {
                    ApplyError::OutsideWorkspace {
                        path: name.to_owned(),
                        reason: "it is a link that leads out",
                    }
                });
            }
            let directory = self
                .tree
                .directory(&entry.place.directory)
                .map_err(|error| unresolved(name, error))?;
            let target = found::link_target(&directory, &entry.place.name)
                .map_err(|error| ApplyError::io(name, "read the link", error))?;
            // The target is not simplified as text, because only the kernel resolves `..` after
            // links correctly.
            let target = entry.place.directory.join(target);
            let target = target.strip_prefix("/").unwrap_or(&target).to_owned();
            index = self.entry_at(name, &target)?;
        }
        Err(ApplyError::Link {
            path: name.to_owned(),
            kind: "an endless chain of symbolic links",
        })
    }

    fn finish(self) -> Result<Plan, ApplyError> {
        let summary = PatchSummary::of(&self.entries);
        let mut directories = Vec::new();
        let mut made = std::collections::HashSet::new();
        for entry in self
            .entries
            .iter()
            .filter(|entry| matches!(entry.now, Now::File(_)))
        {
            for (key, path) in entry.missing.iter().rev() {
                if self
                    .by_key
                    .get(key)
                    .is_some_and(|index| matches!(self.entries[*index].now, Now::File(_)))
                {
                    let reason = "the patch makes a directory of the same name a file";
                    return Err(ApplyError::NotAFile {
                        path: entry.shown.clone(),
                        reason,
                    });
                }
                if made.insert(key.clone()) {
                    directories.push(path.clone());
                }
            }
        }
        let mut changes = Vec::new();
        for entry in self.entries {
            let like = entry.attributes();
            let action = match (entry.now, entry.found) {
                (Now::File(bytes), None) => ChangeAction::Create {
                    content: NewContent { bytes, like },
                },
                (Now::File(bytes), Some(found)) => ChangeAction::Replace {
                    content: NewContent { bytes, like },
                    old: found.identity,
                },
                (Now::Absent, Some(found)) => ChangeAction::Remove {
                    old: found.identity,
                },
                _ => continue,
            };
            changes.push(PlannedChange {
                place: entry.place,
                shown: entry.shown,
                hash: entry.hash,
                action,
            });
        }
        Ok(Plan {
            directories,
            changes,
            summary,
        })
    }
}

fn refuse_other_kinds(path: &str, kind: FoundKind) -> Result<(), ApplyError> {
    let reason = match kind {
        FoundKind::File | FoundKind::Link => return Ok(()),
        FoundKind::Directory => "it is a directory",
        FoundKind::Other => "it is a device, a pipe or a socket",
    };
    Err(ApplyError::NotAFile {
        path: path.to_owned(),
        reason,
    })
}

fn hunk_error(path: &str, error: HunkError) -> ApplyError {
    match error {
        HunkError::Mismatch(mismatch) => ApplyError::ContextMismatch {
            path: path.to_owned(),
            hunk: mismatch.hunk,
            patch_line: mismatch.patch_line,
            expected: mismatch.expected,
            nearest: mismatch.nearest,
        },
        HunkError::TooMuchWork => ApplyError::TooLarge {
            what: format!("the work to place the hunks of `{path}`"),
            limit: "they repeat the same lines too often".to_owned(),
        },
    }
}

fn too_large(path: &str) -> ApplyError {
    ApplyError::TooLarge {
        what: format!("`{path}` together with the files before it"),
        limit: format!("{MAX_PLAN_BYTES} bytes"),
    }
}

/// Returns the error for a directory that could not be reached.
pub(crate) fn unresolved(path: &str, error: ResolveError) -> ApplyError {
    let path = path.to_owned();
    match error {
        ResolveError::Missing => ApplyError::NotFound { path },
        ResolveError::Outside => ApplyError::OutsideWorkspace {
            path,
            reason: "a link on the way leads out",
        },
        ResolveError::NotADirectory => ApplyError::NotAFile {
            path,
            reason: "a part of its path is not a directory",
        },
        ResolveError::Replaced => ApplyError::Changed { path },
        ResolveError::Io(source) => ApplyError::io(path, "reach", source),
    }
}
