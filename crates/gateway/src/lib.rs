//! The server of a state directory: its transports, and who may use them.
//!
//! Read `serve` (the transports and their life), then the transports: `http` (with `http::pages`
//! for browsers) and `ws`. MCP is in `interlock_mcp`. `interlock_access` identifies callers,
//! `interlock_methods` implements the methods, and `interlock_dispatch` carries out calls.

#![forbid(unsafe_code)]

mod http;
mod serve;
mod ws;

pub use interlock_access::token::{OperatorAccess, TokenError, read_secret};
pub use interlock_methods::{Gateway, GatewayError, GatewayOptions, LogLines, LogWriter};
pub use serve::{ReadyGateway, info::GatewayInfo, info::running, serve, serve_offering};
