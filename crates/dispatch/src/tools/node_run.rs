//! `exec host=node`: the node prepares, judges and runs the command; this gateway asks the
//! approver.
//!
//! One connection carries every step. The node's own policy decides. The gateway's config and
//! approvals document, the conversation and the call form one more layer, which can only be
//! stricter. An approver allows the plan that the node made, and the node gets that plan back.

mod approval;
mod follow;
mod foreign;
mod foreign_command;
mod levels;
mod refusals;
mod stored;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use interlock_config::ConfigFile;
use interlock_host::parameters::{ExecParameters, InputMode};
use interlock_host::{Elevation, EndListener, SessionValues, tool_levels};
use interlock_policy::{Ask, Security, check_tool, env};
use interlock_wire::WireError;
use interlock_wire::node::extension::ForwardedCallFacts;
use interlock_wire::node::{
    Denial, SYSTEM_RUN_PREPARE, SystemRun, SystemRunPrepare, SystemRunPrepared,
};

use super::pipeline::{ApprovedStart, OutcomeReceiver, RunHost, RunStart};
use super::run_outcome::{RunLocation, RunRefusal, ToolOutcome};
use super::{CallError, ToolCall};
use crate::dispatcher::Dispatcher;
use crate::nodes::extension::NodeErrorText;
use crate::nodes::{Node, approval as wire_approval, choose};
use crate::work::blocking;
use foreign_command::ForeignCommand;

/// The most characters of output in a result by default.
const SHOWN_CHARS: usize = 200_000;

/// The prefix of a node's refusal to make a plan.
const DENIED: &str = "SYSTEM_RUN_DENIED";

pub use levels::GatewayLevels;
pub(super) use stored::StoredNodeRun;

/// A call of `exec` for a node.
#[derive(Debug, Clone)]
pub(super) struct NodeRun {
    dispatcher: Arc<Dispatcher>,
    node: Arc<Node>,
    call: ToolCall,
    /// The run without a plan.
    run: SystemRun,
    levels: GatewayLevels,
    /// The call's own part of `levels`.
    call_ask: Option<Ask>,
    limit: Option<Duration>,
    /// An approved run that takes longer than this is announced.
    notice: Option<Duration>,
    /// Whether the node is an Interlock node, which keeps transcripts of its runs.
    keeps_transcripts: bool,
    manner: NodeRunManner,
    /// The `elevated` parameter of the call.
    asked_elevated: Option<bool>,
    /// How far the run leaves the sandbox that its conversation has on the gateway.
    elevation: Elevation,
}

/// How a run on an Interlock node is carried out.
#[derive(Debug, Clone, Copy)]
struct NodeRunManner {
    pty: bool,
    stdin_pipe: bool,
    /// When the run goes to the background; `None` means never.
    yields: Option<Duration>,
    show_chars: usize,
}

/// The result of a start on the node.
enum NodeAttempt {
    Outcome(Box<ToolOutcome>),
    /// The node refused, or could not be reached.
    Refused(WireError),
}

impl RunHost for NodeRun {
    fn carry_out(
        self: Arc<Self>,
        start: RunStart,
        receiver: OutcomeReceiver,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            match start {
                RunStart::Judged => self.carry_out_judged(receiver).await,
                RunStart::Approved(approved) => self.carry_out_approved(approved, receiver).await,
            }
        })
    }

    fn location(&self) -> RunLocation {
        RunLocation::node(&self.node, None)
    }
}

impl NodeRun {
    /// The run of a call on the node that call, conversation and config determine, or why there is
    /// none.
    pub(super) async fn choose(
        dispatcher: &Arc<Dispatcher>,
        config: &Arc<ConfigFile>,
        session: &SessionValues,
        call: &ToolCall,
        (parameters, elevation): (&ExecParameters, Elevation),
    ) -> Result<Result<Self, RunRefusal>, CallError> {
        if parameters.workdir.as_ref().is_some_and(is_relative) {
            let problem = "`workdir` must be an absolute path on the node";
            return Ok(Err(RunRefusal::denied("NODE_UNSUPPORTED", problem)));
        }
        let exec = config.config().exec_for(call.agent.as_str());
        let call_levels = (session, parameters.ask, elevation);
        let levels = GatewayLevels::of(dispatcher, config, &call.agent, call_levels)?;
        if levels.security() == Security::Deny {
            let remedy = format!("ask the owner: {}", levels.levels.security.effective.path);
            let refusal = RunRefusal::denied("EXEC_DENIED", "exec denied: security=deny");
            return Ok(Err(refusal.with_remedy(Some(remedy))));
        }
        let env = match env::check_overrides(&parameters.env) {
            Ok(env) => env,
            Err(rejection) => {
                let message = rejection.to_string();
                return Ok(Err(RunRefusal::denied("ENV_REJECTED", message)));
            }
        };
        let wishes = choose::Wishes {
            call: parameters.node.clone(),
            session: session.node.clone(),
            bound: config
                .config()
                .agent(call.agent.as_str())
                .and_then(|agent| agent.tools.exec.node.clone()),
            usual: exec.node.clone(),
        };
        let (chooser, rules) = (
            Arc::clone(dispatcher),
            config.config().gateway.nodes.clone(),
        );
        let node = match blocking(move || wishes.choose(&chooser, &rules)).await? {
            Ok(node) => node,
            Err(none) => {
                let refusal = RunRefusal::denied(none.code(), none.to_string());
                return Ok(Err(refusal.with_remedy(none.remedy())));
            }
        };
        let keeps_transcripts = node.keeps_sessions(&config.config().gateway.nodes);
        if !keeps_transcripts && let Some(problem) = foreign::unsupported(parameters) {
            return Ok(Err(RunRefusal::denied("NODE_UNSUPPORTED", problem)));
        }
        // A caller that may not use `process` gets no background session.
        let tools = tool_levels(config.config(), &call.agent);
        let handles_sessions = check_tool("process", &tools).is_ok();
        let manner = NodeRunManner {
            pty: parameters.pty,
            stdin_pipe: parameters.stdin == InputMode::Pipe,
            yields: handles_sessions.then(|| {
                match (parameters.background, parameters.yield_after) {
                    (true, _) => Duration::ZERO,
                    (false, Some(time)) => time,
                    (false, None) => exec.background_after(),
                }
            }),
            show_chars: shown_chars(exec.max_output_chars)
                .min(call.audience.show_chars().unwrap_or(usize::MAX)),
        };
        let seconds = parameters
            .timeout
            .map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0));
        let scope = dispatcher
            .host
            .scope_under(&call.agent, Arc::clone(config))?;
        let limit = scope.time_limit(seconds);
        let (command, raw_command) = if keeps_transcripts {
            let text = &parameters.command;
            (node.platform.shell(text), text.clone())
        } else {
            let sent = ForeignCommand::of_text(node.platform, &parameters.command);
            (sent.command, sent.raw_command)
        };
        Ok(Ok(Self {
            dispatcher: Arc::clone(dispatcher),
            run: SystemRun {
                command,
                raw_command: Some(raw_command),
                cwd: parameters.workdir.clone(),
                env: (!env.is_empty()).then_some(env),
                timeout_ms: limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
                agent_id: Some(call.agent.to_string()),
                session_key: Some(call.session_key.clone()),
                run_id: Some(uuid::Uuid::new_v4().to_string()),
                approved: Some(false),
                // The answer notifies the caller, or this gateway does.
                suppress_notify_on_exit: Some(true),
                ..SystemRun::default()
            },
            node,
            call: call.clone(),
            levels,
            call_ask: parameters.ask,
            limit,
            notice: exec.running_notice(),
            keeps_transcripts,
            manner,
            asked_elevated: parameters.elevated,
            elevation,
        }))
    }

    /// Lets the node judge the call: the call runs, is refused, or an approver is asked about the
    /// node's plan.
    async fn carry_out_judged(&self, mut receiver: OutcomeReceiver) {
        // Most calls are allowed. An Interlock node then makes its own plan, and has run nothing of
        // a call that needs an approval.
        let may_be_allowed = match foreign::may_be_allowed(self).await {
            Ok(may_be_allowed) => may_be_allowed,
            Err(refusal) => {
                receiver.deliver(ToolOutcome::Refused(*refusal));
                return;
            }
        };
        if self.keeps_transcripts && may_be_allowed {
            match self.attempt(self.run.clone(), receiver).await {
                Some(unused) => receiver = unused,
                None => return,
            }
        }
        let (plan, unplanned) = match self.prepare().await {
            Ok(prepared) => (Some(prepared), None),
            // Without a plan there is nothing that an approver could allow, but the node may still
            // allow the call.
            Err(error) if says(&error, DENIED) => (None, Some(error)),
            Err(error) => {
                let refusal = refusals::refused(&self.node, &error);
                receiver.deliver(ToolOutcome::Refused(refusal));
                return;
            }
        };
        if !self.keeps_transcripts && may_be_allowed {
            let first = match &plan {
                Some(prepared) => wire_approval::planned(&prepared.plan, &self.run),
                None => self.run.clone(),
            };
            match self.attempt(first, receiver).await {
                Some(unused) => receiver = unused,
                None => return,
            }
        }
        let outcome = match (plan, unplanned) {
            (Some(prepared), _) => self.ask(prepared).await,
            (None, error) => {
                let error = error.unwrap_or_else(|| Denial::APPROVAL_REQUIRED.error());
                ToolOutcome::Refused(refusals::refused(&self.node, &error))
            }
        };
        receiver.deliver(outcome);
    }

    /// Runs the call without an approval. Returns the receiver if the node wants an approval.
    async fn attempt(
        &self,
        run: SystemRun,
        mut receiver: OutcomeReceiver,
    ) -> Option<OutcomeReceiver> {
        let wants_approval = |attempt: &NodeAttempt| {
            matches!(attempt, NodeAttempt::Refused(error)
                if says(error, Denial::APPROVAL_REQUIRED.message))
        };
        if self.keeps_transcripts {
            let followed = self.start_and_follow(run, &mut receiver).await;
            if wants_approval(&followed.attempt) {
                followed.record(self, EndListener::Caller).await;
                return Some(receiver);
            }
            self.deliver_followed(followed, receiver).await;
            return None;
        }
        foreign::run_unapproved(self, run, receiver, wants_approval).await
    }

    /// Delivers the outcome of a run on an Interlock node, and records its end.
    async fn deliver_followed(&self, followed: follow::NodeRunReport, receiver: OutcomeReceiver) {
        let (outcome, end) = followed.into_outcome(&self.node);
        let listener = receiver.deliver(outcome);
        end.record(self, listener).await;
    }

    /// The node's plan of the command, with its notes.
    async fn prepare(&self) -> Result<SystemRunPrepared, WireError> {
        let prepare = SystemRunPrepare {
            command: self.run.command.clone(),
            raw_command: self.run.raw_command.clone(),
            cwd: self.run.cwd.clone(),
            agent_id: self.run.agent_id.clone(),
            session_key: self.run.session_key.clone(),
            security: Some(self.levels.security().to_string()),
            ask: Some(self.levels.ask().to_string()),
            env: self.run.env.clone().filter(|_| !self.keeps_transcripts),
            policy_layer: self.keeps_transcripts.then(|| self.levels.layer()),
            call_facts: self.keeps_transcripts.then(|| ForwardedCallFacts {
                env: self.run.env.clone().unwrap_or_default(),
                pty: self.manner.pty,
                stdin_pipe: self.manner.stdin_pipe,
            }),
        };
        if !self.may(SYSTEM_RUN_PREPARE) {
            return Err(WireError::unavailable(format!(
                "{DENIED}: the node makes no plans, so no approver can be asked"
            )));
        }
        let nodes = &self.dispatcher.nodes;
        let prepared = nodes.invoke_typed(&self.node, &prepare).await?;
        let prepared = prepared.map_err(|error| {
            WireError::unavailable(format!("the node's plan cannot be read: {error}"))
        })?;
        let plan = &prepared.plan;
        // An approval is for this agent, this session and the shown texts, regardless of the node's
        // claims.
        let fits = plan.agent_id == self.run.agent_id
            && plan.session_key == self.run.session_key
            && !plan.argv.is_empty()
            && plan.check_texts().is_ok();
        if !fits {
            return Err(WireError::unavailable(
                "the node's plan is for another call",
            ));
        }
        Ok(prepared)
    }

    /// Whether this command of the node may be used now.
    fn may(&self, command: &str) -> bool {
        let config = self.dispatcher.host.config();
        config.is_ok_and(|config| {
            let rules = &config.config().gateway.nodes;
            self.node.check(command, rules).is_ok()
        })
    }
}

fn is_relative(path: &String) -> bool {
    let is_drive = path.as_bytes().get(1) == Some(&b':');
    !path.starts_with('/') && !path.starts_with('\\') && !is_drive
}

fn shown_chars(configured: Option<u64>) -> usize {
    configured.map_or(SHOWN_CHARS, |chars| {
        usize::try_from(chars).unwrap_or(usize::MAX)
    })
}

/// Whether a node's own message begins with this text.
fn says(error: &WireError, words: &str) -> bool {
    let said = NodeErrorText::of(error).message.unwrap_or(&error.message);
    said.starts_with(words)
}
