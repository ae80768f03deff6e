//! How runs are carried out.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How runs are carried out. No setting affects what runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// How long the output of other holders of the pipes is still read after the end of the run.
    /// Output that is in the pipes by then is always read.
    pub drain: Duration,
    pub leftovers: Leftovers,
    /// Soft limit of open files for the run, if this process raised its own limit.
    pub open_files: Option<u64>,
    /// If memory runs out, the kernel should end the run's processes before this one.
    pub first_without_memory: bool,
    /// Ends all processes of the run in one step, if that is possible. This is called if SIGTERM
    /// did not help.
    pub forced_end: Option<ForcedEnd>,
    /// Whether to refuse a plan with a file that the kernel or an interpreter opens again by path,
    /// such as a script, which could be exchanged between check and start.
    pub require_race_free: bool,
    /// The ID under which the caller's records list the run. The layer of a sandbox has this name.
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

/// What happens to processes that a run leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leftovers {
    /// They get SIGTERM and, after the grace period, SIGKILL, once the outcome was reported.
    End,
    /// They are left alone. Their output is read and discarded, so that they can continue to write.
    Keep,
}
