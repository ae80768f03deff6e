//! exec on this host: judge, pin, ask, authorize, start. The main path is the security argument.

mod error;
mod key;
mod settings;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use interlock_approvals::clock::now;
use interlock_approvals::{
    ApprovalRefusal, CallSender, Claim, NewApproval, PendingApproval, RunManner, check_bound,
    pinned_scripts, read_manifests, usual_session_key,
};
use interlock_checks::{preflight, refusal};
use interlock_command::Source;
use interlock_command::display::Secrets;
use interlock_config::types::ExecConfig;
use interlock_config::{ConfigFile, Host};
use interlock_engine::Leftovers;
use interlock_local::{AgentScope, CallerContext, RouteRefusal, plan_shield, tool_levels};
use interlock_plan::{
    Elevation, PlanRetry, PlanShield, PlanStdin, PtySize, RunPlan, SandboxEffects,
};
use interlock_policy::{
    AgentId, Ask, CallerInput, Evaluation, Levels, Outcome, RunRequest, Security, Transport,
    Verdict, check_tool, evaluate,
};
use interlock_rules::{GatewayLayer, SessionLevels};
use interlock_sandbox::PreparedSandbox;
use interlock_store::{Change, CreatedApproval, StoreError};
use interlock_supervisor::cgroup::{Cpus, RunLimits};
use interlock_supervisor::{Announced, ClientError, Manner, RunConversation, SupervisorClient};

use crate::executables::{list_denied_programs, list_executables};
use crate::local::{HostError, LocalHost, now_ms};
use crate::permission::Permission;
use crate::pipeline::{
    RecordedConfinement, RunTicket, record_closed, record_verdict, resume_facts, started_record,
    use_grant,
};
use crate::prepare::{PreparedRun, RunSettings};
use crate::preview::{CallEffects, is_for_real};
use crate::retry::{RanInside, RetryRefusal, RetryRequest};
use crate::sandbox::{RunPlace, check_sandbox_tool, confine_manner, judged_env};

pub use error::ExecError;

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
    /// gone: [`LocalHost::resume_run`]. Others wait for the decision, or request it again.
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

impl ExecRequest<'_> {
    pub(crate) fn session_key(&self) -> String {
        let key = self.session_key.map(str::to_owned);
        key.unwrap_or_else(|| usual_session_key(self.agent.as_str()))
    }

    /// How the caller can type into the run; the judge wants to know.
    pub(crate) fn input(&self) -> CallerInput {
        CallerInput::from_call(self.pty.is_some(), self.stdin == PlanStdin::Pipe)
    }
}

/// When a run goes to the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Yield {
    /// Only when the waiting caller goes away.
    Never,
    /// When it has not ended by then; 0 is at once.
    After(Duration),
}

/// What became of a request that was not refused.
#[derive(Debug)]
pub enum Exec {
    Started(Box<Running>),
    /// A person has to decide first. Nothing was started.
    Pending(Box<Pending>),
}

/// A run that was started.
#[derive(Debug)]
pub struct Running {
    pub conversation: RunConversation,
    /// The one that waits for the end records it with this: [`LocalHost::record_end`].
    pub ticket: RunTicket,
    /// How far it left the sandbox of its conversation.
    pub elevation: Elevation,
    /// Where it is confined, if it is: [`LocalHost::note_denials`].
    pub inside: Option<Box<RanInside>>,
}

/// An approval that was stored for a run.
#[derive(Debug)]
pub struct Pending {
    pub approval: PendingApproval,
    pub verdict: Verdict,
}

impl Exec {
    pub fn started(self) -> Option<Running> {
        match self {
            Self::Started(running) => Some(*running),
            Self::Pending(_) => None,
        }
    }
}

/// A request, judged by the policy in force.
#[derive(Debug)]
pub(crate) struct JudgedRequest<'a> {
    pub(crate) scope: AgentScope<'a>,
    /// The PATH that names were looked up in.
    pub(crate) path: String,
    pub(crate) levels: Levels,
    pub(crate) evaluation: Evaluation,
    /// Where the run is confined, if it is.
    pub(crate) sandbox: Option<PreparedSandbox>,
    /// How far it leaves the sandbox of its conversation.
    pub(crate) elevation: Elevation,
    /// The run inside that it repeats outside.
    pub(crate) retry: Option<PlanRetry>,
}

impl LocalHost {
    /// Runs a command if the policy of this host allows it, asks where the policy says so, and
    /// otherwise runs nothing. What was judged is in the audit before anything is started.
    pub fn exec(
        &self,
        request: &ExecRequest<'_>,
        supervisor: &SupervisorClient,
    ) -> Result<Exec, ExecError> {
        self.exec_with(request, supervisor, Earlier::Named)
    }

    /// As [`Self::exec`], for callers who cannot name an approval: one that allows the same in the same
    /// session, and that nothing was made of, counts for them, if no other call is about to use it.
    pub fn exec_again(
        &self,
        request: &ExecRequest<'_>,
        supervisor: &SupervisorClient,
        is_free: &dyn Fn(&str) -> bool,
    ) -> Result<Exec, ExecError> {
        self.exec_with(request, supervisor, Earlier::Found(is_free))
    }

    fn exec_with(
        &self,
        request: &ExecRequest<'_>,
        supervisor: &SupervisorClient,
        earlier: Earlier<'_>,
    ) -> Result<Exec, ExecError> {
        // A run sees what earlier ones changed, also those that ended in the background a moment ago.
        self.effects().settle_layers()?;
        let judged = match self.judge(request) {
            Err(ExecError::Tool(refusal)) => {
                let recorded = self.store().change(|change| record_closed(change, request));
                recorded.map_err(HostError::from)?;
                return Err(refusal.into());
            }
            Err(ExecError::Route(RouteRefusal::Elevation(refusal))) => {
                let key = request.session_key();
                self.record_kept_inside(request.agent, &request.source, &key)?;
                return Err(RouteRefusal::from(refusal).into());
            }
            judged => judged?,
        };
        let retry = self.retry_of(request)?;
        if retry.is_some() && !judged.elevation.leaves() {
            return Err(RetryRefusal::NotOutside.into());
        }
        let judged = JudgedRequest { retry, ..judged };
        let judged = match self.preview_of(request, &judged) {
            Ok(Some(preview)) => preview,
            Ok(None) => judged,
            Err(error) => {
                let (verdict, place) = (&judged.evaluation.verdict, judged.confinement());
                let code = Some(error.code());
                let recorded = self
                    .store()
                    .change(|change| record_verdict(change, request, verdict, code, place));
                recorded.map_err(HostError::from)?;
                return Err(error);
            }
        };
        let verdict = &judged.evaluation.verdict;
        let record = |change: &Change<'_>, refused: Option<&str>| {
            record_verdict(change, request, verdict, refused, judged.confinement())
        };
        let prepared = match judged.plan(request) {
            Ok(prepared) => prepared,
            Err(error) => {
                let code = error.code();
                let recorded = self.store().change(|change| record(change, Some(code)));
                recorded.map_err(HostError::from)?;
                return Err(error);
            }
        };
        let manner = judged.manner(request)?;
        let (plan, allowed) = prepared.into_parts();
        let Some(allowed) = allowed else {
            let record = |change: &Change<'_>| record(change, None);
            return self.ask(
                request,
                &judged,
                (plan, manner),
                supervisor,
                earlier,
                record,
            );
        };
        let ticket = RunTicket {
            run_id: uuid::Uuid::new_v4().to_string(),
            agent: plan.agent_id.clone(),
            is_claimed: false,
        };
        // The process that will start it opens its files while the record goes to the disk.
        let announced = supervisor.announce(&plan);
        let recorded = self.store().change(|change| {
            record(change, None)?;
            started_record(change, &ticket, &plan, &request.session_key())
        });
        recorded.map_err(HostError::from)?;
        let permission = Permission::Verdict(allowed);
        let by = (supervisor, announced);
        let running = self.order(plan, permission, manner, ticket, by)?;
        Ok(Exec::Started(Box::new(running)))
    }

    /// A grant that an approver gave earlier allows it at once, as does an approval whose run no caller
    /// has waited for; otherwise an approval is stored.
    fn ask(
        &self,
        request: &ExecRequest<'_>,
        judged: &JudgedRequest<'_>,
        (plan, manner): (RunPlan, Manner),
        supervisor: &SupervisorClient,
        earlier: Earlier<'_>,
        record: impl Fn(&Change<'_>) -> Result<(), StoreError>,
    ) -> Result<Exec, ExecError> {
        let verdict = &judged.evaluation.verdict;
        let session_key = request.session_key();
        let approval = NewApproval {
            plan: &plan,
            verdict,
            ask: judged.levels.ask.value(),
            session_key: &session_key,
            requester: request.requester,
            resume: request.runs_later.then(|| resume_facts(request)),
            manner: shown_manner(&manner),
            scripts: [pinned_scripts(&plan), read_manifests(verdict)].concat(),
        };
        let content = approval.content_digest();
        let most = judged.scope.exec().most_pending();
        let needed = self.store().change(|change| {
            record(change)?;
            let key = approval.grant_key(&content);
            if let Some(granted) = use_grant(change, &approval, &key)? {
                return Ok(NeededApproval::Granted(granted));
            }
            let unused = match earlier {
                Earlier::Named => None,
                Earlier::Found(is_free) => {
                    let unused = change.unused_approvals(&key, now())?;
                    unused.into_iter().find(|id| is_free(id))
                }
            };
            Ok::<_, StoreError>(match unused {
                Some(id) => NeededApproval::Allowed(id),
                None => {
                    if let Some(retry) = &plan.retry
                        && !change.take_denied_run(&retry.run)?
                    {
                        return Ok(NeededApproval::AskedBefore);
                    }
                    NeededApproval::Pending(approval.store(change, content.clone(), most)?)
                }
            })
        });
        if let Err(StoreError::Approval(error)) = &needed {
            // Nothing of the change above was written.
            let code = Some(error.code());
            let place = judged.confinement();
            let recorded = self
                .store()
                .change(|change| record_verdict(change, request, verdict, code, place));
            recorded.map_err(HostError::from)?;
        }
        match needed.map_err(not_stored)? {
            NeededApproval::Granted((ticket, claim)) => {
                let permission = Permission::Claim(claim);
                let running = self.order(plan, permission, manner, ticket, (supervisor, None))?;
                Ok(Exec::Started(Box::new(running)))
            }
            NeededApproval::Allowed(id) => match self.run_approved(&id, request, supervisor) {
                Ok(running) => Ok(Exec::Started(Box::new(running))),
                // It was for something else after all, or another call was quicker.
                Err(ExecError::Approval(error)) if error.wants_new_approval() => {
                    let created = self
                        .store()
                        .change(|change| approval.store(change, content.clone(), most));
                    self.pending(&created.map_err(not_stored)?, verdict)
                }
                Err(error) => Err(error),
            },
            NeededApproval::AskedBefore => Err(RetryRefusal::UnknownRun.into()),
            NeededApproval::Pending(created) => self.pending(&created, verdict),
        }
    }

    fn pending(&self, created: &CreatedApproval, verdict: &Verdict) -> Result<Exec, ExecError> {
        Ok(Exec::Pending(Box::new(Pending {
            approval: self.approvals().approval(&created.id, Secrets::Masked)?,
            verdict: verdict.clone(),
        })))
    }

    /// What the policy in force says to a request.
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
        // No run leaves its sandbox for a reason that no approver read, and none that the owner wants
        // previewed is made for real without one.
        let ask = if request.place.retry.is_some() || is_for_real(request, scope.exec()) {
            Some(Ask::Always)
        } else {
            request.ask
        };
        let levels = session.levels();
        judge_in(request, scope, place, (levels, ask))
    }

    /// Authorizes a plan by the permission for it, which is used up, and starts it. This is the only
    /// place that does. A run that did not start is in the audit as such.
    pub(crate) fn order(
        &self,
        plan: RunPlan,
        permission: Permission,
        mut manner: Manner,
        ticket: RunTicket,
        (supervisor, announced): (&SupervisorClient, Option<Announced>),
    ) -> Result<Running, ExecError> {
        manner.run_id = Some(ticket.run_id.clone());
        let elevation = plan.elevated;
        let inside = RanInside::of_plan(&plan);
        let key = key::load_or_create(&supervisor.place().run_key())?;
        let authorized = key.authorize(plan, permission).map_err(ClientError::from);
        let started = authorized.and_then(|authorized| match announced {
            Some(announced) => supervisor.start_announced(announced, authorized, &manner),
            None => supervisor.start(authorized, &manner),
        });
        match started {
            Ok(conversation) => Ok(Running {
                conversation,
                ticket,
                elevation,
                inside,
            }),
            Err(error) => {
                self.failed_start(&ticket, &error)?;
                Err(error.into())
            }
        }
    }
}

/// What the policy in force says to a request at a place.
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
        // A login shell of the sandbox finds the programs of the sandbox.
        evaluation.verdict.transport = Transport::Shell;
    }
    if let Some(sandbox) = &mut sandbox {
        list_executables(sandbox, &evaluation.analysis, &policy.allowlist, &resolver);
        list_denied_programs(sandbox, &policy.deny);
    }
    Ok(JudgedRequest {
        scope,
        path,
        levels: policy.levels.clone(),
        evaluation,
        sandbox,
        elevation,
        retry: None,
    })
}

impl JudgedRequest<'_> {
    /// Where it runs, for the records.
    pub(crate) fn confinement(&self) -> RecordedConfinement<'_> {
        RecordedConfinement {
            sandbox: self.sandbox.as_ref(),
            elevation: self.elevation,
        }
    }

    /// The plan of a request that is not refused.
    pub(crate) fn plan(&self, request: &ExecRequest<'_>) -> Result<PreparedRun, ExecError> {
        let (scope, Evaluation { analysis, verdict }) = (&self.scope, &self.evaluation);
        if let Some(refusal) = refusal(analysis) {
            return Err(refusal.into());
        }
        if verdict.outcome == Outcome::Deny {
            return Err(ExecError::Denied(Box::new(verdict.clone())));
        }
        // Before an approval is created: no approver should have to look at a script that cannot work.
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

    /// The same with what keeps the run away from Interlock.
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

    /// What a plan of this request takes from it, from the config and from the sandbox.
    pub(crate) fn run_settings<'s>(&'s self, request: &'s ExecRequest<'_>) -> RunSettings<'s> {
        let settings = RunSettings {
            elevated: self.elevation,
            retry: self.retry.clone(),
            ..request.run_settings(&self.scope, &self.path)
        };
        match &self.sandbox {
            Some(sandbox) => {
                settings.inside(sandbox, self.scope.sandbox_timeout(request.timeout_seconds))
            }
            None => settings,
        }
    }

    /// How a run of this request is carried out, as the config says.
    pub(crate) fn manner(&self, request: &ExecRequest<'_>) -> Result<Manner, ExecError> {
        // An agent that may not handle background sessions gets none: then exec waits for the end.
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

/// Why an approval could not be stored: the store failed, or too many of the agent are pending.
fn not_stored(error: StoreError) -> ExecError {
    match ApprovalRefusal::from(error) {
        ApprovalRefusal::State(error) => HostError::from(error).into(),
        error => error.into(),
    }
}

/// What an approver reads of how a run is carried out.
fn shown_manner(manner: &Manner) -> RunManner {
    RunManner {
        memory_bytes: manner.limits.memory_bytes,
        pids: manner.limits.pids,
        cpus: manner.limits.cpus.map(f64::from),
        wait_ms: manner.wait_ms,
    }
}

/// Whether an approval that was given earlier counts without being named.
#[derive(Clone, Copy)]
enum Earlier<'a> {
    Named,
    /// If it is free.
    Found(&'a dyn Fn(&str) -> bool),
}

/// What the approval that a run needs is.
enum NeededApproval {
    Granted((RunTicket, Claim)),
    Allowed(String),
    Pending(CreatedApproval),
    /// An approver was asked about this run before.
    AskedBefore,
}

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

/// Everything may run and no approver is asked: then nothing else is put in front of a command either.
pub(crate) fn is_open(levels: &Levels) -> bool {
    levels.security.value() == Security::Full && levels.ask.value() == Ask::Off
}
