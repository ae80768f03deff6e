//! All tests of this crate against its public interface, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod like_bash;
mod lines;
mod races;
mod seal;
mod start;
mod terminal;
mod tree;
