//! Commands and background sessions at a terminal: `interlock exec`, `process` and `apply-patch`.
//!
//! `exec` runs one command here or on a node. It handles the command's input, its output and the
//! approval that the command may need. `process` lists, reads, writes and ends background sessions,
//! and `process::attach` connects a terminal to a session. `apply_patch` applies a patch. Start
//! reading at [`exec::run`].

#![forbid(unsafe_code)]

pub mod apply_patch;
pub mod exec;
pub mod process;
