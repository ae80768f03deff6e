//! A person is asked about a plan, and what they allow is replayed.

use std::sync::Arc;
use std::time::Duration;

use interlock_approvals::{
    ApprovalRefusal, NOTES, PendingApproval, RemoteApproval, RemoteRunFacts,
};
use interlock_command::display::{self, Secrets};
use interlock_config::types::GatewayNodes;
use interlock_config::{ConfigFile, Host};
use interlock_host::parameters::ExecParameters;
use interlock_host::{HostError, SessionValues, route};
use interlock_policy::Security;
use interlock_wire::approval::{
    ApprovalDetails, DEFAULT_TIMEOUT_MS, DecisionWord, SystemRunBinding, allowed_decisions,
};
use interlock_wire::node::extension::PlanNotes;
use interlock_wire::node::{SYSTEM_RUN, SystemRunPlan, SystemRunPrepared};
use interlock_wire::{WireError, refusal};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::resume::{NodeReplay, REPLAY};
use super::returned::ComesBack;
use super::{GatewayLevels, NodeAttempt, NodeCall, foreign, result};
use crate::approvals::EndedApproval;
use crate::gateway::Gateway;
use crate::nodes::choose::is_node;
use crate::nodes::run_events::{NodeRunEvent, notify_later};
use crate::nodes::{Node, approval};
use crate::tools::exec::tell_waiting;
use crate::tools::result::ToolResult;
use crate::tools::{Asking, CallError, ToolCall, available, blocking};

/// Asks a person about the plan, waits for as long as callers have patience, and replays the plan
/// when it was allowed, whether or not the caller still waits.
pub(super) async fn ask(
    work: &Arc<NodeCall>,
    prepared: SystemRunPrepared,
    parameters: ExecParameters,
    wait: Duration,
) -> Result<ToolResult, CallError> {
    let plan = prepared.plan.clone();
    let asker = Arc::clone(work);
    let approval = match blocking(move || asker.put_down(&prepared)).await? {
        Ok(approval) => approval,
        Err(ApprovalRefusal::State(error)) => return Err(HostError::from(error).into()),
        Err(error) => return Ok(result::not_asked(&work.node, &error)),
    };
    let id = approval.id.clone();
    let ended = work.gateway.approvals.wait_for(&id);
    if let Asking::Returned(is_for_caller) = &work.call.asking
        && is_for_caller(&approval)
    {
        let node = Arc::clone(&work.node);
        work.gateway.returned.put(&id, node, parameters);
        let (replaying, question) = (Arc::clone(work), id.clone());
        work.when_ended(ended, async move {
            let tell = replaying.gateway.returned.answered(&question);
            replaying.replay(&question, &plan, tell).await;
        });
        work.gateway.approvals.look_now();
        return Ok(result::pending(&work.node, &approval));
    }
    work.gateway.approvals.look_now();
    let (tell, mut answer) = oneshot::channel();
    let replaying = Arc::clone(work);
    let question = id.clone();
    work.when_ended(ended, async move {
        replaying.replay(&question, &plan, tell).await;
    });
    let patience = async {
        if let Asking::Here(asker) = &work.call.asking {
            asker.ask(approval.clone()).await;
        }
        tokio::time::sleep(wait).await;
    };
    tokio::select! {
        result = &mut answer => result.map_err(|_| CallError::Stopping),
        () = patience => Ok(result::pending(&work.node, &approval)),
        never = tell_waiting(&work.call, &approval) => match never {},
        () = work.call.cancelled.cancelled() => withdraw(&work.gateway, id).await,
    }
}

/// The caller was given its question back, and has come again.
pub(super) async fn come_back(
    gateway: &Arc<Gateway>,
    call: &ToolCall,
    parameters: &ExecParameters,
    wait: Duration,
) -> Result<ToolResult, CallError> {
    let id = call.approval.clone().unwrap_or_default();
    let back = call.back.as_ref().and_then(ComesBack::take);
    let Some(mut back) = back else {
        return Ok(ended_before(&standing(gateway, id).await?));
    };
    if back.parameters != *parameters {
        let problem = "what was asked about is another call";
        let code = "APPROVAL_REQUEST_MISMATCH";
        return Ok(ToolResult::denied(code, problem, None));
    }
    tokio::select! {
        result = &mut back.result => result.map_err(|_| CallError::Stopping),
        () = tokio::time::sleep(wait) => Ok(match standing(gateway, id).await? {
            Ok(approval) if approval.ended.is_none() => result::pending(&back.node, &approval),
            ended => ended_before(&ended),
        }),
        () = call.cancelled.cancelled() => withdraw(gateway, id).await,
    }
}

/// The caller does not want it any more.
async fn withdraw(gateway: &Arc<Gateway>, id: String) -> Result<ToolResult, CallError> {
    let gateway = Arc::clone(gateway);
    blocking(move || {
        let _ = gateway.host.approvals().withdraw(&id);
        gateway.approvals.look_now();
    })
    .await?;
    Ok(ToolResult::cancelled())
}

async fn standing(
    gateway: &Arc<Gateway>,
    id: String,
) -> Result<Result<PendingApproval, ApprovalRefusal>, CallError> {
    let reader = Arc::clone(gateway);
    blocking(move || reader.host.approvals().approval(&id, Secrets::Masked)).await
}

/// The answer about a question whose result goes elsewhere: nothing is run again for it.
fn ended_before(standing: &Result<PendingApproval, ApprovalRefusal>) -> ToolResult {
    let (code, problem) = match standing {
        Ok(approval) if approval.host != "node" => (
            "APPROVAL_REQUEST_MISMATCH",
            "what was asked about is not a run on a node".to_owned(),
        ),
        Ok(_) => (
            "APPROVAL_USED",
            "it has been decided; the session gets the outcome as an event".to_owned(),
        ),
        Err(error) => (error.code(), error.to_string()),
    };
    ToolResult::denied(code, &problem, None)
}

impl NodeCall {
    /// Goes on when the approval has ended, whether or not a caller waits for that.
    fn when_ended(
        &self,
        ended: impl Future<Output = EndedApproval> + Send + 'static,
        go_on: impl Future<Output = ()> + Send + 'static,
    ) {
        let gateway = Arc::clone(&self.gateway);
        tokio::spawn(async move {
            tokio::select! {
                _ = ended => go_on.await,
                // When the gateway ends, no event is sent; the approval outlives it.
                () = gateway.stop.cancelled() => {}
            }
        });
    }

    /// Puts the question down. Waits for the disk.
    fn put_down(&self, prepared: &SystemRunPrepared) -> Result<PendingApproval, ApprovalRefusal> {
        let (plan, notes) = (&prepared.plan, prepared.interlock.as_ref().map(readable));
        let env = self.run.env.clone().unwrap_or_default();
        let ask = match &notes {
            Some(notes) => Some(notes.ask.clone()),
            None => Some(self.wanted.ask().to_string()),
        };
        let command = plan.command_preview.as_ref().unwrap_or(&plan.command_text);
        let mut allowed = allowed_decisions(ask.as_deref());
        if !prepared.keeps_always() {
            allowed.retain(|decision| *decision != DecisionWord::ALLOW_ALWAYS);
        }
        let mut warnings = vec![format!("runs on the node {}", self.node.name())];
        if let Some(notes) = &notes {
            warnings.push(format!("{}: {}", notes.binding, notes.binding_reason));
            warnings.extend(notes.reasons.iter().cloned());
        }
        let noted_cwd = notes.as_ref().map(|notes| notes.cwd.clone());
        let details = ApprovalDetails {
            command: command.clone(),
            env_keys: (!env.is_empty()).then(|| env.keys().cloned().collect()),
            system_run_binding: Some(SystemRunBinding::of_plan(plan, &env)),
            system_run_plan: Some(plan.clone()),
            cwd: plan.cwd.clone().or(noted_cwd),
            node_id: Some(self.node.id.clone()),
            host: Some("node".to_owned()),
            security: Some(self.wanted.security().to_string()),
            ask,
            warning_text: Some(warnings.join("\n")),
            agent_id: plan.agent_id.clone(),
            session_key: plan.session_key.clone(),
            allowed_decisions: allowed.clone(),
            ..ApprovalDetails::default()
        };
        let approvals = self.gateway.host.approvals();
        let mut subject = json!(details);
        subject[RemoteRunFacts::NODE_NAME_KEY] = self.node.name().into();
        subject[REPLAY] = json!(NodeReplay::of(self));
        subject[RemoteRunFacts::KEY] = json!(self.facts());
        if let Some(notes) = notes {
            subject[NOTES] = json!(notes);
        }
        let requested = RemoteApproval {
            id: None,
            subject: &subject,
            agent: self.call.agent.as_str(),
            session_key: &self.call.session_key,
            host: "node",
            node: Some(&self.node.id),
            requester: &self.call.requester,
            expires_in_ms: DEFAULT_TIMEOUT_MS,
            offers_always: allowed.contains(&DecisionWord::ALLOW_ALWAYS),
        };
        let created = approvals.request_remote(&requested, |_| {})?;
        created.ok_or_else(|| ApprovalRefusal::Damaged {
            short_id: String::new(),
            problem: "it has no id of its own".to_owned(),
        })
    }

    /// What will be sent with the plan, for the approver to read.
    fn facts(&self) -> RemoteRunFacts {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        RemoteRunFacts {
            env: self.run.env.clone().unwrap_or_default(),
            pty: self.how.pty,
            stdin_pipe: self.how.stdin_pipe,
            timeout_ms: self.run.timeout_ms,
            background_after_ms: self.how.yields.map(milliseconds),
        }
    }

    /// An answer is there: runs the stored plan if it allows.
    pub(super) async fn replay(
        &self,
        id: &str,
        plan: &SystemRunPlan,
        tell: oneshot::Sender<ToolResult>,
    ) {
        let (own, plan, approval) = (self.clone(), plan.clone(), id.to_owned());
        let taken = blocking(move || {
            let run_it = approval::take(&own.gateway, &plan, &own.run, &approval)?;
            Ok((own.ready(&approval), run_it))
        })
        .await;
        let (work, run_it) = match taken {
            Ok(Ok((Ok(work), run_it))) => (work, run_it),
            Ok(Ok((Err(error), run_it))) => {
                let event = NodeRunEvent::denied("invoke-failed");
                match tell.send(result::refused(&self.node, &error)) {
                    Ok(()) => self.mark_outcome_delivered(id).await,
                    Err(_) => notify_later(&self.gateway, &self.node, &run_it, event).await,
                }
                return;
            }
            Ok(Err(error)) => {
                // That it was denied stands in the queue of the session already.
                if tell.send(result::not_allowed(&error).about(id)).is_ok() {
                    self.mark_outcome_delivered(id).await;
                }
                return;
            }
            Err(_) => return,
        };
        if work.keeps {
            let mut tell = tell;
            let kept = work.keep(&work.node, run_it, tell.closed()).await;
            let give = |ended| tell.send(work.result(ended)).is_ok();
            kept.give(&work, give).await;
            return;
        }
        let running = work.run(&work.node, run_it.clone());
        tokio::pin!(running);
        let (ended, event) = tokio::select! {
            ended = &mut running => ended,
            () = sleep(work.notice) => {
                let event = NodeRunEvent::running(work.notice.unwrap_or_default());
                notify_later(&work.gateway, &work.node, &run_it, event).await;
                running.await
            }
        };
        match (tell.send(work.result(ended)), event) {
            (Ok(()), _) => work.mark_outcome_delivered(id).await,
            (Err(_), Some(event)) => notify_later(&work.gateway, &work.node, &run_it, event).await,
            (Err(_), None) => {}
        }
    }

    /// The work as things stand now: on the present connection of the node, which may be another
    /// one than when the approver was asked, and with the present config and session. An error
    /// where the node is gone or may not run commands any more, or nothing may run: then the
    /// approval is over without a run. Waits for the disk.
    fn ready(&self, approval: &str) -> Result<Self, WireError> {
        let ready = self.now();
        if let Err(error) = &ready {
            let outcome = json!({ "message": error.message, "status": "refused" });
            give_up(&self.gateway, approval, &outcome);
        }
        ready
    }

    fn now(&self) -> Result<Self, WireError> {
        let failed = |error: HostError| WireError::unavailable(error.to_string());
        let config = self.gateway.host.config().map_err(failed)?;
        let session = self.gateway.host.session(&self.call.session_key);
        let session = session.map_err(failed)?;
        self.check_place(&config, &session)?;
        let wanted = GatewayLevels::of(
            &self.gateway,
            &config,
            &self.call.agent,
            &session,
            self.call_ask,
        );
        let wanted = wanted.map_err(failed)?;
        if wanted.security() == Security::Deny {
            return Err(
                WireError::unavailable("exec denied: security=deny").with("code", "EXEC_DENIED")
            );
        }
        let rules = &config.config().gateway.nodes;
        let node = able(&self.gateway, rules, &self.node.id);
        let node = node.ok_or_else(|| refusal::NOT_CONNECTED.error())?;
        let keeps = node.keeps_sessions(rules);
        if !keeps && let Some(why) = foreign::denied_by_now(&wanted, &self.run) {
            let message = format!("exec denied: {why}");
            return Err(WireError::unavailable(message).with("code", "EXEC_DENIED"));
        }
        if !keeps && (self.how.pty || self.how.stdin_pipe) {
            return Err(WireError::unavailable(
                "the node has neither terminals nor input any more",
            ));
        }
        Ok(Self {
            node,
            wanted,
            keeps,
            ..self.clone()
        })
    }

    /// The agent may still run commands, on nodes, and on this one.
    fn check_place(&self, config: &ConfigFile, session: &SessionValues) -> Result<(), WireError> {
        let agent = &self.call.agent;
        let stricter = |why: &str| {
            let message = format!("the policy became stricter: {why}");
            Err(WireError::unavailable(message).with("code", "EXEC_DENIED"))
        };
        if !available(config, agent)
            .iter()
            .any(|tool| tool.name == "exec")
        {
            return stricter("the agent may not run commands any more");
        }
        let exec = config.config().exec_for(agent.as_str());
        if let Err(refused) = route(Some(Host::Node), session.host.or(exec.host)) {
            return stricter(&refused.to_string());
        }
        let own = config.config().agent(agent.as_str());
        let bound = own.and_then(|own| own.tools.exec.node.as_deref());
        let is_bound_here = bound.is_none_or(|bound| is_node(&self.gateway, bound, &self.node.id));
        if is_bound_here {
            Ok(())
        } else {
            stricter("the agent is bound to another node")
        }
    }

    fn result(&self, ended: NodeAttempt) -> ToolResult {
        match ended {
            NodeAttempt::Result(result) => *result,
            NodeAttempt::Refused(error) => result::refused(&self.node, &error),
        }
    }

    /// The caller has its answer: no event tells it again.
    async fn mark_outcome_delivered(&self, id: &str) {
        let (gateway, id) = (Arc::clone(&self.gateway), id.to_owned());
        let _ = blocking(move || gateway.host.approvals().mark_outcome_delivered(&id)).await;
    }
}

/// A longer view of a node is not stored.
const MOST_VIEW_BYTES: usize = 2 * 1024 * 1024;

/// What a node says for people to read: so much of it, and nothing in it that a terminal obeys.
fn readable(notes: &PlanNotes) -> PlanNotes {
    const MOST: usize = 16;
    const CHARS: usize = 1_000;
    let text = |text: &String| {
        let text: String = text.chars().take(CHARS).collect();
        display::command(&text, Secrets::Masked).map_or_else(|_| String::new(), |shown| shown.text)
    };
    let fits = |entry: &&Value| entry.to_string().len() <= 4 * CHARS;
    PlanNotes {
        ask: text(&notes.ask),
        binding: text(&notes.binding),
        binding_reason: text(&notes.binding_reason),
        cwd: text(&notes.cwd),
        reasons: notes.reasons.iter().take(MOST).map(text).collect(),
        always: notes
            .always
            .iter()
            .filter(|one| fits(one))
            .cloned()
            .collect(),
        no_always: notes.no_always.as_ref().map(text),
        view: Some(&notes.view)
            .filter(|view| view.to_string().len() <= MOST_VIEW_BYTES)
            .cloned()
            .unwrap_or_default(),
    }
}

/// The node as it is connected now, if it may run commands.
pub(super) fn able(gateway: &Gateway, rules: &GatewayNodes, node_id: &str) -> Option<Arc<Node>> {
    let node = gateway.nodes.get(node_id)?;
    node.check(SYSTEM_RUN, rules).is_ok().then_some(node)
}

/// What was allowed will not run.
pub(super) fn give_up(gateway: &Gateway, approval: &str, outcome: &Value) {
    let finished = gateway
        .host
        .approvals()
        .finish_remote(approval, Some(outcome));
    if let Err(error) = finished {
        tracing::warn!(%error, run = approval, "the end of a run is not recorded");
    }
}

async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}
