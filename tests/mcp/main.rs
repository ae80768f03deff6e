//! MCP over stdio and HTTP.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_interlock");

mod approvals;
mod calls;
mod clients;
mod events;
mod hostile;
mod stdio;
