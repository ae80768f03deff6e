//! All tests of this crate against its public interface, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod approvals;
mod archive;
mod audit;
mod common;
mod crash;
mod entry_uses;
mod events;
mod forwarded;
mod grants;
mod limits;
mod lookup;
mod model;
mod processes;
mod sessions;
mod store;
mod tampering;
