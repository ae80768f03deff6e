//! What a sandbox denied to a run, and the single approval that may let the same command out of it.
//! Nothing is repeated automatically: a caller asks with a reason, and an approver decides about a
//! plan that is made anew.

use std::path::Path;

use interlock_approvals::usual_session_key;
use interlock_command::Source;
use interlock_effects::last_output;
use interlock_engine::RunStatus;
use interlock_local::NO_CALLER_CONTEXT;
use interlock_plan::{PlanRetry, RunPlan, SandboxPlan, hex};
use interlock_policy::AgentId;
use interlock_programs::{Lookup, Resolver as _};
use interlock_sandbox::{DenialPlace, EndedInside, SandboxDenial, denials_of};
use interlock_store::{Author, DeniedRun};
use interlock_supervisor::EndedRun;
use sha2::{Digest as _, Sha256};

use crate::exec::{ExecError, ExecRequest};
use crate::local::{HostError, LocalHost, now_ms};
use crate::pipeline::RunTicket;
use crate::prepare::command_text;

/// A call that repeats a run of its conversation outside of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryRequest {
    /// The run to which the sandbox denied something.
    pub run: String,
    /// The reason in the caller's words.
    pub justification: String,
}

impl RetryRequest {
    pub(crate) fn of_plan(retry: &PlanRetry) -> Self {
        Self {
            run: retry.run.clone(),
            justification: retry.justification.clone(),
        }
    }
}

/// Why a run is not repeated outside of its sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RetryRefusal {
    #[error(
        "retryOf names no run of this conversation that its sandbox denied something to, or an approver was asked about it before"
    )]
    UnknownRun,
    #[error("retryOf repeats the same command, and this is another one")]
    OtherCommand,
    #[error("retryOf goes with a call that leaves its sandbox, and this one does not")]
    NotOutside,
}

impl RetryRefusal {
    pub fn code(self) -> &'static str {
        "RETRY_REFUSED"
    }

    pub fn remedy(self) -> &'static str {
        match self {
            Self::UnknownRun => {
                "run the command inside first; its result has `sandbox.runId` where something was denied"
            }
            Self::OtherCommand => "send the command of that run, or leave out `retryOf`",
            Self::NotOutside => "leave out `retryOf`: the command runs where it is",
        }
    }
}

/// A run in its sandbox, kept until its denials are known.
#[derive(Debug)]
pub struct RanInside {
    sandbox: SandboxPlan,
    agent: String,
    session_key: String,
    command_sha256: String,
}

impl RanInside {
    /// Whether an approver may be asked about hosts that the run tries to reach.
    pub fn asks_for_hosts(&self) -> bool {
        let rules = self.sandbox.network.as_ref();
        rules.is_some_and(|rules| rules.ask)
    }

    pub(crate) fn of_plan(plan: &RunPlan) -> Option<Box<Self>> {
        let sandbox = plan.sandbox.clone()?;
        let session_key = plan.session_key.clone();
        Some(Box::new(Self {
            sandbox,
            agent: plan.agent_id.clone(),
            session_key: session_key.unwrap_or_else(|| usual_session_key(&plan.agent_id)),
            command_sha256: sha256(&plan.command),
        }))
    }
}

/// What a sandbox denied to a run that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedDenials {
    pub run_id: String,
    pub denials: Vec<SandboxDenial>,
}

impl LocalHost {
    /// Finds out what the sandbox denied to a run, and stores it for as long as an approver may be
    /// asked about it.
    pub fn note_denials(
        &self,
        inside: &RanInside,
        ticket: &RunTicket,
        session: &str,
        ended: &EndedRun,
    ) -> Result<NotedDenials, HostError> {
        let denials = self.denials(inside, session, ended)?;
        if !denials.is_empty() {
            let run = DeniedRun {
                run_id: ticket.run_id.clone(),
                agent: inside.agent.clone(),
                session_key: inside.session_key.clone(),
                command_sha256: inside.command_sha256.clone(),
                denials: serde_json::json!(denials),
            };
            let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
            self.store()
                .change(|change| change.keep_denied_run(&run, now))?;
        }
        Ok(NotedDenials {
            run_id: ticket.run_id.clone(),
            denials,
        })
    }

    fn denials(
        &self,
        inside: &RanInside,
        session: &str,
        ended: &EndedRun,
    ) -> Result<Vec<SandboxDenial>, HostError> {
        let Ok(agent) = AgentId::new(&inside.agent) else {
            return Ok(Vec::new());
        };
        let scope = self.scope(&agent)?;
        let output = last_output(self.state_dir(), session, ended);
        let resolver = scope.resolver(&NO_CALLER_CONTEXT);
        let find_program = |name: &str| match resolver.executable(name, "/") {
            Lookup::Found(found) => Some(found.canonical),
            Lookup::Missing(_) => None,
        };
        let limit = ended.limit.map(|reached| reached.limit.as_str());
        let (exit_code, signal) = match ended.outcome.status {
            RunStatus::Exited(code) => (Some(code), None),
            RunStatus::Signaled(signal) => (None, Some(signal)),
            RunStatus::TimedOut => (None, None),
        };
        let ended = EndedInside {
            output: &output,
            exit_code,
            signal,
            limit,
        };
        let place = DenialPlace {
            home: scope.home().map(Path::new),
            state_dir: self.state_dir(),
            find_program: &find_program,
        };
        Ok(denials_of(&inside.sandbox, ended, place))
    }

    /// What an approver reads of a call that repeats a run outside of its sandbox. The earlier run
    /// must be of the same agent and conversation, with the same command, and its sandbox must have
    /// denied something.
    pub(crate) fn retry_of(
        &self,
        request: &ExecRequest<'_>,
    ) -> Result<Option<PlanRetry>, ExecError> {
        let Some(retry) = &request.place.retry else {
            return Ok(None);
        };
        let denied = self.store().denied_run(&retry.run);
        let denied = denied.map_err(HostError::from)?;
        let denied = denied.filter(|denied| {
            denied.agent == request.agent.as_str() && denied.session_key == request.session_key()
        });
        let denied = denied.ok_or(RetryRefusal::UnknownRun)?;
        let command = match &request.source {
            Source::Text(text) => text.clone(),
            source @ Source::Argv(_) => command_text(source),
        };
        if denied.command_sha256 != sha256(&command) {
            return Err(RetryRefusal::OtherCommand.into());
        }
        let denials: Vec<SandboxDenial> =
            serde_json::from_value(denied.denials).unwrap_or_default();
        if denials.is_empty() {
            return Err(RetryRefusal::UnknownRun.into());
        }
        Ok(Some(PlanRetry {
            run: retry.run.clone(),
            justification: retry.justification.clone(),
            denied: denials.iter().map(ToString::to_string).collect(),
            binds: denials
                .into_iter()
                .filter_map(|denial| denial.bind)
                .collect(),
        }))
    }

    /// Adds a bind to a conversation, or removes it. The change takes effect with the next run.
    pub fn change_session_bind(
        &self,
        (session_key, agent): (&str, &AgentId),
        bind: &str,
        is_added: bool,
        author: &Author,
    ) -> Result<bool, HostError> {
        let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
        let conversation = (session_key, agent.as_str());
        Ok(self.store().change(|change| {
            change.change_session_bind(conversation, bind, is_added, author, now)
        })?)
    }
}

fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}
