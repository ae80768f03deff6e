//! The processes of one run: who starts one, who signals them and who collects them agree here,
//! so that no number is ever used after it was given back to the system.

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
    /// Started and not collected. While a stage is here, its number is its own.
    stages: Vec<Pid>,
    /// Sessions of collected stages that still had members. Unused where dedicated.
    sessions: Vec<Pid>,
    /// Nothing more is started.
    stopped: bool,
    /// The signal that was last asked for, and that therefore ends the line, not one command.
    requested: Option<Signal>,
}

/// One started process.
#[derive(Debug)]
pub(super) struct StartedProcess {
    pub pid: Pid,
    /// Becomes readable when the process ends.
    pub descriptor: OwnedFd,
}

/// Why nothing was started.
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
        // The process is a child of this one and only this thread collects it: this cannot fail.
        let ended = unsafe_spawn::reap(pid).unwrap_or((Exit::Code(255), Usage::default()));
        state.stages.retain(|stage| *stage != pid);
        // A stage leads its own session. `kill` with no signal says whether any process is left in
        // its group; if the number was given away already, the process table shows it.
        if !self.dedicated && rustix::process::test_kill_process_group(pid).is_ok() {
            state.sessions.push(pid);
        }
        ended
    }

    /// No thread waits for this stage any more: it is collected with what was left to this process.
    pub fn disown(&self, pid: Pid) {
        self.lock().stages.retain(|stage| *stage != pid);
    }

    /// From now on nothing more is started.
    pub fn stop(&self) {
        self.lock().stopped = true;
    }

    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// All processes of the run that live.
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

    /// Whether nothing is left for sure: the table of processes, which [`Self::members`] reads,
    /// may not show all. In a process with several runs it is all that there is.
    pub fn is_empty(&self) -> bool {
        !self.dedicated || tree::has_nothing_left()
    }

    /// All that a dedicated process still has, the ended ones included.
    pub fn children(&self) -> Vec<ProcessRow> {
        if self.dedicated {
            tree::children()
        } else {
            Vec::new()
        }
    }

    /// Collects what was left to this process by descendants that are gone.
    pub fn collect_adopted(&self) {
        if self.dedicated {
            tree::collect_adopted(&self.lock().stages);
        }
    }

    /// Signals the groups of all running stages.
    pub fn signal(&self, signal: Signal) {
        let mut state = self.lock();
        state.requested = Some(signal);
        for stage in &state.stages {
            let _ = rustix::process::kill_process_group(*stage, signal);
        }
    }

    /// Notes a signal that was sent to the terminal's foreground group.
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
