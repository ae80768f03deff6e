//! `sandbox.*`: explains what sandboxed runs see on this machine, and removes their directories.

use interlock_approvals::usual_session_key;
use interlock_host::{CallerContext, SandboxCaller, SandboxStanding};
use interlock_policy::AgentId;
use interlock_sandbox::{RemovedScopes, ScopeRemovalError, ScopeSelection, ScopeStore};
use interlock_wire::WireError;
use interlock_wire::params;
use interlock_wire::results::{
    SandboxExplained, SandboxFact, SandboxMountShown, SandboxScopesRemoved,
};

use super::{Context, unavailable, work};
use crate::gateway::Gateway;

/// `sandbox.explain`.
pub(super) async fn explain(
    context: Context<'_>,
    asked: params::SandboxExplain,
) -> Result<SandboxExplained, WireError> {
    work(context, move |gateway| {
        let mut explained = explained(gateway, &asked)?;
        explained.html = interlock_web::sandbox_explained(&explained).into_string();
        Ok(explained)
    })
    .await
}

fn explained(
    gateway: &Gateway,
    asked: &params::SandboxExplain,
) -> Result<SandboxExplained, WireError> {
    let host = &gateway.dispatcher.host;
    let agent = AgentId::new(&asked.agent_id)
        .map_err(|error| WireError::invalid(format!("agentId: {error}")))?;
    let session_key = asked.session_key.clone();
    let session_key = session_key.unwrap_or_else(|| usual_session_key(agent.as_str()));
    let scope = host.scope(&agent).map_err(|error| unavailable(&error))?;
    let standing = host.sandbox_standing(&scope, &agent, &session_key);
    let mut explained = SandboxExplained {
        agent: agent.to_string(),
        session_key,
        sandboxed: standing.is_active(),
        ..SandboxExplained::default()
    };
    let settings = match standing {
        SandboxStanding::Off(why) => {
            explained.problem = Some(why);
            return Ok(explained);
        }
        SandboxStanding::Active(settings) => settings,
    };
    let caller = CallerContext::default();
    let asked = SandboxCaller {
        agent: &agent,
        session_key: &explained.session_key,
        caller: &caller,
        cwd: None,
        effects: interlock_plan::SandboxEffects::Direct,
    };
    let plan = match host.prepare_sandbox_of(&scope, &settings, asked) {
        Ok(prepared) => prepared.plan,
        Err(error) => {
            let remedy = error.remedy().map(|remedy| format!(": {remedy}"));
            explained.problem = Some(format!("{error}{}", remedy.unwrap_or_default()));
            return Ok(explained);
        }
    };
    let leaves = match settings.required {
        Some(true) => "no run leaves it (required)",
        _ => "a configured tools.exec.host places runs outside of it",
    };
    let facts = [
        ("sandbox", plan.summary().to_string()),
        ("leaving", leaves.to_owned()),
        ("scope", format!("{} ({})", plan.scope, plan.scope_id)),
        ("workspace", plan.workspace.clone()),
        (
            "user",
            format!(
                "{} inside, {} on the host",
                plan.user.uid, plan.user.host_uid
            ),
        ),
        ("unix sockets", plan.unix_sockets.to_string()),
    ];
    explained.facts = facts
        .into_iter()
        .map(|(name, value)| SandboxFact {
            name: name.to_owned(),
            value,
        })
        .collect();
    let mounts = plan.mounts.iter().map(|mount| {
        let (access, reason) = mount.words();
        SandboxMountShown {
            target: mount.target().to_owned(),
            access: access.to_owned(),
            reason,
        }
    });
    explained.mounts = mounts.collect();
    Ok(explained)
}

/// `sandbox.recreate`.
pub(super) async fn recreate(
    context: Context<'_>,
    asked: params::SandboxRecreate,
) -> Result<SandboxScopesRemoved, WireError> {
    work(context, move |gateway| {
        let selection = match (asked.all, &asked.agent_id, &asked.session_key) {
            (Some(true), None, None) => ScopeSelection::All,
            (None | Some(false), Some(agent), None) => ScopeSelection::Agent(agent),
            (None | Some(false), None, Some(key)) => ScopeSelection::Session(key),
            _ => {
                let message = "exactly one of agentId, sessionKey and all says which sandboxes";
                return Err(WireError::invalid(message));
            }
        };
        let end = |id: &str| gateway.dispatcher.supervisor.end_scope(id);
        removed(scopes(gateway).recreate(selection, end))
    })
    .await
}

/// `sandbox.prune`.
pub(super) async fn prune(
    context: Context<'_>,
    _: params::SandboxPrune,
) -> Result<SandboxScopesRemoved, WireError> {
    work(context, |gateway| {
        let config = gateway.dispatcher.host.config();
        let config = config.map_err(|error| unavailable(&error))?;
        let settings = &config.config().agents.defaults.sandbox.prune;
        let end = |id: &str| gateway.dispatcher.supervisor.end_scope(id);
        removed(scopes(gateway).prune(settings, end))
    })
    .await
}

/// Returns the directories of the sandboxes of this machine.
pub(crate) fn scopes(gateway: &Gateway) -> ScopeStore {
    ScopeStore::new(gateway.dispatcher.host.state_dir())
}

fn removed(
    result: Result<RemovedScopes, ScopeRemovalError>,
) -> Result<SandboxScopesRemoved, WireError> {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    match result {
        Ok(RemovedScopes { removed, busy }) => Ok(SandboxScopesRemoved {
            removed: count(removed),
            busy: count(busy),
        }),
        Err(error) => Err(WireError::unavailable(error.to_string()).with("code", "SANDBOX_SCOPE")),
    }
}
