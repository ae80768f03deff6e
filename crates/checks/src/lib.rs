//! Checks of the owner's setup: the security audit, repairs and imports.
//!
//! Read `audit` (the checks of `interlock security audit`, each with its id), `separation` (what keeps a run
//! from Interlock itself), `doctor` (repairs), `merge` (what is taken from another document), `openclaw` (imports) and
//! `outside_writer` (who else could change a file).

#![forbid(unsafe_code)]

pub mod audit;
pub mod doctor;
pub mod merge;
pub mod openclaw;
mod outside_writer;
mod separation;

pub use separation::{RunSeparation, SeparatedAgents, separate_agents};
