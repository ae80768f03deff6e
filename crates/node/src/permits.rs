//! Permits for commands: they limit concurrent work, and detect a node whose commands no longer
//! finish.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Work besides runs takes milliseconds. Work that occupies all permits for this long does not end.
const STUCK_TIME: Duration = Duration::from_mins(5);
const LOOK_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct CommandPermits {
    free: Arc<Semaphore>,
    all: usize,
    finished: AtomicU64,
    /// Calls that wait for the end of a run, which may take any time.
    at_runs: AtomicUsize,
}

/// The permit of one running command.
#[derive(Debug)]
pub(crate) struct CommandPermit {
    _permit: OwnedSemaphorePermit,
    places: Arc<CommandPermits>,
}

impl Drop for CommandPermit {
    fn drop(&mut self) {
        self.places.finished.fetch_add(1, Ordering::Relaxed);
    }
}

impl CommandPermits {
    pub(crate) fn new(all: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(all)),
            all,
            finished: AtomicU64::new(0),
            at_runs: AtomicUsize::new(0),
        })
    }

    /// Waits for a permit. A permit is never revoked.
    pub(crate) async fn take(self: &Arc<Self>) -> Option<CommandPermit> {
        let permit = Arc::clone(&self.free).acquire_owned().await.ok()?;
        Some(CommandPermit {
            _permit: permit,
            places: Arc::clone(self),
        })
    }

    /// Marks the call as waiting for a run: its duration then does not indicate that the node is
    /// stuck.
    pub(crate) fn at_run<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.at_runs.fetch_add(1, Ordering::Relaxed);
        let waited = wait();
        self.at_runs.fetch_sub(1, Ordering::Relaxed);
        waited
    }

    /// Returns when all permits are taken, mostly not by runs, and nothing was finished for
    /// `STUCK_TIME`.
    pub(crate) async fn stuck(&self) {
        let mut watch = PermitsWatch::new(Instant::now());
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let seen = PermitsSeen {
                is_full: self.free.available_permits() == 0,
                is_for_runs: self.at_runs.load(Ordering::Relaxed) > self.all / 2,
                finished: self.finished.load(Ordering::Relaxed),
            };
            if watch.is_stuck(&seen, Instant::now()) {
                return;
            }
        }
    }
}

/// The observations of one check.
#[derive(Debug, Clone, Copy)]
struct PermitsSeen {
    is_full: bool,
    is_for_runs: bool,
    finished: u64,
}

#[derive(Debug)]
struct PermitsWatch {
    /// When the condition began.
    since: Instant,
    finished: u64,
}

impl PermitsWatch {
    fn new(now: Instant) -> Self {
        Self {
            since: now,
            finished: 0,
        }
    }

    fn is_stuck(&mut self, seen: &PermitsSeen, now: Instant) -> bool {
        if !seen.is_full || seen.is_for_runs || seen.finished != self.finished {
            *self = Self {
                since: now,
                finished: seen.finished,
            };
        }
        now.duration_since(self.since) >= STUCK_TIME
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a series of looks, one each minute, ends.
    fn is_stuck(minutes: u32, look: impl Fn(u32) -> PermitsSeen) -> bool {
        let start = Instant::now();
        let mut watch = PermitsWatch::new(start);
        (1..=minutes).any(|minute| watch.is_stuck(&look(minute), start + minute * STUCK_TIME / 5))
    }

    #[test]
    fn only_work_that_does_not_end_and_keeps_all_places_is_stuck() {
        let stuck = PermitsSeen {
            is_full: true,
            is_for_runs: false,
            finished: 0,
        };
        assert!(!is_stuck(4, |_| stuck));
        assert!(is_stuck(5, |_| stuck));
        let free = PermitsSeen {
            is_full: false,
            ..stuck
        };
        assert!(!is_stuck(100, |_| free));
        let runs = PermitsSeen {
            is_for_runs: true,
            ..stuck
        };
        assert!(!is_stuck(100, |_| runs));
        // Slow, but it goes on.
        let slow = |minute: u32| PermitsSeen {
            finished: u64::from(minute / 4),
            ..stuck
        };
        assert!(!is_stuck(100, slow));
        // It was free once: the time begins anew.
        let later = |minute: u32| if minute == 4 { free } else { stuck };
        assert!(!is_stuck(8, later));
        assert!(is_stuck(9, later));
    }

    #[tokio::test]
    async fn places_are_given_back_and_counted() {
        let places = CommandPermits::new(1);
        let place = places.take().await;
        assert!(place.is_some());
        assert_eq!(places.free.available_permits(), 0);
        drop(place);
        assert_eq!(places.free.available_permits(), 1);
        assert_eq!(places.finished.load(Ordering::Relaxed), 1);
        assert_eq!(places.at_run(|| places.at_runs.load(Ordering::Relaxed)), 1);
        assert_eq!(places.at_runs.load(Ordering::Relaxed), 0);
    }
}
