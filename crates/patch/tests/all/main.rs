//! All tests of this crate against its public interface, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod apply;
mod common;
mod corpus;
mod crash;
mod effects;
mod links;
mod properties;
mod races;
mod reserved;
