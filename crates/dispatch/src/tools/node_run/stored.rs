//! The run of a stored approval: the state with which a restarted gateway continues it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use interlock_approvals::{ApprovalRefusal, PendingApproval, RemoteRunFacts};
use interlock_command::display::Secrets;
use interlock_config::types::ExecConfig;
use interlock_host::{CallSender, CallerContext, Elevation, is_too_late, now_ms};
use interlock_policy::{AgentId, Ask};
use interlock_store::{RecordedOutcome, RecordedStatus};
use interlock_wire::approval::ApprovalDetails;
use interlock_wire::node::extension::PlanNotes;
use interlock_wire::node::{SystemRun, SystemRunPlan};
use serde::{Deserialize, Serialize};

use super::approval::{able, give_up};
use super::{ApprovedStart, GatewayLevels, NodeRun, NodeRunManner, shown_chars};
use crate::dispatcher::Dispatcher;
use crate::nodes::run_events::{NodeRunEvent, notify_of};
use crate::nodes::{Node, approval as wire_approval};
use crate::tools::pipeline::{OutcomeReceiver, RunHost, RunStart};
use crate::tools::run_outcome::{NodeLabel, RunLocation};
use crate::tools::{Asking, Audience, ListedSessions, ToolCall};
use crate::work::blocking;

/// The stored subject of an approval for a run on a node.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRunSubject<'a> {
    #[serde(flatten)]
    pub(super) details: &'a ApprovalDetails,
    pub(super) node_name: String,
    /// The facts that the run needs. No surface shows them.
    pub(super) replay: NodeReplay,
    pub(super) run_facts: RemoteRunFacts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) notes: Option<PlanNotes>,
}

/// The part of the stored subject besides its details.
#[derive(Deserialize)]
struct StoredReplay {
    replay: NodeReplay,
}

/// How often a disconnected node is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// The parts of a call that are not in the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeReplay {
    run: SystemRun,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ask: Option<Ask>,
    pty: bool,
    stdin_pipe: bool,
    /// The call's `elevated` parameter, and its sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    elevated: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sender: Option<CallSender>,
}

impl NodeReplay {
    pub(super) fn of_run(run: &NodeRun) -> Self {
        Self {
            run: run.run.clone(),
            ask: run.call_ask,
            pty: run.manner.pty,
            stdin_pipe: run.manner.stdin_pipe,
            elevated: run.asked_elevated,
            sender: run.call.sender.clone(),
        }
    }

    /// The call without its run id, which differs for each call.
    fn without_id(mut self) -> Self {
        self.run.run_id = None;
        self
    }
}

/// A run that waits for an approver, as its approval stores it.
#[derive(Debug, Clone)]
pub(in crate::tools) struct StoredNodeRun {
    dispatcher: Arc<Dispatcher>,
    id: String,
    node_id: String,
    agent: AgentId,
    session_key: String,
    requester: String,
    created_at_ms: u64,
    expires_at_ms: u64,
    plan: SystemRunPlan,
    replay: NodeReplay,
}

impl RunHost for StoredNodeRun {
    fn carry_out(
        self: Arc<Self>,
        start: RunStart,
        receiver: OutcomeReceiver,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let RunStart::Approved(approved) = start else {
                return;
            };
            match self.connected_node().await {
                Ok(node) => {
                    let run = self.run(node);
                    run.carry_out_approved(approved, receiver).await;
                }
                Err(reason) => self.abandon(approved, reason).await,
            }
        })
    }

    fn location(&self) -> RunLocation {
        let id = self.node_id.clone();
        let name = id.clone();
        RunLocation {
            cwd: None,
            node: Some(NodeLabel { id, name }),
            is_sandboxed: false,
        }
    }
}

impl StoredNodeRun {
    /// The run of an approval that was requested before this process started. `None` if a client
    /// requested it, which itself runs the allowed command, or if the approval cannot be read.
    pub(in crate::tools) fn read(dispatcher: &Arc<Dispatcher>, id: &str) -> Option<Self> {
        let approval = dispatcher
            .host
            .approvals()
            .approval(id, Secrets::Masked)
            .ok()?;
        let stored = Self::of_approval(dispatcher, approval)?;
        (stored.created_at_ms < dispatcher.started_at_ms).then_some(stored)
    }

    pub(super) fn of_approval(
        dispatcher: &Arc<Dispatcher>,
        approval: PendingApproval,
    ) -> Option<Self> {
        let subject = approval.remote?;
        let StoredReplay { replay } = StoredReplay::deserialize(&subject).ok()?;
        let details: ApprovalDetails = serde_json::from_value(subject).ok()?;
        let milliseconds = |time: i64| u64::try_from(time).unwrap_or_default();
        Some(Self {
            dispatcher: Arc::clone(dispatcher),
            id: approval.id,
            node_id: details.node_id?,
            agent: AgentId::new(&approval.agent).ok()?,
            session_key: approval.session_key,
            requester: approval.requester,
            created_at_ms: milliseconds(approval.created_at_ms),
            expires_at_ms: milliseconds(approval.expires_at_ms),
            plan: details.system_run_plan?,
            replay,
        })
    }

    pub(super) fn plan(&self) -> &SystemRunPlan {
        &self.plan
    }

    /// Whether the approval is for exactly this call.
    pub(super) fn is_call_of(&self, run: &NodeRun) -> bool {
        self.node_id == run.node.id
            && self.replay.clone().without_id() == NodeReplay::of_run(run).without_id()
    }

    /// The node, once it is connected. It is waited for as long as the approval would have waited.
    async fn connected_node(&self) -> Result<Arc<Node>, &'static str> {
        if is_too_late(i64::try_from(self.expires_at_ms).unwrap_or(i64::MAX)) {
            return Err("it was allowed, and Interlock was not running in time to start it");
        }
        loop {
            let config = self.dispatcher.host.config();
            let node = config.ok().and_then(|config| {
                able(
                    &self.dispatcher,
                    &config.config().gateway.nodes,
                    &self.node_id,
                )
            });
            match node {
                Some(node) => return Ok(node),
                None if now_ms() >= self.expires_at_ms => return Err("node not connected"),
                None => {}
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                // The approval stays unused, so the next process continues it.
                () = self.dispatcher.stop.cancelled() => std::future::pending().await,
            }
        }
    }

    fn run(&self, node: Arc<Node>) -> NodeRun {
        let config = self.dispatcher.host.config().ok();
        let exec = config.map(|config| config.config().exec_for(self.agent.as_str()));
        let limit = self.replay.run.timeout_ms.filter(|limit| *limit > 0);
        NodeRun {
            dispatcher: Arc::clone(&self.dispatcher),
            call: ToolCall {
                agent: self.agent.clone(),
                session_key: self.session_key.clone(),
                cwd: None,
                context: CallerContext::default(),
                listed: ListedSessions::OfAgent,
                requester: self.requester.clone(),
                sender: self.replay.sender.clone(),
                progress: None,
                asking: Asking::Elsewhere,
                approval: None,
                approval_wait: None,
                audience: Audience::Programs,
                cancellation: None,
            },
            run: self.replay.run.clone(),
            // All three are determined when the run starts.
            levels: GatewayLevels::closed(),
            elevation: Elevation::Off,
            keeps_transcripts: false,
            call_ask: self.replay.ask,
            asked_elevated: self.replay.elevated,
            limit: limit.map(Duration::from_millis),
            notice: exec.as_ref().and_then(ExecConfig::running_notice),
            manner: NodeRunManner {
                pty: self.replay.pty,
                stdin_pipe: self.replay.stdin_pipe,
                yields: None,
                show_chars: shown_chars(exec.and_then(|exec| exec.max_output_chars)),
            },
            node,
        }
    }

    /// Gives up the run: claims the approval, and notifies the conversation that nothing ran.
    async fn abandon(&self, approved: ApprovedStart, reason: &'static str) {
        let stored = self.clone();
        let claimed = blocking(move || {
            let approvals = stored.dispatcher.host.approvals();
            let decision = approvals.use_remote(&stored.id)?;
            let outcome = RecordedOutcome::new(RecordedStatus::Refused).with_message(reason);
            give_up(&stored.dispatcher, &stored.id, &outcome);
            let (plan, run) = (&stored.plan, &stored.replay.run);
            Ok::<_, ApprovalRefusal>(wire_approval::approved_run(plan, run, &stored.id, decision))
        });
        let claimed = claimed.await;
        drop(approved);
        if let Ok(Ok(run)) = claimed {
            let event = NodeRunEvent::denied("invoke-failed");
            notify_of(&self.dispatcher, &self.node_id, &run, event).await;
        }
    }
}
