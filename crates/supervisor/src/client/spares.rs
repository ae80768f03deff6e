//! Connections whose processes wait for an order already: of runs that were over a moment ago, and
//! one more in advance.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use interlock_plan::RunPlan;
use rustix::net::RecvFlags;

use crate::frame::Incoming;
use crate::message::ShimReady;

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

/// Whose runs a process can have: those of one agent, and either in one sandbox scope or in none.
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
    /// Whose runs its process had; none where it had no run yet.
    had: Option<SpareKey>,
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

    /// Whether there is none that could have a run of any agent.
    pub fn are_missing(&self) -> bool {
        let is_for_any = |spare: &Spare| spare.had.is_none();
        self.are_wanted.load(Ordering::Relaxed) && !self.lock().iter().any(is_for_any)
    }

    /// Whether one more can be kept. Those whose processes are gone make room: their agents may not
    /// come back.
    pub fn have_room(&self) -> bool {
        let mut spares = self.lock();
        if spares.len() >= MOST {
            spares.retain_mut(|spare| !matches!(spare.look(), SpareState::Gone));
        }
        self.are_wanted.load(Ordering::Relaxed) && spares.len() < MOST
    }

    /// Its process had no run yet.
    pub fn add(&self, connection: UnixStream) {
        self.push(Spare {
            connection,
            had: None,
            awaited: None,
        });
    }

    /// Adds the connection of a run that is over: as soon as its process says so, it takes another
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

    /// One whose process waits now, for a run of this kind: it had runs of the same kind, or no
    /// run. It may still be gone when it is given an order; then it has read nothing of it.
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

/// The last one of these that is ready. Those of them that are gone are dropped.
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
        // A process that is ready says nothing more; one that is gone has closed the connection.
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match rustix::net::recv(&self.connection, &mut [0], flags) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => SpareState::Ready,
            Ok(_) | Err(_) => SpareState::Gone,
        }
    }
}
