//! A run as its owner sees it: write to it, end it, wait for it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use interlock_plan::PtySize;
use interlock_plan::StartedPrograms;
use rustix::event::EventfdFlags;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use super::Usage;
use super::conductor::LineStop;
use super::registry::Registry;
use super::sandbox::RunSpace;
use super::streams;
use super::tree::Leftover;

/// Input that waits to be read. More than this at once is refused, not waited for.
const MAX_WAITING_INPUT: usize = 8 * 1024 * 1024;

/// End of file, typed at a terminal in its usual mode.
const END_OF_FILE_KEY: u8 = 0x04;

/// A started run. It goes on whether or not this value is kept.
#[derive(Debug)]
pub struct Run {
    pub(super) shared: Arc<RunShared>,
    pub(super) pid: Option<Pid>,
    pub(super) race_free: bool,
    pub(super) input_pipe: Option<u64>,
    pub(super) space: Option<Arc<RunSpace>>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOutcome {
    pub status: RunStatus,
    pub duration: Duration,
    /// What it left behind, as seen at its end.
    pub leftovers: Vec<Leftover>,
    pub usage: Usage,
    /// A sandboxed run started as many processes as it may have at one time: it may have reached that limit.
    #[serde(default)]
    pub may_lack_processes: bool,
    /// The programs that it started, where its sandbox logs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<StartedPrograms>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunStatus {
    /// By itself. In a line of several commands, one that was ended by a signal counts 128 and
    /// the signal, as in shells.
    Exited(i32),
    Signaled(i32),
    /// Ended because its time was over.
    TimedOut,
}

/// Why input was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RunInputError {
    #[error("the run does not read input, or no longer does")]
    Closed,
    #[error("the run has not read its earlier input yet")]
    Full,
}

/// Processes of a run that could not be ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} of its processes could not be ended", .0.len())]
pub struct StillThere(pub Vec<Leftover>);

/// What the owner of a run, its pump and its conductor share.
#[derive(Debug)]
pub(super) struct RunShared {
    pub registry: Arc<Registry>,
    /// Wakes the pump.
    wake: OwnedFd,
    terminal: Option<Arc<OwnedFd>>,
    orders: Mutex<Orders>,
    report: Mutex<RunReport>,
    changed: Condvar,
}

/// From the owner and the conductor to the pump.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub input: VecDeque<u8>,
    pub close_input: bool,
    pub input_is_closed: bool,
    /// End the tree, beginning with this signal.
    pub end: Option<Signal>,
    /// The conductor came to the end of the line.
    pub conducted: Option<Result<(i32, Usage), LineStop>>,
}

/// From the pump to the owner.
#[derive(Debug, Default)]
struct RunReport {
    outcome: Option<RunOutcome>,
    /// The tree is gone, or what is left of it will stay.
    survivors: Option<Vec<Leftover>>,
}

impl Run {
    /// The first process; a line that begins with one of our own commands has none.
    pub fn pid(&self) -> Option<i32> {
        self.pid.map(Pid::as_raw_pid)
    }

    /// The file systems that a sandboxed run writes to.
    pub fn space(&self) -> Option<Arc<RunSpace>> {
        self.space.clone()
    }

    /// Every program was executed from the descriptor that was checked. Else one was opened again
    /// by path, by the kernel or by its interpreter.
    pub fn is_race_free(&self) -> bool {
        self.race_free
    }

    /// The inode of the pipe that input of the run goes through, if it has one.
    pub fn input_pipe(&self) -> Option<u64> {
        self.input_pipe
    }

    /// Waits until the run has ended.
    pub fn wait(&self) -> RunOutcome {
        let mut report = self.shared.report();
        loop {
            if let Some(outcome) = &report.outcome {
                return outcome.clone();
            }
            report = self.shared.wait_for_change(report);
        }
    }

    /// How the run ended, if it has.
    pub fn outcome(&self) -> Option<RunOutcome> {
        self.shared.report().outcome.clone()
    }

    /// Waits until what the run left behind is gone too, or is known to stay.
    pub fn wait_until_gone(&self) -> Result<(), StillThere> {
        let mut report = self.shared.report();
        loop {
            match &report.survivors {
                Some(survivors) if survivors.is_empty() => return Ok(()),
                Some(survivors) => return Err(StillThere(survivors.clone())),
                None => report = self.shared.wait_for_change(report),
            }
        }
    }

    /// TERM and KILL end the whole tree, and this returns when it is gone: after TERM and the
    /// grace period comes KILL. Any other signal goes to what runs in the foreground.
    pub fn kill(&self, signal: Signal) -> Result<(), StillThere> {
        if signal == Signal::TERM || signal == Signal::KILL {
            self.shared.order(|orders| orders.end = Some(signal));
            return self.wait_until_gone();
        }
        let registry = &self.shared.registry;
        match &self.shared.terminal {
            Some(terminal) => {
                registry.note_signal(signal);
                if let Ok(group) = rustix::termios::tcgetpgrp(terminal) {
                    let _ = rustix::process::kill_process_group(group, signal);
                }
            }
            None => registry.signal(signal),
        }
        Ok(())
    }

    /// As [`Self::kill`] with TERM or KILL, and returns at once. For what the pump itself calls.
    pub fn request_end(&self, signal: Signal) {
        self.shared.order(|orders| orders.end = Some(signal));
    }

    /// Hands input over, all of it or none. Never waits: it is written as the run reads it.
    pub fn write_stdin(&self, bytes: &[u8]) -> Result<(), RunInputError> {
        self.shared.order(|orders| {
            if orders.input_is_closed || orders.close_input {
                return Err(RunInputError::Closed);
            }
            if orders.input.len() + bytes.len() > MAX_WAITING_INPUT {
                return Err(RunInputError::Full);
            }
            orders.input.extend(bytes);
            Ok(())
        })
    }

    /// Ends the input behind what was written. At a terminal, presses the key for that.
    pub fn close_stdin(&self) -> Result<(), RunInputError> {
        if self.shared.terminal.is_some() {
            return self.write_stdin(&[END_OF_FILE_KEY]);
        }
        self.shared.order(|orders| {
            if orders.input_is_closed {
                return Err(RunInputError::Closed);
            }
            orders.close_input = true;
            Ok(())
        })
    }

    /// Gives the terminal another size. Without one, nothing happens.
    pub fn resize(&self, size: PtySize) -> std::io::Result<()> {
        match &self.shared.terminal {
            Some(terminal) => streams::set_size(terminal, size),
            None => Ok(()),
        }
    }
}

impl RunShared {
    pub fn new(dedicated: bool, terminal: Option<Arc<OwnedFd>>, reads: bool) -> io::Result<Self> {
        Ok(Self {
            registry: Arc::new(Registry::new(dedicated)),
            wake: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            terminal,
            orders: Mutex::new(Orders {
                input_is_closed: !reads,
                ..Orders::default()
            }),
            report: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Gives an order and wakes the pump.
    pub fn order<T>(&self, give: impl FnOnce(&mut Orders) -> T) -> T {
        let result = give(&mut self.orders());
        // Fails only when the counter is full, and then the pump is awake.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        result
    }

    pub fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wake(&self) -> &OwnedFd {
        &self.wake
    }

    pub fn publish(&self, outcome: RunOutcome) {
        self.report().outcome = Some(outcome);
        self.changed.notify_all();
    }

    pub fn publish_survivors(&self, survivors: Vec<Leftover>) {
        self.report().survivors = Some(survivors);
        self.changed.notify_all();
    }

    fn report(&self) -> MutexGuard<'_, RunReport> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_change<'a>(&self, report: MutexGuard<'a, RunReport>) -> MutexGuard<'a, RunReport> {
        self.changed
            .wait(report)
            .unwrap_or_else(PoisonError::into_inner)
    }
}
