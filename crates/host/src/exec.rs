//! exec on this host: judge, pin, authorize, start. The main path is the security argument.

mod key;

use std::collections::BTreeMap;
use std::time::Duration;

use interlock_command::{InputError, Source};
use interlock_plan::{RunPlan, Stdin};
use interlock_policy::{AgentId, Ask, Levels, Outcome, Security, ToolRefusal, Verdict, check_tool};
use interlock_run::{Leftovers, OutputSink, Run, Settings, StartError};

use crate::evaluate::{Request, evaluate};
use crate::local::{HostError, LocalHost, now_ms};
use crate::patch::tool_levels;
use crate::preflight::{Mistake, preflight};
use crate::prepare::{PrepareError, RunSettings, prepare};
use crate::refusals::{Refusal, refusal};

/// Where neither call nor config says anything.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_mins(30);

/// What a caller asks to run.
#[derive(Debug)]
pub struct ExecRequest<'a> {
    pub agent: &'a AgentId,
    pub source: Source,
    /// Absolute.
    pub cwd: String,
    pub env: BTreeMap<String, String>,
    /// The call's own `ask`; it can only harden.
    pub ask: Option<Ask>,
    /// The call's own limit in seconds; see [`LocalHost::time_limit`].
    pub timeout_seconds: Option<u64>,
    /// The service's own environment.
    pub base_env: &'a BTreeMap<String, String>,
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Tool(#[from] ToolRefusal),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Script(#[from] Mistake),
    #[error("exec denied: {}", .0.reason.message)]
    Denied(Box<Verdict>),
    #[error("approval required: {}", .0.reason.message)]
    ApprovalRequired(Box<Verdict>),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error(transparent)]
    Start(#[from] StartError),
}

impl ExecError {
    pub fn code(&self) -> &'static str {
        match self {
            Self::Host(error) => error.code(),
            Self::Input(error) => error.code(),
            Self::Tool(_) => "TOOL_DENIED",
            Self::Refused(refusal) => refusal.code(),
            Self::Script(mistake) => mistake.code(),
            Self::Denied(_) => "EXEC_DENIED",
            Self::ApprovalRequired(_) => "APPROVAL_REQUIRED",
            Self::Prepare(error) => error.code(),
            Self::Start(StartError::Drift(_)) => "APPROVAL_DRIFT",
            Self::Start(StartError::NotAuthorized(_)) => "NOT_AUTHORIZED",
            Self::Start(StartError::RaceNotExcluded { .. }) => "RACE_NOT_EXCLUDED",
            Self::Start(_) => "START_FAILED",
        }
    }

    /// What to do instead, where that does not depend on the caller.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Host(error) => error.remedy(),
            Self::Refused(refusal) => Some(refusal.remedy().to_owned()),
            Self::Script(mistake) => Some(mistake.remedy()),
            Self::Start(StartError::RaceNotExcluded { .. }) => Some(
                "run a native program, or have the owner set tools.exec.requireRaceFree to false"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// The judge's verdict, where it was the judge who refused.
    pub fn verdict(&self) -> Option<&Verdict> {
        match self {
            Self::Denied(verdict) | Self::ApprovalRequired(verdict) => Some(verdict),
            _ => None,
        }
    }
}

impl LocalHost {
    /// Runs a command if the policy of this host allows it, and only then.
    pub fn exec(
        &self,
        request: ExecRequest<'_>,
        settings: &Settings,
        sink: impl OutputSink,
    ) -> Result<Run, ExecError> {
        let config = self.config()?;
        check_tool("exec", &tool_levels(config.config(), request.agent))?;
        let policy = self.policy(request.agent, request.ask)?;
        let judged = Request {
            source: request.source,
            cwd: request.cwd,
            env: request.env.clone(),
            now_ms: now_ms(),
        };
        let evaluation = evaluate(judged, &policy, &self.resolver(request.agent)?)?;
        if let Some(refusal) = refusal(&evaluation.analysis) {
            return Err(refusal.into());
        }
        if evaluation.verdict.outcome == Outcome::Deny {
            return Err(ExecError::Denied(Box::new(evaluation.verdict)));
        }
        // Before anybody is asked: nobody should have to approve what cannot work.
        if !is_open(&policy.levels)
            && let Some(mistake) = preflight(&evaluation.analysis)
        {
            return Err(mistake.into());
        }
        if evaluation.verdict.outcome == Outcome::Ask {
            return Err(ExecError::ApprovalRequired(Box::new(evaluation.verdict)));
        }
        let time_limit = self.time_limit(request.agent, request.timeout_seconds)?;
        let path = self.path(request.agent)?;
        let run = RunSettings {
            agent: request.agent,
            session_key: None,
            base_env: request.base_env,
            env: &request.env,
            path: &path,
            pty: None,
            stdin: Stdin::Null,
            timeout_ms: time_limit
                .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        };
        let plan = prepare(&evaluation.analysis, &evaluation.verdict, &run)?;
        // Whatever the caller's settings say, they cannot allow a race that the config excludes.
        let exec = config.config().exec_for(request.agent.as_str());
        let settings = Settings {
            require_race_free: settings.require_race_free || exec.requires_race_free(),
            ..settings.clone()
        };
        self.start(&plan, &evaluation.verdict, &settings, sink)
    }

    /// How this agent's runs are carried out, as the config says.
    pub fn settings(&self, agent: &AgentId) -> Result<Settings, HostError> {
        let config = self.config()?;
        let exec = config.config().exec_for(agent.as_str());
        Ok(Settings {
            leftovers: match exec.leftovers() {
                interlock_config::Leftovers::End => Leftovers::End,
                interlock_config::Leftovers::Keep => Leftovers::Keep,
            },
            require_race_free: exec.requires_race_free(),
            ..Settings::default()
        })
    }

    /// How long a run may take: what the call says, else the config, else the default. 0 is no
    /// limit.
    pub fn time_limit(
        &self,
        agent: &AgentId,
        call_seconds: Option<u64>,
    ) -> Result<Option<Duration>, HostError> {
        let config = self.config()?;
        let configured = || config.config().exec_for(agent.as_str()).timeout();
        let limit = call_seconds.or_else(configured);
        let limit = limit.map_or(DEFAULT_TIME_LIMIT, Duration::from_secs);
        Ok(Some(limit).filter(|limit| !limit.is_zero()))
    }

    /// Mints the authorization for a plan that the verdict allows, and starts it with that.
    fn start(
        &self,
        plan: &RunPlan,
        verdict: &Verdict,
        settings: &Settings,
        sink: impl OutputSink,
    ) -> Result<Run, ExecError> {
        let Outcome::Allow(_proof) = verdict.outcome else {
            return Err(ExecError::Denied(Box::new(verdict.clone())));
        };
        let key = key::load_or_create(self.state_dir())?;
        let authorization = key.authorize(&plan.digest());
        Ok(interlock_run::start(
            plan,
            &authorization,
            &key,
            settings,
            sink,
        )?)
    }
}

/// Everything may run and nobody is asked: then nothing else is put in front of a command either.
fn is_open(levels: &Levels) -> bool {
    levels.security.value() == Security::Full && levels.ask.value() == Ask::Off
}
