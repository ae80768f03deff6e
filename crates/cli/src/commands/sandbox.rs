//! `interlock sandbox`, and the hidden commands that become the init of a sandbox, the keeper of a
//! scope or the network server.

mod backends;
mod bind;
mod explain;
mod layers;
mod net;
mod setup;

use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use interlock_arguments::{SandboxCommand, SandboxRecreateArguments, StateArguments};
use interlock_client::{open, supervisor};
use interlock_console::{CommandOutcome, Failure, output};
use interlock_engine::sandbox::{
    INIT_COMMAND, KEEPER_COMMAND, NETD_COMMAND, ScopeDrivers, become_sandbox_init,
    become_scope_keeper,
};
use interlock_network::become_netd;
use interlock_sandbox::{
    RemovedScopes, ScopeRecord, ScopeRemovalError, ScopeSelection, ScopeStore, open_connection,
    ready_container,
};
use serde_json::json;

pub(super) use backends::{BackendHealth, try_backends};

/// Runs a hidden command. Returns `None` if the command line names another command. Only the
/// process of a run and the supervisor call hidden commands; these read no config and no policy.
pub fn become_part() -> Option<ExitCode> {
    let command = std::env::args_os().nth(1)?;
    let code = if command == INIT_COMMAND {
        become_sandbox_init()
    } else if command == KEEPER_COMMAND {
        become_scope_keeper(ScopeDrivers {
            ready_container,
            open_connection,
        })
    } else if command == NETD_COMMAND {
        become_netd()
    } else {
        return None;
    };
    Some(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

pub fn run(state: &StateArguments, command: &SandboxCommand) -> CommandOutcome {
    match command {
        SandboxCommand::Bind(arguments) => bind::run(state, arguments),
        SandboxCommand::Explain(arguments) => explain::run(state, arguments),
        SandboxCommand::List(arguments) => list(state, arguments.json),
        SandboxCommand::Recreate(arguments) => recreate(state, arguments),
        SandboxCommand::Prune(_) => prune(state),
        SandboxCommand::Diff(arguments) => layers::diff(state, arguments),
        SandboxCommand::Commit(arguments) => layers::commit(state, arguments),
        SandboxCommand::Discard(arguments) => layers::discard(state, arguments),
        SandboxCommand::Setup(arguments) => setup::run(arguments),
        SandboxCommand::Net(arguments) => net::run(state, arguments),
    }
}

fn list(state: &StateArguments, json: bool) -> CommandOutcome {
    let host = open(state)?;
    let store = ScopeStore::new(host.state_dir());
    let (scopes, unusable) = store.list();
    let layers = host.effects().kept_layers();
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
                row["containers"] = json!(store.containers(&scope.id));
                row
            })
            .collect();
        let unusable: Vec<_> = unusable
            .iter()
            .map(|scope| json!({ "id": scope.id, "problem": scope.why }))
            .collect();
        let layers: Vec<_> = layers.iter().map(layers::row).collect();
        output::print_json(&json!({ "scopes": rows, "unusable": unusable, "layers": layers }));
        return Ok(ExitCode::SUCCESS);
    }
    if scopes.is_empty() {
        output::note("no sandbox has directories of its own; a sandboxed run makes them");
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
    for scope in &scopes {
        for container in store.containers(&scope.id) {
            output::print(&format!(
                "{} has the container {} of {}, image {}\n",
                scope.id,
                output::line(&container.name),
                container.engine,
                output::line(&container.image)
            ));
        }
    }
    layers::print_list(&layers);
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
    // The command line requires exactly one of the three flags.
    let selection = match (&arguments.agent, &arguments.session) {
        (Some(agent), _) => ScopeSelection::Agent(agent),
        (None, Some(key)) => ScopeSelection::Session(key),
        (None, None) if arguments.all => ScopeSelection::All,
        (None, None) => return say_removed(Ok(RemovedScopes::default())),
    };
    let supervisor = supervisor(&host)?;
    let store = ScopeStore::new(host.state_dir());
    say_removed(store.recreate(selection, |id| supervisor.end_scope(id)))
}

fn prune(state: &StateArguments) -> CommandOutcome {
    let host = open(state)?;
    let config = host.config()?;
    let settings = &config.config().agents.defaults.sandbox.prune;
    let supervisor = supervisor(&host)?;
    let store = ScopeStore::new(host.state_dir());
    say_removed(store.prune(settings, |id| supervisor.end_scope(id)))
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
