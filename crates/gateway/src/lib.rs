//! The server of a state directory: transports, and who may use them.
//!
//! Read [`Gateway`] (what all connections share), `serve` (transports and their life), then the
//! transports: `http`, `ws`, and `ui` for browsers; MCP is in `interlock_mcp`. `pairing`, `directives` and
//! `config_secrets` are what their methods need, `refused_attempts` what they turned away. Who calls is settled by `interlock_access`, and what a
//! call does is in `interlock_dispatch`.

#![forbid(unsafe_code)]

mod audit_retention;
mod config_secrets;
mod directives;
mod gateway;
mod http;
mod limit;
mod logs;
mod pairing;
mod push;
mod refused_attempts;
mod serve;
mod ui;
mod ws;

pub use gateway::{Gateway, GatewayError, GatewayOptions};
pub use interlock_access::token::{OperatorAccess, TokenError, read_secret};
pub use logs::{LogLines, LogWriter};
pub use serve::{ReadyGateway, info::GatewayInfo, info::running, serve, serve_offering};
