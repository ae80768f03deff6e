//! Checks commands before they run, and policies before they are in force.
//!
//! Nothing here starts a program or writes a rule. A host calls `refusals` (commands that are not
//! for a shell) and `preflight` (scripts that cannot work) before it runs a command. [`cases`]
//! (test cases for policies), `replay` (the history judged by another policy) and `suggest` (rules
//! that would have saved approvals) judge by the policy of a `PolicyHost`.

#![forbid(unsafe_code)]

pub mod cases;
mod policy_host;
mod preflight;
mod refusals;
mod replay;
mod suggest;

pub use policy_host::PolicyHost;
pub use preflight::{Language, Mistake, preflight};
pub use refusals::{Refusal, refusal};
pub use replay::{Direction, Replay, ReplayFilter, Replayed, replay};
pub use suggest::{Suggestion, Suggestions, suggest};
