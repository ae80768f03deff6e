//! The server of a state directory: doors, who may come in, tools, approvals.
//!
//! Read [`Gateway`] (what all connections share), `serve` (doors and life), `access` (who speaks,
//! and what that proves), `tools` (what agents call), `approvals` (questions and their answers, as
//! the record tells them), `nodes` (machines that run commands for it), then `http` and `mcp`.

#![forbid(unsafe_code)]

mod access;
mod approvals;
mod gateway;
mod http;
mod mcp;
mod metrics;
mod nodes;
mod once;
mod pairing;
mod serve;
mod tools;
mod ws;

pub use access::token::{TokenError, TokenFile};
pub use gateway::{Gateway, GatewayError, Options};
pub use serve::{Ready, info::Info, info::running, serve};
