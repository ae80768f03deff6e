//! The approval of a run on a node: how it is stored, and how its plan is started once an approver
//! has allowed it.

use std::sync::Arc;
use std::time::Duration;

use interlock_approvals::{ApprovalRefusal, PendingApproval, RemoteApproval, RemoteRunFacts};
use interlock_command::display::{self, Secrets};
use interlock_config::types::GatewayNodes;
use interlock_config::{ConfigFile, Host};
use interlock_host::{
    Elevation, ElevationFacts, EndListener, ExecError, HostError, RouteFacts, SessionValues,
    route_call, standing_of,
};
use interlock_policy::Security;
use interlock_store::{RecordedOutcome, RecordedStatus};
use interlock_wire::approval::{
    ApprovalDetails, DEFAULT_TIMEOUT_MS, DecisionWord, SystemRunBinding, allowed_decisions,
};
use interlock_wire::node::extension::PlanNotes;
use interlock_wire::node::{SYSTEM_RUN, SystemRun, SystemRunPrepared};
use interlock_wire::{WireError, refusal};
use serde_json::{Value, json};

use super::foreign_command::dropped_variables;
use super::stored::{NodeReplay, NodeRunSubject, StoredNodeRun};
use super::{ApprovedStart, GatewayLevels, NodeRun, foreign, refusals};
use crate::dispatcher::Dispatcher;
use crate::nodes::choose::is_node;
use crate::nodes::run_events::{NodeRunEvent, notify_later};
use crate::nodes::{Node, approval as wire_approval};
use crate::tools::available;
use crate::tools::pipeline::OutcomeReceiver;
use crate::tools::run_outcome::{RunLocation, RunRefusal, ToolOutcome};
use crate::work::blocking;

/// The prepared start of an approved run.
enum ApprovedRun {
    /// The approval is claimed, and the run may start under the present conditions.
    Ready(Box<NodeRun>, SystemRun),
    /// The approval is claimed, but its run can no longer start.
    Impossible(WireError, SystemRun),
}

impl NodeRun {
    /// Asks an approver about the node's plan.
    pub(super) async fn ask(&self, prepared: SystemRunPrepared) -> ToolOutcome {
        let run = self.clone();
        let location = RunLocation::node(&self.node, None);
        let stored = blocking(move || run.store_approval(&prepared)).await;
        match stored {
            Ok(Ok(approval)) => ToolOutcome::Pending {
                approval: Box::new(approval),
                location,
            },
            Ok(Err(error)) => {
                let refusal = match &error {
                    ApprovalRefusal::State(error) => {
                        RunRefusal::failed(error.code(), error.to_string())
                    }
                    error => RunRefusal::denied(error.code(), error.to_string()),
                };
                ToolOutcome::Refused(refusal.with_remedy(error.remedy()).on(&self.node))
            }
            Err(error) => ToolOutcome::Refused(RunRefusal::failed("STOPPING", error.to_string())),
        }
    }

    /// Claims the approval and runs its plan, if the approval is for this call.
    pub(super) async fn carry_out_approved(
        &self,
        approved: ApprovedStart,
        mut receiver: OutcomeReceiver,
    ) {
        let ApprovedStart { id, held } = approved;
        let (run, approval) = (self.clone(), id.clone());
        let claimed = blocking(move || run.claim(&approval)).await;
        drop(held);
        match claimed {
            Ok(Ok(ApprovedRun::Ready(run, run_it))) if run.keeps_transcripts => {
                let followed = run.start_and_follow(run_it, &mut receiver).await;
                run.deliver_followed(followed, receiver).await;
            }
            Ok(Ok(ApprovedRun::Ready(run, run_it))) => {
                foreign::run_approved(&run, &id, run_it, receiver).await;
            }
            Ok(Ok(ApprovedRun::Impossible(error, run_it))) => {
                let refusal = refusals::refused(&self.node, &error);
                match receiver.deliver(ToolOutcome::Refused(refusal)) {
                    EndListener::Caller => self.mark_outcome_delivered(&id).await,
                    EndListener::SessionEvent => {
                        let event = NodeRunEvent::denied("invoke-failed");
                        notify_later(&self.dispatcher, &self.node, &run_it, event).await;
                    }
                }
            }
            // The conversation already has the event of the denial.
            Ok(Err(error)) => {
                let is_used = matches!(error, ApprovalRefusal::Used { .. });
                let refusal = RunRefusal::of_exec(&ExecError::Approval(error)).on(&self.node);
                let listener = receiver.deliver(ToolOutcome::Refused(refusal.about(&id)));
                if listener == EndListener::Caller && !is_used {
                    self.mark_outcome_delivered(&id).await;
                }
            }
            Err(error) => {
                let refusal = RunRefusal::failed("STOPPING", error.to_string());
                receiver.deliver(ToolOutcome::Refused(refusal));
            }
        }
    }

    /// Claims the approval for the stored plan. A call that differs from the approved one claims
    /// nothing. Waits for the disk.
    fn claim(&self, id: &str) -> Result<ApprovedRun, ApprovalRefusal> {
        let approval = self
            .dispatcher
            .host
            .approvals()
            .approval(id, Secrets::Masked)?;
        let short_id = approval.short_id.clone();
        let stored = StoredNodeRun::of_approval(&self.dispatcher, approval);
        let stored = stored.filter(|stored| stored.is_call_of(self));
        let Some(stored) = stored else {
            let what = "the call";
            return Err(ApprovalRefusal::Mismatch { short_id, what });
        };
        let decision = self.dispatcher.host.approvals().use_remote(id)?;
        let run_it = wire_approval::approved_run(stored.plan(), &self.run, id, decision);
        Ok(match self.current() {
            Ok(current) => ApprovedRun::Ready(Box::new(current), run_it),
            Err(error) => {
                let outcome =
                    RecordedOutcome::new(RecordedStatus::Refused).with_message(&error.message);
                give_up(&self.dispatcher, id, &outcome);
                ApprovedRun::Impossible(error, run_it)
            }
        })
    }

    /// Stores the approval of a plan. Waits for the disk.
    fn store_approval(
        &self,
        prepared: &SystemRunPrepared,
    ) -> Result<PendingApproval, ApprovalRefusal> {
        let (plan, notes) = (&prepared.plan, prepared.interlock.as_ref().map(readable));
        let env = self.run.env.clone().unwrap_or_default();
        let ask = match &notes {
            Some(notes) => Some(notes.ask.clone()),
            None => Some(self.levels.ask().to_string()),
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
        let dropped = dropped_variables(&self.node, &self.run);
        if !self.keeps_transcripts && !dropped.is_empty() {
            warnings.push(format!(
                "the node does not pass these variables to shell text: {}",
                dropped.join(", ")
            ));
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
            security: Some(self.levels.security().to_string()),
            ask,
            warning_text: Some(warnings.join("\n")),
            agent_id: plan.agent_id.clone(),
            session_key: plan.session_key.clone(),
            allowed_decisions: allowed.clone(),
            ..ApprovalDetails::default()
        };
        let approvals = self.dispatcher.host.approvals();
        let subject = json!(NodeRunSubject {
            details: &details,
            node_name: self.node.name(),
            replay: NodeReplay::of_run(self),
            run_facts: self.facts(),
            notes,
        });
        let approval = RemoteApproval {
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
        let created = approvals.request_remote(&approval, |_| {})?;
        created.ok_or_else(|| ApprovalRefusal::Damaged {
            short_id: String::new(),
            problem: "it has no id of its own".to_owned(),
        })
    }

    /// The facts that will be sent with the plan, for the approver.
    fn facts(&self) -> RemoteRunFacts {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        RemoteRunFacts {
            env: self.run.env.clone().unwrap_or_default(),
            pty: self.manner.pty,
            stdin_pipe: self.manner.stdin_pipe,
            timeout_ms: self.run.timeout_ms,
            background_after_ms: self.manner.yields.map(milliseconds),
            elevated: self.elevation,
        }
    }

    /// The run under the present conditions: on the node's present connection, which may differ
    /// from the one at the request, and with the present config and session. Fails if the node is
    /// gone or may not run commands any more, or if nothing may run. Waits for the disk.
    fn current(&self) -> Result<Self, WireError> {
        let failed = |error: HostError| WireError::unavailable(error.to_string());
        let config = self.dispatcher.host.config().map_err(failed)?;
        let session = self.dispatcher.host.session(&self.call.session_key);
        let session = session.map_err(failed)?;
        let elevation = self.check_place(&config, &session)?;
        let call_levels = (&session, self.call_ask, elevation);
        let levels = GatewayLevels::of(&self.dispatcher, &config, &self.call.agent, call_levels);
        let levels = levels.map_err(failed)?;
        if levels.security() == Security::Deny {
            return Err(
                WireError::unavailable("exec denied: security=deny").with("code", "EXEC_DENIED")
            );
        }
        let rules = &config.config().gateway.nodes;
        let node = able(&self.dispatcher, rules, &self.node.id);
        let node = node.ok_or_else(|| refusal::NOT_CONNECTED.error())?;
        let keeps_transcripts = node.keeps_sessions(rules);
        if !keeps_transcripts && let Some(why) = foreign::denied_by_now(&levels, &self.run) {
            let message = format!("exec denied: {why}");
            return Err(WireError::unavailable(message).with("code", "EXEC_DENIED"));
        }
        if !keeps_transcripts && (self.manner.pty || self.manner.stdin_pipe) {
            return Err(WireError::unavailable(
                "the node has neither terminals nor input any more",
            ));
        }
        Ok(Self {
            node,
            levels,
            keeps_transcripts,
            elevation,
            ..self.clone()
        })
    }

    /// Checks that the agent may still run commands, on nodes, and on this node. Returns how far
    /// the run now leaves the sandbox of its conversation.
    fn check_place(
        &self,
        config: &ConfigFile,
        session: &SessionValues,
    ) -> Result<Elevation, WireError> {
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
        let sandbox = standing_of(config.config(), agent.as_str(), &self.call.session_key);
        let facts = RouteFacts {
            asked: Some(Host::Node),
            session: session.host,
            exec: &exec,
            sandbox: &sandbox,
        };
        let elevation = ElevationFacts {
            config: config.config(),
            agent,
            asked: self.asked_elevated,
            session: session.elevated,
            sender: self.call.sender.as_ref(),
        };
        let routed = match route_call(facts, &elevation) {
            Ok(routed) => routed,
            Err(refused) => return stricter(&refused.to_string()),
        };
        let own = config.config().agent(agent.as_str());
        let bound = own.and_then(|own| own.tools.exec.node.as_deref());
        let is_bound_here =
            bound.is_none_or(|bound| is_node(&self.dispatcher, bound, &self.node.id));
        if is_bound_here {
            Ok(routed.elevation)
        } else {
            stricter("the agent is bound to another node")
        }
    }

    /// Records that the caller has the outcome, so that no event repeats it.
    pub(super) async fn mark_outcome_delivered(&self, id: &str) {
        let (dispatcher, id) = (Arc::clone(&self.dispatcher), id.to_owned());
        let _ = blocking(move || dispatcher.host.approvals().mark_outcome_delivered(&id)).await;
    }
}

/// A longer view of a node is not stored.
const MOST_VIEW_BYTES: usize = 2 * 1024 * 1024;

/// A node's notes for people, cut to a limit and without characters that control a terminal.
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

/// The connected node, if it may run commands.
pub(super) fn able(
    dispatcher: &Dispatcher,
    rules: &GatewayNodes,
    node_id: &str,
) -> Option<Arc<Node>> {
    let node = dispatcher.nodes.get(node_id)?;
    node.check(SYSTEM_RUN, rules).is_ok().then_some(node)
}

/// Records that an allowed run will not start.
pub(super) fn give_up(dispatcher: &Dispatcher, approval: &str, outcome: &RecordedOutcome) {
    let finished = dispatcher
        .host
        .approvals()
        .finish_remote(approval, Some(outcome));
    if let Err(error) = finished {
        tracing::warn!(%error, run = approval, "the end of a run is not recorded");
    }
}
