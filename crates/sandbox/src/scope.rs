//! Scopes: the runs that share one sandbox. A scope is an agent, a conversation or everything,
//! together with its workspace and settings. It has directories of its own, under a name that is a
//! hash.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use interlock_config::SandboxScope;
use interlock_config::types::Sandbox;
use interlock_plan::SandboxEffects;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::container::{ContainerRecord, containers_of, remove_container};
use crate::elsewhere::{link_scope, other_roots, scope_directory};
use crate::error::SandboxError;
use crate::layers::LAYERS;
use crate::removal::remove_tree;
use crate::ssh::{is_far, remove_far_side};

/// The directory of all scopes, below the state directory.
const DIRECTORY: &str = "sandboxes";

const RECORD: &str = "scope.json";
const USED: &str = "used";
const LOCK: &str = "lock";
const HOME: &str = "home";
const SCRATCH: &str = "workspace";

/// What runs wrote into the caches of the owner.
const CACHES: &str = "caches";

/// The first of the ids that scopes have on the host, if Interlock runs as root.
pub(crate) const FIRST_HOST_ID: u32 = 2_000_000_000;

/// Most scopes that can have an id of their own.
const MOST_HOST_IDS: u32 = 100_000_000;

/// Most scope directories that exist at once. Callers choose conversations and workspaces, and thus
/// how many scopes there are.
const MOST_SCOPES: usize = 1_000;

/// A scope makes room for a new one only if it was not used for this long: by then no process keeps
/// it.
const NOT_IN_USE: Duration = Duration::from_mins(5);

/// A scope that was used within this time is never too old.
const JUST_USED: Duration = Duration::from_hours(1);

/// The record of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScopeRecord {
    /// The name of the scope's directory.
    pub id: String,
    /// The scope in words, such as `agent main`.
    pub scope: String,
    pub agent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    pub workspace: String,
    /// Number that is added to the first id of scopes, if Interlock runs as root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_id: Option<u32>,
    pub created_ms: u64,
}

/// A scope whose record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusableScope {
    pub id: String,
    pub why: String,
}

/// The identity of a scope.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScopeOf<'a> {
    pub settings: &'a Sandbox,
    pub agent: &'a str,
    pub session_key: &'a str,
    pub workspace: &'a Path,
    /// Previews have scopes of their own, and leave nothing for other runs.
    pub effects: SandboxEffects,
    /// The checked directory of its directories, if that is not the state directory.
    pub root: Option<&'a Path>,
}

/// The directories of a scope that its runs see.
#[derive(Debug)]
pub(crate) struct OpenedScope {
    pub record: ScopeRecord,
    pub directory: PathBuf,
    pub home: PathBuf,
    pub scratch: PathBuf,
}

/// The store of all scopes of a state directory.
#[derive(Debug, Clone)]
pub struct ScopeStore {
    root: PathBuf,
}

impl ScopeOf<'_> {
    fn words(self) -> (String, Option<String>) {
        let (words, session_key) = self.shared_words();
        match self.effects {
            SandboxEffects::Direct => (words, session_key),
            SandboxEffects::Preview => (format!("{words}, previews"), session_key),
        }
    }

    fn shared_words(self) -> (String, Option<String>) {
        match self.settings.scope.unwrap_or(SandboxScope::Agent) {
            SandboxScope::Agent => (format!("agent {}", self.agent), None),
            SandboxScope::Session => (
                format!("session {}", self.session_key),
                Some(self.session_key.to_owned()),
            ),
            SandboxScope::Shared => ("shared".to_owned(), None),
        }
    }

    /// Returns the name of the scope. Changed settings make another scope, so that a run never gets
    /// what an earlier sandbox with other rules left.
    fn id(self) -> String {
        let (words, _) = self.words();
        let settings = serde_json::to_vec(self.settings).unwrap_or_default();
        let mut hash = Sha256::new();
        hash.update(b"interlock sandbox scope v1\0");
        for part in [
            words.as_bytes(),
            self.workspace.as_os_str().as_encoded_bytes(),
            settings.as_slice(),
        ] {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(part);
        }
        short_name(&hash.finalize(), 16)
    }
}

impl ScopeStore {
    pub fn new(state_dir: &Path) -> Self {
        Self {
            root: state_dir.join(DIRECTORY),
        }
    }

    /// Returns the directories of all scopes, even of those whose record cannot be read.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.root)
            .into_iter()
            .flatten()
            .flatten();
        let is_scope = |entry: &std::fs::DirEntry| {
            let kind = entry.file_type();
            kind.is_ok_and(|kind| kind.is_dir() || kind.is_symlink())
        };
        entries
            .filter(is_scope)
            .map(|entry| scope_directory(&entry.path()))
            .collect()
    }

    /// Returns the directories outside the state directory that contain scopes.
    pub(crate) fn other_roots(&self) -> Vec<PathBuf> {
        other_roots(&self.root)
    }

    /// Returns the scope with its directories, which are made if they do not exist.
    pub(crate) fn open(&self, of: ScopeOf<'_>, is_root: bool) -> Result<OpenedScope, SandboxError> {
        let id = of.id();
        let directory = match of.root {
            Some(root) => root.join(&id),
            None => self.root.join(&id),
        };
        let failed = |source: io::Error| SandboxError::File {
            what: "cannot make the directory of the scope",
            path: directory.clone(),
            source,
        };
        let record = match read_record(&directory) {
            Ok(record) if record.id == id && record.host_id.is_some() == is_root => record,
            Ok(_) => {
                return Err(failed(io::Error::other(
                    "its record is that of another one",
                )));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make(of, &id, is_root).map_err(failed)?
            }
            Err(error) => return Err(failed(error)),
        };
        let scope = OpenedScope {
            home: directory.join(HOME),
            scratch: directory.join(SCRATCH),
            record,
            directory: directory.clone(),
        };
        for own in [&scope.home, &scope.scratch] {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::open(own, flags, Mode::empty());
            let opened = opened.and_then(|opened| open_to_owner(&opened));
            opened.map_err(|error| failed(error.into()))?;
        }
        std::fs::write(directory.join(USED), "").map_err(failed)?;
        Ok(scope)
    }

    fn make(&self, of: ScopeOf<'_>, id: &str, is_root: bool) -> io::Result<ScopeRecord> {
        private().recursive(true).create(&self.root)?;
        let lock = File::create(self.root.join(LOCK))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        let directory = match of.root {
            Some(root) => root.join(id),
            None => self.root.join(id),
        };
        // Another process was faster.
        if let Ok(record) = read_record(&directory) {
            return Ok(record);
        }
        self.make_room(MOST_SCOPES)?;
        let host_id = is_root.then(|| self.free_host_id()).transpose()?;
        // The link comes first: if this process is ended here, the link lets its leftovers be found
        // and removed.
        if let Some(root) = of.root {
            link_scope(&self.root.join(id), root, OsStr::new(id))?;
        }
        let (scope, session_key) = of.words();
        let record = ScopeRecord {
            id: id.to_owned(),
            scope,
            agent: of.agent.to_owned(),
            session_key,
            workspace: of.workspace.display().to_string(),
            host_id,
            created_ms: milliseconds(SystemTime::now()),
        };
        private().recursive(true).create(directory.join(HOME))?;
        private().recursive(true).create(directory.join(SCRATCH))?;
        let new = directory.join("scope.json.new");
        std::fs::write(&new, serde_json::to_vec_pretty(&record)?)?;
        std::fs::rename(new, directory.join(RECORD))?;
        Ok(record)
    }

    /// Removes the scopes that have been unused for the longest time, if there is no room for
    /// another. Scopes with changes that wait for their owner stay, and so do those with work on
    /// other machines. The caller holds the lock.
    fn make_room(&self, most: usize) -> io::Result<()> {
        let is_scope =
            |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let there = std::fs::read_dir(&self.root)?.flatten().filter(is_scope);
        let mut excess = (there.count() + 1).saturating_sub(most);
        if excess == 0 {
            return Ok(());
        }
        let (records, _) = self.list();
        let now = SystemTime::now();
        let idle = |id: &str| {
            let used = self.last_used(id)?;
            now.duration_since(used)
                .ok()
                .filter(|idle| *idle >= NOT_IN_USE)
        };
        let may_go = |id: &String| {
            let directory = self.directory(id);
            !is_far(&directory) && std::fs::read_dir(directory.join(LAYERS)).map_or(true, is_empty)
        };
        let ids = records.into_iter().map(|record| record.id);
        let mut old: Vec<(Duration, String)> = ids
            .filter(may_go)
            .filter_map(|id| Some((idle(&id)?, id)))
            .collect();
        old.sort();
        while let Some((_, id)) = old.pop().filter(|_| excess > 0) {
            excess -= usize::from(self.remove_locked(&id)?);
        }
        if excess == 0 {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "there are {most} sandboxes already, and none of them can go now; remove some with `interlock sandbox prune` \
             or `interlock sandbox recreate`"
        )))
    }

    /// Returns the smallest id that no scope has. The caller holds the lock.
    fn free_host_id(&self) -> io::Result<u32> {
        let (records, unusable) = self.list();
        // If the directory of a scope elsewhere is gone, nothing is left that has its id.
        let is_there = |scope: &&UnusableScope| self.directory(&scope.id).exists();
        if let Some(scope) = unusable.iter().find(is_there) {
            // Its id is unknown, and must not be given to another scope.
            return Err(io::Error::other(format!(
                "{}: {}; remove it with `interlock sandbox recreate --all`",
                scope.id, scope.why
            )));
        }
        let used: std::collections::BTreeSet<u32> =
            records.iter().filter_map(|record| record.host_id).collect();
        (1..MOST_HOST_IDS)
            .find(|id| !used.contains(id))
            .ok_or_else(|| io::Error::other("no id is left for a scope"))
    }

    /// Returns every scope, and those that cannot be read.
    pub fn list(&self) -> (Vec<ScopeRecord>, Vec<UnusableScope>) {
        let (mut records, mut unusable) = (Vec::new(), Vec::new());
        for directory in self.directories() {
            let id = directory.file_name().unwrap_or_default();
            let id = id.to_string_lossy().into_owned();
            match read_record(&directory) {
                Ok(record) => records.push(record),
                Err(error) => unusable.push(UnusableScope {
                    id,
                    why: error.to_string(),
                }),
            }
        }
        records.sort_by(|a, b| (a.created_ms, &a.id).cmp(&(b.created_ms, &b.id)));
        (records, unusable)
    }

    /// Returns when a scope was last used.
    pub fn last_used(&self, id: &str) -> Option<SystemTime> {
        let metadata = std::fs::metadata(self.directory(id).join(USED)).ok()?;
        metadata.modified().ok()
    }

    /// Returns the containers that were made for a scope.
    pub fn containers(&self, id: &str) -> Vec<ContainerRecord> {
        containers_of(&self.directory(id))
    }

    /// Returns the directory of a scope.
    pub fn directory(&self, id: &str) -> PathBuf {
        scope_directory(&self.root.join(id))
    }

    /// Whether a scope is old or idle enough to be removed.
    pub fn is_due(&self, record: &ScopeRecord, idle: Duration, age: Duration) -> bool {
        // The far machine may have the only copy of that work.
        if is_far(&self.directory(&record.id)) {
            return false;
        }
        let now = SystemTime::now();
        let since = |then: SystemTime| now.duration_since(then).unwrap_or_default();
        let made = UNIX_EPOCH + Duration::from_millis(record.created_ms);
        let used = self.last_used(&record.id).unwrap_or(made);
        // The layers of its last runs may wait for an approver.
        since(used) >= idle || (since(made) >= age && since(used) >= JUST_USED)
    }

    /// Removes a scope with everything that runs left in it. Returns `false` if a run is in the
    /// scope, which then stays.
    pub fn remove(&self, id: &str) -> io::Result<bool> {
        let is_name = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_name {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let lock = File::create(self.root.join(LOCK))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        self.remove_locked(id)
    }

    fn remove_locked(&self, id: &str) -> io::Result<bool> {
        let entry = self.root.join(id);
        let directory = scope_directory(&entry);
        let is_link = directory != entry;
        // Runs hold a shared lock on the directory.
        let held = match File::open(&directory) {
            // The owner has removed it with everything in it.
            Err(error) if is_link && error.kind() == io::ErrorKind::NotFound => {
                std::fs::remove_file(&entry)?;
                return Ok(true);
            }
            held => held?,
        };
        if rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(false);
        }
        remove_far_side(&directory)?;
        for container in containers_of(&directory) {
            remove_container(&directory, &container)?;
        }
        // The record goes last, so that a scope whose removal was interrupted is still listed.
        for name in [HOME, SCRATCH, LAYERS, CACHES, USED] {
            remove_tree(&directory.join(name))?;
        }
        remove_tree(&directory)?;
        if is_link {
            std::fs::remove_file(&entry)?;
        }
        Ok(true)
    }
}

/// Returns the first bytes of a hash, as a name.
pub(crate) fn short_name(hash: &[u8], bytes: usize) -> String {
    let mut name = String::with_capacity(bytes * 2);
    for byte in hash.iter().take(bytes) {
        name.push_str(&format!("{byte:02x}"));
    }
    name
}

fn is_empty(mut entries: std::fs::ReadDir) -> bool {
    entries.next().is_none()
}

pub(crate) fn private() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

fn read_record(directory: &Path) -> io::Result<ScopeRecord> {
    let text = std::fs::read(directory.join(RECORD))?;
    Ok(serde_json::from_slice(&text)?)
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Gives the owner of a directory its rights back. A run can remove its own rights to a directory
/// of its scope, and then no later run of the scope could work in it.
pub(crate) fn open_to_owner(directory: &OwnedFd) -> Result<(), Errno> {
    let mode = rustix::fs::fstat(directory)?.st_mode;
    if mode & 0o700 == 0o700 {
        return Ok(());
    }
    // This path leads to exactly this directory, whatever its name leads to by now.
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    rustix::fs::chmod(path, Mode::from_raw_mode((mode & 0o777) | 0o700))
}

/// Makes a further directory of a scope, if it does not exist.
pub(crate) fn make_private(directory: &Path) -> Result<(), SandboxError> {
    let made = match private().create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = std::fs::symlink_metadata(directory);
            match found {
                Ok(found) if found.is_dir() => Ok(()),
                Ok(_) => Err(io::ErrorKind::NotADirectory.into()),
                Err(error) => Err(error),
            }
        }
        made => made,
    };
    made.map_err(|source| SandboxError::File {
        what: "cannot make the directory of the scope",
        path: directory.to_owned(),
        source,
    })
}

/// Gives a directory of a scope to the user that its runs have on the host.
pub(crate) fn give_to(directory: &Path, uid: u32, gid: u32) -> Result<(), SandboxError> {
    let failed = |source: io::Error| SandboxError::File {
        what: "cannot give the run its directory",
        path: directory.to_owned(),
        source,
    };
    let found = std::fs::symlink_metadata(directory).map_err(failed)?;
    if !found.is_dir() {
        return Err(failed(io::ErrorKind::NotADirectory.into()));
    }
    if (found.uid(), found.gid()) == (uid, gid) {
        return Ok(());
    }
    std::os::unix::fs::lchown(directory, Some(uid), Some(gid)).map_err(failed)
}

#[cfg(test)]
mod tests;
