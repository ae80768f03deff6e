//! Shows which conversations are sandboxed and how, and the directories of their sandboxes.
//! Rendering the view creates no directory.

use std::time::UNIX_EPOCH;

use interlock_config::types::Sandbox;
use interlock_config::{Config, SandboxMode};
use interlock_sandbox::{SandboxCoverage, SandboxStanding, ScopeStore, standing_of};
use interlock_web::{SandboxAgent, SandboxFacts, SandboxScopeRow, sandbox_page};
use interlock_wire::results::UiOpened;
use interlock_wire::{OperatorScope, WireError};

use super::views::{agents, page};
use crate::handlers::{Context, sandbox_scopes, unavailable, work};

pub(super) async fn sandbox(context: Context<'_>) -> Result<UiOpened, WireError> {
    let may_explain = context.client.scopes.allow(OperatorScope::Write);
    let may_remove = context.client.scopes.allow(OperatorScope::Admin);
    work(context, move |gateway| {
        let config = gateway.dispatcher.host.config();
        let config = config.map_err(|error| unavailable(&error))?;
        let config = config.config();
        let names = agents(gateway)?;
        let agents: Vec<SandboxAgent> = names.iter().map(|name| covered(config, name)).collect();
        let (scopes, unusable) = scope_rows(&sandbox_scopes(gateway));
        Ok(page(sandbox_page(&SandboxFacts {
            agents: &agents,
            scopes: &scopes,
            unusable: &unusable,
            may_explain,
            may_remove,
        })))
    })
    .await
}

/// Returns what the config says about an agent's sandbox.
fn covered(config: &Config, agent: &str) -> SandboxAgent {
    let coverage = SandboxCoverage::of_agent(config, agent);
    let mut row = SandboxAgent {
        agent: agent.to_owned(),
        conversations: "none".to_owned(),
        key: "agents.defaults.sandbox.mode is not set".to_owned(),
        ..SandboxAgent::default()
    };
    let Some(coverage) = coverage else {
        row.open
            .push("every run has the rights of this account".to_owned());
        return row;
    };
    row.key = format!("{} is {}", coverage.key, coverage.value);
    match coverage.conversations {
        SandboxMode::Off => {
            row.open
                .push("every run has the rights of this account".to_owned());
            return row;
        }
        SandboxMode::NonMain => {
            "all but the main one".clone_into(&mut row.conversations);
            row.open.push(format!("agent:{agent}:main"));
        }
        SandboxMode::All => "all".clone_into(&mut row.conversations),
    }
    // Every mode except `off` sandboxes this conversation.
    let other = format!("agent:{agent}:any-other");
    if let SandboxStanding::Active(settings) = standing_of(config, agent, &other) {
        describe(&mut row, &settings);
    }
    row
}

/// Describes the settings, and the access that they leave open.
fn describe(row: &mut SandboxAgent, settings: &Sandbox) {
    row.is_sandboxed = true;
    let words = serde_json::to_value(settings).unwrap_or_default();
    let word = |name: &str, usual: &str| {
        let set = words.get(name).and_then(|value| value.as_str());
        set.unwrap_or(usual).to_owned()
    };
    row.backend = word("backend", "native");
    row.scope = word("scope", "agent");
    row.workspace = word("workspaceAccess", "none");
    let network = words.get("network").and_then(|network| network.as_object());
    let keys = network.into_iter().flatten();
    // A key that is not set is not shown.
    let keys = keys
        .filter(|(_, value)| !value.is_null())
        .map(|(key, value)| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            format!("{key} {text}")
        });
    let keys: Vec<String> = keys.collect();
    row.network = if keys.is_empty() {
        "none".to_owned()
    } else {
        keys.join(", ")
    };
    if row.workspace == "rw" {
        row.open.push("the workspace is written to".to_owned());
    }
    if word("view", "minimal") == "host" {
        row.open
            .push("the whole file system is read (view: host)".to_owned());
    }
    for bind in settings.binds.iter().flatten() {
        row.open.push(format!("bind {bind}"));
    }
    if settings.allow_host_root == Some(true) {
        row.open
            .push("runs may be root of the host (allowHostRoot)".to_owned());
    }
}

fn scope_rows(store: &ScopeStore) -> (Vec<SandboxScopeRow>, Vec<String>) {
    let (scopes, unusable) = store.list();
    let rows = scopes.into_iter().map(|scope| {
        let used = store.last_used(&scope.id);
        let used = used.and_then(|used| used.duration_since(UNIX_EPOCH).ok());
        SandboxScopeRow {
            last_used_ms: used.and_then(|since| i64::try_from(since.as_millis()).ok()),
            id: scope.id,
            scope: scope.scope,
            workspace: scope.workspace,
        }
    });
    let unusable = unusable.into_iter();
    let unusable = unusable.map(|scope| format!("{} cannot be read: {}", scope.id, scope.why));
    (rows.collect(), unusable.collect())
}
