//! All tests of this crate against its public interface, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod edit;
mod exec;
mod files;
mod json5;
mod layers;
mod readers;
mod schema;
