//! Shims: forked ahead of time, handed out, collected.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::handover;
use super::paths::SupervisorPaths;
use super::unsafe_fork::fork_shim;
use crate::cgroup::{Hierarchies, RunLimits};

/// Waiting when nothing goes on.
const FEWEST: usize = 2;

/// Waiting at most, after many were wanted at once.
const MOST: usize = 16;

/// After so long without need the pool shrinks.
const CALM: Duration = Duration::from_secs(10);

/// One shim, as the supervisor knows it.
#[derive(Debug)]
pub(super) struct Shim {
    pub pid: Pid,
    pub control: OwnedFd,
    /// The name of the session it serves, once it does.
    pub name: Option<String>,
    /// The agent whose runs it had; none where it had no run yet.
    pub agent: Option<String>,
    /// It said that nothing of its run is left.
    pub over: bool,
    /// The name of its control group.
    pub group: String,
    /// How often the shim was stopped lately, and when for the last time.
    pub stops: Option<(u32, Instant)>,
}

/// What every shim is born with.
#[derive(Debug, Clone)]
pub(super) struct Parent {
    pub place: SupervisorPaths,
    pub instance: String,
    pub open_files: Option<u64>,
    pub hierarchies: Hierarchies,
    /// What the last run was limited to: setting this takes time that a waiting shim has.
    pub limits: RunLimits,
}

/// How many to keep waiting.
#[derive(Debug)]
pub(super) struct Need {
    wanted: usize,
    last_miss: Instant,
}

impl Need {
    pub fn new() -> Self {
        Self {
            wanted: FEWEST,
            last_miss: Instant::now(),
        }
    }

    /// One was wanted and none was there.
    pub fn missed(&mut self) {
        self.wanted = (self.wanted * 2).min(MOST);
        self.last_miss = Instant::now();
    }

    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// So many are enough. Where many were wanted a short time ago, most of them are given back by
    /// their runs soon, and a fork for each would take more time than it saves.
    pub fn fewest(&self) -> usize {
        (self.wanted / 2).max(FEWEST)
    }

    /// More are sent away. Those that come back from their runs stay as long as many were wanted a
    /// short time ago.
    pub fn most(&self) -> usize {
        if self.wanted > FEWEST {
            2 * MOST
        } else {
            FEWEST
        }
    }

    /// Wants fewer after a calm time. Says how long that still takes, if it does.
    pub fn calm_down(&mut self) -> Option<Duration> {
        if self.wanted > FEWEST && self.last_miss.elapsed() >= CALM {
            self.wanted = FEWEST;
        }
        (self.wanted > FEWEST).then(|| CALM.saturating_sub(self.last_miss.elapsed()))
    }
}

impl Parent {
    /// Forks one. In the child this does not return.
    pub fn bear(&self, number: u64) -> io::Result<Shim> {
        // Numbers of processes are used again, and other namespaces have the same ones.
        let instance = self.instance.get(..8).unwrap_or_default();
        let me = rustix::process::getpid().as_raw_pid();
        let group = format!("{me}-{instance}-{number}");
        let (control, of_shim) = handover::pair()?;
        let pid = fork_shim(self, &group, of_shim)?;
        Ok(Shim {
            pid,
            control,
            name: None,
            agent: None,
            over: false,
            group,
            stops: None,
        })
    }
}
