//! The gateway and its nodes: pairing, invocations, approvals, `exec host=node`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod approvals;
mod asked;
mod commands;
mod document;
mod exec;
mod fleet;
mod foreign_command;
mod invoke;
mod kept;
mod levels;
mod named;
mod pairing;
mod real;
mod wire;
