//! The queue of the writer: waiting callers with their own changes, and deferred changes.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rusqlite::Connection;

use crate::error::StoreError;

/// The most deferred changes in the queue. A caller that defers more must wait.
pub(super) const MAX_DEFERRED: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    /// How many callers wait for the connection to make their change.
    pub(super) callers: usize,
    deferred: VecDeque<QueuedChange>,
    /// The number of the next deferred change.
    pub(super) next_number: u64,
    /// Why the next deferred change could not be written, if it was tried already.
    pub(super) last_failure: Option<StoreError>,
    /// Whether a thread writes the deferred changes if no caller does so first.
    pub(super) is_attended: bool,
}

type DeferredWork = Box<dyn Fn(&Connection) -> Result<(), StoreError> + Send>;

/// A deferred change. It may be made several times, until it is written once.
pub(super) struct QueuedChange {
    number: u64,
    work: DeferredWork,
    failed: Box<dyn FnOnce(&StoreError) + Send>,
}

impl fmt::Debug for QueuedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number;
        write!(f, "QueuedChange({number})")
    }
}

impl QueuedChange {
    pub(super) fn make(&self, connection: &Connection) -> Result<(), StoreError> {
        (self.work)(connection)
    }

    /// Reports that the change will not be written. A panic in the report has no further effect.
    pub(super) fn fail(self, error: &StoreError) {
        let _ = catch_unwind(AssertUnwindSafe(|| (self.failed)(error)));
    }
}

/// Reports that none of these changes will be written.
pub(super) fn fail_all(changes: impl IntoIterator<Item = QueuedChange>, error: &StoreError) {
    for change in changes {
        change.fail(error);
    }
}

impl WriteQueue {
    pub(super) fn defer(
        &mut self,
        work: impl Fn(&Connection) -> Result<(), StoreError> + Send + 'static,
        failed: impl FnOnce(&StoreError) + Send + 'static,
    ) {
        self.deferred.push_back(QueuedChange {
            number: self.next_number,
            work: Box::new(work),
            failed: Box::new(failed),
        });
        self.next_number += 1;
    }

    pub(super) fn deferred(&self) -> usize {
        self.deferred.len()
    }

    pub(super) fn next_deferred(&mut self) -> Option<QueuedChange> {
        self.last_failure = None;
        self.deferred.pop_front()
    }

    /// Whether the queue holds a deferred change with a lower number than this.
    pub(super) fn has_deferred_before(&self, number: u64) -> bool {
        let next = self.deferred.front();
        next.is_some_and(|change| change.number < number)
    }

    /// Removes and returns the deferred changes with a lower number than this.
    pub(super) fn take_before(&mut self, number: u64) -> VecDeque<QueuedChange> {
        let end = self
            .deferred
            .partition_point(|change| change.number < number);
        let rest = self.deferred.split_off(end);
        std::mem::replace(&mut self.deferred, rest)
    }

    /// Puts changes that could not be written back at the front of the queue. Returns the changes
    /// for which there is no room.
    pub(super) fn requeue(
        &mut self,
        changes: Vec<QueuedChange>,
        failure: StoreError,
    ) -> VecDeque<QueuedChange> {
        for change in changes.into_iter().rev() {
            self.deferred.push_front(change);
        }
        self.last_failure = Some(failure);
        let kept = self.deferred.len().min(MAX_DEFERRED);
        self.deferred.split_off(kept)
    }
}
