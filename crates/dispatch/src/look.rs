//! How the gateway learns of what other processes store: the command line, a companion, a node host.
//!
//! One thread watches the store, and each reader of the record has a [`RecordLook`]. A reader is woken by
//! the first change at once; those that follow it closely are one look together.

use std::sync::Arc;
use std::time::Duration;

use interlock_store::StoreWatch;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::dispatcher::Dispatcher;

/// The record is read so often in any case: a deferred change wakes no reader.
const AT_LEAST: Duration = Duration::from_secs(1);

/// How often readers look where the kernel has no watch left for this user.
const UNWATCHED: Duration = Duration::from_millis(100);

/// How often the thread that watches looks whether the gateway has ended.
const STOP_LOOK: Duration = Duration::from_secs(10);

/// What that thread needs and some more.
const STACK_BYTES: usize = 128 * 1024;

/// Where readers of the record hear that something may be new.
#[derive(Debug, Default)]
pub struct RecordChanges {
    changes: watch::Sender<()>,
}

impl RecordChanges {
    /// A reader that looks at most once in this time.
    pub fn look(&self, every: Duration) -> RecordLook {
        RecordLook {
            changes: self.changes.subscribe(),
            every,
            last: None,
        }
    }
}

/// One reader of the record.
#[derive(Debug)]
pub struct RecordLook {
    changes: watch::Receiver<()>,
    every: Duration,
    last: Option<Instant>,
}

impl RecordLook {
    /// Returns when there may be something new in the record.
    pub async fn again(&mut self) {
        if let Some(last) = self.last {
            sleep_until(last + self.every).await;
        }
        // Before the record is read: what comes in between is seen the next time.
        let _ = timeout(AT_LEAST, self.changes.changed()).await;
        self.last = Some(Instant::now());
    }
}

/// Wakes the readers until the gateway ends, from a thread of its own, which waits for the watch. Without
/// that thread they look every second.
pub fn follow(dispatcher: &Arc<Dispatcher>) {
    let watch = dispatcher.host.store().watch();
    let dispatcher = Arc::downgrade(dispatcher);
    let wake = move || {
        let is_there = || {
            dispatcher
                .upgrade()
                .filter(|here| !here.stop.is_cancelled())
        };
        while let Some(dispatcher) = is_there() {
            dispatcher.record.changes.send_replace(());
            drop(dispatcher);
            while !wait(watch.as_ref()) {
                if is_there().is_none() {
                    return;
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("store watch".to_owned());
    if let Err(error) = thread.stack_size(STACK_BYTES).spawn(wake) {
        tracing::warn!(%error, "what other processes store is seen late");
    }
}

/// Whether there may be something new.
fn wait(watch: Option<&StoreWatch>) -> bool {
    let Some(watch) = watch else {
        std::thread::sleep(UNWATCHED);
        return true;
    };
    watch.wait(STOP_LOOK)
}
