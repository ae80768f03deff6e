//! Run it.
//!
//! There is one function that starts a process for a caller: [`start`]. It takes a
//! [`RunPlan`](interlock_plan::RunPlan) and an [`Authorization`] that names the plan's digest.
//!
//! Read in this order: [`Authorization`], then `engine` (its first screen is the argument why only
//! what was judged can run).

mod authorization;
pub mod engine;

pub use authorization::{Authorization, AuthorizationKey, NotAuthorized};
pub use engine::{
    InputError, Leftover, Leftovers, Outcome, OutputSink, Run, Settings, Signal, StartError,
    Status, StillThere, StreamKind, Usage, start,
};
