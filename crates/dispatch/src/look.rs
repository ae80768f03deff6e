//! Notifies the gateway of changes that other processes store: the command line, a companion, a
//! node host.
//!
//! One thread watches the store, and each reader of the record has a [`RecordLook`]. The first
//! change wakes a reader at once; changes that follow closely are combined.

use std::sync::Arc;
use std::time::Duration;

use interlock_store::StoreWatch;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::dispatcher::Dispatcher;

/// The longest interval between two reads of the record: a deferred change wakes no reader.
const AT_LEAST: Duration = Duration::from_secs(1);

/// How often readers read if the kernel has no file watch left for this user.
const UNWATCHED: Duration = Duration::from_millis(100);

/// How often the watching thread checks whether the gateway has stopped.
const STOP_LOOK: Duration = Duration::from_secs(10);

/// Somewhat more stack than that thread needs.
const STACK_BYTES: usize = 128 * 1024;

/// Notifies readers of the record that something may be new.
#[derive(Debug, Default)]
pub struct RecordChanges {
    changes: watch::Sender<()>,
}

impl RecordChanges {
    /// A reader that reads at most once in this time.
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
    /// Returns when the record may contain something new.
    pub async fn again(&mut self) {
        if let Some(last) = self.last {
            sleep_until(last + self.every).await;
        }
        // The wait ends before the record is read, so that changes during the read are seen the
        // next time.
        let _ = timeout(AT_LEAST, self.changes.changed()).await;
        self.last = Some(Instant::now());
    }
}

/// Wakes the readers until the gateway stops, from a separate thread that waits for the watch.
/// Without that thread, readers read every second.
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

/// Returns whether something may be new.
fn wait(watch: Option<&StoreWatch>) -> bool {
    let Some(watch) = watch else {
        std::thread::sleep(UNWATCHED);
        return true;
    };
    watch.wait(STOP_LOOK)
}
