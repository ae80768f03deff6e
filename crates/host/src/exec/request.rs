//! What a caller asks to run, and what a plan takes from that.

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
    /// The config that the call began with; none is the one in force when it is judged.
    pub config: Option<Arc<ConfigFile>>,
    /// What the calling program brings of its own.
    pub caller: &'a CallerContext,
    pub source: Source,
    /// Absolute.
    pub cwd: String,
    pub env: BTreeMap<String, String>,
    /// The call's own `ask`; it can only harden.
    pub ask: Option<Ask>,
    /// What a gateway that forwards the call adds; it can only harden.
    pub gateway: Option<&'a GatewayLayer>,
    /// The call's own limit in seconds; see [`AgentScope::time_limit`].
    pub timeout_seconds: Option<u64>,
    /// The service's own environment.
    pub base_env: &'a BTreeMap<String, String>,
    pub session_key: Option<&'a str>,
    pub pty: Option<PtySize>,
    pub stdin: PlanStdin,
    pub yields: Yield,
    /// Characters of output that the result shows at most, where the caller wants fewer than the
    /// config allows. A caller that reads the transcript meanwhile needs none.
    pub show_chars: Option<usize>,
    /// The connection or process of the caller. It never decides.
    pub requester: &'a str,
    /// Whether this host runs it by itself once it is allowed, also when its caller is
    /// gone: [`crate::LocalHost::resume_run`]. Others wait for the decision, or request it again.
    pub runs_later: bool,
    pub place: RequestedPlace,
}

/// Where the caller wants the run, within what config and conversation permit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestedPlace {
    /// The `host` of the call.
    pub host: Option<Host>,
    /// A sandbox also where the config has none: the usual one, in which changes of the workspace
    /// are committed when the run ends.
    pub needs_sandbox: bool,
    /// The working directory is only that of the service: a sandbox starts in its workspace instead.
    pub is_cwd_usual: bool,
    /// The `elevated` of the call.
    pub elevated: Option<bool>,
    /// Who calls, as the transport proved it. A call without a sender leaves no sandbox.
    pub sender: Option<CallSender>,
    /// The run inside that it repeats outside, with the caller's reason.
    pub retry: Option<RetryRequest>,
    /// The `effects` of the call.
    pub effects: Option<CallEffects>,
}

/// When a run goes to the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yield {
    /// Only when the waiting caller goes away.
    Never,
    /// When it has not ended by then; 0 is at once.
    After(Duration),
}

impl ExecRequest<'_> {
    pub(crate) fn session_key(&self) -> String {
        let key = self.session_key.map(str::to_owned);
        key.unwrap_or_else(|| usual_session_key(self.agent.as_str()))
    }

    /// How the caller can type into the run; the judge wants to know.
    pub(crate) fn input(&self) -> CallerInput {
        CallerInput::from_call(self.pty.is_some(), self.stdin == PlanStdin::Pipe)
    }

    /// The settings of a run on the host. Shield, sandbox and elevation follow from the verdict.
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
