//! exec on this host: judge, pin, authorize, start. The main path is the security argument.

mod key;

use std::collections::BTreeMap;
use std::time::Duration;

use interlock_command::{InputError, Source};
use interlock_config::types::ExecConfig;
use interlock_plan::{PtySize, RunPlan, Stdin};
use interlock_policy::{AgentId, Ask, Levels, Outcome, Security, ToolRefusal, Verdict, check_tool};
use interlock_run::Leftovers;
use interlock_run::cgroup::{BadCpus, Cpus, Limits};
use interlock_run::supervisor::{Client, ClientError, Conversation, Manner, Order};

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
    pub session_key: Option<&'a str>,
    pub pty: Option<PtySize>,
    pub stdin: Stdin,
    pub yields: Yield,
    /// Whether the result shows output. Whoever reads the transcript meanwhile needs none.
    pub shows_output: bool,
}

/// When a run goes to the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yield {
    /// Only when the one who waits for it goes away.
    Never,
    /// When it has not ended by then; 0 is at once.
    After(Duration),
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
    #[error("tools.exec.limits.cpus: {0}")]
    Limits(#[from] BadCpus),
    #[error(transparent)]
    Supervisor(#[from] ClientError),
}

impl ExecError {
    pub fn code(&self) -> &str {
        match self {
            Self::Host(error) => error.code(),
            Self::Input(error) => error.code(),
            Self::Tool(_) => "TOOL_DENIED",
            Self::Refused(refusal) => refusal.code(),
            Self::Script(mistake) => mistake.code(),
            Self::Denied(_) => "EXEC_DENIED",
            Self::ApprovalRequired(_) => "APPROVAL_REQUIRED",
            Self::Prepare(error) => error.code(),
            Self::Limits(_) => "LIMITS_INVALID",
            Self::Supervisor(error) => error.code(),
        }
    }

    /// What to do instead, where that does not depend on the caller.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Host(error) => error.remedy(),
            Self::Refused(refusal) => Some(refusal.remedy().to_owned()),
            Self::Script(mistake) => Some(mistake.remedy()),
            Self::Supervisor(error) if error.code() == "RACE_NOT_EXCLUDED" => Some(
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
        supervisor: &Client,
    ) -> Result<Conversation, ExecError> {
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
            session_key: request.session_key,
            base_env: request.base_env,
            env: &request.env,
            path: &path,
            pty: request.pty,
            stdin: request.stdin,
            timeout_ms: time_limit
                .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        };
        let plan = prepare(&evaluation.analysis, &evaluation.verdict, &run)?;
        let exec = config.config().exec_for(request.agent.as_str());
        let mut manner = manner(&exec, request.yields)?;
        if !request.shows_output {
            manner.show_chars = 0;
        }
        start(plan, &evaluation.verdict, manner, supervisor)
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
}

/// Mints the authorization for a plan that the verdict allows, and orders it with that.
fn start(
    plan: RunPlan,
    verdict: &Verdict,
    manner: Manner,
    supervisor: &Client,
) -> Result<Conversation, ExecError> {
    let Outcome::Allow(_proof) = verdict.outcome else {
        return Err(ExecError::Denied(Box::new(verdict.clone())));
    };
    let key = key::load_or_create(&supervisor.place().run_key())?;
    let authorization = key.authorize(&plan.digest());
    Ok(supervisor.start(&Order {
        plan,
        authorization,
        manner,
    })?)
}

/// How it is carried out, as the config says.
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
        limits: Limits {
            memory_bytes: config.limits.memory_bytes(),
            pids: config.limits.pids,
            cpus: config.limits.cpus.map(Cpus::try_from).transpose()?,
        },
        cleanup_ms: milliseconds(config.keep_finished()),
        max_spool_bytes: config.spool_quota(),
        ..usual
    })
}

/// Everything may run and nobody is asked: then nothing else is put in front of a command either.
fn is_open(levels: &Levels) -> bool {
    levels.security.value() == Security::Full && levels.ask.value() == Ask::Off
}
