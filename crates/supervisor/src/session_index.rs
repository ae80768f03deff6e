//! What a process that lives long remembers of the sessions on disk, so that a list of many does not
//! read all of them again.
//!
//! A session that has ended in the background never changes any more: only its name is looked for.
//! For every other one the times of its status file say whether it has to be read again. The
//! index chooses and orders; what is shown of a session is read from its files.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use interlock_transcript::TranscriptStatus;

use crate::names;
use crate::paths::SupervisorPaths;

/// What lists are filtered and ordered by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedSession {
    pub name: String,
    pub agent_id: String,
    pub owner: Option<String>,
    pub session_key: Option<String>,
    /// Which supervisor it belongs to.
    pub supervisor: String,
    pub background: bool,
    pub started_ms: u64,
    /// The status says that the session has ended.
    pub is_final: bool,
    /// When a session that has ended is to be removed.
    pub due_ms: Option<u64>,
}

/// The sessions of one state directory, as they were found by the last look.
#[derive(Debug, Default)]
pub struct SessionIndex {
    known: Mutex<RememberedSessions>,
}

#[derive(Debug, Default)]
struct RememberedSessions {
    by_name: HashMap<String, RememberedSession>,
    /// The newest first.
    ordered: Arc<Vec<Arc<IndexedSession>>>,
    /// Counts the looks; a session that the last one did not find is gone.
    look: u64,
}

#[derive(Debug)]
struct RememberedSession {
    /// The inode of the directory: a name can be given away again.
    inode: u64,
    version: StatusVersion,
    /// `None` where the status names no session, or cannot be read.
    session: Option<Arc<IndexedSession>>,
    seen: u64,
}

/// Which status file was read. It is replaced by rename, or written over on a full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct StatusVersion {
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

impl SessionIndex {
    /// All sessions that are on disk now, the newest first.
    pub fn look(&self, place: &SupervisorPaths) -> Arc<Vec<Arc<IndexedSession>>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = known.refresh(&place.sessions());
        if changed {
            let mut ordered: Vec<Arc<IndexedSession>> = known
                .by_name
                .values()
                .filter_map(|known| known.session.clone())
                .collect();
            ordered.sort_unstable_by(|a, b| (b.started_ms, &b.name).cmp(&(a.started_ms, &a.name)));
            known.ordered = Arc::new(ordered);
        }
        Arc::clone(&known.ordered)
    }
}

impl RememberedSessions {
    /// Whether anything is not as it was.
    fn refresh(&mut self, directory: &Path) -> bool {
        self.look += 1;
        let mut changed = false;
        let mut found = 0;
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| names::is_session_name(name)) else {
                continue;
            };
            found += 1;
            match self.by_name.get_mut(name) {
                Some(known) if known.inode == entry.ino() => {
                    known.seen = self.look;
                    if !known.is_settled() {
                        changed |= known.read_again(&directory.join(name));
                    }
                }
                _ => {
                    let mut new = RememberedSession::unread(entry.ino(), self.look);
                    new.read_again(&directory.join(name));
                    self.by_name.insert(name.to_owned(), new);
                    changed = true;
                }
            }
        }
        if self.by_name.len() > found {
            let look = self.look;
            self.by_name.retain(|_, known| known.seen == look);
            self.by_name.shrink_to(found * 2);
            changed = true;
        }
        changed
    }
}

impl RememberedSession {
    fn unread(inode: u64, seen: u64) -> Self {
        Self {
            inode,
            version: StatusVersion::default(),
            session: None,
            seen,
        }
    }

    /// Whether no process writes its status any more.
    fn is_settled(&self) -> bool {
        let settled = |session: &Arc<IndexedSession>| session.is_final && session.background;
        self.session.as_ref().is_some_and(settled)
    }

    /// Reads the status if it is another one. Whether the session is not as it was.
    fn read_again(&mut self, directory: &Path) -> bool {
        let version = StatusVersion::of(&TranscriptStatus::path(directory)).unwrap_or_default();
        if version == self.version {
            return false;
        }
        let session = TranscriptStatus::read(directory).ok().and_then(indexed);
        let changed = session != self.session;
        (self.version, self.session) = (version, session);
        changed
    }
}

impl StatusVersion {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            inode: metadata.ino(),
            length: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

fn indexed(status: TranscriptStatus) -> Option<Arc<IndexedSession>> {
    let session = status.session?;
    let ended_ms = status.ended_ms.filter(|_| status.outcome.is_final());
    Some(Arc::new(IndexedSession {
        due_ms: ended_ms.map(|ended| ended.saturating_add(session.cleanup_ms)),
        name: session.name,
        agent_id: session.agent_id,
        owner: session.owner,
        session_key: session.session_key,
        supervisor: session.supervisor,
        background: session.background,
        started_ms: status.started_ms,
        is_final: status.outcome.is_final(),
    }))
}
