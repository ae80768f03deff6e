//! Starts what a plan says, for real, and sees it through to its end.
//!
//! ```text
//! start ─► verify ─► checked ─► launcher ─► unsafe_spawn        the argument: only what was judged
//!                                  ▲
//!              conductor ──────────┘   plays the shell of a plain line
//! pump       reads the output, keeps the time, ends the tree    one thread per run
//! registry   which processes are the run's; tree ends them
//! ```

mod begin;
mod builtins;
mod checked;
mod condition;
mod conductor;
mod error;
mod launcher;
pub(crate) mod process_table;
mod pump;
#[cfg(feature = "race-hook")]
pub mod race_hook;
mod registry;
mod run;
mod seal;
mod streams;
mod time_report;
pub mod tree;
mod unsafe_spawn;
mod warm;

use std::sync::Arc;
use std::time::Duration;

use interlock_plan::{RaceFreedom, RunPlan};
use serde::{Deserialize, Serialize};

use crate::authorization::{Authorization, AuthorizationKey};
use crate::shield::RunShield;
use checked::Checked;

pub use error::StartError;
pub use run::{Run, RunInputError, RunOutcome, RunStatus, StillThere};
pub use rustix::process::Signal;
pub use seal::race_freedom;
pub use tree::Leftover;
pub(crate) use unsafe_spawn::attempt::try_namespaces;
pub use unsafe_spawn::close_others_on_exec;
pub(crate) use warm::{warm_thread, warm_up};

/// Starts a plan. There is no other function that starts a process for a caller.
///
/// Nothing runs unless all of this holds: the authorization is for exactly this plan; the working
/// directory and every pinned file were opened and found unchanged; where the settings say so,
/// nothing is opened a second time; the first command could be executed. An error means that
/// nothing ran.
pub fn start(
    OpenedPlan {
        plan,
        checked,
        shield,
    }: OpenedPlan,
    authorization: &Authorization,
    key: &AuthorizationKey,
    settings: &Settings,
    sink: impl OutputSink,
) -> Result<Run, StartError> {
    key.verify(authorization, &plan.digest())?;
    let (plan, checked) = (&plan, checked?);
    #[cfg(feature = "race-hook")]
    race_hook::reached(race_hook::Moment::FilesAreOpen);
    // An approver who saw the run as race-free allowed only a race-free run.
    let must_be_race_free =
        settings.require_race_free || plan.race_freedom == Some(RaceFreedom::RaceFree);
    if must_be_race_free && let Some(risk) = checked.race_risk() {
        let risk = risk.clone();
        return Err(StartError::RaceNotExcluded { risk });
    }
    {
        let _as_the_run = plan.assume_account()?;
        checked.check_directories_again()?;
    }
    // What the plan says is what the run gets: no more and no less.
    if plan.shield.is_shielded() != shield.is_some() {
        return Err(StartError::Shield(format!(
            "the plan says \"{}\", and the process of the run has {} namespaces for it",
            plan.shield,
            if shield.is_some() { "" } else { "no" }
        )));
    }
    let dedicated = tree::claim_process(shield.as_ref())?;
    let checked = (checked, shield);
    let started = begin::begin(plan, checked, dedicated, settings, Arc::new(sink));
    if started.is_err() && dedicated {
        tree::release_process();
    }
    started
}

/// A plan whose files were opened and compared with it. It may be opened before it may run; how
/// long before does not matter: each file is looked at once more right before it is executed.
#[derive(Debug)]
pub struct OpenedPlan {
    plan: RunPlan,
    /// Only a caller with an authorization for the plan learns the result.
    checked: Result<Checked, StartError>,
    shield: Option<Arc<RunShield>>,
}

impl OpenedPlan {
    /// Without a shield.
    pub fn open(plan: RunPlan) -> Self {
        Self::open_in(plan, None)
    }

    /// To be run in these namespaces.
    pub fn open_in(plan: RunPlan, shield: Option<Arc<RunShield>>) -> Self {
        let checked = Checked::open(&plan, shield.as_deref());
        Self {
            plan,
            checked,
            shield,
        }
    }

    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }
}

/// Where the output of a run goes. Called from the run's own thread, in the order of each
/// stream. While it takes its time, the run may have to wait to write, and neither time-outs nor
/// `kill` come through: it must not block for long.
pub trait OutputSink: Send + Sync + 'static {
    fn output(&self, stream: StreamKind, bytes: &[u8]);

    /// The run has ended, and all of its output was handed over.
    fn ended(&self, _outcome: &RunOutcome) {}

    /// What it left behind is gone too, but for these.
    fn gone(&self, _survivors: &[Leftover]) {}
}

/// Where bytes of output came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamKind {
    Stdout,
    Stderr,
    /// Both, as one stream of a terminal.
    Terminal,
}

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

/// Processor time of a run's processes, as far as they were waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    pub user: Duration,
    pub system: Duration,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.user += other.user;
        self.system += other.system;
    }
}

/// How one process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exit {
    Code(i32),
    Signal(i32),
}
