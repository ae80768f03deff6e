//! The outcome of a call, regardless of its host: one type, which `render` turns into the result of
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
    /// The run continues in the background.
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
    /// `None` means the gateway's machine.
    pub node: Option<NodeLabel>,
    /// Whether the run is in a sandbox of the gateway's machine.
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
    /// The run failed, and its host reports no details.
    Failed,
}

/// The part of a run's output that is not in the report, and where it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputRest {
    /// The report shows the whole output.
    None,
    /// The transcript of this background session contains it.
    Session(String),
    /// It is lost, because this host keeps no transcripts.
    Lost,
}

/// An ended run.
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
    /// Protected paths that appeared or changed in its workspace, if the run could write to it.
    pub protected_created: Vec<String>,
    /// How far the run left the sandbox of its conversation.
    pub elevation: Elevation,
    /// The denials of its sandbox, if it had one.
    pub inside: Option<InsideReport>,
    /// Processes that outlived the run, with their process ids.
    pub leftovers: Vec<(i32, String)>,
    /// The programs that the run started, if its sandbox logs them.
    pub programs: Option<StartedPrograms>,
    /// `None` if the host does not report it.
    pub race_free: Option<bool>,
    /// How a run on this machine was shielded, if it is known.
    pub shield: Option<PlanShield>,
    /// How the programs are held that a run on this machine starts, where they are.
    pub tree: Option<SandboxTree>,
    /// Why output could not be kept.
    pub output_fault: Option<String>,
    /// Whether the host ends the whole tree of a run that reached its time limit.
    pub ends_whole_tree: bool,
    /// Whether the host counts the bytes of the output.
    pub counts_output: bool,
    /// Environment variables of the call that the host did not pass to the command.
    pub dropped_variables: Vec<String>,
    /// The fate of its changes, if they were made in a layer.
    pub effect: Option<EffectReport>,
    /// Whether no event waits for the conversation. The thread with the outcome has checked this.
    pub has_no_events: bool,
}

/// The denials of a sandbox for a run.
#[derive(Debug)]
pub struct InsideReport {
    pub noted: NotedDenials,
    /// Whether the owner lets runs leave their sandbox, so that the caller is told how to ask.
    pub may_ask: bool,
}

/// An Interlock node does not count lines about omitted output against its limit.
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
        // The node was asked for this limit. A node that shows more is cut here.
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

/// A run that continues in the background.
#[derive(Debug)]
pub struct RunningReport {
    pub session: String,
    pub pid: Option<i32>,
    pub started_at_ms: Option<u64>,
    /// The last lines of its output.
    pub tail: String,
    pub location: RunLocation,
}

/// A call that was not carried out.
#[derive(Debug)]
pub struct RunRefusal {
    /// Whether the policy or an approver said no: the same call would be refused again.
    pub is_denial: bool,
    pub code: String,
    pub message: String,
    pub remedy: Option<String>,
    /// The approval that the refusal is about. No event of the same result repeats its end.
    pub approval: Option<String>,
    /// Whether an approver, or the fallback for one, denied the call. The agent is told what that
    /// means.
    pub explains_denial: bool,
    /// The approver's decision, if the refusal is one.
    pub denial: Option<ApproverDenial>,
    pub node: Option<NodeLabel>,
    /// The invalid parameter of the call.
    pub parameter: Option<RefusedParameter>,
    /// Whether the conversation already has an event about it, or the process that used the
    /// approval reports it.
    pub is_reported: bool,
}

/// The parameter for which a call was refused, as the data of the result names it.
#[derive(Debug, Serialize)]
pub struct RefusedParameter {
    field: String,
    hint: Option<String>,
}

/// The denial of an approver.
#[derive(Debug)]
pub struct ApproverDenial {
    /// The approver's own words, if there are any.
    pub reason: Option<String>,
}

impl RunRefusal {
    /// A denial by the policy or an approver.
    pub fn denied(code: &str, message: impl Into<String>) -> Self {
        Self {
            is_denial: true,
            ..Self::failed(code, message)
        }
    }

    /// A call that could not be carried out.
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

    /// The caller no longer wants a result.
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

    /// The parameters of a call are invalid.
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

/// Whether the refusal is already reported: the conversation has an event about drift, and a used
/// approval belongs to another call.
fn is_reported(error: &ApprovalRefusal) -> bool {
    matches!(
        error,
        ApprovalRefusal::Drift { .. } | ApprovalRefusal::Used { .. }
    )
}
