//! All tests of this crate against its public interface, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod binding;
mod directories;
mod glob;
mod glob_shells;
mod lookup;
mod plan;
mod protection;
mod support;
