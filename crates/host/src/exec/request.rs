//! The caller's request, and what a plan takes from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interlock_approvals::{CallSender, usual_session_key};
use interlock_command::Source;
use interlock_config::{ConfigFile, Host};
use interlock_local::{AgentScope, CallerContext};
use interlock_plan::{Elevation, PlanShield, PlanStdin, PtySize};
use interlock_policy::{AgentId, Ask, CallerInput};
use interlock_rules::GatewayLayer;

use crate::prepare::RunSettings;
use crate::preview::CallEffects;
use crate::retry::RetryRequest;

/// What a caller asks to run.
#[derive(Debug)]
pub struct ExecRequest<'a> {
    pub agent: &'a AgentId,
    /// The config that the call began with. `None` stands for the config in force at judgment.
    pub config: Option<Arc<ConfigFile>>,
    /// The calling program's own context.
    pub caller: &'a CallerContext,
    pub source: Source,
    /// Absolute.
    pub cwd: String,
    pub env: BTreeMap<String, String>,
    /// The call's own `ask`, which can only make the policy stricter.
    pub ask: Option<Ask>,
    /// The policy layer of a gateway that forwards the call, which can only make the policy
    /// stricter.
    pub gateway: Option<&'a GatewayLayer>,
    /// The call's own limit in seconds; see [`AgentScope::time_limit`].
    pub timeout_seconds: Option<u64>,
    /// The service's own environment.
    pub base_env: &'a BTreeMap<String, String>,
    pub session_key: Option<&'a str>,
    pub pty: Option<PtySize>,
    pub stdin: PlanStdin,
    pub yields: Yield,
    /// The result shows at most this many characters of output, where the caller wants fewer than
    /// the config allows. A caller that reads the transcript meanwhile needs none.
    pub show_chars: Option<usize>,
    /// The caller's connection or process, for the records. No decision depends on it.
    pub requester: &'a str,
    /// Whether this host itself starts the run once it is allowed, even after its caller has left:
    /// [`crate::LocalHost::resume_run`]. Otherwise the caller waits for the decision, or requests
    /// the run again.
    pub runs_later: bool,
    pub place: RequestedPlace,
}

/// Where the caller wants the command to run. Config and conversation limit the choice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedPlace {
    /// The `host` of the call.
    pub host: Option<Host>,
    /// Demands a sandbox even where the config has none: the default one, which commits the changes
    /// of the workspace when the run ends.
    pub needs_sandbox: bool,
    /// `cwd` is only the service's default. A sandbox starts in its workspace instead.
    pub is_cwd_usual: bool,
    /// The `elevated` parameter of the call.
    pub elevated: Option<bool>,
    /// The sender, as the transport proved it. A call without a sender leaves no sandbox.
    pub sender: Option<CallSender>,
    /// The sandboxed run that this run repeats outside of the sandbox, with the caller's reason.
    pub retry: Option<RetryRequest>,
    /// The `effects` parameter of the call.
    pub effects: Option<CallEffects>,
}

/// When a run goes to the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yield {
    /// Only when the waiting caller leaves.
    Never,
    /// When the run has not ended after this time; zero means at once.
    After(Duration),
}

impl ExecRequest<'_> {
    pub(crate) fn session_key(&self) -> String {
        let key = self.session_key.map(str::to_owned);
        key.unwrap_or_else(|| usual_session_key(self.agent.as_str()))
    }

    /// How the caller can type into the run, which the judge has to know.
    pub(crate) fn input(&self) -> CallerInput {
        CallerInput::from_call(self.pty.is_some(), self.stdin == PlanStdin::Pipe)
    }

    /// The settings of a run on the host. Shield, sandbox and elevation follow later, from the
    /// verdict.
    pub(crate) fn run_settings<'a>(
        &'a self,
        scope: &'a AgentScope<'_>,
        path: &'a str,
    ) -> RunSettings<'a> {
        let time_limit = scope.time_limit(self.timeout_seconds);
        let exec = scope.exec();
        RunSettings {
            agent: self.agent,
            session_key: self.session_key,
            account: scope.account().cloned(),
            base_env: self.base_env,
            env: &self.env,
            path,
            path_prepend: exec.path_prepend.as_deref().unwrap_or_default(),
            pty: self.pty,
            stdin: self.stdin,
            timeout_ms: time_limit
                .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            shield: PlanShield::default(),
            sandbox: None,
            elevated: Elevation::Off,
            retry: None,
            tree: None,
        }
    }
}
