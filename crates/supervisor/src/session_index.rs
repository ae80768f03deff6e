//! Remembers the sessions on disk for a long-lived process, so that a long list does not have to be
//! read again completely.
//!
//! A session that has ended in the background never changes again, so only its name is looked up.
//! For every other session, the times of its status file show whether it must be read again. The
//! index filters and sorts; the details of a session are read from its files.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use interlock_transcript::TranscriptStatus;

use crate::names;
use crate::paths::SupervisorPaths;

/// The values by which lists are filtered and sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedSession {
    pub name: String,
    pub agent_id: String,
    pub owner: Option<String>,
    pub session_key: Option<String>,
    /// The instance of the supervisor that the session belongs to.
    pub supervisor: String,
    pub background: bool,
    pub started_ms: u64,
    /// Whether the status says that the session has ended.
    pub is_final: bool,
    /// When an ended session is due to be removed.
    pub due_ms: Option<u64>,
}

/// The sessions of one state directory, as the last look found them.
#[derive(Debug, Default)]
pub struct SessionIndex {
    known: Mutex<RememberedSessions>,
}

#[derive(Debug, Default)]
struct RememberedSessions {
    by_name: HashMap<String, RememberedSession>,
    /// The sessions, newest first.
    ordered: Arc<Vec<Arc<IndexedSession>>>,
    /// Counts the looks. A session that the last look did not find is gone.
    look: u64,
}

#[derive(Debug)]
struct RememberedSession {
    /// The inode of the directory, because a name can be reused.
    inode: u64,
    version: StatusVersion,
    /// `None` if the status names no session, or cannot be read.
    session: Option<Arc<IndexedSession>>,
    seen: u64,
}

/// Identifies the version of a status file. The file is replaced by a rename, or overwritten if the
/// disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct StatusVersion {
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

impl SessionIndex {
    /// Returns all sessions that are on disk now, newest first.
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
    /// Updates the index, and returns whether anything has changed.
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

    /// Whether no process writes the status anymore.
    fn is_settled(&self) -> bool {
        let settled = |session: &Arc<IndexedSession>| session.is_final && session.background;
        self.session.as_ref().is_some_and(settled)
    }

    /// Reads the status if its file has changed. Returns whether the session has changed.
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
