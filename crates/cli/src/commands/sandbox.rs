//! `interlock sandbox`, and the hidden command that becomes the init of a sandbox.

mod explain;

use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use interlock_arguments::{SandboxCommand, SandboxRecreateArguments, StateArguments};
use interlock_client::open;
use interlock_console::{CommandOutcome, Failure, output};
use interlock_engine::sandbox::{INIT_COMMAND, become_sandbox_init};
use interlock_sandbox::{
    RemovedScopes, ScopeRecord, ScopeRemovalError, ScopeSelection, ScopeStore,
};
use serde_json::json;

/// The hidden command. `None` where something else was asked for. Only the process of a run calls it; it
/// reads no config and no policy.
pub fn become_init() -> Option<ExitCode> {
    if std::env::args_os().nth(1)? != INIT_COMMAND {
        return None;
    }
    let code = become_sandbox_init();
    Some(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

pub fn run(state: &StateArguments, command: &SandboxCommand) -> CommandOutcome {
    match command {
        SandboxCommand::Explain(arguments) => explain::run(state, arguments),
        SandboxCommand::List(arguments) => list(state, arguments.json),
        SandboxCommand::Recreate(arguments) => recreate(state, arguments),
        SandboxCommand::Prune(_) => prune(state),
    }
}

fn list(state: &StateArguments, json: bool) -> CommandOutcome {
    let host = open(state)?;
    let store = ScopeStore::new(host.state_dir());
    let (scopes, unusable) = store.list();
    let used_ms = |scope: &ScopeRecord| {
        let used = store.last_used(&scope.id)?;
        let since = used.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(since.as_millis()).ok()
    };
    if json {
        let rows: Vec<_> = scopes
            .iter()
            .map(|scope| {
                let mut row = json!(scope);
                row["lastUsedMs"] = json!(used_ms(scope));
                row["directory"] = json!(store.directory(&scope.id));
                row
            })
            .collect();
        let unusable: Vec<_> = unusable
            .iter()
            .map(|scope| json!({ "id": scope.id, "problem": scope.why }))
            .collect();
        output::print_json(&json!({ "scopes": rows, "unusable": unusable }));
        return Ok(ExitCode::SUCCESS);
    }
    if scopes.is_empty() {
        output::print("no sandbox has directories of its own\n");
    }
    let rows: Vec<Vec<String>> = scopes
        .iter()
        .map(|scope| {
            vec![
                scope.id.clone(),
                output::line(&scope.scope),
                output::line(&scope.workspace),
            ]
        })
        .collect();
    output::print(&output::table(&rows, ""));
    for scope in unusable {
        output::note(&format!(
            "interlock: {} cannot be read: {}",
            output::line(&scope.id),
            scope.why
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn recreate(state: &StateArguments, arguments: &SandboxRecreateArguments) -> CommandOutcome {
    let host = open(state)?;
    let selection = match (&arguments.agent, &arguments.session) {
        _ if arguments.all => Some(ScopeSelection::All),
        (Some(agent), _) => Some(ScopeSelection::Agent(agent)),
        (None, Some(key)) => Some(ScopeSelection::Session(key)),
        (None, None) => None,
    };
    let store = ScopeStore::new(host.state_dir());
    match selection {
        Some(selection) => say_removed(store.recreate(selection)),
        None => say_removed(Ok(RemovedScopes::default())),
    }
}

fn prune(state: &StateArguments) -> CommandOutcome {
    let host = open(state)?;
    let config = host.config()?;
    let settings = &config.config().agents.defaults.sandbox.prune;
    say_removed(ScopeStore::new(host.state_dir()).prune(settings))
}

fn say_removed(removed: Result<RemovedScopes, ScopeRemovalError>) -> CommandOutcome {
    let RemovedScopes { removed, busy } =
        removed.map_err(|error| Failure::refused("SANDBOX_SCOPE", error.to_string()))?;
    output::print(&format!("removed {removed}\n"));
    if busy > 0 {
        output::note(&format!(
            "interlock: {busy} stay, because something runs in them"
        ));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
