//! How a person runs commands at a terminal, and holds what goes on in the background.
//!
//! `exec` runs one command here or on a node, with its input, its output and the approval that it may
//! need; `process` lists, reads, writes and ends background sessions, and `process::attach` connects a
//! terminal to one; `apply_patch` applies a patch. Start reading at [`exec::run`].

#![forbid(unsafe_code)]

pub mod apply_patch;
pub mod exec;
pub mod process;
