//! Is it sound, before it runs or is put in force?
//!
//! Nothing here starts a program or writes a rule. Read `refusals` (commands that are not for a shell)
//! and `preflight` (scripts that cannot work), which a host asks before it runs a command; then
//! [`cases`] (policies under test), `replay` (the history under another policy) and `suggest` (rules
//! that would have saved approvals), which judge by the policy of a `PolicyHost`.

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
