//! Runs outlive the services: the supervisor, its shims, and what they leave behind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_interlock");

mod durability;
mod leaks;
mod life;
mod orders;
mod output_edges;
mod output_room;
mod reuse;
mod socket;
