//! The engine starts one plan and sees it through to its end.
//!
//! [`start`] is the only function that starts a process for a caller. It takes an [`OpenedPlan`],
//! which is a [`RunPlan`](interlock_plan::RunPlan) with its files open, and an [`Authorization`]
//! that names the plan's digest.
//!
//! ```text
//! start ─► verify ─► checked ─► launcher ─► unsafe_spawn        the argument: only what was judged
//!                                  ▲
//!              conductor ──────────┘   plays the shell of a plain line
//! pump       reads the output, keeps the time, ends the tree    one thread per run
//! registry   which processes are the run's; tree ends them
//! ```
//!
//! Read in this order: `authorization`, `start` (the argument why only what was judged can run),
//! `checked`, `launcher`, `pump`, [`tree`], [`shield`], [`sandbox`], [`mark`].

mod authorization;
mod begin;
mod builtins;
mod checked;
mod condition;
mod conductor;
mod error;
mod launcher;
pub mod mark;
mod output_sink;
pub mod process_table;
mod pump;
#[cfg(feature = "race-hook")]
pub mod race_hook;
mod registry;
mod run;
pub mod sandbox;
mod seal;
mod settings;
pub mod shield;
mod start;
mod streams;
mod time_report;
pub mod tree;
mod unsafe_limit;
mod unsafe_spawn;
mod usage;
mod warm;

pub use authorization::{
    Authorization, AuthorizationKey, AuthorizedPlan, NotAuthorized, PlanPermission,
};
pub use error::StartError;
pub use output_sink::{OutputSink, StreamKind};
pub use run::{Run, RunInputError, RunOutcome, RunStatus, StillThere};
pub use rustix::process::Signal;
pub use seal::race_freedom;
pub use settings::{ForcedEnd, Leftovers, Settings};
pub use start::{OpenedPlan, start};
pub use tree::Leftover;
pub use unsafe_spawn::close_others_on_exec;
use usage::Exit;
pub use usage::Usage;
pub use warm::{warm_thread, warm_up};
