//! The gateway and its nodes: pairing, invocations, approvals, `exec host=node`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

#[path = "nodes/approvals.rs"]
mod approvals;
#[path = "nodes/asked.rs"]
mod asked;
#[path = "nodes/commands.rs"]
mod commands;
#[path = "nodes/document.rs"]
mod document;
#[path = "nodes/exec.rs"]
mod exec;
#[path = "nodes/invoke.rs"]
mod invoke;
#[path = "nodes/kept.rs"]
mod kept;
#[path = "nodes/levels.rs"]
mod levels;
#[path = "nodes/named.rs"]
mod named;
#[path = "nodes/pairing.rs"]
mod pairing;
#[path = "nodes/real.rs"]
mod real;
#[path = "nodes/wire.rs"]
mod wire;
