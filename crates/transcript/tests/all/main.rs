//! All tests of this crate against its public interface, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod faults;
mod keys;
mod poll;
mod properties;
mod recording;
mod screen;
mod transcript_lines;
