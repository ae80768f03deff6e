//! One execution host: the path of a command, shared by everything that runs commands.
//!
//! Read [`local`] (the state of this host and who may change it), then [`evaluate`] (prepare and
//! judge), `prepare` (the plan of what was judged), [`process`] (what became of it), `patch`, then
//! [`cases`] (policies under test).

#![forbid(unsafe_code)]

pub mod cases;
mod edit;
mod evaluate;
mod exec;
mod local;
mod patch;
mod prepare;
pub mod process;

pub use edit::{EntryEdit, Removed};
pub use evaluate::{Evaluation, Request, evaluate};
pub use exec::{ExecError, ExecRequest, Yield};
pub use local::{FirstStart, HostError, LocalHost, OpenOptions, levels, now_ms, policy};
pub use patch::{PatchError, PatchRequest, tool_levels};
pub use prepare::{PrepareError, RunSettings, ShellError, choose_shell, prepare};
