//! The program: parses its arguments and passes each command to the code that carries it out.
//!
//! The command line is defined in `interlock_arguments`. Commands about runs, the inbox, the setup
//! of agent programs and the services have their own crates; the others are in `commands`, one file
//! each. This is a library only so that a test can compare [`mod@reference`] with the committed
//! page. Start reading at [`main`].

#![forbid(unsafe_code)]

mod commands;

use std::process::ExitCode;

pub use interlock_arguments::reference;
use interlock_arguments::{Arguments, CliCommand};
use interlock_console::{Failure, output};
use interlock_runs::{apply_patch, exec, process};
use interlock_services::{gateway, guard, node};
use interlock_setup::hook;

/// Runs the program. The exit codes are 0 for done, 1 for refused or failed, 2 for wrong usage, and
/// 3 for a command that was not allowed.
pub fn main() -> ExitCode {
    if let Err(error) = close_to_other_processes() {
        eprintln!("error[DUMPABLE]: this process cannot be closed to other processes: {error}");
        return ExitCode::FAILURE;
    }
    if let Some(code) = guard::run() {
        return code;
    }
    if let Some(code) = commands::sandbox::become_part() {
        return code;
    }
    quiet_describer();
    let arguments = Arguments::read();
    let json = arguments.wants_json();
    let outcome = match arguments.command {
        CliCommand::Explain(explain) => commands::explain::run(&arguments.state, &explain),
        CliCommand::Exec(exec) => exec::run(&arguments.state, &exec),
        CliCommand::Process(process) => process::run(&arguments.state, process),
        CliCommand::Policy(policy) => commands::policy::run(&arguments.state, policy),
        CliCommand::Approvals(approvals) => commands::approvals::run(&arguments.state, approvals),
        CliCommand::Deny(deny) => commands::deny::run(&arguments.state, deny),
        CliCommand::ExecPolicy(policy) => commands::exec_policy::run(&arguments.state, policy),
        CliCommand::Config(config) => commands::config::run(&arguments.state, config),
        CliCommand::Audit(audit) => commands::audit::run(&arguments.state, &audit),
        CliCommand::Security(security) => commands::security::run(&arguments.state, &security),
        CliCommand::Sandbox(sandbox) => commands::sandbox::run(&arguments.state, &sandbox),
        CliCommand::Doctor(doctor) => commands::doctor::run(&arguments.state, &doctor),
        CliCommand::Import(import) => commands::import::run(&arguments.state, &import),
        CliCommand::Events(events) => commands::events::run(&arguments.state, &events),
        CliCommand::ApplyPatch(patch) => apply_patch::run(&arguments.state, &patch),
        CliCommand::Gateway(gateway) => gateway::run(&arguments.state, &gateway),
        CliCommand::Mcp(mcp) => commands::mcp::run(&arguments.state, &mcp),
        CliCommand::Hook(hook) => return hook::run(&arguments.state, &hook),
        CliCommand::Setup(setup) => interlock_setup::run(&arguments.state, &setup),
        CliCommand::Node(node) => node::run(&arguments.state, &node),
        CliCommand::Agents(agents) => commands::agents::run(&arguments.state, &agents),
        CliCommand::Devices(devices) => commands::devices::run(&arguments.state, &devices),
        CliCommand::Nodes(nodes) => commands::nodes::run(&arguments.state, &nodes),
        CliCommand::Channels(channels) => commands::channels::run(&arguments.state, &channels),
        CliCommand::Status(status) => commands::status::run(&arguments.state, &status),
        CliCommand::Dashboard(dashboard) => commands::dashboard::run(&arguments.state, &dashboard),
        CliCommand::Companion(companion) => commands::companion::run(&arguments.state, &companion),
        CliCommand::Completion(shell) => Ok(commands::generate::completion(&shell)),
        CliCommand::Man(man) => commands::generate::man(&man),
        CliCommand::Version => Ok(commands::version()),
    };
    let written = output::finish().map_err(Failure::from);
    match outcome.and_then(|code| written.map(|()| code)) {
        Ok(code) => code,
        Err(failure) => failure.report_at(&arguments.state, json),
    }
}

/// Keeps other processes of the same user from reading the memory, the descriptors and the
/// environment of this process: these may contain tokens, and a run has the same user. Forked
/// processes inherit the protection; programs that this process executes do not.
fn close_to_other_processes() -> std::io::Result<()> {
    interlock_engine::mark::remember_birth();
    let closed = rustix::process::DumpableBehavior::NotDumpable;
    Ok(rustix::process::set_dumpable_behavior(closed)?)
}

/// Hides the panic messages of the thread that describes odd text. Its parser is a third-party
/// crate that may panic; the answer then says so, and the terminal stays clean.
fn quiet_describer() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() != Some("describe") {
            usual(panic);
        }
    }));
}
