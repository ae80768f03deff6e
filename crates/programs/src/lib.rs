//! What known programs do with their arguments: tables with a reason per row, and little code.
//!
//! Everything in this crate is pure: no clock, no files, no async. A table reads an argv, never a
//! text; the crate `interlock-command` reads text. Questions about the host ("which file is `rg`?")
//! go through the [`Resolver`] trait. Read [`program_name`](names::program_name) first, then
//! `wrappers` and `shell` (programs that start their arguments), `opaque` and `starters` (programs
//! that start others in other ways), [`inline`] (code in arguments) and `file_operands` (arguments
//! that name files).

#![forbid(unsafe_code)]

pub mod builtins;
mod dynamic;
pub mod env_wrapper;
mod file_operands;
mod git_remotes;
pub mod helpers;
mod host_identity;
pub mod inline;
pub mod names;
pub mod opaque;
mod powershell;
mod resolver;
mod shell;
mod starters;
mod trust;
mod virtual_host;
mod wrappers;

pub use dynamic::DYNAMIC;
pub use file_operands::{
    FileOperand, FilePlacement, FileUse, OperandKind, RefusedArgument, file_placement, file_use,
    has_row, version_calls,
};
pub use git_remotes::GitRemotes;
pub use host_identity::{host_identity, may_need_host_identity};
pub use opaque::{opaque_reason, starts_others};
pub use resolver::{
    Destination, DestinationKind, Executable, FileKind, GitWorktree, Glob, GlobBudget, GlobError,
    GlobToken, Lookup, MAX_GLOB_BYTES, MAX_GLOB_NAMES, MAX_GLOB_PATHS, Missing, ObeyedName,
    Resolver,
};
pub use shell::{
    Multiplexer, ShellCall, TextOptions, has_own_language, is_shell, multiplexer, reads_only_stdin,
    shell_call,
};
pub use starters::{StartedCommand, started_command};
pub use trust::{in_trusted_dir, trusted_dirs};
pub use virtual_host::{VIRTUAL_HOME, VirtualHost, join};
pub use wrappers::{
    Chain, Dispatch, Inner, MAX_WRAPPERS, dispatch, is_dispatch_wrapper, unwrap_chain,
};
