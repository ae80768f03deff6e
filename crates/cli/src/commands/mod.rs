pub mod agents;
pub mod approvals;
pub mod audit;
pub mod channels;
pub mod companion;
pub mod config;
pub mod dashboard;
pub mod deny;
pub mod devices;
pub mod doctor;
pub mod events;
pub mod exec_policy;
pub mod explain;
pub mod generate;
pub mod import;
pub mod mcp;
pub mod nodes;
pub mod policy;
pub mod sandbox;
pub mod security;
pub mod status;

use std::process::ExitCode;

use interlock_console::output;

pub fn version() -> ExitCode {
    output::print(concat!("interlock ", env!("CARGO_PKG_VERSION"), "\n"));
    ExitCode::SUCCESS
}
