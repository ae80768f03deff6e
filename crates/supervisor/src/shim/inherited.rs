//! The attributes that the next run would inherit from its process. A run can change some of them
//! on the process above it, as `prlimit`, `renice` or `taskset` can for any process of the same
//! user.

use interlock_engine::warm_thread;
use rustix::process::{Pid, Resource, Rlimit};
use rustix::thread::CpuSet;

use crate::unsafe_process::{self, Scheduling};

/// All limits that the system has.
const LIMITS: [Resource; 16] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::Core,
    Resource::Rss,
    Resource::Nproc,
    Resource::Nofile,
    Resource::Memlock,
    Resource::As,
    Resource::Locks,
    Resource::Sigpending,
    Resource::Msgqueue,
    Resource::Nice,
    Resource::Rtprio,
    Resource::Rttime,
];

/// The attributes as they were when the process was born.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Inherited {
    limits: [Rlimit; 16],
    out_of_memory: Option<String>,
    thread: Thread,
}

/// The attributes of one thread. A new thread inherits them from the thread that starts it.
#[derive(Debug, PartialEq, Eq)]
struct Thread {
    scheduling: Option<Scheduling>,
    processors: Option<CpuSet>,
}

impl Inherited {
    pub fn now() -> Self {
        Self {
            limits: LIMITS.map(rustix::process::getrlimit),
            out_of_memory: std::fs::read_to_string("/proc/self/oom_score_adj").ok(),
            thread: Thread::now(None),
        }
    }

    /// Whether the limits have not changed since.
    pub fn has_same_limits(&self) -> bool {
        self.limits == LIMITS.map(rustix::process::getrlimit)
    }

    /// Whether no attribute has changed since.
    pub fn is_unchanged(&self) -> bool {
        *self == Self::now()
            && warm_thread().is_none_or(|warm| self.thread == Thread::now(Some(warm)))
    }
}

impl Thread {
    /// Reads the attributes of the given thread, or of the calling one.
    fn now(thread: Option<Pid>) -> Self {
        Self {
            scheduling: unsafe_process::scheduling(thread),
            processors: rustix::thread::sched_getaffinity(thread).ok(),
        }
    }
}
