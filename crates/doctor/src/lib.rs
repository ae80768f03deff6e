//! Checks and repairs the setup of this machine, and imports policies of other programs.
//!
//! `audit` has the checks of `interlock security audit`, each with its id. `separation` knows what
//! keeps a run from Interlock itself. `repairs` and `unrecorded` are what `interlock doctor`
//! repairs. `merge` merges another document into the one in force, `openclaw` imports a whole state
//! directory, and `outside_writer` tells which other account could change a file.

#![forbid(unsafe_code)]

pub mod audit;
pub mod merge;
pub mod openclaw;
mod outside_writer;
pub mod repairs;
mod separation;
mod unrecorded;

pub use separation::{RunSeparation, SeparatedAgents, separate_agents};
pub use unrecorded::{DocumentRepair, repair_document};
