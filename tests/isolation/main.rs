//! What a run cannot reach: the shield, accounts, limits, processes and sockets above it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod escalation;
mod ordinary_user;
mod process_privacy;
mod run_as;
mod run_escape;
mod run_limits;
mod shield;
mod shield_everyday;
mod tcp_peer;
