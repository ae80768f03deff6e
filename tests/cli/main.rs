//! The command line: config, doctor, audit, setup, services, packaging.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// The program under test.
const BINARY: &str = env!("CARGO_BIN_EXE_interlock");

mod audit;
mod bad_input;
mod command_line;
mod config;
mod config_keys;
mod doctor;
mod everyday;
mod first_start;
mod hook;
mod import_openclaw;
mod packaging;
mod reference;
mod security_audit;
mod service;
mod setup;
