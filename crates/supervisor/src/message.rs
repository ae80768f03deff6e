//! What clients, the supervisor and a run's own process say to each other.

use interlock_engine::sandbox::KeeperOrder;
use interlock_engine::{Authorization, Leftover, Leftovers, RunOutcome};
use interlock_plan::PtySize;
use interlock_transcript::screen::Picture;
use interlock_transcript::{SessionRecord, ShownOutput, Totals};
use serde::{Deserialize, Serialize};

use crate::cgroup::RunLimits;

/// The code of the refusal of a peer that may not ask for anything.
pub(super) const PEER_REFUSED: &str = "PEER_REFUSED";

/// The code of the refusal by a shim that another process has altered: nothing was started, and
/// another shim takes the run.
pub(super) const ALTERED: &str = "SHIM_ALTERED";

/// The code of the refusal of an order by a process that had a run of another agent: nothing was
/// started, and another process takes the order.
pub(super) const OTHER_AGENT: &str = "SHIM_OF_OTHER_AGENT";

/// Both sides must speak the same.
pub(super) const PROTOCOL: u32 = 1;

/// The first message on a connection, to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SupervisorHello {
    pub protocol: u32,
    pub version: String,
    pub purpose: Purpose,
    /// Of [`Purpose::Start`]: the agent of the run, so that a process that had runs of this agent
    /// can be chosen. None: a process that had no run yet. The process itself refuses the plan of
    /// another agent, whatever is said here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) enum Purpose {
    /// A plan follows, and then a [`Go`]. From here on the connection belongs to the run's own
    /// process.
    Start,
    /// [`SessionRequest`]s to a running session follow; likewise.
    Session { name: String },
    /// Answered with [`About`].
    About,
    /// Ends what keeps a sandbox scope, unless a run is in it. Answered with whether nothing keeps it.
    EndScope { scope: String },
    /// Answers the questions of the server of networks: from here on the connection belongs to that
    /// process, now or as soon as there is one. Answered before that.
    AnswerNetworks,
    /// No further runs: it ends when its last session has. Answered with [`About`].
    Drain,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct About {
    pub version: String,
    pub pid: i32,
    pub guard_pid: i32,
    /// One value for each time that a supervisor is started.
    pub instance: String,
    pub started_ms: u64,
    pub draining: bool,
    pub running: usize,
}

/// What follows a plan: without it nothing of the plan starts.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Go {
    pub authorization: Authorization,
    pub manner: Manner,
}

/// A [`Go`] as it is sent: an authorization is not copied.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SentGo<'a> {
    pub authorization: &'a Authorization,
    pub manner: &'a Manner,
}

/// How a run is carried out. It says nothing about what runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Manner {
    /// What the run is called in the records of who orders it; it stands in the session's record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Stands in the session's record as well: its owner, where that is a remote caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Wait so long for the end before the session goes to the background; none: for ever.
    pub wait_ms: Option<u64>,
    /// How much of the output the result shows.
    pub show_chars: usize,
    pub leftovers: Leftovers,
    /// Between SIGTERM and SIGKILL.
    pub grace_ms: u64,
    /// Refuse what could be exchanged between the check and the start.
    pub require_race_free: bool,
    pub limits: RunLimits,
    /// How long a finished session is kept.
    pub cleanup_ms: u64,
    pub max_spool_bytes: u64,
    /// A run that writes more is ended.
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

/// From the run's own process to the client that ordered it: first this or a [`SupervisorRefusal`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedRun {
    pub session: SessionRecord,
    pub started_ms: u64,
}

/// Then this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Waited {
    Ended(Box<EndedRun>),
    /// The time to wait is over; the session went to the background.
    Yielded,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndedRun {
    pub outcome: RunOutcome,
    pub totals: Totals,
    pub shown: ShownOutput,
    /// The run ran out of its memory limit.
    pub out_of_memory: bool,
    /// Why output could not be kept, if so.
    pub fault: Option<String>,
    /// The limit of its sandbox that the run reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitReached>,
    /// Protected paths that appeared or changed in the workspace, where the run could write to it.
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
    /// The most that the run had, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<u64>,
}

/// What a sandbox limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxLimit {
    Memory,
    Pids,
    /// A private file system in memory was full.
    Tmp,
    /// A file system of the host was about to be full. The bound is what stays free, and the peak what
    /// was free when the run was ended.
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

/// To the process of a running session. Each is answered with an [`SessionAnswer`], in order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum SessionRequest {
    /// Wait until there is more output than this, or the session has ended.
    Wait {
        after_bytes: u64,
        timeout_ms: u64,
    },
    /// The bytes of the frame are input.
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
    /// The bytes that draw the screen on another terminal.
    Drawing,
    Kill {
        signal: i32,
    },
    /// Moves the run to the background: no call waits for its result any more.
    Background,
    /// The result was received whole: the session need not be kept.
    Taken,
    /// The same from the client that ordered the run and may have another order for this process.
    /// Answered with [`ShimReady`], or not at all.
    TakenForNext,
}

/// From the run's own process to the client that ordered its last run: it takes a plan again, and
/// then a [`Go`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShimReady;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum SessionAnswer {
    Done,
    /// What of the keys was not understood.
    Keys {
        warnings: Vec<String>,
    },
    Standing {
        standing: SessionStanding,
    },
    Screen {
        picture: Picture,
    },
    /// In the bytes of the frame.
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

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStanding {
    pub total_bytes: u64,
    pub ended: bool,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{message}")]
pub struct SupervisorRefusal {
    /// Stable, for programs.
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

/// From a run's process to the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum ShimReport {
    /// The order wants other limits than the process was born with. The next may want the same.
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
    /// The process waits for what the runs of this scope share. Nothing is made for it unless its run was
    /// authorized: until then it gets what is there already.
    Scope {
        order: Box<KeeperOrder>,
        is_authorized: bool,
    },
    /// The run was the last in its scope as far as this process is concerned, which may have another one.
    ScopeLeft,
    /// Nothing of the run is left but `survivors`, which could not be ended, and those that are to
    /// be left alone. The transcript is kept under this name. The process waits for another order
    /// of the agent that it names, or is about to end as it should.
    Over {
        kept: Option<String>,
        survivors: usize,
        left_alone: Vec<i32>,
        waits_for: Option<String>,
    },
}
