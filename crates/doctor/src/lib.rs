//! Is this machine set up soundly?
//!
//! Read `audit` (the checks of `interlock security audit`, each with its id), `separation` (what keeps a
//! run from Interlock itself), `repairs` and `unrecorded` (what `interlock doctor` puts right), `merge`
//! (what is taken from another document), `openclaw` (imports) and `outside_writer` (which other account
//! could change a file).

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
