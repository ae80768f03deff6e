//! The server of a state directory: transports, access, tools, approvals.
//!
//! Read [`Gateway`] (what all connections share), `serve` (transports and their life), `access`
//! (who calls, and what that proves), `tools` (what agents call), `approvals` (approvals and their
//! decisions, as the record has them), `events` and `wake` (events of sessions), `sessions` and
//! `directives` (their settings), `nodes` (machines that run commands for it), then `http`, `ws`
//! and `mcp`.

#![forbid(unsafe_code)]

mod access;
mod approvals;
mod audit_retention;
mod config_secrets;
mod directives;
mod events;
mod gateway;
mod http;
mod limit;
mod logs;
mod look;
pub mod mcp;
mod metrics;
mod nodes;
mod once;
mod pairing;
mod serve;
mod session_pages;
mod sessions;
mod tools;
mod wake;
mod work;
mod ws;

pub use access::token::{OperatorAccess, TokenError, read_secret};
pub use gateway::{Gateway, GatewayError, GatewayOptions};
pub use logs::{LogLines, LogWriter};
pub use serve::{ReadyGateway, info::GatewayInfo, info::running, serve, serve_offering};
