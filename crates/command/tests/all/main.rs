//! All tests of this crate against its public interface, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod describe_everyday;
mod everyday;
mod limits;
mod properties;
