//! The server of a state directory: transports, and who may use them.
//!
//! Read [`Gateway`] (what all connections share), `serve` (transports and their life), `access`
//! (who calls, and what that proves), then the transports: `http`, `ws`, `mcp`, and `ui` for browsers.
//! `pairing`, `directives` and `config_secrets` are what their methods need. What a call does is in
//! `interlock_dispatch`.

#![forbid(unsafe_code)]

mod access;
mod audit_retention;
mod config_secrets;
mod directives;
mod gateway;
mod http;
mod limit;
mod logs;
pub mod mcp;
mod pairing;
mod push;
mod serve;
mod ui;
mod ws;

pub use access::token::{OperatorAccess, TokenError, read_secret};
pub use gateway::{Gateway, GatewayError, GatewayOptions};
pub use logs::{LogLines, LogWriter};
pub use serve::{ReadyGateway, info::GatewayInfo, info::running, serve, serve_offering};
