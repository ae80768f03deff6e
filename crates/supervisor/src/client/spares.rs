//! Connections to processes that already wait for an order: those of runs that have just ended, and
//! one more in advance.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use interlock_plan::RunPlan;
use rustix::net::RecvFlags;

use crate::frame::Incoming;
use crate::message::ShimReady;

/// Most spare connections. Each one holds a process that other clients cannot have meanwhile.
const MOST: usize = 16;

/// Longest ready message, which is more than a process needs.
const MAX_READY: usize = 64;

/// The spare connections, shared by all clones of a client.
#[derive(Debug, Default)]
pub(super) struct Spares {
    are_wanted: AtomicBool,
    /// The connection that was used last is at the end, and is used first.
    connections: Mutex<Vec<Spare>>,
}

/// The runs that a process can have: those of one agent, and either in one sandbox scope or in
/// none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SpareKey {
    agent: String,
    scope: Option<String>,
}

impl SpareKey {
    pub fn of(plan: &RunPlan) -> Self {
        let sandbox = plan.sandbox.as_ref();
        Self {
            agent: plan.agent_id.clone(),
            scope: sandbox.map(|sandbox| sandbox.scope_id.clone()),
        }
    }
}

#[derive(Debug)]
struct Spare {
    connection: UnixStream,
    /// The kind of runs that the process had, or `None` if it had no run yet.
    had: Option<SpareKey>,
    /// The ready message that is awaited from the process, or `None` if it is ready.
    awaited: Option<Incoming>,
}

/// The state of a spare connection.
enum SpareState {
    Ready,
    /// Its process is still cleaning up.
    NotYet,
    /// Its process is ending, or serves another client.
    Gone,
}

impl Spares {
    pub fn want(&self) {
        self.are_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether there is no process that could have a run of any agent.
    pub fn are_missing(&self) -> bool {
        let is_for_any = |spare: &Spare| spare.had.is_none();
        self.are_wanted.load(Ordering::Relaxed) && !self.lock().iter().any(is_for_any)
    }

    /// Whether one more connection can be kept. Those whose processes are gone make room, because
    /// their agents may not come back.
    pub fn have_room(&self) -> bool {
        let mut spares = self.lock();
        if spares.len() >= MOST {
            spares.retain_mut(|spare| !matches!(spare.look(), SpareState::Gone));
        }
        self.are_wanted.load(Ordering::Relaxed) && spares.len() < MOST
    }

    /// Adds the connection of a process that had no run yet.
    pub fn add(&self, connection: UnixStream) {
        self.push(Spare {
            connection,
            had: None,
            awaited: None,
        });
    }

    /// Adds the connection of a run that has ended. Once its process is ready, it takes another
    /// order of the same kind.
    pub fn add_when_ready(&self, connection: UnixStream, key: SpareKey) {
        self.push(Spare {
            connection,
            had: Some(key),
            awaited: Some(Incoming::new(MAX_READY)),
        });
    }

    fn push(&self, spare: Spare) {
        self.lock().push(spare);
    }

    /// Takes a connection whose process is ready for a run of this kind, because it had runs of the
    /// same kind or none. The process may still be gone when it gets an order; then it has read
    /// nothing of the order.
    pub fn take(&self, key: &SpareKey) -> Option<UnixStream> {
        let mut spares = self.lock();
        let used = |spare: &Spare| spare.had.as_ref() == Some(key);
        let unused = |spare: &Spare| spare.had.is_none();
        take_ready(&mut spares, used).or_else(|| take_ready(&mut spares, unused))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the last of these connections that is ready. Those whose processes are gone are dropped.
fn take_ready(spares: &mut Vec<Spare>, fits: impl Fn(&Spare) -> bool) -> Option<UnixStream> {
    let mut index = spares.len();
    while let Some(before) = index.checked_sub(1) {
        index = before;
        let spare = spares.get_mut(index)?;
        if !fits(spare) {
            continue;
        }
        match spare.look() {
            SpareState::Ready => return Some(spares.remove(index).connection),
            SpareState::NotYet => {}
            SpareState::Gone => drop(spares.remove(index)),
        }
    }
    None
}

impl Spare {
    /// Reads what the process has sent, without waiting for it.
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
        // A process that is ready sends nothing more; a process that is gone has closed the
        // connection.
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match rustix::net::recv(&self.connection, &mut [0], flags) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => SpareState::Ready,
            Ok(_) | Err(_) => SpareState::Gone,
        }
    }
}
