//! A run as its owner sees it: something to write to, to end and to wait for.

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

/// Most bytes of input that may wait to be read by the run. More than this is refused at once.
const MAX_WAITING_INPUT: usize = 8 * 1024 * 1024;

/// The key that signals end of file at a terminal in its usual mode.
const END_OF_FILE_KEY: u8 = 0x04;

/// A started run. It continues even if this value is dropped.
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
    /// The processes that the run left behind, as seen at its end.
    pub leftovers: Vec<Leftover>,
    pub usage: Usage,
    /// The sandboxed run once had as many processes as it is allowed to have, so it may have failed
    /// to start more.
    #[serde(default)]
    pub may_lack_processes: bool,
    /// The programs that the run started, if its sandbox logs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<StartedPrograms>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunStatus {
    /// The run ended by itself. In a line of several commands, a command that was ended by a signal
    /// counts as exit status 128 plus the signal, as in shells.
    Exited(i32),
    Signaled(i32),
    /// The run was ended because its time limit was reached.
    TimedOut,
}

/// Why input was refused.
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

/// State that the owner of a run, its pump and its conductor share.
#[derive(Debug)]
pub(super) struct RunShared {
    pub registry: Arc<Registry>,
    /// An eventfd that wakes the pump.
    wake: OwnedFd,
    terminal: Option<Arc<OwnedFd>>,
    orders: Mutex<Orders>,
    report: Mutex<RunReport>,
    changed: Condvar,
}

/// Orders from the owner and the conductor to the pump.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub input: VecDeque<u8>,
    pub close_input: bool,
    pub input_is_closed: bool,
    /// The pump is to end the tree, beginning with this signal.
    pub end: Option<Signal>,
    /// The conductor has finished the line, with this result.
    pub conducted: Option<Result<(i32, Usage), LineStop>>,
}

/// What the pump reports to the owner.
#[derive(Debug, Default)]
struct RunReport {
    outcome: Option<RunOutcome>,
    /// Set once the tree is gone, or once it is known which processes of it will stay.
    survivors: Option<Vec<Leftover>>,
}

impl Run {
    /// The first process. A line that begins with a builtin has none.
    pub fn pid(&self) -> Option<i32> {
        self.pid.map(Pid::as_raw_pid)
    }

    /// The file systems that a sandboxed run writes to.
    pub fn space(&self) -> Option<Arc<RunSpace>> {
        self.space.clone()
    }

    /// Whether every program was executed from the descriptor that was checked. Otherwise the
    /// kernel or an interpreter opened a program again by path.
    pub fn is_race_free(&self) -> bool {
        self.race_free
    }

    /// The inode of the pipe that carries the run's input, if it has one.
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

    /// How the run ended, if it has ended.
    pub fn outcome(&self) -> Option<RunOutcome> {
        self.shared.report().outcome.clone()
    }

    /// Waits until everything that the run left behind is gone too, or is known to stay.
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

    /// Ends the whole tree on TERM and KILL, and returns when it is gone: TERM is followed by KILL
    /// after the grace period. Any other signal goes to the foreground processes.
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

    /// Requests the same end as [`Self::kill`] with TERM or KILL, but returns at once, so that code
    /// which the pump itself calls can use it.
    pub fn request_end(&self, signal: Signal) {
        self.shared.order(|orders| orders.end = Some(signal));
    }

    /// Queues input for the run, either all of it or none. This never waits: the pump writes the
    /// input as the run reads it.
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

    /// Closes the input once everything queued has been written. At a terminal, this presses the
    /// end-of-file key.
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

    /// Resizes the terminal. A run without a terminal is not affected.
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
        // The write fails only if the counter is full, in which case the pump is already awake.
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
