//! The sessions on disk: which exist, which are lost, and when they are removed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use interlock_transcript::{
    SessionOutcome, SessionRecord, TranscriptReader, TranscriptStatus, now_ms,
};

use super::paths::SupervisorPaths;
use crate::names;

/// One session of the state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSession {
    pub session: SessionRecord,
    pub status: TranscriptStatus,
    pub state: SessionState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    Running,
    /// The session's status says how it ended.
    Ended,
    /// Its supervisor is gone, and the session with it.
    Lost,
}

impl SessionState {
    /// Determines the state of a session. `living` is the same as for [`list`]. A caller that
    /// determines it after it read the status never mistakes a session of a newly started
    /// supervisor for a lost one.
    pub fn of(session: &SessionRecord, status: &TranscriptStatus, living: &[String]) -> Self {
        match status.outcome {
            SessionOutcome::Running if living.contains(&session.supervisor) => Self::Running,
            SessionOutcome::Running | SessionOutcome::Lost => Self::Lost,
            _ => Self::Ended,
        }
    }
}

/// Returns all sessions, oldest first, except those that have ended and whose result is just being
/// handed over, which are kept only if no caller takes the result. `living` are the instances of
/// living supervisors; they must be determined after the list was requested and before this call.
pub fn list(place: &SupervisorPaths, living: &[String]) -> Vec<ListedSession> {
    let mut all: Vec<ListedSession> = each(place)
        .filter_map(|(_, status)| {
            let session = status.session.clone()?;
            Some(ListedSession {
                state: SessionState::of(&session, &status, living),
                session,
                status,
            })
        })
        .collect();
    all.sort_by(|a, b| {
        (a.status.started_ms, &a.session.name).cmp(&(b.status.started_ms, &b.session.name))
    });
    all
}

/// Returns the run of the shim that [`PeerOrigin::Run`](super::PeerOrigin::Run) names. `None` in
/// the first moments of a run, before it is recorded, and if it is unknown which run it is.
pub fn served_by(place: &SupervisorPaths, shim: i32) -> Option<SessionRecord> {
    let running = each(place).filter(|(_, status)| status.outcome == SessionOutcome::Running);
    let sessions = running.filter_map(|(_, status)| status.session);
    let mut own = sessions.filter(|session| session.shim == Some(shim));
    own.next().filter(|_| own.next().is_none())
}

/// Marks running sessions as lost if their supervisor is not among the living.
pub(super) fn mark_lost(place: &SupervisorPaths, is_living: impl Fn(&str) -> bool) {
    for (name, status) in each(place) {
        let lost = status.outcome == SessionOutcome::Running
            && status
                .session
                .is_some_and(|session| !is_living(&session.supervisor));
        if !lost {
            continue;
        }
        mark_session_lost(place, &name);
    }
}

/// Marks a session as lost whose status says that it runs, but which is known not to.
pub(super) fn mark_session_lost(place: &SupervisorPaths, name: &str) {
    let directory = place.session(name);
    let Ok(transcript) = TranscriptReader::open(&directory) else {
        return;
    };
    if let Ok(mut status) = transcript.as_lost() {
        if let Some(session) = &mut status.session {
            session.background = true;
        }
        let _ = status.write(&directory);
    }
}

/// Removes directories that were reserved for a session that never began. All shims must be gone,
/// or the directories must be older than any shim waits.
pub(super) fn remove_reserved(place: &SupervisorPaths, older_than: Duration) {
    let Ok(entries) = fs::read_dir(place.sessions()) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        // The time of the last renaming counts, because the directory may have had another name
        // before.
        let named = entry.metadata().map(|metadata| metadata.ctime());
        let is_old = named.is_ok_and(|seconds| {
            let named = UNIX_EPOCH + Duration::from_secs(seconds.try_into().unwrap_or(0));
            let age = SystemTime::now().duration_since(named);
            age.is_ok_and(|age| age >= older_than)
        });
        if is_old && !TranscriptStatus::path(&path).exists() {
            let _ = fs::remove_dir_all(path);
        }
    }
}

fn each(place: &SupervisorPaths) -> impl Iterator<Item = (String, TranscriptStatus)> {
    fs::read_dir(place.sessions())
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            if !names::is_session_name(&name) {
                return None;
            }
            let status = TranscriptStatus::read(&entry.path()).ok()?;
            Some((name, status))
        })
}

/// Most finished sessions that are kept at once. A caller can start as many runs as the machine can
/// carry, and each leaves a directory, however little it wrote.
const MOST_KEPT: usize = 10_000;

/// When finished sessions are removed, and how much space they take until then.
#[derive(Debug, Default)]
pub(super) struct KeptSessions {
    due: BinaryHeap<Reverse<(u64, String, u64)>>,
    bytes: u64,
}

impl KeptSessions {
    /// Loads all existing sessions.
    pub fn load(place: &SupervisorPaths) -> Self {
        let mut kept = Self::default();
        for (name, status) in each(place) {
            if status.outcome.is_final() {
                kept.add(place, name, &status);
            }
        }
        kept
    }

    /// Adds a session that has just ended.
    pub fn ended(&mut self, place: &SupervisorPaths, name: String) {
        if let Ok(status) = TranscriptStatus::read(&place.session(&name))
            && status.outcome.is_final()
        {
            self.add(place, name, &status);
        }
    }

    fn add(&mut self, place: &SupervisorPaths, name: String, status: &TranscriptStatus) {
        let keep = status
            .session
            .as_ref()
            .map_or(0, |session| session.cleanup_ms);
        let due = status.ended_ms.unwrap_or_else(now_ms).saturating_add(keep);
        let bytes = size(&place.session(&name));
        self.bytes += bytes;
        self.due.push(Reverse((due, name, bytes)));
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the time until the next session is due.
    pub fn next_due(&self) -> Option<Duration> {
        let Reverse((due, ..)) = self.due.peek()?;
        Some(Duration::from_millis(due.saturating_sub(now_ms())))
    }

    /// Removes sessions that are due, and then the oldest ones as long as they are too many or take
    /// more than `most_bytes` in total.
    pub fn remove_due(&mut self, place: &SupervisorPaths, most_bytes: u64) {
        self.remove(place, most_bytes, MOST_KEPT);
    }

    fn remove(&mut self, place: &SupervisorPaths, most_bytes: u64, most: usize) {
        let now = now_ms();
        while let Some(Reverse((due, ..))) = self.due.peek() {
            if *due > now && self.bytes <= most_bytes && self.due.len() <= most {
                return;
            }
            if let Some(Reverse((_, name, bytes))) = self.due.pop() {
                self.bytes = self.bytes.saturating_sub(bytes);
                remove_finished(place, &name);
            }
        }
    }
}

/// Removes a session that is due. Another session may have got its name since.
pub(super) fn remove_due_session(place: &SupervisorPaths, name: &str, now: u64) {
    let directory = place.session(name);
    let Ok(status) = TranscriptStatus::read(&directory) else {
        return;
    };
    let keep = status.session.as_ref().map(|session| session.cleanup_ms);
    let due = status
        .ended_ms
        .zip(keep)
        .map(|(ended, keep)| ended.saturating_add(keep));
    if status.outcome.is_final() && due.is_some_and(|due| due <= now) {
        let _ = fs::remove_dir_all(directory);
    }
}

/// Removes a session that has ended. If it was removed and its name reused, the new session is left
/// alone.
pub(super) fn remove_finished(place: &SupervisorPaths, name: &str) {
    let directory = place.session(name);
    if TranscriptStatus::read(&directory).is_ok_and(|status| status.outcome.is_final()) {
        let _ = fs::remove_dir_all(directory);
    }
}

fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A session that ended a minute ago, and is kept for half an hour.
    fn leave(place: &SupervisorPaths, name: &str, ended_ms: u64) {
        let directory = place.session(name);
        fs::create_dir_all(&directory).unwrap();
        let status = json!({
            "outcome": { "state": "exited", "code": 0 },
            "startedMs": ended_ms - 1_000,
            "endedMs": ended_ms,
            "totals": { "bytes": 0, "lines": 0, "droppedBytes": 0, "lostBytes": 0 },
            "session": {
                "id": "0", "name": name, "title": "cargo test", "agentId": "main",
                "command": "cargo test", "cwd": "/", "pty": false, "writable": false,
                "raceFree": true, "background": true, "cleanupMs": 1_800_000,
                "supervisor": "gone", "outOfMemory": false,
            },
        });
        fs::write(directory.join("status.json"), status.to_string()).unwrap();
    }

    #[test]
    fn of_too_many_finished_sessions_the_oldest_go() {
        let state = tempfile::tempdir().unwrap();
        let place = SupervisorPaths::new(state.path());
        let names = ["calm-reef", "calm-pond", "calm-lake", "calm-bay"];
        let newest = now_ms() - 60_000;
        for (number, name) in (0..).zip(names) {
            leave(&place, name, newest - number);
        }
        let there = || names.map(|name| place.session(name).exists());
        let mut kept = KeptSessions::load(&place);
        kept.remove_due(&place, u64::MAX);
        assert_eq!(there(), [true; 4]);
        kept.remove(&place, u64::MAX, 2);
        assert_eq!(there(), [true, true, false, false]);
    }
}
