//! Machines that run commands for this gateway.
//!
//! Read `platform` (the commands that a kind of machine may offer at all), `registry` (the
//! connected nodes, and their approved commands), `invoke` (sends a command to a node and receives
//! the answer), `approval` (a run that an approver allowed), `system_run` (a run by `system.run`,
//! to its end), `run_events` (the events of its conversation), `extension` (the commands of
//! Interlock nodes), `remote_runs` (runs whose transcripts Interlock nodes keep, and how their ends
//! are recorded here), `sessions` (background sessions on nodes), `directory` (finds the node that
//! a word means), `known` (keeps the directory up to date), `choose` (chooses the node of a call),
//! `list` (lists nodes).

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
