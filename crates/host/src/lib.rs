//! One execution host: the path of a command, shared by everything that runs commands.
//!
//! Read [`local`] (the state of this host and who may change it), then [`evaluate`] (prepare and
//! judge), `preflight` and `refusals` (what is not worth judging), `prepare` (the plan of what was
//! judged), [`process`] (what became of it), `patch`, then [`parameters`] (the JSON of a call) and
//! [`cases`] (policies under test).

#![forbid(unsafe_code)]

pub mod cases;
mod edit;
mod evaluate;
mod exec;
mod local;
mod login_path;
pub mod parameters;
mod patch;
mod preflight;
mod prepare;
pub mod process;
mod refusals;

pub use edit::{EntryEdit, Removed};
pub use evaluate::{Evaluation, Request, evaluate};
pub use exec::{ExecError, ExecRequest, Yield};
pub use local::{FirstStart, HostError, LocalHost, OpenOptions, levels, now_ms, policy};
pub use login_path::{LoginPathError, LoginShell, PathSource};
pub use patch::{PatchError, PatchRequest, tool_levels};
pub use preflight::{Language, Mistake};
pub use prepare::{PrepareError, RunSettings, ShellError, choose_shell, prepare};
pub use refusals::{Refusal, refusal};
