//! Several processes write the record. Whether one of them has is seen at its file: nothing is read
//! while nothing happens.

use std::time::Duration;

use interlock_store::{Store, StoreMark};
use tokio::time::Instant;

/// The record is read so often in any case: a file may change twice without its time telling.
const AT_LEAST: Duration = Duration::from_secs(1);

/// How one reader of the record has seen its file.
#[derive(Debug, Default)]
pub struct RecordLook {
    seen: Option<StoreMark>,
}

impl RecordLook {
    /// Returns when there may be something new in the record. A change is seen after `every`.
    pub async fn again(&mut self, store: &Store, every: Duration) {
        let until = Instant::now() + AT_LEAST;
        loop {
            tokio::time::sleep(every).await;
            // Before the record is read: what comes in between is seen the next time.
            let now = store.mark();
            if now.is_none() || now != self.seen || Instant::now() >= until {
                self.seen = now;
                return;
            }
        }
    }
}
