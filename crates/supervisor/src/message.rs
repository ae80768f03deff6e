//! The messages between clients, the supervisor and a run's own process.

use interlock_engine::sandbox::KeeperOrder;
use interlock_engine::{Authorization, Leftover, Leftovers, RunOutcome};
use interlock_plan::PtySize;
use interlock_transcript::screen::Picture;
use interlock_transcript::{SessionRecord, ShownOutput, Totals};
use serde::{Deserialize, Serialize};

use crate::cgroup::RunLimits;

/// Refusal code for a peer that may not make any request.
pub(super) const PEER_REFUSED: &str = "PEER_REFUSED";

/// Refusal code of a shim that another process has altered: nothing was started, and another shim
/// takes the run.
pub(super) const ALTERED: &str = "SHIM_ALTERED";

/// Refusal code of a process that had a run of another agent: nothing was started, and another
/// process takes the order.
pub(super) const OTHER_AGENT: &str = "SHIM_OF_OTHER_AGENT";

/// Protocol version, which must be the same on both sides.
pub(super) const PROTOCOL: u32 = 1;

/// The first message on a connection, to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SupervisorHello {
    pub protocol: u32,
    pub version: String,
    pub purpose: Purpose,
    /// For [`Purpose::Start`]: the agent of the run, so that a process which had runs of this agent
    /// can be chosen, or `None` for a process that had no run yet. Whatever this says, the process
    /// itself refuses the plan of another agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum Purpose {
    /// A plan follows, and then a [`Go`]. From here on, the connection belongs to the run's own
    /// process.
    Start,
    /// [`SessionRequest`]s to a running session follow, also to the run's own process.
    Session { name: String },
    /// Answered with [`About`].
    About,
    /// Ends the processes that keep a sandbox scope, unless a run is in it. The answer says whether
    /// none is left.
    EndScope { scope: String },
    /// Answers the questions of the network server. From here on, the connection belongs to that
    /// process, now or once it exists. The supervisor answers before that.
    AnswerNetworks,
    /// Take no further runs, and end with the last session. Answered with [`About`].
    Drain,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct About {
    pub version: String,
    pub pid: i32,
    pub guard_pid: i32,
    /// A value that is unique for each start of a supervisor.
    pub instance: String,
    pub started_ms: u64,
    pub draining: bool,
    pub running: usize,
}

/// The message that follows a plan. Without it, nothing of the plan starts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Go {
    pub authorization: Authorization,
    pub manner: Manner,
}

/// A [`Go`] in the form in which it is sent, because an authorization cannot be copied.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SentGo<'a> {
    pub authorization: &'a Authorization,
    pub manner: &'a Manner,
}

/// How a run is carried out. It does not affect what runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manner {
    /// The run's ID in its caller's records, which is stored in the session's record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The owner of the session, if that is a remote caller. It is stored in the session's record
    /// too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How long to wait for the end before the session goes to the background. `None` waits without
    /// limit.
    pub wait_ms: Option<u64>,
    /// Number of characters of output that the result shows.
    pub show_chars: usize,
    pub leftovers: Leftovers,
    /// Time between SIGTERM and SIGKILL.
    pub grace_ms: u64,
    /// Whether to refuse a plan with a file that could be exchanged between the check and the
    /// start.
    pub require_race_free: bool,
    pub limits: RunLimits,
    /// How long a finished session is kept.
    pub cleanup_ms: u64,
    pub max_spool_bytes: u64,
    /// A run that writes more than this is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            run_id: None,
            owner: None,
            wait_ms: Some(10_000),
            show_chars: 200_000,
            leftovers: Leftovers::End,
            grace_ms: 2_000,
            require_race_free: false,
            limits: RunLimits::default(),
            cleanup_ms: 1_800_000,
            max_spool_bytes: 1 << 30,
            max_output_bytes: None,
        }
    }
}

/// The first message from the run's own process to the client that ordered it, unless it sends a
/// [`SupervisorRefusal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedRun {
    pub session: SessionRecord,
    pub started_ms: u64,
}

/// The second message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Waited {
    Ended(Box<EndedRun>),
    /// The wait is over, and the session went to the background.
    Yielded,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndedRun {
    pub outcome: RunOutcome,
    pub totals: Totals,
    pub shown: ShownOutput,
    /// Whether the run exceeded its memory limit.
    pub out_of_memory: bool,
    /// Why output could not be kept, if it could not.
    pub fault: Option<String>,
    /// The limit of its sandbox that the run reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitReached>,
    /// Protected paths that appeared or changed in the workspace, if the run could write to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected_created: Vec<String>,
}

/// A limit of a sandbox that a run reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitReached {
    pub limit: SandboxLimit,
    /// In bytes, processes or milliseconds.
    pub bound: u64,
    /// The highest value that the run reached, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<u64>,
}

/// The resources that a sandbox limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxLimit {
    Memory,
    Pids,
    /// A private in-memory file system was full.
    Tmp,
    /// A file system of the host was about to be full. The bound is the space that must stay free,
    /// and the peak the space that was free when the run was ended.
    Disk,
    Output,
    Time,
}

impl SandboxLimit {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Tmp => "tmp",
            Self::Disk => "disk",
            Self::Output => "output",
            Self::Time => "time",
        }
    }
}

impl std::fmt::Display for LimitReached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = match self.limit {
            SandboxLimit::Disk => {
                let (bound, free) = (self.bound, self.peak.unwrap_or_default());
                return write!(f, "limit: disk ({bound} bytes stay free, {free} were left)");
            }
            SandboxLimit::Memory | SandboxLimit::Tmp | SandboxLimit::Output => " bytes",
            SandboxLimit::Pids => "",
            SandboxLimit::Time => " ms",
        };
        write!(
            f,
            "limit: {} (bound {}{unit}",
            self.limit.as_str(),
            self.bound
        )?;
        if let Some(peak) = self.peak {
            write!(f, ", peak {peak}{unit}")?;
        }
        f.write_str(")")
    }
}

/// A request to the process of a running session. Requests are answered in order, each with a
/// [`SessionAnswer`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum SessionRequest {
    /// Waits until there is more output than this, or the session has ended.
    Wait {
        after_bytes: u64,
        timeout_ms: u64,
    },
    /// Writes the bytes of the frame as input.
    Write {
        close: bool,
    },
    Keys {
        literal: Option<String>,
        hex: Vec<String>,
        keys: Vec<String>,
    },
    Paste {
        text: String,
        bracketed: bool,
    },
    Resize {
        size: PtySize,
    },
    Screen,
    /// Requests the bytes that draw the screen on another terminal.
    Drawing,
    Kill {
        signal: i32,
    },
    /// Moves the run to the background: no call waits for its result anymore.
    Background,
    /// Confirms that the result was received completely, so that the session need not be kept.
    Taken,
    /// The same confirmation from a client that ordered the run and may have another order for this
    /// process. It is answered with [`ShimReady`], or not at all.
    TakenForNext,
}

/// The message from the run's own process to the client of its last run: it is ready for another
/// plan, followed by a [`Go`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShimReady;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum SessionAnswer {
    Done,
    /// The parts of the keys that were not understood.
    Keys {
        warnings: Vec<String>,
    },
    Standing {
        standing: SessionStanding,
    },
    Screen {
        picture: Picture,
    },
    /// The drawing is in the bytes of the frame.
    Drawing {
        total_bytes: u64,
    },
    /// Some processes could not be ended.
    StillThere {
        processes: Vec<Leftover>,
    },
    Refused {
        refusal: SupervisorRefusal,
    },
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStanding {
    pub total_bytes: u64,
    pub ended: bool,
}

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{message}")]
pub struct SupervisorRefusal {
    /// A stable error code for programs.
    pub code: String,
    pub message: String,
}

impl SupervisorRefusal {
    pub(super) fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}

/// A report from a run's process to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum ShimReport {
    /// The order asks for other limits than those that the process was born with. The next order
    /// may ask for the same.
    Limits {
        limits: RunLimits,
    },
    Begun {
        name: String,
    },
    /// The process waits for the namespaces of this agent.
    Shield {
        agent: String,
    },
    /// The process waits for what the runs of this scope share. Nothing is made for it before its
    /// run is authorized: until then, it gets only what exists already.
    Scope {
        order: Box<KeeperOrder>,
        is_authorized: bool,
    },
    /// The process has no further run in its scope, and may get a run in another one.
    ScopeLeft,
    /// Nothing of the run is left except `survivors`, which could not be ended, and the processes
    /// that are to be left alone. The transcript is kept under this name. The process either waits
    /// for another order of the named agent, or is about to end normally.
    Over {
        kept: Option<String>,
        survivors: usize,
        left_alone: Vec<i32>,
        waits_for: Option<String>,
    },
}
