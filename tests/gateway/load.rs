//! The gateway with much to do: many who watch, some who do not read, many who call; killed in the
//! middle of it; with many nodes. Each test is short here; `tests/run-heavy` makes them long, and they
//! print figures then.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss
)]

mod calls;
mod growth;
mod operators;
mod restart;
mod scale;
