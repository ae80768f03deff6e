//! Questions about runs on nodes that an earlier process of this gateway asked: what is allowed by now,
//! or later, runs as if that one still lived.

use std::sync::Arc;
use std::time::Duration;

use interlock_approvals::ApprovalEnd;
use interlock_command::display::Secrets;
use interlock_host::{CallerContext, HostError, is_too_late, now_ms};
use interlock_policy::{AgentId, Ask};
use interlock_wire::WireError;
use interlock_wire::approval::ApprovalDetails;
use interlock_wire::node::{SystemRun, SystemRunPlan};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::ask::{able, give_up};
use super::{GatewayLevels, NodeCall, SHOWN_CHARS, kept};
use crate::gateway::Gateway;
use crate::nodes::run_events::{NodeRunEvent, notify_of};
use crate::nodes::{Node, approval};
use crate::tools::{Asking, Audience, ListedSessions, ToolCall, blocking};

/// The property of a stored question that holds what its run needs. No surface shows it.
pub(super) const REPLAY: &str = "replay";

/// How often the gateway looks whether a decision was taken, and whether the node is connected.
const LOOK: Duration = Duration::from_millis(500);

/// Questions that are gone on with.
const MOST: usize = 4096;

/// What is not in the plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeReplay {
    run: SystemRun,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ask: Option<Ask>,
    pty: bool,
    stdin_pipe: bool,
}

impl NodeReplay {
    pub(super) fn of(work: &NodeCall) -> Self {
        Self {
            run: work.run.clone(),
            ask: work.call_ask,
            pty: work.how.pty,
            stdin_pipe: work.how.stdin_pipe,
        }
    }
}

/// A question that was put down before this process began.
#[derive(Debug, Clone)]
struct ResumedQuestion {
    id: String,
    node_id: String,
    agent: AgentId,
    session_key: String,
    requester: String,
    expires_at_ms: u64,
    plan: SystemRunPlan,
    replay: NodeReplay,
}

/// Goes on with what an earlier process asked, until all of it is over or the gateway ends.
pub(crate) async fn resume(gateway: Arc<Gateway>) {
    let reader = Arc::clone(&gateway);
    let mut open = match blocking(move || open(&reader)).await {
        Ok(Ok(open)) => open,
        Ok(Err(error)) => {
            tracing::warn!(%error, "earlier questions about runs on nodes cannot be looked up");
            return;
        }
        Err(_) => return,
    };
    while !open.is_empty() {
        let mut waiting = Vec::new();
        for question in open {
            if question.look(&gateway).await {
                waiting.push(question);
            }
        }
        open = waiting;
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = gateway.stop.cancelled() => return,
        }
    }
}

fn open(gateway: &Gateway) -> Result<Vec<ResumedQuestion>, HostError> {
    let ids = gateway.host.approvals().unclaimed_remote(MOST)?;
    Ok(ids.iter().filter_map(|id| read(gateway, id)).collect())
}

/// None where a client asked, which runs what is allowed by itself, or where it cannot be read.
fn read(gateway: &Gateway, id: &str) -> Option<ResumedQuestion> {
    let approval = gateway
        .host
        .approvals()
        .approval(id, Secrets::Masked)
        .ok()?;
    // What this process asked, it runs itself.
    let asked_at_ms = u64::try_from(approval.created_at_ms).unwrap_or_default();
    if asked_at_ms >= gateway.started_at_ms {
        return None;
    }
    let subject = approval.remote?;
    let replay: NodeReplay = serde_json::from_value(subject.get(REPLAY)?.clone()).ok()?;
    let details: ApprovalDetails = serde_json::from_value(subject).ok()?;
    Some(ResumedQuestion {
        id: approval.id,
        node_id: details.node_id?,
        agent: AgentId::new(&approval.agent).ok()?,
        session_key: approval.session_key,
        requester: approval.requester,
        expires_at_ms: u64::try_from(approval.expires_at_ms).unwrap_or_default(),
        plan: details.system_run_plan?,
        replay,
    })
}

impl ResumedQuestion {
    /// Runs it, if that is allowed and the node is there. Whether it is still to be looked at.
    async fn look(&self, gateway: &Arc<Gateway>) -> bool {
        let (reader, id) = (Arc::clone(gateway), self.id.clone());
        let ended = blocking(move || reader.host.approvals().ended(&id)).await;
        let ended: Option<ApprovalEnd> = match ended {
            Ok(Ok(ended)) => ended,
            Ok(Err(_)) => return true,
            Err(_) => return false,
        };
        match ended {
            None => return true,
            // The decision already notified the session.
            Some(ended) if !ended.ending.allows() => return false,
            Some(_) => {}
        }
        if is_too_late(i64::try_from(self.expires_at_ms).unwrap_or(i64::MAX)) {
            let why = "it was allowed, and Interlock was not running in time to start it";
            self.abandon(gateway, why).await;
            return false;
        }
        let Ok(config) = gateway.host.config() else {
            return true;
        };
        let node = able(gateway, &config.config().gateway.nodes, &self.node_id);
        if let Some(node) = node {
            let work = self.work(gateway, node);
            let question = self.clone();
            tokio::spawn(async move {
                // No caller waits for it: its session gets an event.
                let (no_caller, _) = oneshot::channel();
                work.replay(&question.id, &question.plan, no_caller).await;
            });
            return false;
        }
        // It is waited for as long as the question would have waited.
        if now_ms() < self.expires_at_ms {
            return true;
        }
        self.abandon(gateway, "node not connected").await;
        false
    }

    fn work(&self, gateway: &Arc<Gateway>, node: Arc<Node>) -> NodeCall {
        let config = gateway.host.config().ok();
        let exec = config.map(|config| config.config().exec_for(self.agent.as_str()));
        let limit = self.replay.run.timeout_ms.filter(|limit| *limit > 0);
        let chars = exec.as_ref().and_then(|exec| exec.max_output_chars);
        NodeCall {
            gateway: Arc::clone(gateway),
            call: ToolCall {
                agent: self.agent.clone(),
                session_key: self.session_key.clone(),
                cwd: None,
                context: CallerContext::default(),
                listed: ListedSessions::OfAgent,
                requester: self.requester.clone(),
                progress: None,
                asking: Asking::Elsewhere,
                approval: None,
                back: None,
                approval_wait: None,
                audience: Audience::Programs,
                cancelled: CancellationToken::new(),
            },
            run: self.replay.run.clone(),
            // Both are looked up when it runs.
            wanted: GatewayLevels::closed(),
            keeps: false,
            call_ask: self.replay.ask,
            limit: limit.map(Duration::from_millis),
            notice: exec.and_then(|exec| exec.running_notice()),
            how: kept::KeptHow {
                pty: self.replay.pty,
                stdin_pipe: self.replay.stdin_pipe,
                yields: None,
                show_chars: chars.map_or(SHOWN_CHARS, |chars| {
                    usize::try_from(chars).unwrap_or(usize::MAX)
                }),
            },
            node,
        }
    }

    /// It is not to run any more: its use is taken, and the session gets an event that it did not
    /// run.
    async fn abandon(&self, gateway: &Arc<Gateway>, why: &'static str) {
        let (own, question) = (Arc::clone(gateway), self.clone());
        let taken = blocking(move || {
            let ResumedQuestion {
                id, plan, replay, ..
            } = &question;
            let run = approval::take(&own, plan, &replay.run, id)?;
            let outcome = json!({ "message": why, "status": "refused" });
            give_up(&own, id, &outcome);
            Ok::<_, WireError>(run)
        });
        if let Ok(Ok(run)) = taken.await {
            let event = NodeRunEvent::denied("invoke-failed");
            notify_of(gateway, &self.node_id, &run, event).await;
        }
    }
}
