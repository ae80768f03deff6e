//! `exec host=node`: prepared there, judged there, asked about here, run there.
//!
//! One connection carries every step. The node's own policy decides; what the gateway's config and
//! approvals document, the conversation and the call say is one more layer, which can only be
//! stricter. What an approver allows is the plan that the node made, and that plan is what it gets
//! back.

mod ask;
mod foreign;
mod kept;
mod result;
mod resume;
mod returned;
mod wanted;

use std::sync::Arc;
use std::time::Duration;

use interlock_config::ConfigFile;
use interlock_config::types::ExecConfig;
use interlock_host::parameters::{ExecParameters, InputMode};
use interlock_host::{SessionValues, tool_levels};
use interlock_policy::{Ask, Security, check_tool, env};
use interlock_wire::WireError;
use interlock_wire::node::extension::ForwardedCallFacts;
use interlock_wire::node::{
    DEFAULT_INVOKE_TIMEOUT_MS, Denial, SYSTEM_RUN_PREPARE, SystemRun, SystemRunPrepare,
    SystemRunPrepared,
};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::result::ToolResult;
use super::{CallError, ToolCall, blocking};
use crate::gateway::Gateway;
use crate::nodes::run::{MARGIN, NodeRunOrder, run};
use crate::nodes::run_events::{NodeRunEvent, notify_later};
use crate::nodes::{Node, NodeInvocation, approval, choose};

/// Characters of output in a result, where the config says nothing.
const SHOWN_CHARS: usize = 200_000;

/// How a refusal of a node begins that says that no plan can be made.
const DENIED: &str = "SYSTEM_RUN_DENIED";

pub(crate) use resume::resume;
pub(crate) use returned::{ComesBack, Returned};
pub(crate) use wanted::GatewayLevels;

/// A call on its way through the steps.
#[derive(Debug, Clone)]
struct NodeCall {
    gateway: Arc<Gateway>,
    node: Arc<Node>,
    call: ToolCall,
    /// Without a plan.
    run: SystemRun,
    wanted: GatewayLevels,
    /// The part of `wanted` that the call itself said.
    call_ask: Option<Ask>,
    limit: Option<Duration>,
    /// After this long an approved run is announced.
    notice: Option<Duration>,
    /// The node is an Interlock node, which keeps its runs.
    keeps: bool,
    how: kept::KeptHow,
}

pub(super) async fn exec(
    gateway: &Arc<Gateway>,
    config: &ConfigFile,
    exec: &ExecConfig,
    session: &SessionValues,
    call: &ToolCall,
    parameters: ExecParameters,
) -> Result<ToolResult, CallError> {
    if call.approval.is_some() {
        return ask::come_back(gateway, call, &parameters, call.patience(exec)).await;
    }
    if parameters.workdir.as_ref().is_some_and(is_relative) {
        let problem = "`workdir` must be an absolute path on the node";
        return Ok(ToolResult::denied("NODE_UNSUPPORTED", problem, None));
    }
    let wanted = GatewayLevels::of(gateway, config, &call.agent, session, parameters.ask)?;
    if wanted.security() == Security::Deny {
        let remedy = format!("ask the owner: {}", wanted.levels.security.effective.path);
        return Ok(ToolResult::denied(
            "EXEC_DENIED",
            "exec denied: security=deny",
            Some(&remedy),
        ));
    }
    let env = match env::check_overrides(&parameters.env) {
        Ok(env) => env,
        Err(rejection) => {
            let message = rejection.to_string();
            return Ok(ToolResult::denied("ENV_REJECTED", &message, None));
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
    let (chooser, rules) = (Arc::clone(gateway), config.config().gateway.nodes.clone());
    let node = match blocking(move || wishes.choose(&chooser, &rules)).await? {
        Ok(node) => node,
        Err(none) => {
            return Ok(ToolResult::denied(
                none.code(),
                &none.to_string(),
                none.remedy().as_deref(),
            ));
        }
    };
    let keeps = node.keeps_sessions(&config.config().gateway.nodes);
    if !keeps && let Some(refused) = unsupported(&parameters) {
        return Ok(refused);
    }
    // A caller that may not use `process` gets no background session.
    let levels_of_tools = tool_levels(config.config(), &call.agent);
    let handles_sessions = check_tool("process", &levels_of_tools).is_ok();
    let how = kept::KeptHow {
        pty: parameters.pty,
        stdin_pipe: parameters.stdin == InputMode::Pipe,
        yields: handles_sessions.then(|| match (parameters.background, parameters.yield_after) {
            (true, _) => Duration::ZERO,
            (false, Some(time)) => time,
            (false, None) => exec.background_after(),
        }),
        show_chars: exec
            .max_output_chars
            .map_or(SHOWN_CHARS, |chars| {
                usize::try_from(chars).unwrap_or(usize::MAX)
            })
            .min(call.audience.show_chars().unwrap_or(usize::MAX)),
    };
    let seconds = parameters
        .timeout
        .map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0));
    let limit = gateway.host.time_limit(&call.agent, seconds)?;
    let work = Arc::new(NodeCall {
        gateway: Arc::clone(gateway),
        run: SystemRun {
            command: node.platform.shell(&parameters.command),
            raw_command: Some(parameters.command.clone()),
            cwd: parameters.workdir.clone(),
            env: (!env.is_empty()).then_some(env),
            timeout_ms: limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            agent_id: Some(call.agent.to_string()),
            session_key: Some(call.session_key.clone()),
            run_id: Some(uuid::Uuid::new_v4().to_string()),
            approved: Some(false),
            // The caller is notified by the answer, or by this gateway.
            suppress_notify_on_exit: Some(true),
            ..SystemRun::default()
        },
        node,
        call: call.clone(),
        wanted,
        call_ask: parameters.ask,
        limit,
        notice: exec.running_notice(),
        keeps,
        how,
    });
    let wait = call.patience(exec);
    steps(&work, parameters, wait).await
}

fn is_relative(path: &String) -> bool {
    let is_drive = path.as_bytes().get(1) == Some(&b':');
    !path.starts_with('/') && !path.starts_with('\\') && !is_drive
}

/// What only an Interlock node can do.
fn unsupported(parameters: &ExecParameters) -> Option<ToolResult> {
    let problem = if parameters.pty {
        "this node has no terminals: leave out `pty`"
    } else if parameters.background {
        "this node runs commands in the foreground: leave out `background`"
    } else if parameters.stdin == InputMode::Pipe {
        "a run on this node has no input: leave out `stdin`"
    } else {
        return None;
    };
    Some(ToolResult::denied("NODE_UNSUPPORTED", problem, None))
}

async fn steps(
    work: &Arc<NodeCall>,
    parameters: ExecParameters,
    wait: Duration,
) -> Result<ToolResult, CallError> {
    // Most of what is called is allowed. An Interlock node makes its own plan of it then, and of what
    // it wants approved it has run nothing.
    let may_be_allowed = match foreign::may_be_allowed(work).await {
        Ok(may_be_allowed) => may_be_allowed,
        Err(refused) => return Ok(*refused),
    };
    if work.keeps
        && may_be_allowed
        && let Some(result) = work.attempt(work.run.clone()).await?
    {
        return Ok(result);
    }
    let prepared = work.prepare().await;
    let (plan, unplanned) = match prepared {
        Ok(prepared) => (Some(prepared), None),
        // No plan, so nothing that a person could approve; the node may allow it all the same.
        Err(error) if says(&error, DENIED) => (None, Some(error)),
        Err(error) => return Ok(result::refused(&work.node, &error)),
    };
    if !work.keeps && may_be_allowed {
        let first = match &plan {
            Some(prepared) => approval::planned(&prepared.plan, &work.run),
            None => work.run.clone(),
        };
        if let Some(result) = work.attempt(first).await? {
            return Ok(result);
        }
    }
    match (plan, unplanned) {
        (Some(prepared), _) => ask::ask(work, prepared, parameters, wait).await,
        (None, Some(error)) => Ok(result::refused(&work.node, &error)),
        (None, None) => Ok(result::refused(
            &work.node,
            &Denial::APPROVAL_REQUIRED.error(),
        )),
    }
}

/// How an attempt ended.
enum NodeAttempt {
    Result(Box<ToolResult>),
    /// The node, or the way to it, said no.
    Refused(WireError),
}

impl NodeCall {
    /// The plan that the node makes of the command, with what it says of it.
    async fn prepare(&self) -> Result<SystemRunPrepared, WireError> {
        let prepare = SystemRunPrepare {
            command: self.run.command.clone(),
            raw_command: self.run.raw_command.clone(),
            cwd: self.run.cwd.clone(),
            agent_id: self.run.agent_id.clone(),
            session_key: self.run.session_key.clone(),
            security: Some(self.wanted.security().to_string()),
            ask: Some(self.wanted.ask().to_string()),
            policy_layer: self.keeps.then(|| self.wanted.layer()),
            call_facts: self.keeps.then(|| ForwardedCallFacts {
                env: self.run.env.clone().unwrap_or_default(),
                pty: self.how.pty,
                stdin_pipe: self.how.stdin_pipe,
            }),
        };
        if !self.may(SYSTEM_RUN_PREPARE) {
            return Err(WireError::unavailable(format!(
                "{DENIED}: the node makes no plans, so no approver can be asked"
            )));
        }
        let invocation = NodeInvocation {
            command: SYSTEM_RUN_PREPARE,
            params: Some(json!(prepare)),
            timeout: Some(Duration::from_millis(DEFAULT_INVOKE_TIMEOUT_MS)),
            node_timeout_ms: None,
            idempotency_key: Some(uuid::Uuid::new_v4().to_string()),
        };
        let (payload, _) = self.gateway.nodes.invoke(&self.node, invocation).await?;
        let prepared: SystemRunPrepared = serde_json::from_value(payload).map_err(|error| {
            WireError::unavailable(format!("the node's plan cannot be read: {error}"))
        })?;
        let plan = &prepared.plan;
        // What people approve is for this agent and this session and what they are shown, whatever
        // the node says.
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
        let config = self.gateway.host.config();
        config.is_ok_and(|config| {
            let rules = &config.config().gateway.nodes;
            self.node.check(command, rules).is_ok()
        })
    }

    /// Runs it without an approval; `None` if the node wants one.
    async fn attempt(self: &Arc<Self>, run: SystemRun) -> Result<Option<ToolResult>, CallError> {
        let ended = self.start(run, self.call.cancelled.clone()).await?;
        Ok(match ended {
            NodeAttempt::Result(result) => Some(*result),
            NodeAttempt::Refused(error) if says(&error, Denial::APPROVAL_REQUIRED.message) => None,
            NodeAttempt::Refused(error) => Some(result::refused(&self.node, &error)),
        })
    }

    fn order(&self, run: SystemRun) -> NodeRunOrder {
        let timeout = self.limit.map(|limit| limit.saturating_add(MARGIN));
        let sent_timeout = timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        NodeRunOrder {
            run,
            timeout,
            node_timeout_ms: sent_timeout,
            idempotency_key: Some(uuid::Uuid::new_v4().to_string()),
        }
    }

    /// Runs it, for a caller that may leave: then its session gets an event.
    async fn start(
        self: &Arc<Self>,
        run_it: SystemRun,
        cancelled: tokio_util::sync::CancellationToken,
    ) -> Result<NodeAttempt, CallError> {
        let (mut tell, answer) = oneshot::channel();
        let work = Arc::clone(self);
        if self.keeps {
            tokio::spawn(async move {
                let kept = work.keep(&work.node, run_it, tell.closed()).await;
                let give = |ended| tell.send((ended, None)).is_ok();
                kept.give(&work, give).await;
            });
            let answer = answer.await.map_err(|_| CallError::Stopping)?;
            return Ok(answer.0);
        }
        tokio::spawn(async move {
            let ended = work.run(&work.node, run_it.clone()).await;
            if let Err((_, Some(event))) = tell.send(ended) {
                notify_later(&work.gateway, &work.node, &run_it, event).await;
            }
        });
        tokio::select! {
            answer = answer => answer.map(|(ended, _)| ended).map_err(|_| CallError::Stopping),
            () = cancelled.cancelled() => {
                Ok(NodeAttempt::Result(Box::new(result::left_running(&self.node))))
            }
        }
    }

    /// Runs it; returns also the event for its session if no caller takes the result.
    async fn run(
        &self,
        node: &Arc<Node>,
        run_it: SystemRun,
    ) -> (NodeAttempt, Option<NodeRunEvent>) {
        let began = std::time::Instant::now();
        let cwd = run_it.cwd.clone();
        let is_approved = run_it.approved == Some(true);
        let answer = run(&self.gateway, node, self.order(run_it)).await;
        match answer {
            Ok((payload, _)) => {
                let reported = crate::nodes::run::result(&payload);
                let event = reported.as_ref().map(NodeRunEvent::of_result);
                let most = self.how.show_chars;
                let ended =
                    result::ended(&self.node, reported, cwd.as_deref(), began.elapsed(), most);
                (NodeAttempt::Result(Box::new(ended)), event)
            }
            Err(error) if !is_approved && says(&error, Denial::APPROVAL_REQUIRED.message) => {
                (NodeAttempt::Refused(error), None)
            }
            Err(error) => (
                NodeAttempt::Refused(error),
                Some(NodeRunEvent::denied("invoke-failed")),
            ),
        }
    }
}

/// Whether a node's own words begin so.
fn says(error: &WireError, words: &str) -> bool {
    let said = error
        .details
        .as_ref()
        .map(|details| &details["nodeError"]["message"]);
    let said = said.and_then(Value::as_str).unwrap_or(&error.message);
    said.starts_with(words)
}
