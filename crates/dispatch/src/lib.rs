//! What the transports of the gateway stand on: who carries a call out, and who hears of it.
//!
//! Read [`Dispatcher`] (what all calls share), [`tools`] (what agents call, and the pipeline of a run),
//! [`nodes`] (machines that run commands for this one), [`approvals`] (approvals and their decisions,
//! as the record has them), [`events`] and [`wake`] (events of sessions), [`sessions`] (their
//! settings), then [`once`] (calls that are sent again). The clients that hear of all this are in
//! `interlock_connections`. Nothing in here knows HTTP, WebSockets or MCP.

#![forbid(unsafe_code)]

pub mod approvals;
mod broadcast;
mod dispatcher;
pub mod events;
pub mod limits;
pub mod look;
pub mod metrics;
mod networks;
pub mod nodes;
pub mod once;
pub mod session_pages;
pub mod sessions;
pub mod tools;
pub mod wake;
pub mod work;

pub use broadcast::broadcast;
pub use dispatcher::{Dispatcher, DispatcherParts, UnknownAgent};
