//! The tools `exec`, `process` and `apply_patch`, by the command line and the gateway.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_interlock");

mod apply_patch;
mod attach;
mod environment;
mod everyday_env;
mod exec;
mod exec_end;
mod exec_input;
mod exec_lines;
mod exec_route;
mod interactive;
mod patch_own_files;
mod patch_protected;
mod process;
mod process_input;
mod process_scope;
mod terminal_programs;
