//! All tests of this crate against its public interface, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod faults;
mod keys;
mod like_bash;
mod lines;
mod poll;
mod properties;
mod races;
mod screen;
mod seal;
mod spool;
mod start;
mod terminal;
mod transcript_lines;
mod tree;
