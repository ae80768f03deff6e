//! The protocol between gateway, clients and nodes.
//!
//! The types and rules of the protocol; no sockets, no clock, no files. Read in this order:
//! [`frame`] (one WebSocket message), [`error`] and [`refusal`] (how requests are refused),
//! [`schema`] and [`params`] (the parameters of a method), [`results`] (its result), [`contract`],
//! [`method`], [`scope`] and [`event`] (who may call and receive what), [`identity`] (the identity
//! of a device), [`hello`] (the first messages to a client), [`release`] (the peer's release of the
//! reference), [`node`] (how a command runs on another machine), [`approval`] and
//! [`approval_record`] (how approvers are asked, and what they decided), [`json`] (texts that every
//! transport refuses).
//!
//! Input is untrusted. Every reader here is total, refuses unknown input, and costs no more than a
//! small multiple of the message.

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

/// The protocol version.
pub const PROTOCOL: u64 = 4;
/// The oldest protocol version that nodes and probes may use.
pub const OLDEST_NODE_PROTOCOL: u64 = 3;
