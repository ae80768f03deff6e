//! What does this text say?
//!
//! Everything here is pure: no clock, no files, no async. Questions about the host
//! ("which file is `rg`?") go through the [`Resolver`] trait.

pub mod inline;
pub mod names;
mod resolver;

pub use resolver::{Executable, FileKind, Glob, GlobError, GlobToken, Lookup, Missing, Resolver};
