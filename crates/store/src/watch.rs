//! Wakes a process as soon as another process has stored something.
//!
//! The bell is a file beside the database. A process that stores something that others wait for (an
//! approval, its end, its claim, an event) opens the bell, and the kernel wakes every process that
//! watches the file. The bell says only that something may be new, so a watcher reads the store. A
//! lost ring delays a watcher until its next look, which happens every second in any case.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;

use crate::database::Store;
use crate::disk::file_beside;

/// The ending of the bell's file name, after the name of the database. The file is empty. The first
/// process that watches creates it.
const BELL_ENDING: &str = "-bell";

/// The file that a process opens to wake the watchers.
#[derive(Debug)]
pub(crate) struct Bell {
    /// `None` if the database has no file.
    path: Option<PathBuf>,
}

impl Bell {
    pub(crate) fn of(connection: &Connection) -> Self {
        let path = file_beside(connection, BELL_ENDING);
        Self { path }
    }

    /// Wakes all processes that watch. If the bell does not exist, no process watches.
    pub(crate) fn ring(&self) {
        let _ = self.path.as_ref().map(File::open);
    }
}

/// A watch over what processes store. Anything stored since the watch began, or since the last
/// wait, ends the next wait at once. So a watcher must begin to watch first, then read, then wait.
#[derive(Debug)]
pub struct StoreWatch {
    rings: OwnedFd,
}

impl Store {
    /// Begins to watch. Returns `None` if the kernel has no watch left for this user. The caller
    /// must then look again from time to time.
    pub fn watch(&self) -> Option<StoreWatch> {
        let rings = watch_opens(self.bell().path.as_ref()?).ok()?;
        Some(StoreWatch { rings })
    }
}

fn watch_opens(path: &Path) -> io::Result<OwnedFd> {
    let rings = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    if inotify::add_watch(&rings, path, inotify::WatchFlags::OPEN).is_err() {
        let mut bell = OpenOptions::new();
        bell.create(true).append(true).mode(0o600).open(path)?;
        inotify::add_watch(&rings, path, inotify::WatchFlags::OPEN)?;
    }
    Ok(rings)
}

impl StoreWatch {
    /// Waits at most `longest` for something new. Returns whether there may be something.
    pub fn wait(&self, longest: Duration) -> bool {
        let mut rings = [PollFd::new(&self.rings, PollFlags::IN)];
        // A signal ends the wait early. The caller then looks once more than needed.
        let rung = poll(&mut rings, Timespec::try_from(longest).ok().as_ref());
        let is_rung = rung.is_ok_and(|rung| rung > 0);
        if is_rung {
            self.clear();
        }
        is_rung
    }

    /// Forgets the rings up to now. The caller must read the store after this call, not before.
    pub fn clear(&self) {
        let mut space = [MaybeUninit::uninit(); 1024];
        let mut rings = inotify::Reader::new(&self.rings, &mut space);
        while rings.next().is_ok() {}
    }
}

/// The descriptor is readable when something may be new.
impl AsFd for StoreWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.rings.as_fd()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use serde_json::json;

    use crate::{EventKind, NewEvent, Store};

    fn append_event(store: &Store, run_id: &str) {
        let event = NewEvent {
            session_key: "agent:main:main",
            agent: "main",
            kind: EventKind::Finished,
            run_id,
            text: "done",
            payload: &json!({}),
            now_ms: 1,
            wakes: false,
        };
        store.change(|change| change.append_event(&event)).unwrap();
    }

    #[test]
    fn a_watch_is_woken_by_another_process_that_stores_an_event() {
        let directory = tempfile::tempdir().unwrap();
        let (watching, storing) = (
            Store::open(directory.path()).unwrap(),
            Store::open(directory.path()).unwrap(),
        );
        let watch = watching.watch().unwrap();
        assert!(!watch.wait(Duration::ZERO), "nothing was stored yet");
        append_event(&storing, "run-1");
        assert!(
            watch.wait(Duration::from_mins(1)),
            "the event did not wake the watch"
        );
        assert_eq!(watching.last_event().unwrap(), 1);
        assert!(
            !watch.wait(Duration::ZERO),
            "a wait takes the rings before it"
        );
    }

    #[test]
    fn what_no_process_waits_for_wakes_no_watch() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let watch = store.watch().unwrap();
        store.events_read("reader", 1).unwrap();
        assert!(!watch.wait(Duration::ZERO));
        append_event(&store, "run-1");
        append_event(&store, "run-1");
        watch.clear();
        append_event(&store, "run-1");
        assert!(!watch.wait(Duration::ZERO), "the same event is stored once");
    }
}
