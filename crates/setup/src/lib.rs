//! `interlock setup`: changes the settings of an agent program so that its commands go through
//! Interlock, and undoes the change.
//!
//! Read in this order: `programs` (which settings each agent program reads), `edit` (an edit and
//! its undo), `text` (the file formats, with `toml` and `yaml`), `files` and `record` (how nothing
//! is lost), `change` (the plan for one file), `verify` (the test call), `report` (the report to
//! the owner). `hook` is separate: it judges commands that the agent program runs in its own shell.

#![forbid(unsafe_code)]

mod change;
mod edit;
mod files;
pub mod hook;
mod programs;
mod record;
mod report;
mod text;
mod toml;
mod verify;
mod yaml;

use std::process::ExitCode;

use interlock_arguments::{ScopeArgument, SetupArguments, StateArguments};
use interlock_client::{Absent, join, open, outside_runs};
use interlock_console::{CommandOutcome, Failure};
use interlock_host::LocalHost;
use interlock_policy::{AgentId, quote};

use change::{SettingsFileChange, Undone};
use programs::{SettingsPlaces, SetupWish, planned_files};
use record::SetupRecords;
use report::{SetupReport, UndoReport};

pub fn run(state: &StateArguments, arguments: &SetupArguments) -> CommandOutcome {
    let host = open(state)?;
    // The settings decide whether an agent goes through Interlock, so a run must not change them.
    outside_runs(host.state_dir())?;
    let places = SettingsPlaces::from_environment()?;
    let records = SetupRecords::of(host.state_dir());
    if arguments.undo {
        return undo(state, arguments, &records, &places);
    }
    let command = entry_command(state, &host, arguments)?;
    let hook = arguments.hook.then(|| hook_line(&command, arguments));
    let wish = SetupWish {
        program: arguments.program,
        scope: arguments.scope,
        only_interlock: arguments.only_interlock,
        hook: hook.as_deref(),
        command: &command,
    };
    let planned = planned_files(&wish, &places)?;
    check_agent(&host, &arguments.agent)?;
    let changes: Vec<SettingsFileChange> = planned
        .iter()
        .map(|file| SettingsFileChange::plan(file, &records))
        .collect::<Result<_, _>>()?;
    let mut report = SetupReport::new(state, arguments, &command, &changes);
    if arguments.dry_run {
        report.print(arguments.json);
        return Ok(ExitCode::SUCCESS);
    }
    // Start the gateway first: if it cannot start, nothing must be changed.
    let _ = join(state, &host, Absent::wanted(state))?;
    for change in &changes {
        change.make(arguments, &records)?;
    }
    report.verify(&command, hook.as_deref());
    report.print(arguments.json);
    Ok(if report.is_verified() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// The program and the arguments of the MCP entry. All paths are absolute and nothing depends on
/// the environment, because some agent programs clear it.
fn entry_command(
    state: &StateArguments,
    host: &LocalHost,
    arguments: &SetupArguments,
) -> Result<Vec<String>, Failure> {
    let unusable = |problem: String| Failure::refused("SETUP_PATH_UNUSABLE", problem);
    let text = |path: &std::path::Path| {
        let absolute = std::path::absolute(path).map_err(|error| unusable(error.to_string()))?;
        let text = absolute.to_str().map(str::to_owned);
        text.ok_or_else(|| unusable(format!("{} is not valid UTF-8", absolute.display())))
    };
    let program = std::env::current_exe().map_err(|error| unusable(error.to_string()))?;
    let mut command = vec![
        text(&program)?,
        "--state-dir".to_owned(),
        text(host.state_dir())?,
    ];
    if let Some(config) = &state.config {
        command.extend(["--config".to_owned(), text(config)?]);
    }
    command.extend(["mcp", "--agent", &arguments.agent].map(str::to_owned));
    Ok(command)
}

/// The shell command of the hook, which an agent program runs before its own shell tool runs a
/// command.
fn hook_line(command: &[String], arguments: &SetupArguments) -> String {
    let before_mcp = command.iter().take_while(|word| *word != "mcp");
    let mut words: Vec<String> = before_mcp.map(|word| quote(word)).collect();
    words.extend(["hook", arguments.program.name(), "--agent"].map(str::to_owned));
    words.push(quote(&arguments.agent));
    words.join(" ")
}

/// Refuses an agent that the config does not know. The gateway would refuse its calls later, after
/// the settings were written.
fn check_agent(host: &LocalHost, name: &str) -> Result<(), Failure> {
    let agent =
        AgentId::new(name).map_err(|error| Failure::usage("AGENT_INVALID", error.to_string()))?;
    let file = host.config()?;
    let config = file.config();
    let is_known = agent.as_str() == AgentId::MAIN
        || config.agent(agent.as_str()).is_some()
        || config.agents.allow_unknown == Some(true);
    if is_known {
        return Ok(());
    }
    let listed = config.agents.list.iter().map(|agent| agent.id.as_str());
    let known: Vec<&str> = std::iter::once(AgentId::MAIN).chain(listed).collect();
    let message = format!(
        "the config has no agent `{agent}`; it has {}",
        known.join(", ")
    );
    Err(Failure::usage("AGENT_UNKNOWN", message)
        .with_hint("name one of these with --agent, or add it to agents.list"))
}

fn undo(
    state: &StateArguments,
    arguments: &SetupArguments,
    records: &SetupRecords,
    places: &SettingsPlaces,
) -> CommandOutcome {
    let scope = scope_name(arguments.scope);
    let mut undone: Vec<Undone> = Vec::new();
    for record in records.of_program(arguments.program.name(), scope)? {
        let is_meant =
            arguments.scope == ScopeArgument::User || record.path.starts_with(&places.project);
        if is_meant {
            undone.push(Undone::undo(&record, records, arguments.dry_run)?);
        }
    }
    if undone.is_empty() {
        let title = arguments.program.title();
        let message = format!("nothing was set up for {title} here (scope {scope})");
        let other = match arguments.scope {
            ScopeArgument::Project => "user",
            ScopeArgument::User => "project",
        };
        let command = format!(
            "interlock setup {} --scope {other} --undo",
            arguments.program.name()
        );
        return Err(Failure::refused("SETUP_NOT_FOUND", message)
            .with_hint(format!("the other scope: {}", state.in_command(&command))));
    }
    UndoReport::new(arguments, &undone).print(arguments.json);
    Ok(ExitCode::SUCCESS)
}

fn scope_name(scope: ScopeArgument) -> &'static str {
    match scope {
        ScopeArgument::Project => "project",
        ScopeArgument::User => "user",
    }
}
