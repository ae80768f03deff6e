//! The gateway: HTTP, WebSocket, TLS, tokens, events, load.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_interlock");

mod access;
mod bounds;
mod clients;
mod events;
mod hostile;
mod http;
mod load;
mod methods;
mod newer_clients;
mod pages;
mod remote;
mod remote_commands;
mod remote_inbox;
mod remote_machines;
mod resume;
mod tls;
mod tokens;
mod wake;
mod wake_tls;
