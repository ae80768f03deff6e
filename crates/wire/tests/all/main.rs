//! All tests of this crate against its public interface, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod approval;
mod frames;
mod identity;
mod node;
mod parameters;
mod protocol;
mod results;
