//! Judges a request by the policy in force, and derives from its verdict the plan and the manner of
//! the run.

use std::sync::Arc;
use std::time::Duration;

use interlock_approvals::check_bound;
use interlock_checks::{preflight, refusal};
use interlock_config::types::ExecConfig;
use interlock_engine::Leftovers;
use interlock_local::{AgentScope, plan_shield, tool_levels};
use interlock_plan::{Elevation, PlanRetry, PlanShield, SandboxEffects};
use interlock_policy::{
    Ask, Evaluation, Levels, Outcome, RunRequest, Security, Transport, check_tool, evaluate,
};
use interlock_rules::SessionLevels;
use interlock_sandbox::PreparedSandbox;
use interlock_supervisor::Manner;
use interlock_supervisor::cgroup::{Cpus, RunLimits};

use super::error::ExecError;
use super::request::{ExecRequest, Yield};
use crate::executables::{HostTreeRules, list_denied_programs, list_executables};
use crate::local::{HostError, LocalHost, now_ms};
use crate::pipeline::RecordedConfinement;
use crate::prepare::{PreparedRun, RunSettings};
use crate::preview::is_for_real;
use crate::sandbox::{RunPlace, check_sandbox_tool, confine_manner, judged_env};

/// A request, judged by the policy in force.
#[derive(Debug)]
pub(crate) struct JudgedRequest<'a> {
    pub(crate) scope: AgentScope<'a>,
    /// The PATH in which command names were looked up.
    pub(crate) path: String,
    pub(crate) levels: Levels,
    pub(crate) evaluation: Evaluation,
    /// Where the run is confined; `None` outside of a sandbox.
    pub(crate) sandbox: Option<PreparedSandbox>,
    /// How far the run leaves the sandbox of its conversation.
    pub(crate) elevation: Elevation,
    /// The sandboxed run that this run repeats outside of the sandbox.
    pub(crate) retry: Option<PlanRetry>,
    /// Which programs the run starts, where it is on the host and the owner limits or logs them.
    pub(crate) tree: Option<HostTreeRules>,
}

impl LocalHost {
    /// Judges a request by the policy in force.
    pub(crate) fn judge<'a>(
        &'a self,
        request: &ExecRequest<'a>,
    ) -> Result<JudgedRequest<'a>, ExecError> {
        let config = match &request.config {
            Some(config) => Arc::clone(config),
            None => self.config()?,
        };
        self.check_sandbox()?;
        check_tool("exec", &tool_levels(config.config(), request.agent))?;
        let conversation = (request.agent, &*request.session_key());
        check_sandbox_tool(config.config(), conversation, "exec")?;
        let scope = self.scope_under(request.agent, config)?;
        let session = self.session(&request.session_key())?;
        let place = self.place_of(request, &scope, &session)?;
        // A run leaves its sandbox only for a reason that an approver has read. Where the owner
        // wants a preview, a run with real effects needs an approver as well.
        let ask = if request.place.retry.is_some() || is_for_real(request, scope.exec()) {
            Some(Ask::Always)
        } else {
            request.ask
        };
        let levels = session.levels();
        judge_in(request, scope, place, (levels, ask))
    }
}

/// Judges a request by the policy in force at the given place.
pub(crate) fn judge_in<'a>(
    request: &ExecRequest<'a>,
    scope: AgentScope<'a>,
    place: RunPlace,
    (levels, ask): (SessionLevels, Option<Ask>),
) -> Result<JudgedRequest<'a>, ExecError> {
    let policy = scope.policy_in(place.policy_place(), levels, ask, request.gateway)?;
    let RunPlace {
        mut sandbox,
        elevation,
    } = place;
    let judged = RunRequest {
        source: request.source.clone(),
        cwd: match &sandbox {
            Some(sandbox) => sandbox.host_cwd.clone(),
            None => request.cwd.clone(),
        },
        env: judged_env(request, sandbox.as_ref(), &policy.levels),
        input: request.input(),
        workspace: scope.call_workspace(request.caller),
        now_ms: now_ms(),
    };
    let path = scope.path(request.caller);
    let resolver = scope.resolver_on(&path);
    let mut evaluation = scope.as_run_account(|| evaluate(judged, &policy, &resolver))??;
    let shows_image = |sandbox: &PreparedSandbox| sandbox.plan.shows_other_system();
    if sandbox.as_ref().is_some_and(shows_image)
        && policy.levels.security.value() == Security::Allowlist
    {
        let why = "tools.sandbox.exec.security is `allowlist`, and which programs an image or another machine holds is not known before they run; have the owner use `full` or `deny`, or the backend `native`";
        return Err(HostError::SandboxUnavailable(why.to_owned()).into());
    }
    if sandbox.is_some() && policy.levels.security.value() == Security::Full {
        // Only a login shell of the sandbox finds the programs of the sandbox.
        evaluation.verdict.transport = Transport::Shell;
    }
    if let Some(sandbox) = &mut sandbox {
        list_executables(sandbox, &evaluation.analysis, &policy.allowlist, &resolver);
        list_denied_programs(sandbox, &policy.deny);
    }
    let is_by_entry = evaluation.verdict.by_allowlist && sandbox.is_none();
    let tree = is_by_entry.then(|| HostTreeRules::of(&scope, &policy));
    Ok(JudgedRequest {
        scope,
        path,
        levels: policy.levels.clone(),
        evaluation,
        sandbox,
        elevation,
        retry: None,
        tree: tree.flatten(),
    })
}

impl JudgedRequest<'_> {
    /// Where the run is confined, for the records.
    pub(crate) fn confinement(&self) -> RecordedConfinement<'_> {
        RecordedConfinement {
            sandbox: self.sandbox.as_ref(),
            elevation: self.elevation,
        }
    }

    /// Makes the plan of a request that is not refused.
    pub(crate) fn plan(&self, request: &ExecRequest<'_>) -> Result<PreparedRun, ExecError> {
        let (scope, Evaluation { analysis, verdict }) = (&self.scope, &self.evaluation);
        if let Some(refusal) = refusal(analysis) {
            return Err(refusal.into());
        }
        if verdict.outcome == Outcome::Deny {
            return Err(ExecError::Denied(Box::new(verdict.clone())));
        }
        // This check comes before an approval is created: no approver should have to look at a
        // script that cannot work.
        if !is_open(&self.levels)
            && let Some(mistake) = scope.as_run_account(|| preflight(analysis))?
        {
            return Err(mistake.into());
        }
        if verdict.outcome == Outcome::Ask {
            check_bound(&verdict.binding, scope.exec())?;
        }
        let settings = self.shielded_settings(request)?;
        Ok(scope.as_run_account(|| PreparedRun::of(analysis, verdict, &settings))??)
    }

    /// The settings of the run, with the shield that keeps the run away from Interlock.
    pub(crate) fn shielded_settings<'s>(
        &'s self,
        request: &'s ExecRequest<'_>,
    ) -> Result<RunSettings<'s>, ExecError> {
        let shield = match &self.sandbox {
            Some(_) => PlanShield::Sandbox,
            None => plan_shield(self.scope.exec(), self.evaluation.verdict.shield)?,
        };
        Ok(RunSettings {
            shield,
            ..self.run_settings(request)
        })
    }

    /// The settings of a plan, taken from the request, the config and the sandbox.
    pub(crate) fn run_settings<'s>(&'s self, request: &'s ExecRequest<'_>) -> RunSettings<'s> {
        let settings = RunSettings {
            elevated: self.elevation,
            retry: self.retry.clone(),
            tree: self.tree.as_ref(),
            ..request.run_settings(&self.scope, &self.path)
        };
        match &self.sandbox {
            Some(sandbox) => {
                settings.inside(sandbox, self.scope.sandbox_timeout(request.timeout_seconds))
            }
            None => settings,
        }
    }

    /// How a run of this request is carried out, according to the config.
    pub(crate) fn manner(&self, request: &ExecRequest<'_>) -> Result<Manner, ExecError> {
        // An agent without the `process` tool could not handle a background session. Its `exec`
        // waits for the end of the run.
        let handles_sessions = check_tool(
            "process",
            &tool_levels(self.scope.config().config(), request.agent),
        )
        .is_ok();
        let is_preview =
            |sandbox: &PreparedSandbox| sandbox.plan.effects == SandboxEffects::Preview;
        let yields = if handles_sessions && !self.sandbox.as_ref().is_some_and(is_preview) {
            request.yields
        } else {
            Yield::Never
        };
        let mut manner = manner(self.scope.exec(), yields)?;
        if let Some(sandbox) = &self.sandbox {
            confine_manner(&mut manner, &sandbox.plan)?;
        }
        if let Some(most) = request.show_chars {
            manner.show_chars = manner.show_chars.min(most);
        }
        Ok(manner)
    }
}

/// How a run is carried out, according to the config.
fn manner(config: &ExecConfig, yields: Yield) -> Result<Manner, ExecError> {
    let usual = Manner::default();
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Ok(Manner {
        wait_ms: match yields {
            Yield::Never => None,
            Yield::After(time) => Some(milliseconds(time)),
        },
        show_chars: config.max_output_chars.map_or(usual.show_chars, |chars| {
            usize::try_from(chars).unwrap_or(usize::MAX)
        }),
        leftovers: match config.leftovers() {
            interlock_config::Leftovers::Keep => Leftovers::Keep,
            interlock_config::Leftovers::End => Leftovers::End,
        },
        require_race_free: config.requires_race_free(),
        limits: RunLimits {
            memory_bytes: config.limits.memory_bytes(),
            pids: config.limits.pids,
            cpus: config.limits.cpus.map(Cpus::try_from).transpose()?,
        },
        cleanup_ms: milliseconds(config.keep_finished()),
        max_spool_bytes: config.spool_quota(),
        ..usual
    })
}

/// Whether everything may run and no approver is asked. Then no other check stands in front of a
/// command either.
pub(crate) fn is_open(levels: &Levels) -> bool {
    levels.security.value() == Security::Full && levels.ask.value() == Ask::Off
}
