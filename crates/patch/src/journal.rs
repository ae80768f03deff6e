//! The journal: what a patch is about to do, on disk before it is done.
//!
//! A journal file is one line of JSON. The line `commit` follows once all files are in their new
//! state. Without that line recovery undoes the patch; with it recovery only cleans up.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::changes::{ChangeAction, Plan};
use crate::effect::{EffectAction, EffectSource, RunEffect};
use crate::error::ApplyError;
use crate::found::FileIdentity;
use crate::path_text::PathText;
use crate::tree::LinkScope;
use crate::workspace::Workspace;

/// Everything that is needed to undo a patch or to clean up after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct JournalRecord {
    version: u32,
    /// A part of the names of the files that are written aside.
    pub(crate) id: String,
    pub(crate) root: PathText,
    /// The inode that the root must still have: an unmounted volume is not an empty workspace.
    pub(crate) root_inode: u64,
    pub(crate) base: PathText,
    pub(crate) scope: LinkScope,
    pub(crate) directories: Vec<PathText>,
    pub(crate) changes: Vec<RecordedChange>,
    /// A mark that is created once the changes are committed, before the journal is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retires: Option<PathText>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RecordedChange {
    pub(crate) directory: PathText,
    pub(crate) name: PathText,
    /// Present unless the file is removed.
    pub(crate) new: Option<Digest>,
    /// Present unless the file is created.
    pub(crate) old: Option<FileIdentity>,
    #[serde(default, skip_serializing_if = "RecordedKind::is_content")]
    pub(crate) kind: RecordedKind,
}

/// How undoing distinguishes the result of a change from the work of another process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) enum RecordedKind {
    /// A file of a patch, identified by its content.
    #[default]
    Content,
    /// A file, link or directory of an effect, by the identity that is recorded once it is staged.
    Node,
    /// The permission bits of a directory.
    Mode { old: u32, new: u32 },
}

impl RecordedKind {
    fn is_content(&self) -> bool {
        *self == Self::Content
    }
}

/// The nodes that an effect wrote aside, in the order of its changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StagedNodes {
    /// The time when all of the nodes existed.
    pub(crate) at_ns: i64,
    pub(crate) nodes: Vec<Option<FileIdentity>>,
}

/// Distinguishes a file that the patch wrote from one that another process changed later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Digest {
    length: u64,
    sha256: String,
}

const VERSION: u32 = 1;
const COMMIT: &str = "commit\n";
const STAGED: &str = "staged ";

impl JournalRecord {
    pub(crate) fn new(workspace: &Workspace, plan: &Plan) -> io::Result<Self> {
        let changes = plan.changes.iter().map(|change| {
            let (new, old) = match &change.action {
                ChangeAction::Create { content } => (Some(Digest::of(&content.bytes)), None),
                ChangeAction::Replace { content, old } => {
                    (Some(Digest::of(&content.bytes)), Some(*old))
                }
                ChangeAction::Remove { old } => (None, Some(*old)),
            };
            RecordedChange {
                directory: PathText(change.place.directory.clone()),
                name: PathText(PathBuf::from(&change.place.name)),
                new,
                old,
                kind: RecordedKind::Content,
            }
        });
        Ok(Self {
            version: VERSION,
            id: uuid::Uuid::new_v4().simple().to_string(),
            root: PathText(workspace.root.clone()),
            root_inode: fs::metadata(&workspace.root)?.ino(),
            base: PathText(workspace.base().to_owned()),
            scope: workspace.scope(),
            directories: plan.directories.iter().cloned().map(PathText).collect(),
            changes: changes.collect(),
            retires: None,
        })
    }

    pub(crate) fn of_effect(source: &EffectSource, effect: &RunEffect) -> Self {
        let changes = effect.steps.iter().map(|step| RecordedChange {
            directory: PathText(step.place.directory.clone()),
            name: PathText(PathBuf::from(&step.place.name)),
            new: None,
            old: step.action.old(),
            kind: match step.action {
                EffectAction::SetMode { old, new } => RecordedKind::Mode { old, new },
                _ => RecordedKind::Node,
            },
        });
        Self {
            version: VERSION,
            id: uuid::Uuid::new_v4().simple().to_string(),
            root: PathText(source.root.clone()),
            root_inode: source.inode,
            base: PathText(source.root.clone()),
            scope: LinkScope::WithoutLinks,
            directories: Vec::new(),
            changes: changes.collect(),
            retires: Some(PathText(source.committed.clone())),
        }
    }

    #[cfg(test)]
    pub(crate) fn for_test(root: &Path, change: RecordedChange) -> Self {
        Self {
            version: VERSION,
            id: "test".to_owned(),
            root: PathText(root.to_owned()),
            root_inode: 0,
            base: PathText(root.to_owned()),
            scope: LinkScope::Beneath,
            directories: Vec::new(),
            changes: vec![change],
            retires: None,
        }
    }

    /// Returns the hidden name under which the new version of change `index` is written. After an
    /// exchange, the old version has this name.
    pub(crate) fn new_name(&self, index: usize) -> String {
        format!(".interlock-patch-{}-{index}.new", self.id)
    }

    /// Returns the hidden name that keeps the old version if the two versions cannot be exchanged.
    pub(crate) fn old_name(&self, index: usize) -> String {
        format!(".interlock-patch-{}-{index}.old", self.id)
    }
}

impl Digest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            length: bytes.len() as u64,
            sha256: hexadecimal(&Sha256::digest(bytes)),
        }
    }

    pub(crate) fn matches(&self, mut file: File) -> io::Result<bool> {
        if file.metadata()?.len() != self.length {
            return Ok(false);
        }
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                return Ok(hexadecimal(&hash.finalize()) == self.sha256);
            }
            hash.update(&buffer[..length]);
        }
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a string cannot fail
        text
    })
}

/// A key for the journals and the lock of one workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkspaceKey(String);

impl WorkspaceKey {
    pub(crate) fn new(root: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let mut key = hexadecimal(&Sha256::digest(root.as_os_str().as_bytes()));
        key.truncate(32);
        Self(key)
    }
}

/// The directory for journals and locks.
#[derive(Debug)]
pub(crate) struct JournalDirectory {
    path: PathBuf,
}

/// A lock that is held while a workspace is patched or recovered. It is released when dropped, and
/// also by a crash.
#[derive(Debug)]
pub(crate) struct WorkspaceLock {
    _file: File,
}

impl JournalDirectory {
    /// Opens the directory, and creates it if it is missing. It must be safe from other users,
    /// because a user who can write journals can make recovery move files.
    pub(crate) fn open(path: &Path) -> Result<Self, ApplyError> {
        let fail = |reason: String| ApplyError::Journal {
            path: path.display().to_string(),
            reason,
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| fail(error.to_string()))?;
        let metadata = fs::metadata(path).map_err(|error| fail(error.to_string()))?;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(fail("it belongs to another user".to_owned()));
        }
        if metadata.mode() & 0o022 != 0 {
            return Err(fail("other users may write it".to_owned()));
        }
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Waits until no other patch runs in this workspace.
    pub(crate) fn lock(&self, key: &WorkspaceKey) -> io::Result<WorkspaceLock> {
        let path = self.path.join(format!("{}.lock", key.0));
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(path)?;
        loop {
            match rustix::fs::flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(WorkspaceLock { _file: file }),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the workspaces that have journals.
    pub(crate) fn workspaces(&self) -> io::Result<Vec<WorkspaceKey>> {
        let mut keys: Vec<WorkspaceKey> = Vec::new();
        for (key, _) in self.names()? {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        Ok(keys)
    }

    /// Returns the journals of one workspace. The caller holds its lock. Incompletely written
    /// journals are removed, because their patches have changed nothing yet.
    pub(crate) fn pending(&self, key: &WorkspaceKey) -> io::Result<Vec<Journal>> {
        let mut found = Vec::new();
        for (_, path) in self.names()?.into_iter().filter(|(owner, _)| owner == key) {
            if path
                .extension()
                .is_some_and(|extension| extension == "unfinished")
            {
                fs::remove_file(path)?;
            } else {
                found.push(Journal { path });
            }
        }
        Ok(found)
    }

    fn names(&self) -> io::Result<Vec<(WorkspaceKey, PathBuf)>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((key, rest)) = name.to_str().and_then(|name| name.split_once('-')) else {
                continue;
            };
            if rest.ends_with(".journal") || rest.ends_with(".unfinished") {
                names.push((WorkspaceKey(key.to_owned()), entry.path()));
            }
        }
        names.sort_by(|one, other| one.1.cmp(&other.1));
        Ok(names)
    }

    /// Writes a journal so that either all of it is on disk or nothing.
    pub(crate) fn write(&self, key: &WorkspaceKey, record: &JournalRecord) -> io::Result<Journal> {
        let unfinished = self
            .path
            .join(format!("{}-{}.unfinished", key.0, record.id));
        let path = unfinished.with_extension("journal");
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new()
                .create_new(true)
                .write(true)
                .mode(0o600)
                .open(&unfinished)?;
            let mut text = serde_json::to_vec(record)?;
            text.push(b'\n');
            file.write_all(&text)?;
            file.sync_data()?;
            fs::rename(&unfinished, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().inspect_err(|_| {
            // Nothing has changed yet. The next recovery removes a leftover file.
            let _ = fs::remove_file(&unfinished);
            let _ = fs::remove_file(&path);
        })?;
        Ok(Journal { path })
    }
}

/// A journal on disk.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) path: PathBuf,
}

impl Journal {
    /// Reads the journal: its record, the staged nodes, and whether the patch was committed.
    pub(crate) fn read(&self) -> Result<(JournalRecord, Option<StagedNodes>, bool), String> {
        let text = fs::read_to_string(&self.path).map_err(|error| error.to_string())?;
        let (record, rest) = text
            .split_once('\n')
            .ok_or("its first line is not complete")?;
        let record: JournalRecord =
            serde_json::from_str(record).map_err(|error| error.to_string())?;
        if record.version != VERSION {
            return Err(format!(
                "it has version {}, only {VERSION} is known",
                record.version
            ));
        }
        let (staged, rest) = match rest.strip_prefix(STAGED) {
            None => (None, rest),
            // If the line is incomplete, nothing has been swapped yet.
            Some(line) => match line.split_once('\n') {
                None => (None, ""),
                Some((nodes, rest)) => {
                    let nodes = serde_json::from_str(nodes).map_err(|error| error.to_string())?;
                    (Some(nodes), rest)
                }
            },
        };
        Ok((record, staged, rest == COMMIT))
    }

    /// Records what was written aside, and syncs the record before any of it is put in place.
    pub(crate) fn note_staged(&self, staged: &StagedNodes) -> io::Result<()> {
        let mut line = STAGED.as_bytes().to_vec();
        line.extend(serde_json::to_vec(staged)?);
        line.push(b'\n');
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        file.write_all(&line)?;
        file.sync_data()
    }

    /// Marks that every file is in its new state. If this fails, the mark is removed, so that
    /// undoing stays safe.
    pub(crate) fn commit(&self) -> Result<(), CommitError> {
        let mut file = OpenOptions::new()
            .append(true)
            .open(&self.path)
            .map_err(CommitError::Undecided)?;
        let length = file.metadata().map_err(CommitError::Undecided)?.len();
        file.write_all(COMMIT.as_bytes())
            .and_then(|()| file.sync_data())
            .map_err(
                |error| match file.set_len(length).and_then(|()| file.sync_data()) {
                    Ok(()) => CommitError::Undecided(error),
                    Err(_) => CommitError::Unknown(error),
                },
            )
    }

    pub(crate) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

#[derive(Debug)]
pub(crate) enum CommitError {
    /// The mark is not on disk.
    Undecided(io::Error),
    /// The mark may or may not be on disk.
    Unknown(io::Error),
}
