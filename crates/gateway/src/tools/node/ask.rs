//! A person is asked about a plan, and what they allow is replayed.

use std::sync::Arc;
use std::time::Duration;

use interlock_host::{HostError, PendingApproval, RemoteQuestion};
use interlock_wire::approval::{
    ApprovalDetails, DEFAULT_TIMEOUT_MS, Decision, SystemRunBinding, allowed_decisions,
};
use interlock_wire::node::{SYSTEM_RUN, SystemRunPlan};
use interlock_wire::refusal;
use serde_json::json;
use tokio::sync::oneshot;

use super::{Ended, Work, result};
use crate::gateway::Gateway;
use crate::nodes::told::{Told, tell_later};
use crate::nodes::{Node, approval};
use crate::tools::result::{ToolResult, how_to_decide};
use crate::tools::{Asking, CallError, Progress, blocking};

/// Asks a person about the plan, waits for as long as callers have patience, and replays the plan
/// when it was allowed, whether or not the caller still waits.
pub(super) async fn ask(
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
        let told = Progress::Waiting(how_to_decide(&approval));
        let _ = progress.send(told).await;
    }
    let (tell, mut told) = oneshot::channel();
    let replaying = Arc::clone(work);
    let question = id.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = ended => {}
            // Nobody tells when the gateway ends; the question is there after it.
            () = replaying.gateway.stop.cancelled() => return,
        }
        replaying.replay(&question, &plan, tell).await;
    });
    let patience = async {
        if let Asking::Here(asker) = &work.call.asking {
            asker.ask(approval.clone()).await;
        }
        tokio::time::sleep(wait).await;
    };
    tokio::select! {
        result = &mut told => result.map_err(|_| CallError::Stopping),
        () = patience => Ok(result::pending(&work.node, &approval)),
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
        let ask = self.wanted.ask.map(|ask| ask.to_string());
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
            security: self.wanted.security.map(|security| security.to_string()),
            ask,
            warning_text: Some(format!("runs on the node {}", self.node.name())),
            agent_id: plan.agent_id.clone(),
            session_key: plan.session_key.clone(),
            allowed_decisions: allowed.clone(),
            ..ApprovalDetails::default()
        };
        let desk = self.gateway.host.desk();
        let question = RemoteQuestion {
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
        };
        let created = desk.ask_remote(&question, |_| {});
        let damaged = |message: String| HostError::Edit {
            code: "APPROVAL_DAMAGED",
            message,
            remedy: "ask anew".to_owned(),
        };
        match created {
            Ok(Some(created)) => Ok(created),
            Ok(None) => Err(damaged("the approval has no id of its own".to_owned())),
            Err(interlock_host::DeskError::Host(error)) => Err(error),
            Err(other) => Err(damaged(other.to_string())),
        }
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
        if self.keeps {
            let mut tell = tell;
            let kept = self.keep(&node, run_it, tell.closed()).await;
            let give = |ended| tell.send(self.result(ended)).is_ok();
            kept.give(self, give).await;
            return;
        }
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
        match (tell.send(self.result(ended)), event) {
            (Ok(()), _) => self.told(id).await,
            (Err(_), Some(event)) => tell_later(&self.gateway, &self.node, &run_it, event).await,
            (Err(_), None) => {}
        }
    }

    fn result(&self, ended: Ended) -> ToolResult {
        match ended {
            Ended::Result(result) => *result,
            Ended::Refused(error) => result::refused(&self.node, &error),
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
