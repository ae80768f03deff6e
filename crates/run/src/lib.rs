//! The engine, the supervisor and the transcripts: starts an authorized plan and sees it through to
//! its end.
//!
//! There is one function that starts a process for a caller: [`start`]. It takes a
//! [`RunPlan`](interlock_plan::RunPlan) with its files open, and an [`Authorization`] that names
//! the plan's digest.
//!
//! Read in this order: [`Authorization`], then `engine` (its first screen is the argument why only
//! what was judged can run), `spool` (what it wrote), `transcript` (who has read what), `screen`
//! and `keys` (its terminal), `names`.

mod authorization;
pub mod cgroup;
pub mod engine;
pub mod keys;
pub mod mark;
pub mod memory;
pub mod names;
pub mod screen;
pub mod session;
pub mod shield;
pub mod spool;
pub mod supervisor;
pub mod tcp_peer;
pub mod transcript;
mod utf8;

pub use authorization::{
    Authorization, AuthorizationKey, AuthorizedPlan, NotAuthorized, PlanPermission,
};
pub use engine::{
    ForcedEnd, Leftover, Leftovers, OpenedPlan, OutputSink, Run, RunInputError, RunOutcome,
    RunStatus, Settings, Signal, StartError, StillThere, StreamKind, Usage, race_freedom, start,
};
