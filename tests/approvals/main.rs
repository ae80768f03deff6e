//! Approvals: the document, decisions, grants, surfaces, the approval socket.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_interlock");

mod always;
mod approval_socket;
mod approval_socket_peers;
mod approve;
mod approve_changed;
mod approve_crash;
mod approve_drift;
mod approve_from_run;
mod approve_model;
mod approve_terminal;
mod companion;
mod companion_dunst;
mod desktop;
mod document;
mod grants;
mod inbox;
mod pending_bounds;
mod recorded;
mod removed_state;
mod shown;
mod view;
mod watch;
