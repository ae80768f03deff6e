//! A node host: runs commands for a gateway on another machine, under this machine's own policy.
//!
//! Read in this order: [`GatewayTarget`] (the gateway, and when plain text is permitted), `state`
//! (the identity of this node and its stored state), `introduction` (how the node introduces
//! itself), `node` (the life of the process: connect, serve, reconnect), `connection` (one
//! connection, from the challenge to its end), `uplink` (answers that outlive a connection),
//! `permits` (limits concurrent work), `serve` and `commands` (the commands of a gateway).
//!
//! Nothing is decided here: `host` judges every run by the document of this machine, regardless of
//! the gateway's claims.

#![forbid(unsafe_code)]

mod commands;
mod connection;
mod introduction;
mod node;
mod permits;
mod serve;
mod state;
mod target;
mod uplink;

pub use connection::{GatewayStream, open_stream};
pub use interlock_tls::{Fingerprint, NotAFingerprint};
pub use interlock_wire::Secret;
pub use introduction::{PASSWORD_VARIABLES, TOKEN_VARIABLES};
pub use node::{NodeError, NodeOptions, run};
pub use state::{NodeFile, NodeInfo, NodeStanding, identity, running};
pub use target::{GatewayTarget, TargetError};
