//! How runs are carried out.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How runs are carried out; nothing here says what runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// How long output is still read for other holders of the pipes after the end of the run.
    /// What was in the pipes by then is read in any case.
    pub drain: Duration,
    pub leftovers: Leftovers,
    /// Soft limit of open files in the run, where this process raised its own.
    pub open_files: Option<u64>,
    /// When memory runs out, the run's processes are to be ended before this one.
    pub first_without_memory: bool,
    /// Ends all processes of the run in one step, where there is a way to; asked when SIGTERM did
    /// not help.
    pub forced_end: Option<ForcedEnd>,
    /// Refuse a plan with a file that the kernel or an interpreter opens again by its path, such
    /// as a script: between check and start it could become another one.
    pub require_race_free: bool,
    /// What the run is called in the records of who orders it. The layer of a sandbox has this name.
    pub run_id: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(2),
            drain: Duration::from_millis(100),
            leftovers: Leftovers::End,
            open_files: None,
            first_without_memory: false,
            forced_end: None,
            require_race_free: false,
            run_id: None,
        }
    }
}

/// See [`Settings::forced_end`].
#[derive(Clone)]
pub struct ForcedEnd(pub Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for ForcedEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ForcedEnd(…)")
    }
}

impl PartialEq for ForcedEnd {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ForcedEnd {}

/// What becomes of processes that a run leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leftovers {
    /// SIGTERM, grace, SIGKILL, after the outcome was reported.
    End,
    /// Left alone. Their output is read and dropped, so that they can go on writing.
    Keep,
}
