//! Machines that run commands for this gateway.
//!
//! Read `platform` (what a kind of machine may offer at all), `registry` (which nodes are connected,
//! and what of them was approved), `invoke` (a command on its way to a node and back), `approval` (a
//! run that an approver allowed), `system_run` (a run by `system.run`, to its end), `run_events` (the
//! events of its conversation), `extension` (what only Interlock nodes know), `remote_runs` (runs
//! whose transcripts Interlock nodes keep, and how their ends are recorded here), `sessions`
//! (background sessions on nodes), `directory` (which node a word means), `known` (what keeps the
//! directory current), `choose` (which node a call means), `list` (how nodes are shown).

pub mod approval;
pub mod choose;
mod directory;
pub mod extension;
mod invoke;
pub mod known;
pub mod list;
mod platform;
pub mod registry;
pub mod remote_runs;
pub mod run_events;
pub mod sessions;
pub mod system_run;

pub use invoke::NodeInvocation;
pub use platform::Platform;
pub use registry::{Node, Nodes};
