//! The server of a state directory: transports, and who may use them.
//!
//! Read `serve` (transports and their life), then the transports: `http` (with `http::pages` for browsers) and
//! `ws`; MCP is in `interlock_mcp`. What the methods do is in `interlock_methods`, who calls is settled by
//! `interlock_access`, and what a call does is in `interlock_dispatch`.

#![forbid(unsafe_code)]

mod http;
mod serve;
mod ws;

pub use interlock_access::token::{OperatorAccess, TokenError, read_secret};
pub use interlock_methods::{Gateway, GatewayError, GatewayOptions, LogLines, LogWriter};
pub use serve::{ReadyGateway, info::GatewayInfo, info::running, serve, serve_offering};
