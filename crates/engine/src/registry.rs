//! The processes of one run. Whatever starts, signals or collects a process does so here, under one
//! lock, so that no process number is used after it was given back to the system.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::process_table::ProcessRow;
use super::tree::{self, TreeScope};
use super::unsafe_spawn::{self, Launch, SpawnError};
use super::{Exit, Usage};

#[derive(Debug)]
pub(super) struct Registry {
    /// Every descendant of this process belongs to the run.
    dedicated: bool,
    state: Mutex<RegistryState>,
}

#[derive(Debug, Default)]
struct RegistryState {
    /// Stages that were started and not collected. While a stage is listed here, its number cannot
    /// belong to another process.
    stages: Vec<Pid>,
    /// Sessions of collected stages that still had members. Not used if the process is dedicated.
    sessions: Vec<Pid>,
    /// Nothing more may be started.
    stopped: bool,
    /// The last signal that was requested. It ends the whole line, not just one command.
    requested: Option<Signal>,
}

/// One started process.
#[derive(Debug)]
pub(super) struct StartedProcess {
    pub pid: Pid,
    /// Becomes readable when the process ends.
    pub descriptor: OwnedFd,
}

/// Why no process was started.
#[derive(Debug)]
pub(super) enum NotSpawned {
    /// The run is being ended.
    Stopped,
    /// The shield could not be entered.
    Unshielded(std::io::Error),
    /// The sandbox could not be entered.
    Unconfined(std::io::Error),
    /// The programs that the run starts could not be limited or logged.
    Unheld(std::io::Error),
    Failed(std::io::Error),
}

impl Registry {
    pub fn new(dedicated: bool) -> Self {
        Self {
            dedicated,
            state: Mutex::default(),
        }
    }

    pub fn is_dedicated(&self) -> bool {
        self.dedicated
    }

    /// Starts a stage, unless the run is being ended.
    pub fn spawn(&self, launch: &Launch) -> Result<StartedProcess, NotSpawned> {
        let mut state = self.lock();
        if state.stopped {
            return Err(NotSpawned::Stopped);
        }
        let pid = unsafe_spawn::spawn(launch).map_err(|error| match error {
            SpawnError::Shield(error) => NotSpawned::Unshielded(error),
            SpawnError::Sandbox(error) => NotSpawned::Unconfined(error),
            SpawnError::Tree(error) => NotSpawned::Unheld(error),
            SpawnError::Execute(error) => NotSpawned::Failed(error),
        })?;
        state.stages.push(pid);
        match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(StartedProcess { pid, descriptor }),
            Err(error) => {
                // Without a descriptor no thread could wait for the process.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
                let _ = unsafe_spawn::reap(pid);
                state.stages.retain(|stage| *stage != pid);
                Err(NotSpawned::Failed(error.into()))
            }
        }
    }

    /// Waits until a stage ends, and collects it.
    pub fn wait(&self, process: &StartedProcess) -> (Exit, Usage) {
        let mut ended = [PollFd::new(&process.descriptor, PollFlags::IN)];
        while let Err(Errno::INTR) = rustix::event::poll(&mut ended, None) {}
        self.collect(process.pid)
    }

    /// Collects a stage that has ended.
    pub fn collect(&self, pid: Pid) -> (Exit, Usage) {
        let mut state = self.lock();
        // The process is a child of this one, and only this thread collects it, so this cannot
        // fail.
        let ended = unsafe_spawn::reap(pid).unwrap_or((Exit::Code(255), Usage::default()));
        state.stages.retain(|stage| *stage != pid);
        // A stage leads its own session. `kill` without a signal reports whether any process is
        // left in its group. If the number already belongs to another process, the process table
        // shows that.
        if !self.dedicated && rustix::process::test_kill_process_group(pid).is_ok() {
            state.sessions.push(pid);
        }
        ended
    }

    /// Stops waiting for this stage. It is collected later, together with adopted processes.
    pub fn disown(&self, pid: Pid) {
        self.lock().stages.retain(|stage| *stage != pid);
    }

    /// Lets nothing more start from now on.
    pub fn stop(&self) {
        self.lock().stopped = true;
    }

    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Returns all living processes of the run.
    pub fn members(&self) -> Vec<ProcessRow> {
        let state = self.lock();
        if self.dedicated {
            if tree::has_nothing_left() {
                return Vec::new();
            }
            let waited_for = &state.stages;
            TreeScope::Descendants { waited_for }.members()
        } else {
            if state.stages.is_empty() && state.sessions.is_empty() {
                return Vec::new();
            }
            TreeScope::Stages {
                waited_for: &state.stages,
                sessions: &state.sessions,
            }
            .members()
        }
    }

    /// Whether certainly nothing is left. The process table, which [`Self::members`] reads, may not
    /// show every process; in a process with several runs, it is the only source.
    pub fn is_empty(&self) -> bool {
        !self.dedicated || tree::has_nothing_left()
    }

    /// Returns all children that a dedicated process still has, including ended ones.
    pub fn children(&self) -> Vec<ProcessRow> {
        if self.dedicated {
            tree::children()
        } else {
            Vec::new()
        }
    }

    /// Collects ended descendants that this process has adopted.
    pub fn collect_adopted(&self) {
        if self.dedicated {
            tree::collect_adopted(&self.lock().stages);
        }
    }

    /// Sends the signal to the groups of all running stages.
    pub fn signal(&self, signal: Signal) {
        let mut state = self.lock();
        state.requested = Some(signal);
        for stage in &state.stages {
            let _ = rustix::process::kill_process_group(*stage, signal);
        }
    }

    /// Records a signal that was sent to the terminal's foreground group.
    pub fn note_signal(&self, signal: Signal) {
        self.lock().requested = Some(signal);
    }

    /// Whether this signal was requested.
    pub fn was_requested(&self, signal: i32) -> bool {
        self.lock()
            .requested
            .is_some_and(|requested| requested.as_raw() == signal)
    }

    fn lock(&self) -> MutexGuard<'_, RegistryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
