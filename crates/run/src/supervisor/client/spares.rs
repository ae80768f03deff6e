//! Connections whose processes wait for an order already: of runs that were over a moment ago, and
//! one more in advance.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::net::RecvFlags;

use crate::supervisor::frame::Incoming;
use crate::supervisor::message::ShimReady;

/// So many at most. Each is a process that others cannot have meanwhile.
const MOST: usize = 16;

/// More than a process needs to say that it is ready.
const MAX_READY: usize = 64;

/// Shared by all clones of a client.
#[derive(Debug, Default)]
pub(super) struct Spares {
    are_wanted: AtomicBool,
    /// Who was used last stands at the end, and is used first.
    connections: Mutex<Vec<Spare>>,
}

#[derive(Debug)]
struct Spare {
    connection: UnixStream,
    /// What its process says when it is ready for another order; none where it is.
    awaited: Option<Incoming>,
}

/// How a spare connection stands.
enum SpareState {
    Ready,
    /// Its process still tidies up.
    NotYet,
    /// Its process ends, or serves another client.
    Gone,
}

impl Spares {
    pub fn want(&self) {
        self.are_wanted.store(true, Ordering::Relaxed);
    }

    pub fn are_missing(&self) -> bool {
        self.are_wanted.load(Ordering::Relaxed) && self.lock().is_empty()
    }

    pub fn have_room(&self) -> bool {
        self.are_wanted.load(Ordering::Relaxed) && self.lock().len() < MOST
    }

    pub fn add(&self, connection: UnixStream) {
        self.push(Spare {
            connection,
            awaited: None,
        });
    }

    /// Adds the connection of a run that is over: as soon as its process says so, it takes another
    /// order.
    pub fn add_when_ready(&self, connection: UnixStream) {
        self.push(Spare {
            connection,
            awaited: Some(Incoming::new(MAX_READY)),
        });
    }

    fn push(&self, spare: Spare) {
        self.lock().push(spare);
    }

    /// One whose process waits now. It may still be gone when it is given an order; then it has
    /// read nothing of it.
    pub fn take(&self) -> Option<UnixStream> {
        let mut spares = self.lock();
        let mut index = spares.len();
        while let Some(before) = index.checked_sub(1) {
            index = before;
            match spares.get_mut(index)?.look() {
                SpareState::Ready => return Some(spares.remove(index).connection),
                SpareState::NotYet => {}
                SpareState::Gone => drop(spares.remove(index)),
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spare {
    /// Reads what its process has said, without waiting for it.
    fn look(&mut self) -> SpareState {
        while let Some(awaited) = &mut self.awaited {
            let wanted = awaited.wanted();
            match rustix::net::recv(&self.connection, wanted, RecvFlags::DONTWAIT) {
                Err(rustix::io::Errno::AGAIN) => return SpareState::NotYet,
                Err(rustix::io::Errno::INTR) => {}
                Ok((count @ 1.., _)) if awaited.got(count).is_ok() => {
                    if awaited.is_complete() {
                        let said = self.awaited.take().map(Incoming::message::<ShimReady>);
                        if !matches!(said, Some(Ok(_))) {
                            return SpareState::Gone;
                        }
                    }
                }
                Ok(_) | Err(_) => return SpareState::Gone,
            }
        }
        SpareState::Ready
    }
}
