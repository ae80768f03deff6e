//! `exec host=node`: prepared there, judged there, asked about here, run there.
//!
//! One connection carries every step. The node's own policy decides; what the owner of the gateway
//! asks for can only be stricter. What a person approves is the plan that the node made, and that
//! plan is what it gets back.

mod result;

use std::sync::Arc;
use std::time::Duration;

use interlock_command::display::Secrets;
use interlock_config::ConfigFile;
use interlock_config::types::ExecConfig;
use interlock_host::parameters::{ExecParameters, InputMode};
use interlock_host::{HostError, PendingApproval, RemoteQuestion};
use interlock_policy::{Ask, Document, Security, env};
use interlock_wire::approval::{
    ApprovalDetails, DEFAULT_TIMEOUT_MS, Decision, SystemRunBinding, allowed_decisions,
};
use interlock_wire::node::{
    DEFAULT_INVOKE_TIMEOUT_MS, Denial, SYSTEM_RUN, SYSTEM_RUN_PREPARE, SystemRun, SystemRunPlan,
    SystemRunPrepare, SystemRunPrepared,
};
use interlock_wire::{WireError, refusal};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::exec::APPROVAL_WAIT;
use super::result::ToolResult;
use super::{Call, CallError, Progress, blocking};
use crate::gateway::Gateway;
use crate::nodes::run::{MARGIN, Order, Told, run, tell_later};
use crate::nodes::{Invocation, Node, approval, choose};

/// How a refusal of a node begins that says that no plan can be made.
const DENIED: &str = "SYSTEM_RUN_DENIED";

/// A call on its way through the steps.
#[derive(Debug)]
struct Work {
    gateway: Arc<Gateway>,
    node: Arc<Node>,
    call: Call,
    /// Without a plan.
    run: SystemRun,
    /// What the call and the config want asked.
    ask: Option<Ask>,
    security: Option<Security>,
    limit: Option<Duration>,
    /// After this long an approved run is announced.
    notice: Option<Duration>,
}

pub(super) async fn exec(
    gateway: &Arc<Gateway>,
    config: &ConfigFile,
    exec: &ExecConfig,
    call: &Call,
    parameters: ExecParameters,
) -> Result<ToolResult, CallError> {
    if let Some(refused) = unsupported(&parameters) {
        return Ok(refused);
    }
    let nothing = Document::default();
    let levels = interlock_host::levels(config.config(), &nothing, &call.agent, parameters.ask);
    let (security, ask) = (
        &levels.security.effective.value,
        &levels.ask.effective.value,
    );
    if *security == Security::Deny && !levels.security.layers.is_empty() {
        return Ok(ToolResult::denied(
            "EXEC_DENIED",
            "exec denied: security=deny",
            Some("ask the owner: tools.exec.security"),
        ));
    }
    let env = match env::check_overrides(&parameters.env) {
        Ok(env) => env,
        Err(rejection) => {
            let message = rejection.to_string();
            return Ok(ToolResult::denied("ENV_REJECTED", &message, None));
        }
    };
    let asked = parameters.node.clone().or_else(|| exec.node.clone());
    let chooser = Arc::clone(gateway);
    let node = match blocking(move || choose::choose(&chooser, asked.as_deref())).await? {
        Ok(node) => node,
        Err(none) => {
            return Ok(ToolResult::denied(
                none.code(),
                &none.to_string(),
                none.remedy(),
            ));
        }
    };
    let seconds = parameters
        .timeout
        .map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0));
    let limit = gateway.host.time_limit(&call.agent, seconds)?;
    let work = Arc::new(Work {
        gateway: Arc::clone(gateway),
        run: SystemRun {
            command: node.platform.shell(&parameters.command),
            raw_command: Some(parameters.command),
            cwd: parameters.workdir,
            env: (!env.is_empty()).then_some(env),
            timeout_ms: limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
            agent_id: Some(call.agent.to_string()),
            session_key: Some(call.session_key.clone()),
            run_id: Some(uuid::Uuid::new_v4().to_string()),
            approved: Some(false),
            // Whoever calls is told by the answer, or by this gateway.
            suppress_notify_on_exit: Some(true),
            ..SystemRun::default()
        },
        node,
        call: call.clone(),
        ask: (!levels.ask.layers.is_empty()).then_some(*ask),
        security: (!levels.security.layers.is_empty()).then_some(*security),
        limit,
        notice: exec.running_notice(),
    });
    let wait = exec
        .approval_wait_ms
        .map_or(APPROVAL_WAIT, Duration::from_millis);
    steps(&work, wait).await
}

/// What no node can do, before it is asked.
fn unsupported(parameters: &ExecParameters) -> Option<ToolResult> {
    let is_relative = |path: &String| {
        let is_drive = path.as_bytes().get(1) == Some(&b':');
        !path.starts_with('/') && !path.starts_with('\\') && !is_drive
    };
    let problem = if parameters.pty {
        "a node has no terminals: leave out `pty`"
    } else if parameters.background {
        "a node runs commands in the foreground: leave out `background`"
    } else if parameters.stdin == InputMode::Pipe {
        "a run on a node has no input: leave out `stdin`"
    } else if parameters.workdir.as_ref().is_some_and(is_relative) {
        "`workdir` must be an absolute path on the node"
    } else {
        return None;
    };
    Some(ToolResult::denied("NODE_UNSUPPORTED", problem, None))
}

async fn steps(work: &Arc<Work>, wait: Duration) -> Result<ToolResult, CallError> {
    let prepared = work.prepare().await;
    let (plan, unplanned) = match prepared {
        Ok(plan) => (Some(plan), None),
        // No plan, so nothing that a person could approve; the node may allow it all the same.
        Err(error) if says(&error, DENIED) => (None, Some(error)),
        Err(error) => return Ok(result::refused(&work.node, &error)),
    };
    if work.ask != Some(Ask::Always) {
        let first = match &plan {
            Some(plan) => approval::planned(plan, &work.run),
            None => work.run.clone(),
        };
        match work.start(first, work.call.cancelled.clone()).await? {
            Ended::Result(result) => return Ok(*result),
            Ended::NeedsApproval => {}
        }
    }
    match (plan, unplanned) {
        (Some(plan), _) => ask(work, plan, wait).await,
        (None, Some(error)) => Ok(result::refused(&work.node, &error)),
        (None, None) => Ok(result::refused(
            &work.node,
            &Denial::APPROVAL_REQUIRED.error(),
        )),
    }
}

/// How an attempt ended.
enum Ended {
    Result(Box<ToolResult>),
    NeedsApproval,
}

impl Work {
    /// The plan that the node makes of the command.
    async fn prepare(&self) -> Result<SystemRunPlan, WireError> {
        let prepare = SystemRunPrepare {
            command: self.run.command.clone(),
            raw_command: self.run.raw_command.clone(),
            cwd: self.run.cwd.clone(),
            agent_id: self.run.agent_id.clone(),
            session_key: self.run.session_key.clone(),
            security: self.security.map(|security| security.to_string()),
            ask: self.ask.map(|ask| ask.to_string()),
        };
        if !self
            .node
            .commands()
            .iter()
            .any(|one| one == SYSTEM_RUN_PREPARE)
        {
            return Err(WireError::unavailable(format!(
                "{DENIED}: the node makes no plans, so nobody can be asked"
            )));
        }
        let invocation = Invocation {
            command: SYSTEM_RUN_PREPARE,
            params: Some(json!(prepare)),
            timeout: Some(Duration::from_millis(DEFAULT_INVOKE_TIMEOUT_MS)),
            told_timeout_ms: None,
            idempotency_key: Some(uuid::Uuid::new_v4().to_string()),
        };
        let (payload, _) = self.gateway.nodes.invoke(&self.node, invocation).await?;
        let prepared: SystemRunPrepared = serde_json::from_value(payload).map_err(|error| {
            WireError::unavailable(format!("the node's plan cannot be read: {error}"))
        })?;
        let plan = prepared.plan;
        // What people approve is for this agent and this session, whatever the node says.
        let fits = plan.agent_id == self.run.agent_id
            && plan.session_key == self.run.session_key
            && !plan.argv.is_empty();
        if !fits {
            return Err(WireError::unavailable(
                "the node's plan is for another call",
            ));
        }
        Ok(plan)
    }

    fn order(&self, run: SystemRun) -> Order {
        let timeout = self.limit.map(|limit| limit.saturating_add(MARGIN));
        let told = timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        Order {
            run,
            timeout,
            told_timeout_ms: told,
            idempotency_key: Some(uuid::Uuid::new_v4().to_string()),
        }
    }

    /// Runs it, for a caller who may leave: then its session is told.
    async fn start(
        self: &Arc<Self>,
        run_it: SystemRun,
        cancelled: tokio_util::sync::CancellationToken,
    ) -> Result<Ended, CallError> {
        let (tell, told) = oneshot::channel();
        let work = Arc::clone(self);
        tokio::spawn(async move {
            let ended = work.run(&work.node, run_it.clone()).await;
            if let Err((_, Some(event))) = tell.send(ended) {
                tell_later(&work.gateway, &work.node, &run_it, event).await;
            }
        });
        tokio::select! {
            told = told => told.map(|(ended, _)| ended).map_err(|_| CallError::Stopping),
            () = cancelled.cancelled() => {
                Ok(Ended::Result(Box::new(result::left_running(&self.node))))
            }
        }
    }

    /// Runs it; with what its session is told if nobody takes the result.
    async fn run(&self, node: &Arc<Node>, run_it: SystemRun) -> (Ended, Option<Told>) {
        let began = std::time::Instant::now();
        let cwd = run_it.cwd.clone();
        let is_approved = run_it.approved == Some(true);
        let answer = run(&self.gateway, node, self.order(run_it)).await;
        match answer {
            Ok((payload, _)) => {
                let told = crate::nodes::run::result(&payload);
                let event = told.as_ref().map(Told::of_result);
                let ended = result::ended(&self.node, told, cwd.as_deref(), began.elapsed());
                (Ended::Result(Box::new(ended)), event)
            }
            Err(error) if !is_approved && says(&error, Denial::APPROVAL_REQUIRED.message) => {
                (Ended::NeedsApproval, None)
            }
            Err(error) => {
                let event = Told::denied("invoke-failed");
                let refused = result::refused(&self.node, &error);
                (Ended::Result(Box::new(refused)), Some(event))
            }
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

/// Asks a person about the plan, waits for as long as callers have patience, and replays the plan
/// when it was allowed, whether or not the caller still waits.
async fn ask(
    work: &Arc<Work>,
    plan: SystemRunPlan,
    wait: Duration,
) -> Result<ToolResult, CallError> {
    let (asker, question) = (Arc::clone(work), plan.clone());
    let approval = blocking(move || asker.put_down(&question)).await??;
    let id = approval.id.clone();
    let ended = work.gateway.approvals.wait_for(&id);
    work.gateway.approvals.look_now();
    if let Some(progress) = &work.call.progress {
        let told = Progress::Waiting(super::result::how_to_decide(&approval));
        let _ = progress.send(told).await;
    }
    let (tell, mut told) = oneshot::channel();
    let replaying = Arc::clone(work);
    let question = id.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = ended => {}
            // Nobody tells when the gateway ends; the question is there after it.
            () = replaying.gateway.stop.cancelled() => return,
        }
        replaying.replay(&question, &plan, tell).await;
    });
    tokio::select! {
        result = &mut told => result.map_err(|_| CallError::Stopping),
        () = tokio::time::sleep(wait) => Ok(result::pending(&work.node, &approval)),
        () = work.call.cancelled.cancelled() => {
            let gateway = Arc::clone(&work.gateway);
            blocking(move || {
                let _ = gateway.host.desk().withdraw(&id);
                gateway.approvals.look_now();
            })
            .await?;
            Ok(ToolResult::cancelled())
        }
    }
}

impl Work {
    /// Puts the question down. Waits for the disk.
    fn put_down(&self, plan: &SystemRunPlan) -> Result<PendingApproval, HostError> {
        let env = self.run.env.clone().unwrap_or_default();
        let ask = self.ask.map(|ask| ask.to_string());
        let command = plan.command_preview.as_ref().unwrap_or(&plan.command_text);
        let allowed = allowed_decisions(ask.as_deref());
        let details = ApprovalDetails {
            command: command.clone(),
            env_keys: (!env.is_empty()).then(|| env.keys().cloned().collect()),
            system_run_binding: Some(SystemRunBinding::of_plan(plan, &env)),
            system_run_plan: Some(plan.clone()),
            cwd: plan.cwd.clone(),
            node_id: Some(self.node.id.clone()),
            host: Some("node".to_owned()),
            security: self.security.map(|security| security.to_string()),
            ask,
            warning_text: Some(format!("runs on the node {}", self.node.name())),
            agent_id: plan.agent_id.clone(),
            session_key: plan.session_key.clone(),
            allowed_decisions: allowed.clone(),
            ..ApprovalDetails::default()
        };
        let desk = self.gateway.host.desk();
        let created = desk.ask_remote(&RemoteQuestion {
            id: None,
            subject: &json!(details),
            command,
            agent: self.call.agent.as_str(),
            session_key: &self.call.session_key,
            host: "node",
            node: Some(&self.node.id),
            requester: &self.call.requester,
            expires_in_ms: DEFAULT_TIMEOUT_MS,
            offers_always: allowed.contains(&Decision::AllowAlways),
        })?;
        let id = created.map(|created| created.id).unwrap_or_default();
        desk.approval(&id, Secrets::Masked)
            .map_err(|error| match error {
                interlock_host::DeskError::Host(error) => error,
                other => HostError::Edit {
                    code: "APPROVAL_DAMAGED",
                    message: other.to_string(),
                    remedy: "ask anew".to_owned(),
                },
            })
    }

    /// An answer is there: runs the stored plan if it allows.
    async fn replay(&self, id: &str, plan: &SystemRunPlan, tell: oneshot::Sender<ToolResult>) {
        let (gateway, plan) = (Arc::clone(&self.gateway), plan.clone());
        let (sent, asked) = (self.run.clone(), id.to_owned());
        let node_id = self.node.id.clone();
        let taken = blocking(move || {
            let run_it = approval::take(&gateway, &plan, &sent, &asked)?;
            Ok((present(&gateway, &node_id, &asked), run_it))
        })
        .await;
        let (node, run_it) = match taken {
            Ok(Ok((Some(node), run_it))) => (node, run_it),
            Ok(Ok((None, run_it))) => {
                let error = refusal::NOT_CONNECTED.error();
                let told = Told::denied("invoke-failed");
                match tell.send(result::refused(&self.node, &error)) {
                    Ok(()) => self.told(id).await,
                    Err(_) => tell_later(&self.gateway, &self.node, &run_it, told).await,
                }
                return;
            }
            Ok(Err(error)) => {
                // That it was denied stands in the queue of the session already.
                if tell.send(result::not_allowed(&error)).is_ok() {
                    self.told(id).await;
                }
                return;
            }
            Err(_) => return,
        };
        let running = self.run(&node, run_it.clone());
        tokio::pin!(running);
        let (ended, event) = tokio::select! {
            ended = &mut running => ended,
            () = sleep(self.notice) => {
                let told = Told::running(self.notice.unwrap_or_default());
                tell_later(&self.gateway, &self.node, &run_it, told).await;
                running.await
            }
        };
        let result = match ended {
            Ended::Result(result) => *result,
            Ended::NeedsApproval => result::refused(&self.node, &Denial::APPROVAL_REQUIRED.error()),
        };
        match (tell.send(result), event) {
            (Ok(()), _) => self.told(id).await,
            (Err(_), Some(event)) => tell_later(&self.gateway, &self.node, &run_it, event).await,
            (Err(_), None) => {}
        }
    }

    /// The caller has its answer: no event tells it again.
    async fn told(&self, id: &str) {
        let (gateway, id) = (Arc::clone(&self.gateway), id.to_owned());
        let _ = blocking(move || gateway.host.desk().told(&id)).await;
    }
}

/// The connection that the node has now, which may be another one than when it was asked; none where
/// it is gone or may not run commands any more. Then the approval is over without a run.
fn present(gateway: &Gateway, node_id: &str, approval: &str) -> Option<Arc<Node>> {
    let config = gateway.host.config().ok()?;
    let node = gateway.nodes.get(node_id);
    let node = node.filter(|node| {
        let rules = &config.config().gateway.nodes;
        node.check(SYSTEM_RUN, rules).is_ok()
    });
    if node.is_none() {
        let outcome = json!({ "message": "node not connected", "status": "refused" });
        let finished = gateway.host.desk().finish_remote(approval, Some(&outcome));
        if let Err(error) = finished {
            tracing::warn!(%error, run = approval, "the end of a run is not recorded");
        }
    }
    node
}

async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
