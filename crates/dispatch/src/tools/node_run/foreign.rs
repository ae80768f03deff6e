//! Foreign nodes: the adapter for `system.run`, and the gateway's policy, which they do not read.
//!
//! An Interlock node joins the gateway's layer to its own policy. A foreign node judges by its own
//! document, and only it can judge, because it has the files. Therefore, under
//! `security=allowlist`, its document must say that it judges by its allowlist. Otherwise nothing
//! counts as allowed, and an approver is asked or nothing runs. Deny rules of the gateway are
//! judged here, on the words of the command.

use std::collections::BTreeMap;
use std::time::Instant;

use interlock_host::parameters::{ExecParameters, InputMode};
use interlock_host::{EndListener, now_ms};
use interlock_policy::{
    Ask, CallerInput, DenyRule, Document, Layer, Levels, Outcome, PolicyParts,
    PolicySource as LevelSource, RunRequest, Security, evaluate,
};
use interlock_programs::VirtualHost;
use interlock_wire::node::{Denial, SYSTEM_EXEC_APPROVALS_GET, SystemExecApprovalsGet, SystemRun};

use super::foreign_command::{dropped_variables, source};
use super::{GatewayLevels, NodeAttempt, NodeRun, refusals};
use crate::nodes::run_events::{NodeRunEvent, notify_later};
use crate::nodes::system_run::{MARGIN, NodeRunRequest, run_to_end as run_on_node};
use crate::tools::pipeline::OutcomeReceiver;
use crate::tools::run_outcome::{RunEndReport, RunRefusal, ToolOutcome};

/// Stands for an unknown directory of the node.
const SOMEWHERE: &str = "/";

/// The first part of a call that only an Interlock node can carry out.
pub(super) fn unsupported(parameters: &ExecParameters) -> Option<&'static str> {
    if parameters.pty {
        Some("this node has no terminals: leave out `pty`")
    } else if parameters.background {
        Some("this node runs commands in the foreground: leave out `background`")
    } else if parameters.stdin == InputMode::Pipe {
        Some("a run on this node has no input: leave out `stdin`")
    } else {
        None
    }
}

/// Runs the call without an approval. Returns the receiver if the node wants an approval.
pub(super) async fn run_unapproved(
    work: &NodeRun,
    run: SystemRun,
    receiver: OutcomeReceiver,
    wants_approval: impl Fn(&NodeAttempt) -> bool,
) -> Option<OutcomeReceiver> {
    let running = work.run_on_foreign_node(run.clone());
    tokio::pin!(running);
    let (attempt, event) = tokio::select! {
        ended = &mut running => ended,
        () = work.call.cancelled() => {
            // A foreign node cannot end a run. The conversation is notified of its end.
            receiver.deliver(ToolOutcome::Refused(refusals::left_running(&work.node)));
            if let (_, Some(event)) = running.await {
                notify_later(&work.dispatcher, &work.node, &run, event).await;
            }
            return None;
        }
    };
    if wants_approval(&attempt) {
        return Some(receiver);
    }
    if receiver.deliver(work.outcome(attempt)) == EndListener::SessionEvent
        && let Some(event) = event
    {
        notify_later(&work.dispatcher, &work.node, &run, event).await;
    }
    None
}

/// Runs an allowed plan. A run that takes long is announced.
pub(super) async fn run_approved(
    work: &NodeRun,
    approval: &str,
    run: SystemRun,
    receiver: OutcomeReceiver,
) {
    let running = work.run_on_foreign_node(run.clone());
    tokio::pin!(running);
    let notice = async {
        match work.notice {
            Some(time) => tokio::time::sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let (attempt, event) = tokio::select! {
        ended = &mut running => ended,
        () = notice => {
            let event = NodeRunEvent::running(work.notice.unwrap_or_default());
            notify_later(&work.dispatcher, &work.node, &run, event).await;
            running.await
        }
    };
    match (receiver.deliver(work.outcome(attempt)), event) {
        (EndListener::Caller, _) => work.mark_outcome_delivered(approval).await,
        (EndListener::SessionEvent, Some(event)) => {
            notify_later(&work.dispatcher, &work.node, &run, event).await;
        }
        (EndListener::SessionEvent, None) => {}
    }
}

/// Whether this gateway lets the node run the call without an approval. The error is the result of
/// a call that must not run at all.
pub(super) async fn may_be_allowed(work: &NodeRun) -> Result<bool, Box<RunRefusal>> {
    let wanted = &work.levels;
    if work.keeps_transcripts {
        return Ok(wanted.ask() != Ask::Always);
    }
    let asks = wanted.ask() != Ask::Off;
    match words_denied(wanted, &work.run) {
        DeniedWords::Clear => {}
        DeniedWords::Unseen if asks => return Ok(false),
        DeniedWords::Unseen => return Err(Box::new(refusals::not_seen(&work.node))),
        DeniedWords::Denied(why) => return Err(Box::new(refusals::denied_here(&work.node, &why))),
    }
    if wanted.ask() == Ask::Always {
        return Ok(false);
    }
    if wanted.security() != Security::Allowlist || work.is_judged_by_allowlist().await {
        return Ok(true);
    }
    if asks {
        return Ok(false);
    }
    Err(Box::new(refusals::not_judged(&work.node)))
}

/// Why a present deny rule of the gateway's document keeps an approved run from a foreign node.
pub(super) fn denied_by_now(wanted: &GatewayLevels, run: &SystemRun) -> Option<String> {
    match words_denied(wanted, run) {
        DeniedWords::Denied(why) => Some(why),
        DeniedWords::Clear | DeniedWords::Unseen => None,
    }
}

/// The verdict of the gateway's deny rules on the words of a command.
enum DeniedWords {
    Clear,
    /// Some words cannot be seen, so every rule might match.
    Unseen,
    Denied(String),
}

/// Judges the words as on a host without known files: names are assumed where programs usually are,
/// and a rule for a path also counts for its bare name.
fn words_denied(wanted: &GatewayLevels, run: &SystemRun) -> DeniedWords {
    if wanted.deny.is_empty() {
        return DeniedWords::Clear;
    }
    let mut deny = wanted.deny.to_vec();
    let bare = wanted.deny.iter().filter_map(|(rule, origin)| {
        let name = rule.pattern.rsplit_once('/')?.1;
        let is_name = name.chars().any(|c| !matches!(c, '*' | '?'));
        let rule = DenyRule {
            pattern: name.to_owned(),
            ..rule.clone()
        };
        is_name.then(|| (rule, origin.clone()))
    });
    deny.extend(bare);
    // Everything may run except what the rules deny, and unseen words are asked about.
    let open = Layer::new(
        LevelSource::Default,
        "",
        Some(Security::Full),
        Some(Ask::OnMiss),
    );
    let policy = PolicyParts {
        levels: Some(Levels::join(&[open])),
        deny,
        ..PolicyParts::default()
    };
    let policy = match policy.assemble(None) {
        Ok(policy) => policy,
        Err(error) => return DeniedWords::Denied(error.to_string()),
    };
    let request = RunRequest {
        source: source(run),
        cwd: run.cwd.clone().unwrap_or_else(|| SOMEWHERE.to_owned()),
        env: BTreeMap::new(),
        // A foreign node has neither terminals nor input.
        input: CallerInput::None,
        workspace: Vec::new(),
        now_ms: now_ms(),
    };
    match evaluate(request, &policy, &VirtualHost::new()) {
        Ok(evaluation) => match evaluation.verdict.outcome {
            Outcome::Allow(_) => DeniedWords::Clear,
            Outcome::Ask => DeniedWords::Unseen,
            Outcome::Deny => DeniedWords::Denied(evaluation.verdict.reason.message),
        },
        Err(error) => DeniedWords::Denied(error.to_string()),
    }
}

impl NodeRun {
    fn outcome(&self, attempt: NodeAttempt) -> ToolOutcome {
        match attempt {
            NodeAttempt::Outcome(outcome) => *outcome,
            NodeAttempt::Refused(error) => {
                ToolOutcome::Refused(refusals::refused(&self.node, &error))
            }
        }
    }

    /// Runs the command to its end. Also returns the event for the conversation, if no caller
    /// receives the outcome.
    async fn run_on_foreign_node(&self, run: SystemRun) -> (NodeAttempt, Option<NodeRunEvent>) {
        let began = Instant::now();
        let cwd = run.cwd.clone();
        let is_approved = run.approved == Some(true);
        // Determined for the call, because its plan has another text.
        let dropped = dropped_variables(&self.node, &self.run);
        let timeout = self.limit.map(|limit| limit.saturating_add(MARGIN));
        let order = NodeRunRequest {
            run,
            timeout,
            node_timeout_ms: timeout
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            idempotency_key: Some(uuid::Uuid::new_v4().to_string()),
        };
        match run_on_node(&self.dispatcher, &self.node, order).await {
            Ok((payload, _)) => {
                let Some(result) = crate::nodes::system_run::result(&payload) else {
                    let refusal = refusals::unreadable_result(&self.node);
                    let outcome = ToolOutcome::Refused(refusal);
                    return (NodeAttempt::Outcome(Box::new(outcome)), None);
                };
                let report = RunEndReport::on_foreign_node(
                    &self.node,
                    &result,
                    cwd.as_deref(),
                    began.elapsed(),
                    self.manner.show_chars,
                );
                let report = RunEndReport {
                    dropped_variables: dropped,
                    ..report
                };
                let outcome = ToolOutcome::Ended(Box::new(report));
                let event = NodeRunEvent::of_result(&result);
                (NodeAttempt::Outcome(Box::new(outcome)), Some(event))
            }
            Err(error)
                if !is_approved && super::says(&error, Denial::APPROVAL_REQUIRED.message) =>
            {
                (NodeAttempt::Refused(error), None)
            }
            Err(error) => (
                NodeAttempt::Refused(error),
                Some(NodeRunEvent::denied("invoke-failed")),
            ),
        }
    }

    /// Whether the node's document explicitly says that this agent may run no more than an
    /// allowlist names.
    async fn is_judged_by_allowlist(&self) -> bool {
        self.document_security()
            .await
            .is_some_and(|security| security != Security::Full)
    }

    async fn document_security(&self) -> Option<Security> {
        if !self.may(SYSTEM_EXEC_APPROVALS_GET) {
            return None;
        }
        let nodes = &self.dispatcher.nodes;
        let asked = SystemExecApprovalsGet::default();
        let snapshot = nodes.invoke_typed(&self.node, &asked).await.ok()?.ok()?;
        // Another program wrote the document, which may contain unknown parts.
        let (document, _) = Document::import(&snapshot.file).ok()?;
        let layer = Layer::of_document(&document, &self.call.agent);
        layer.security.map(|security| security.value)
    }
}
