//! The pool of shims: they are forked ahead of time, handed out, and collected.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::handover;
use super::paths::SupervisorPaths;
use super::unsafe_fork::fork_shim;
use crate::cgroup::{Hierarchies, RunLimits};

/// Number of waiting shims if nothing is going on.
const FEWEST: usize = 2;

/// Most waiting shims, after many were needed at once.
const MOST: usize = 16;

/// The pool shrinks after this time without need.
const CALM: Duration = Duration::from_secs(10);

/// One shim, as the supervisor knows it.
#[derive(Debug)]
pub(super) struct Shim {
    pub pid: Pid,
    pub control: OwnedFd,
    /// The name of the session that the shim serves, once it serves one.
    pub name: Option<String>,
    /// The agent whose runs the shim had, or `None` if it had no run yet.
    pub agent: Option<String>,
    /// The shim reported that nothing of its run is left.
    pub over: bool,
    /// The name of its control group.
    pub group: String,
    /// How often the shim was stopped recently, and when it was last stopped.
    pub stops: Option<(u32, Instant)>,
}

/// The values that every shim is born with.
#[derive(Debug, Clone)]
pub(super) struct Parent {
    pub place: SupervisorPaths,
    pub instance: String,
    pub open_files: Option<u64>,
    pub hierarchies: Hierarchies,
    /// The limits of the last run. Setting them takes time, which a waiting shim has.
    pub limits: RunLimits,
}

/// How many shims to keep waiting.
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

    /// Records that a shim was needed and none was waiting.
    pub fn missed(&mut self) {
        self.wanted = (self.wanted * 2).min(MOST);
        self.last_miss = Instant::now();
    }

    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// Number of waiting shims that is enough. If many were needed recently, most of them soon
    /// return from their runs, and a fork for each would take more time than it saves.
    pub fn fewest(&self) -> usize {
        (self.wanted / 2).max(FEWEST)
    }

    /// Number of waiting shims above which shims are dismissed. Those that return from their runs
    /// stay as long as many were needed recently.
    pub fn most(&self) -> usize {
        if self.wanted > FEWEST {
            2 * MOST
        } else {
            FEWEST
        }
    }

    /// Lowers the need after a calm time. Returns how much of that time is left, if any.
    pub fn calm_down(&mut self) -> Option<Duration> {
        if self.wanted > FEWEST && self.last_miss.elapsed() >= CALM {
            self.wanted = FEWEST;
        }
        (self.wanted > FEWEST).then(|| CALM.saturating_sub(self.last_miss.elapsed()))
    }
}

impl Parent {
    /// Forks one shim. In the child, this does not return.
    pub fn bear(&self, number: u64) -> io::Result<Shim> {
        // Process numbers are reused, and other namespaces have the same numbers.
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
