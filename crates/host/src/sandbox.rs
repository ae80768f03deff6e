//! Decides whether and where a run of this host is confined. The judge asks this for every request,
//! so that no transport can forget it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use interlock_config::Config;
use interlock_config::types::Sandbox;
use interlock_local::{
    AgentScope, CallerContext, ElevationFacts, PolicyPlace, Route, RouteFacts, SessionValues,
    contains, route_call,
};
use interlock_plan::{Elevation, SandboxEffects, SandboxPlan, WorkspaceAccess};
use interlock_policy::{AgentId, Levels, Security, ToolLevel, ToolRefusal, check_tool};
use interlock_sandbox::{
    PreparedSandbox, SandboxError, SandboxRequest, SandboxStanding, prepare_sandbox, standing_of,
};
use interlock_supervisor::Manner;
use interlock_supervisor::cgroup::{Cpus, RunLimits};

use crate::exec::{ExecError, ExecRequest};
use crate::local::{HostError, LocalHost};
use crate::sandbox_backend::usual_backend;

/// Where a request of this host runs.
#[derive(Debug)]
pub(crate) struct RunPlace {
    /// Where the run is confined; `None` for a run on the host.
    pub(crate) sandbox: Option<PreparedSandbox>,
    /// How far the run leaves the sandbox of its conversation.
    pub(crate) elevation: Elevation,
}

impl RunPlace {
    fn on_host(elevation: Elevation) -> Self {
        Self {
            sandbox: None,
            elevation,
        }
    }

    /// Which levels judge the run.
    pub(crate) fn policy_place(&self) -> PolicyPlace {
        match (&self.sandbox, self.elevation) {
            (Some(_), _) => PolicyPlace::Sandbox,
            (None, Elevation::Full) => PolicyPlace::HostWithoutPrompts,
            (None, Elevation::Off | Elevation::On) => PolicyPlace::Host,
        }
    }
}

/// The caller for which a sandbox is made, and its directory.
#[derive(Debug, Clone, Copy)]
pub struct SandboxCaller<'a> {
    pub agent: &'a AgentId,
    pub session_key: &'a str,
    pub caller: &'a CallerContext,
    /// An absolute path; `None` means the workspace.
    pub cwd: Option<&'a str>,
    /// Whether an approver decides about the run's changes.
    pub effects: SandboxEffects,
}

impl LocalHost {
    /// Determines where a request runs. Config, conversation and call can contradict each other;
    /// then the request runs nowhere.
    pub(crate) fn place_of(
        &self,
        request: &ExecRequest<'_>,
        scope: &AgentScope<'_>,
        session: &SessionValues,
    ) -> Result<RunPlace, ExecError> {
        let session_key = request.session_key();
        let config = scope.config().config();
        let mut standing = standing_of(config, request.agent.as_str(), &session_key);
        if request.place.needs_sandbox {
            if !standing.is_active() {
                standing = SandboxStanding::Active(Box::new(usual_sandbox()));
            }
        } else {
            let facts = RouteFacts {
                asked: request.place.host,
                session: session.host,
                exec: scope.exec(),
                sandbox: &standing,
            };
            let elevation = ElevationFacts {
                config,
                agent: request.agent,
                asked: request.place.elevated,
                session: session.elevated,
                sender: request.place.sender.as_ref(),
            };
            let routed = route_call(facts, &elevation)?;
            match routed.route {
                Route::Sandbox => {}
                // A run for a node that reached this host stays here: this host is the node.
                Route::Gateway | Route::Node => return Ok(RunPlace::on_host(routed.elevation)),
            }
        }
        let SandboxStanding::Active(settings) = &standing else {
            return Ok(RunPlace::on_host(Elevation::Off));
        };
        let caller = SandboxCaller {
            agent: request.agent,
            session_key: &session_key,
            caller: request.caller,
            cwd: (!request.place.is_cwd_usual).then_some(request.cwd.as_str()),
            effects: SandboxEffects::Direct,
        };
        let sandbox = self.prepare_sandbox_of(scope, settings, caller)?;
        Ok(RunPlace {
            sandbox: Some(sandbox),
            elevation: Elevation::Off,
        })
    }

    /// Prepares the sandbox that these settings describe for a caller.
    pub fn prepare_sandbox_of(
        &self,
        scope: &AgentScope<'_>,
        settings: &Sandbox,
        caller: SandboxCaller<'_>,
    ) -> Result<PreparedSandbox, ExecError> {
        if scope.account().is_some() {
            return Err(SandboxError::OtherAccount.into());
        }
        let workspace = sandbox_workspace(scope, caller.caller)?;
        let cwd = match caller.cwd {
            Some(cwd) => cwd.to_owned(),
            None => workspace.display().to_string(),
        };
        // The binds that an approver gave this conversation belong to its settings, so they give it
        // a scope of its own.
        let own = self
            .store()
            .session_binds(caller.session_key, caller.agent.as_str())
            .map_err(HostError::from)?;
        // A bind whose path is gone shows nothing, and must not refuse every run.
        let is_there = |bind: &String| {
            let source = bind.split(':').next().unwrap_or_default();
            std::fs::symlink_metadata(source).is_ok()
        };
        let own: Vec<String> = own.into_iter().filter(is_there).collect();
        let mut settings = settings.clone();
        if !own.is_empty() {
            settings.binds.get_or_insert_default().extend(own);
        }
        let settings = &settings;
        let config_path = std::fs::canonicalize(self.config_path());
        let own_paths: Vec<PathBuf> = config_path.into_iter().collect();
        let backend = match settings.backend {
            Some(backend) => backend,
            None => usual_backend(self.state_dir()),
        };
        let prepared = prepare_sandbox(&SandboxRequest {
            settings,
            backend,
            agent: caller.agent.as_str(),
            session_key: caller.session_key,
            workspace: &workspace,
            cwd: &cwd,
            state_dir: self.state_dir(),
            own_paths: &own_paths,
            home: scope.home(),
            effects: caller.effects,
        });
        Ok(prepared?)
    }

    /// Whether the config puts a conversation into a sandbox.
    pub fn sandbox_standing(
        &self,
        scope: &AgentScope<'_>,
        agent: &AgentId,
        session_key: &str,
    ) -> SandboxStanding {
        standing_of(scope.config().config(), agent.as_str(), session_key)
    }
}

/// Checks a tool against `tools.sandbox.tools`, which filters the tools of sandboxed conversations.
pub fn check_sandbox_tool(
    config: &Config,
    (agent, session_key): (&AgentId, &str),
    tool: &str,
) -> Result<(), ToolRefusal> {
    if !standing_of(config, agent.as_str(), session_key).is_active() {
        return Ok(());
    }
    let own = config.agent(agent.as_str());
    let own = own.map(|own| (&own.tools.sandbox.tools, "the agent's tools.sandbox.tools"));
    let global = (&config.tools.sandbox.tools, "tools.sandbox.tools");
    for (filter, path) in std::iter::once(global).chain(own) {
        let more = filter.also_allow.as_deref().unwrap_or_default();
        let allow = filter.allow.as_ref().map(|allow| [allow, more].concat());
        let level = ToolLevel {
            allow: allow.as_deref(),
            deny: filter.deny.as_deref().unwrap_or_default(),
            path,
        };
        check_tool(tool, &[level])?;
    }
    Ok(())
}

/// The sandbox of a call that needs one where the config has none.
pub(crate) fn usual_sandbox() -> Sandbox {
    Sandbox {
        workspace_access: Some(WorkspaceAccess::Cow),
        ..Sandbox::default()
    }
}

/// The directory that a sandbox shows: that of the calling program, unless the agent's own
/// workspace contains it.
fn sandbox_workspace(scope: &AgentScope<'_>, caller: &CallerContext) -> Result<PathBuf, ExecError> {
    let Some(own) = caller.workspace().first() else {
        return Ok(scope.workspace()?);
    };
    if let Some(configured) = scope.existing_configured_workspace()
        && contains(&configured, own)
    {
        return Ok(configured);
    }
    Ok(own.clone())
}

/// The variables that the judge examines. In a sandbox, hooks and loaders are as confined as the
/// command itself; only an allowlist depends on what they would start.
pub(crate) fn judged_env(
    request: &ExecRequest<'_>,
    sandbox: Option<&PreparedSandbox>,
    levels: &Levels,
) -> BTreeMap<String, String> {
    if sandbox.is_some() && levels.security.value() == Security::Full {
        BTreeMap::new()
    } else {
        request.env.clone()
    }
}

/// Adapts the manner of a confined run: nothing outlives the run, and the smaller limit counts.
pub(crate) fn confine_manner(manner: &mut Manner, plan: &SandboxPlan) -> Result<(), ExecError> {
    let limits = &plan.limits;
    let cpus = limits.milli_cpus.map(milli_cpus).transpose()?;
    manner.leftovers = interlock_engine::Leftovers::End;
    manner.limits = RunLimits {
        memory_bytes: smaller(manner.limits.memory_bytes, limits.memory_bytes),
        pids: smaller(manner.limits.pids, limits.pids),
        cpus: match (manner.limits.cpus, cpus) {
            (Some(own), Some(inside)) if f64::from(own) <= f64::from(inside) => Some(own),
            (own, inside) => inside.or(own),
        },
    };
    manner.max_output_bytes = limits.output_bytes;
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // at most a few million
fn milli_cpus(thousandths: u64) -> Result<Cpus, ExecError> {
    Ok(Cpus::try_from(thousandths as f64 / 1000.0)?)
}

fn smaller(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
