//! The command line: parses arguments, calls the layers below, prints.
//!
//! Read `args` (what can be asked), then `commands` (one file each), then `output` (how it looks).

#![forbid(unsafe_code)]

mod args;
mod commands;
mod failure;
mod output;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let json = arguments.wants_json();
    let outcome = match arguments.command {
        Command::Explain(explain) => commands::explain::run(&arguments.state, &explain),
        Command::Policy(policy) => commands::policy::run(&arguments.state, policy),
        Command::Approvals(approvals) => commands::approvals::run(&arguments.state, approvals),
        Command::ExecPolicy(policy) => commands::exec_policy::run(&arguments.state, policy),
        Command::Config(config) => commands::config::run(&arguments.state, config),
        Command::ApplyPatch(patch) => commands::apply_patch::run(&arguments.state, &patch),
        Command::Version => Ok(commands::version()),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}
