//! Output shown as it comes, on our own streams.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use interlock_run::{OutputSink, StreamKind};

use crate::output;

/// What may wait for a slow reader. Beyond it the run waits too, as at any full pipe.
const MAX_WAITING: usize = 1024 * 1024;

/// A slow reader slows the run down, but neither its time limit nor its end: then whatever
/// finds no room is counted instead of shown. A reader that went away stops the showing, not the
/// run.
#[derive(Debug, Clone)]
pub struct Live(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// When the run will be ended.
    deadline: Option<Instant>,
}

#[derive(Debug, Default)]
struct Waiting {
    chunks: VecDeque<(StreamKind, Vec<u8>)>,
    /// In the queue or being written.
    bytes: usize,
    is_hurried: bool,
    not_shown: u64,
}

impl Live {
    /// Starts to show. The thread ends with the process.
    pub fn start(time_limit: Option<Duration>) -> Self {
        let live = Self(Arc::new(Shared {
            waiting: Mutex::default(),
            changed: Condvar::new(),
            deadline: time_limit.and_then(|limit| Instant::now().checked_add(limit)),
        }));
        let shared = Arc::clone(&live.0);
        std::thread::spawn(move || shared.show());
        live
    }

    /// From now on nothing waits for the reader.
    pub fn hurry(&self) {
        self.0.waiting().is_hurried = true;
        self.0.changed.notify_all();
    }

    /// Waits until everything is shown, at most this long, and returns how many bytes never will.
    pub fn finish(&self, patience: Option<Duration>) -> u64 {
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        let mut waiting = self.0.waiting();
        while waiting.bytes > 0 {
            let Some(next) = self.0.wait(waiting, until) else {
                return 0;
            };
            waiting = next;
        }
        waiting.not_shown
    }
}

impl OutputSink for Live {
    fn output(&self, stream: StreamKind, bytes: &[u8]) {
        let mut waiting = self.0.waiting();
        while waiting.bytes >= MAX_WAITING && !waiting.is_hurried {
            let Some(next) = self.0.wait(waiting, self.0.deadline) else {
                waiting = self.0.waiting();
                break;
            };
            waiting = next;
        }
        if waiting.bytes >= MAX_WAITING {
            waiting.not_shown += bytes.len() as u64;
            return;
        }
        waiting.bytes += bytes.len();
        waiting.chunks.push_back((stream, bytes.to_vec()));
        self.0.changed.notify_all();
    }
}

impl Shared {
    fn show(&self) {
        let mut waiting = self.waiting();
        loop {
            let Some((stream, bytes)) = waiting.chunks.pop_front() else {
                waiting = self
                    .changed
                    .wait(waiting)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(waiting);
            match stream {
                StreamKind::Stdout | StreamKind::Terminal => output::print_bytes(&bytes),
                // Whether anybody reads it changes nothing.
                StreamKind::Stderr => drop(std::io::stderr().write_all(&bytes)),
            }
            waiting = self.waiting();
            waiting.bytes -= bytes.len();
            self.changed.notify_all();
        }
    }

    /// Waits for a change; `None` when the time is over.
    fn wait<'a>(
        &self,
        waiting: MutexGuard<'a, Waiting>,
        until: Option<Instant>,
    ) -> Option<MutexGuard<'a, Waiting>> {
        let Some(until) = until else {
            let woken = self.changed.wait(waiting);
            return Some(woken.unwrap_or_else(PoisonError::into_inner));
        };
        let left = until.checked_duration_since(Instant::now())?;
        let woken = self.changed.wait_timeout(waiting, left);
        Some(woken.unwrap_or_else(PoisonError::into_inner).0)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
