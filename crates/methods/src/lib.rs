//! Implements the methods of the gateway's protocol, and the pages that call them. This crate knows
//! no sockets.
//!
//! Read [`Gateway`] (the state that all connections share), [`handlers`] (one function for each
//! method of `interlock_wire::method`), [`subscriptions`] (output that is sent as it is written),
//! [`ui`] (the views of the pages), then [`push`] and [`channels`] (approvals on other surfaces).
//! The handlers use `pairing`, `directives` and `config_secrets`. `refused_attempts` records in the
//! audit which attempts they refused.

#![forbid(unsafe_code)]

pub mod channels;
mod config_secrets;
mod directives;
mod gateway;
pub mod handlers;
mod limit;
mod logs;
pub mod pairing;
pub mod push;
pub mod refused_attempts;
pub mod subscriptions;
pub mod tool_answer;
pub mod ui;
pub mod upkeep;

pub use gateway::{Gateway, GatewayError, GatewayOptions};
pub use logs::{LogLines, LogWriter};

/// Returns the host of an address, without its port.
pub fn host_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let end = rest.find(['/', ':', '?']).unwrap_or(rest.len());
    Some(&rest[..end])
}
