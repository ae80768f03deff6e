//! One execution host: the path of a command, shared by everything that runs commands.
//!
//! Read [`local`] (the state of this host and who may change it), then [`evaluate`] (prepare and
//! judge), then [`cases`] (policies under test).

pub mod cases;
mod edit;
mod evaluate;
mod local;
mod remedy;

pub use edit::{EntryEdit, Removed};
pub use evaluate::{Evaluation, Request, evaluate};
pub use local::{FirstStart, HostError, LocalHost, OpenOptions, now_ms};
