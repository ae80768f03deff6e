//! Nodes: pairing, runs, approvals, faults, and gateways of other programs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_interlock");

mod approval;
mod background_sessions;
mod command_line;
mod connection;
mod extension;
mod faults;
mod foreign_gateways;
mod gateway;
mod operator;
mod registry;
mod run;
mod tls;
