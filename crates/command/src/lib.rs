//! Command analysis: says what the text of a command means.
//!
//! Everything here is pure: no clock, no files, no async. Questions about the host ("which file is
//! `rg`?") go through the [`Resolver`] trait. Read in this order: `line` (the words of a plain
//! line), `lexer`, `analysis` (wrappers and shells, looked through), [`binding`] (what an approval
//! can pin), [`inline`] (code in arguments), [`display`] (text made safe to show).

#![forbid(unsafe_code)]

mod analysis;
mod argv;
pub mod binding;
pub mod builtins;
mod describe;
pub mod display;
mod env_wrapper;
mod file_operands;
mod git_remotes;
mod highlight;
mod host_identity;
pub mod inline;
mod lexer;
mod line;
pub mod names;
mod odd;
mod opaque;
mod powershell;
mod resolver;
mod shell;
mod span;
mod trust;
mod virtual_host;
mod wrappers;

pub use analysis::{
    Analysis, Closed, Command, CommandNode, Host, InputError, MAX_TEXT_BYTES, NodePipeline,
    NodeStage, Program, SeenCommand, Shape, Sight, Source, WrapperLayer, analyse,
};
pub use argv::Argv;
pub use binding::{Binding, BindingKind, BoundFile, BoundRole, ProjectRun, ProjectScope, Unbound};
pub use describe::{DYNAMIC, Description, describe};
pub use env_wrapper::{assignment_keys as env_assignment_keys, split_text as env_split_text};
pub use file_operands::{
    FileOperand, FileUse, OperandKind, RefusedArgument, file_use, has_row, version_calls,
};
pub use git_remotes::GitRemotes;
pub use highlight::{Highlight, HighlightStyle, highlight};
pub use host_identity::{host_identity, may_need_host_identity};
pub use lexer::{MAX_PLAIN_BYTES, MAX_PLAIN_COMMANDS, MAX_PLAIN_WORDS, lex};
pub use line::{
    Assignment, Connector, Line, Pipeline, Redirection, Segment, Stream, Target, Timed, Word,
};
pub use odd::{NotPlain, Odd};
pub use opaque::{opaque_reason, starts_others};
pub use resolver::{
    Destination, DestinationKind, Executable, FileKind, GitWorktree, Glob, GlobBudget, GlobError,
    GlobToken, Lookup, MAX_GLOB_BYTES, MAX_GLOB_NAMES, MAX_GLOB_PATHS, Missing, Resolver,
};
pub use shell::{Multiplexer, ShellCall, TextOptions, is_shell, multiplexer, shell_call};
pub use span::Span;
pub use trust::{in_trusted_dir, trusted_dirs};
pub use virtual_host::{VIRTUAL_HOME, VirtualHost, join};
pub use wrappers::{
    Chain, Dispatch, Inner, MAX_WRAPPERS, dispatch, is_dispatch_wrapper, unwrap_chain,
};
