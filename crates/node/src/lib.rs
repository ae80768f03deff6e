//! A node host: runs commands for a gateway on another machine, under this machine's own policy.
//!
//! Read in this order: [`GatewayTarget`] (whom it talks to, and when plain text is good enough),
//! `state` (who this node is, and what it keeps), `introduction` (what it says of itself), `node`
//! (the life of the process: connect, serve, come back), `connection` (one connection, from the
//! challenge to its end), `uplink` (answers that outlive a connection), `permits` (what is worked on
//! at a time), `serve` and `commands` (what a gateway may ask for).
//!
//! Nothing is decided here: whether something runs is judged by `host`, by the document of this
//! machine, whatever the gateway says.

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
