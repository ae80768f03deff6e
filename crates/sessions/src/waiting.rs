//! Whether a session waits for input.
//!
//! It does only if a foreground process is found blocked in reading the session's input. All
//! evidence comes from `/proc`; without evidence the answer is no.

mod blocked;
mod table;

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use interlock_supervisor::{About, SupervisorPaths};
use interlock_transcript::{SessionRecord, TranscriptStatus};

use blocked::SessionInput;
use table::Table;

/// A session that was silent for less time may still be busy.
const SILENCE: Duration = Duration::from_secs(15);

/// One inspection of all sessions. It reads the system's process table once, and only if needed.
pub(super) struct WaitingLook<'a> {
    place: &'a SupervisorPaths,
    supervisors: &'a [About],
    now_ms: u64,
    table: OnceCell<Table>,
}

impl<'a> WaitingLook<'a> {
    pub fn new(place: &'a SupervisorPaths, supervisors: &'a [About], now_ms: u64) -> Self {
        Self {
            place,
            supervisors,
            now_ms,
            table: OnceCell::new(),
        }
    }

    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Whether a running session waits for input.
    pub fn waits_for_input(&self, session: &SessionRecord, status: &TranscriptStatus) -> bool {
        let directory = self.place.session(&session.name);
        session.writable
            && self.is_silent(&directory, status)
            && self.is_read(session, &directory).unwrap_or(false)
    }

    fn is_silent(&self, directory: &Path, status: &TranscriptStatus) -> bool {
        let last = last_output_ms(directory).unwrap_or(self.now_ms);
        let last = last.max(status.started_ms);
        u128::from(self.now_ms.saturating_sub(last)) >= SILENCE.as_millis()
    }

    fn is_read(&self, session: &SessionRecord, directory: &Path) -> Option<bool> {
        let table = self.table.get_or_init(Table::read);
        let holder = self.holder(table, session, directory)?;
        let terminal = table.terminal(holder);
        let input = SessionInput::recorded(session, terminal);
        let input = input.or_else(|| SessionInput::held_by(holder, session.pty))?;
        let mut below = table.descendants(holder);
        Some(below.any(|row| input.is_in_foreground(row) && input.is_awaited_by(row.pid)))
    }

    /// The process that serves the session: the one that holds its transcript open. Process ids are
    /// reused; open descriptors cannot be mistaken.
    fn holder(&self, table: &Table, session: &SessionRecord, directory: &Path) -> Option<i32> {
        let supervisor = self
            .supervisors
            .iter()
            .find(|about| about.instance == session.supervisor)?;
        // The process that serves the session is closed to other processes of its user, so its
        // parent identifies it.
        let is_served = |shim: &i32| table.parent(*shim) == Some(supervisor.pid);
        if let Some(shim) = session.shim.filter(is_served) {
            return Some(shim);
        }
        let directory = fs::canonicalize(directory).ok()?;
        let parent = session.pid.and_then(|pid| table.parent(pid));
        parent
            .into_iter()
            .chain(table.children(supervisor.pid))
            .find(|pid| holds_transcript(*pid, &directory))
    }
}

fn holds_transcript(pid: i32, directory: &Path) -> bool {
    descriptors(pid).any(|(_, target)| target.parent() == Some(directory))
}

/// The descriptors of a process and their targets.
fn descriptors(pid: i32) -> impl Iterator<Item = (i32, PathBuf)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd"));
    entries.into_iter().flatten().flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, fs::read_link(entry.path()).ok()?))
    })
}

/// When the transcript was last written.
fn last_output_ms(directory: &Path) -> Option<u64> {
    let entries = fs::read_dir(directory).ok()?.flatten();
    entries
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "bytes"))
        .filter_map(|entry| {
            let written = entry.metadata().ok()?.modified().ok()?;
            let since = written.duration_since(UNIX_EPOCH).ok()?;
            u64::try_from(since.as_millis()).ok()
        })
        .max()
}
