//! The protocol between gateway, clients and nodes.
//!
//! Types and rules of the protocol; no sockets, no clock, no files. Read in this order: [`frame`]
//! (what one WebSocket message is), [`error`] and [`refusal`] (how requests are refused),
//! [`schema`] and [`params`] (what a method takes), [`results`] (what it returns), [`contract`],
//! [`method`], [`scope`] and [`event`] (who may call and hear what), [`identity`] (who a device is), [`hello`] (the first messages to a client),
//! [`release`] (which release of the reference is at the other end), [`node`] (how a command runs on
//! another machine), [`approval`] and [`approval_record`] (how approvers are asked, and what came of it),
//! [`json`] (which texts are refused at every transport).
//!
//! Input is untrusted. Every reader here is total, refuses what it does not know, and costs no more
//! than a small multiple of the message.

#![forbid(unsafe_code)]

pub mod approval;
pub mod approval_record;
pub mod close;
pub mod contract;
pub mod error;
pub mod event;
pub mod frame;
mod hash;
pub mod hello;
pub mod identity;
pub mod json;
pub mod method;
pub mod node;
pub mod params;
pub mod reference;
pub mod refusal;
pub mod release;
pub mod results;
pub mod schema;
pub mod scope;
pub mod secret;

pub use close::Close;
pub use error::{ErrorCode, WireError};
pub use frame::{BadFrame, Event, Frame, Request, Response, StateVersion};
pub use params::{Connect, Params};
pub use refusal::WireRefusal;
pub use release::PeerRelease;
pub use scope::{OperatorScope, Role, Scopes};
pub use secret::Secret;

/// The protocol that is spoken.
pub const PROTOCOL: u64 = 4;
/// The oldest that nodes and probes may still speak.
pub const OLDEST_NODE_PROTOCOL: u64 = 3;
