//! Machines that run commands for this gateway.
//!
//! Read `platform` (what a kind of machine may offer at all), `registry` (who is connected, and what
//! of it was approved), `invoke` (a command on its way to a node and back), `approval` (a run that a
//! person allowed), `run` (a run from being handed out to its end), `told` (what its session hears of
//! it), `extension` (what only nodes of ours know), `handed` (runs that they keep), `sessions` (what
//! those are for callers), `choose` (which node a call means), `list` (how nodes are shown).

pub(crate) mod approval;
pub(crate) mod choose;
pub(crate) mod extension;
pub(crate) mod handed;
mod invoke;
pub(crate) mod list;
mod platform;
pub(crate) mod registry;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod told;

pub(crate) use invoke::Invocation;
pub(crate) use platform::Platform;
pub(crate) use registry::{Node, Nodes};
