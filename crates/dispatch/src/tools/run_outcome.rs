//! What became of a call, wherever its run is: one type, which `render` turns into the result of
//! the tool.

use std::time::Duration;

use interlock_approvals::{ApprovalRefusal, PendingApproval};
use interlock_engine::RunStatus;
use interlock_host::parameters::ParameterError;
use interlock_host::{EffectReport, ExecError, NotedDenials, PatchError};
use interlock_patch::PatchSummary;
use interlock_plan::{Elevation, PlanShield, SandboxTree, StartedPrograms};
use interlock_sessions::{Followed, SessionStatus};
use interlock_supervisor::{EndedRun, LimitReached, StartedRun};
use interlock_transcript::ShownOutput;
use interlock_wire::node::SystemRunResult;
use serde::Serialize;

use super::model_text::cut;
use crate::nodes::Node;

/// The outcome of a call that was made.
#[derive(Debug)]
pub enum ToolOutcome {
    Ended(Box<RunEndReport>),
    /// The run goes on in the background.
    Running(RunningReport),
    /// An approver has to decide first; nothing was started.
    Pending {
        approval: Box<PendingApproval>,
        location: RunLocation,
    },
    Patched(PatchSummary),
    Refused(RunRefusal),
}

/// The machine and the directory of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLocation {
    pub cwd: Option<String>,
    /// `None` is the gateway's machine.
    pub node: Option<NodeLabel>,
    /// A sandbox of the gateway's machine.
    pub is_sandboxed: bool,
}

/// A node, as results name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeLabel {
    pub id: String,
    pub name: String,
}

impl RunLocation {
    pub fn gateway(cwd: &str) -> Self {
        Self {
            cwd: Some(cwd.to_owned()),
            node: None,
            is_sandboxed: false,
        }
    }

    /// Where a run of this machine was started: on the machine itself, or in a sandbox of it.
    pub fn of_started(started: &StartedRun, cwd: &str) -> Self {
        Self {
            is_sandboxed: started.session.shield == Some(PlanShield::Sandbox),
            ..Self::gateway(cwd)
        }
    }

    pub fn node(node: &Node, cwd: Option<&str>) -> Self {
        Self {
            cwd: cwd.map(str::to_owned),
            node: Some(NodeLabel::of(node)),
            is_sandboxed: false,
        }
    }
}

impl NodeLabel {
    pub fn of(node: &Node) -> Self {
        Self {
            id: node.id.clone(),
            name: node.name(),
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnding {
    Exited(i64),
    Signaled(i32),
    TimedOut,
    /// The supervisor of the run died, and the run with it.
    Lost,
    /// The run failed, and its host says no more.
    Failed,
}

/// What of a run's output is not in the report, and where it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputRest {
    /// The report shows all of it.
    None,
    /// The transcript of this background session has it.
    Session(String),
    /// It is lost: this host keeps no transcripts.
    Lost,
}

/// A run that has ended.
#[derive(Debug)]
pub struct RunEndReport {
    pub ending: RunEnding,
    pub duration_ms: u64,
    pub location: RunLocation,
    pub output: ShownOutput,
    pub rest: OutputRest,
    pub out_of_memory: bool,
    /// The limit of its sandbox that the run reached.
    pub limit: Option<LimitReached>,
    /// Protected paths that appeared or changed in its workspace, where it could write to that.
    pub protected_created: Vec<String>,
    /// How far the run left the sandbox of its conversation.
    pub elevation: Elevation,
    /// What its sandbox denied, where it had one.
    pub inside: Option<InsideReport>,
    /// Processes that outlived the run, with their process ids.
    pub leftovers: Vec<(i32, String)>,
    /// The programs that it started, where its sandbox logs them.
    pub programs: Option<StartedPrograms>,
    /// `None` where the host does not report it.
    pub race_free: Option<bool>,
    /// Runs on this machine say how they were shielded, if it is known.
    pub shield: Option<PlanShield>,
    /// How the programs are held that a run on this machine starts, where they are.
    pub tree: Option<SandboxTree>,
    /// Why output could not be kept.
    pub output_fault: Option<String>,
    /// Whether the host ends everything below a run whose time is over.
    pub ends_whole_tree: bool,
    /// Whether the host counts the bytes of the output.
    pub counts_output: bool,
    /// Environment variables of the call that the host did not pass to the command.
    pub dropped_variables: Vec<String>,
    /// What became of its changes, where they were made in a layer.
    pub effect: Option<EffectReport>,
    /// No event waits for the conversation: the thread that has the outcome has looked.
    pub has_no_events: bool,
}

/// What a sandbox denied to a run.
#[derive(Debug)]
pub struct InsideReport {
    pub noted: NotedDenials,
    /// The owner lets runs leave their sandbox, so that a caller is told how to ask.
    pub may_ask: bool,
}

/// Lines that say what is left out do not count against the limit of an Interlock node.
const MARK_CHARS: usize = 1_000;

impl RunEndReport {
    /// A run on this machine.
    pub fn local(started: &StartedRun, ended: &EndedRun, cwd: &str) -> Self {
        let outcome = &ended.outcome;
        let rest = if ended.shown.omitted_bytes > 0 {
            OutputRest::Session(started.session.name.clone())
        } else {
            OutputRest::None
        };
        Self {
            ending: match outcome.status {
                RunStatus::Exited(code) => RunEnding::Exited(code.into()),
                RunStatus::Signaled(signal) => RunEnding::Signaled(signal),
                RunStatus::TimedOut => RunEnding::TimedOut,
            },
            duration_ms: milliseconds(outcome.duration),
            location: RunLocation::of_started(started, cwd),
            output: ended.shown.clone(),
            rest,
            out_of_memory: ended.out_of_memory,
            limit: ended.limit,
            protected_created: ended.protected_created.clone(),
            elevation: Elevation::Off,
            inside: None,
            leftovers: outcome
                .leftovers
                .iter()
                .map(|leftover| (leftover.pid, leftover.command.clone()))
                .collect(),
            programs: outcome.programs.clone(),
            race_free: Some(started.session.race_free),
            shield: started.session.shield,
            tree: started.session.tree,
            output_fault: ended.fault.clone(),
            ends_whole_tree: true,
            counts_output: true,
            dropped_variables: Vec::new(),
            effect: None,
            has_no_events: false,
        }
    }

    /// A run on an Interlock node, whose background session has this name here.
    pub fn on_node(node: &Node, followed: &Followed, session: &str, max_chars: usize) -> Self {
        let standing = &followed.standing;
        let mut output = followed.shown.clone().unwrap_or_default();
        // The node was asked for this limit; one that shows more is cut here.
        output.text = cut(output.text, max_chars.saturating_add(MARK_CHARS)).0;
        let rest = if output.omitted_bytes > 0 {
            OutputRest::Session(session.to_owned())
        } else {
            OutputRest::None
        };
        let ended_at_ms = followed.ended_at_ms.unwrap_or(followed.started_at_ms);
        Self {
            ending: match (standing.signal, standing.exit_code) {
                _ if standing.timed_out => RunEnding::TimedOut,
                (Some(signal), _) => RunEnding::Signaled(signal),
                (None, Some(code)) => RunEnding::Exited(code.into()),
                (None, None) if standing.status == SessionStatus::Lost => RunEnding::Lost,
                (None, None) => RunEnding::Failed,
            },
            duration_ms: ended_at_ms.saturating_sub(followed.started_at_ms),
            location: RunLocation::node(node, Some(&followed.cwd)),
            output,
            rest,
            out_of_memory: standing.out_of_memory,
            limit: None,
            protected_created: Vec::new(),
            elevation: Elevation::Off,
            inside: None,
            leftovers: Vec::new(),
            programs: None,
            race_free: Some(followed.race_free),
            shield: None,
            tree: None,
            output_fault: None,
            ends_whole_tree: true,
            counts_output: true,
            dropped_variables: Vec::new(),
            effect: None,
            has_no_events: false,
        }
    }

    /// A run on a foreign node, which keeps no transcript.
    pub fn on_foreign_node(
        node: &Node,
        result: &SystemRunResult,
        cwd: Option<&str>,
        took: Duration,
        max_chars: usize,
    ) -> Self {
        let parts = [
            result.stdout.as_str(),
            result.stderr.as_str(),
            result.error.as_deref().unwrap_or_default(),
        ];
        let mut text = String::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(part);
        }
        let (text, omitted) = cut(text, max_chars);
        Self {
            ending: match result.exit_code {
                _ if result.timed_out => RunEnding::TimedOut,
                Some(code) => RunEnding::Exited(code),
                None => RunEnding::Failed,
            },
            duration_ms: milliseconds(took),
            location: RunLocation::node(node, cwd),
            output: ShownOutput {
                text,
                omitted_bytes: u64::try_from(omitted).unwrap_or(u64::MAX),
                ..ShownOutput::default()
            },
            rest: if omitted > 0 {
                OutputRest::Lost
            } else {
                OutputRest::None
            },
            out_of_memory: false,
            limit: None,
            protected_created: Vec::new(),
            elevation: Elevation::Off,
            inside: None,
            leftovers: Vec::new(),
            programs: None,
            race_free: None,
            shield: None,
            tree: None,
            output_fault: None,
            ends_whole_tree: false,
            counts_output: false,
            dropped_variables: Vec::new(),
            effect: None,
            has_no_events: false,
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A run that goes on in the background.
#[derive(Debug)]
pub struct RunningReport {
    pub session: String,
    pub pid: Option<i32>,
    pub started_at_ms: Option<u64>,
    /// The last lines of its output.
    pub tail: String,
    pub location: RunLocation,
}

/// A call that did not do what was asked.
#[derive(Debug)]
pub struct RunRefusal {
    /// Policy or an approver said no: the same call would be refused again.
    pub is_denial: bool,
    pub code: String,
    pub message: String,
    pub remedy: Option<String>,
    /// The approval that the refusal is about: no event of the same result repeats its end.
    pub approval: Option<String>,
    /// An approver, or what stands in for one, denied it: the agent is told what that means.
    pub explains_denial: bool,
    /// The decision of an approver, where the refusal is one.
    pub denial: Option<ApproverDenial>,
    pub node: Option<NodeLabel>,
    /// The parameter of the call that makes no sense.
    pub parameter: Option<RefusedParameter>,
    /// The conversation has an event about it already, or the process that used the approval reports it.
    pub is_reported: bool,
}

/// A parameter that a call was refused for, as the data of the result names it.
#[derive(Debug, Serialize)]
pub struct RefusedParameter {
    field: String,
    hint: Option<String>,
}

/// An approver said no.
#[derive(Debug)]
pub struct ApproverDenial {
    /// In the approver's own words, if there are any.
    pub reason: Option<String>,
}

impl RunRefusal {
    /// Policy or an approver said no.
    pub fn denied(code: &str, message: impl Into<String>) -> Self {
        Self {
            is_denial: true,
            ..Self::failed(code, message)
        }
    }

    /// The call could not be carried out.
    pub fn failed(code: &str, message: impl Into<String>) -> Self {
        Self {
            is_denial: false,
            code: code.to_owned(),
            message: message.into(),
            remedy: None,
            approval: None,
            explains_denial: false,
            denial: None,
            node: None,
            parameter: None,
            is_reported: false,
        }
    }

    pub fn with_remedy(self, remedy: Option<impl Into<String>>) -> Self {
        Self {
            remedy: remedy.map(Into::into),
            ..self
        }
    }

    /// The refusal of a call for this node.
    pub fn on(self, node: &Node) -> Self {
        Self {
            node: Some(NodeLabel::of(node)),
            ..self
        }
    }

    /// Names the approval that the refusal is about.
    pub fn about(self, approval: &str) -> Self {
        Self {
            approval: Some(approval.to_owned()),
            ..self
        }
    }

    /// The caller wants no result any more.
    pub fn cancelled() -> Self {
        Self::failed("CANCELLED", "Cancelled. The command has not run.")
    }

    /// Why a run on this machine was refused.
    pub fn of_exec(error: &ExecError) -> Self {
        if matches!(error, ExecError::Supervisor(_) | ExecError::Host(_)) {
            return Self::failed(error.code(), error.to_string()).with_remedy(error.remedy());
        }
        let refusal = Self::denied(error.code(), error.to_string()).with_remedy(error.remedy());
        Self {
            explains_denial: error.denial_text().is_some(),
            denial: match error {
                ExecError::Approval(ApprovalRefusal::Denied { reason, .. }) => {
                    let reason = reason.clone();
                    Some(ApproverDenial { reason })
                }
                _ => None,
            },
            is_reported: matches!(error, ExecError::Approval(error) if is_reported(error)),
            ..refusal
        }
    }

    /// The parameters of a call make no sense.
    pub fn of_parameters(error: &ParameterError) -> Self {
        Self {
            parameter: Some(RefusedParameter {
                field: error.field().to_owned(),
                hint: error.hint().map(str::to_owned),
            }),
            ..Self::failed(error.code(), error.to_string()).with_remedy(error.hint())
        }
    }

    /// Why a patch was refused.
    pub fn of_patch(error: &PatchError) -> Self {
        let refusal = if error.is_denial() {
            Self::denied(error.code(), error.to_string())
        } else {
            Self::failed(error.code(), error.to_string())
        };
        Self {
            is_reported: match error {
                PatchError::Approval(error) => is_reported(error),
                PatchError::Apply(_) => true,
                _ => false,
            },
            ..refusal.with_remedy(error.remedy())
        }
    }
}

/// The conversation has an event about drift. A used approval is another call's.
fn is_reported(error: &ApprovalRefusal) -> bool {
    matches!(
        error,
        ApprovalRefusal::Drift { .. } | ApprovalRefusal::Used { .. }
    )
}
