//! The foundation of the gateway's transports: carries out calls and reports their results.
//!
//! Read [`Dispatcher`] (the state that all calls share), [`tools`] (the tools of agents, and the
//! pipeline of a run), [`nodes`] (machines that run commands for this one), [`approvals`]
//! (approvals and their decisions, as the record has them), [`events`] and [`wake`] (events of
//! sessions), [`sessions`] (their settings), then [`once`] (repeated calls). The clients that are
//! notified are in `interlock_connections`. Nothing in this crate knows HTTP, WebSockets or MCP.

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
