//! The tool's answers, as the caller receives them.

use std::fmt;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use interlock_store::StaleMarks;
use interlock_supervisor::SessionState;
use interlock_transcript::screen::Picture;
use interlock_transcript::{SessionOutcome, ShownOutput};
use serde::{Deserialize, Serialize};

use super::signal::name_of;
use super::stale::{Stale, stale};
use super::waiting::WaitingLook;
use super::{Process, VisibleSession};

/// How a session stands, in one word.
///
/// | word | when |
/// | --- | --- |
/// | `running` | |
/// | `completed` | it ended by itself; its exit code says more |
/// | `killed` | `kill` or `remove` ended it |
/// | `failed` | a signal ended it, or its time was over |
/// | `lost` | its supervisor died, and it with it; the transcript is there |
/// | `unreachable` | its node is not connected: how it stands is not known |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    Running,
    Completed,
    Killed,
    Failed,
    Lost,
    Unreachable,
}

impl SessionStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Killed => "killed",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Unreachable => "unreachable",
        }
    }
}

/// Whether and how a session ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndedSession {
    pub status: SessionStatus,
    /// The exit code as shells report it: 128 plus the signal, or 124 after a timeout.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub out_of_memory: bool,
}

impl EndedSession {
    /// The end that the transcript in this directory reports.
    pub(super) fn of(outcome: SessionOutcome, out_of_memory: bool, directory: &Path) -> Self {
        let mut ended = Self {
            status: SessionStatus::Running,
            exit_code: None,
            signal: None,
            timed_out: false,
            out_of_memory,
        };
        ended.status = match outcome {
            SessionOutcome::Running => return ended,
            SessionOutcome::Lost => {
                ended.status = SessionStatus::Lost;
                return ended;
            }
            SessionOutcome::Exited { code } => {
                ended.exit_code = Some(code);
                SessionStatus::Completed
            }
            SessionOutcome::Signalled { signal } => {
                ended.exit_code = Some(128 + signal);
                ended.signal = Some(signal);
                SessionStatus::Failed
            }
            SessionOutcome::TimedOut { signal } => {
                ended.exit_code = Some(124);
                ended.signal = signal;
                ended.timed_out = true;
                SessionStatus::Failed
            }
        };
        if !ended.timed_out && killed_mark(directory).exists() {
            ended.status = SessionStatus::Killed;
        }
        ended
    }

    /// The state of a session that was ended and of which nothing else is known.
    pub(super) fn killed() -> Self {
        Self {
            status: SessionStatus::Killed,
            exit_code: None,
            signal: None,
            timed_out: false,
            out_of_memory: false,
        }
    }
}

impl fmt::Display for EndedSession {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.status.as_str();
        match (self.status, self.exit_code, self.signal) {
            (SessionStatus::Failed, ..) if self.timed_out => write!(out, "its time was over"),
            (_, _, Some(signal)) => match name_of(signal) {
                Some(name) => write!(out, "{word} by SIG{name}"),
                None => write!(out, "{word} by signal {signal}"),
            },
            (_, Some(code), None) => write!(out, "{word} with exit code {code}"),
            (_, None, None) => write!(out, "{word}"),
        }
    }
}

/// One row of `list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    /// Two words.
    pub session_id: String,
    /// A title for people: what the session does, and to what.
    pub name: String,
    #[serde(flatten)]
    pub ended: EndedSession,
    pub agent_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    pub command: String,
    pub cwd: String,
    pub pid: Option<i32>,
    pub pty: bool,
    pub stdin_writable: bool,
    /// The session is in the background: no call waits for its result.
    pub background: bool,
    pub waiting_for_input: bool,
    pub started_at_ms: u64,
    pub ended_at_ms: Option<u64>,
    /// The time since its start.
    pub age_ms: u64,
    /// The time from its start to its end, or until now.
    pub runtime_ms: u64,
    /// The size of its output, once the session has ended.
    pub total_bytes: Option<u64>,
    #[serde(flatten)]
    pub stale: Stale,
    /// The name and the id of its node; `None` for a session on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PollAnswer {
    pub session_id: String,
    pub name: String,
    #[serde(flatten)]
    pub ended: EndedSession,
    #[serde(flatten)]
    pub stale: Stale,
    pub output: ShownOutput,
    /// The offset of the next poll, for readers by offset.
    pub next_offset: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogAnswer {
    pub session_id: String,
    pub name: String,
    #[serde(flatten)]
    pub ended: EndedSession,
    #[serde(flatten)]
    pub stale: Stale,
    pub text: String,
    /// The number of the first line in `text`, counted from 0.
    pub offset: u64,
    /// The next line to request; `None` at the end.
    pub next_offset: Option<u64>,
    pub total_lines: u64,
    /// Bytes that were not kept, or that are the rest of a line too long for a page.
    pub omitted_bytes: u64,
    pub omitted_lines: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScreenAnswer {
    pub session_id: String,
    pub name: String,
    #[serde(flatten)]
    pub ended: EndedSession,
    #[serde(flatten)]
    pub picture: Picture,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    pub session_id: String,
    pub bytes: usize,
    /// Whether the input has ended.
    pub eof: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeysSent {
    pub session_id: String,
    /// Why some keys were not sent as requested.
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovedSession {
    pub session_id: String,
    pub removed: bool,
}

impl Process {
    pub(super) fn summary(
        &self,
        known: &VisibleSession,
        look: &WaitingLook<'_>,
        marks: &StaleMarks,
    ) -> SessionSummary {
        let VisibleSession {
            session, status, ..
        } = known;
        let ended = self.ended(known);
        let runs = ended.status == SessionStatus::Running;
        let now_ms = look.now_ms();
        let until = status.ended_ms.unwrap_or(now_ms);
        SessionSummary {
            session_id: session.name.clone(),
            name: session.title.clone(),
            ended,
            agent_id: session.agent_id.clone(),
            session_key: session.session_key.clone(),
            command: session.command.clone(),
            cwd: session.cwd.clone(),
            pid: session.pid.filter(|_| runs),
            pty: session.pty,
            stdin_writable: session.writable && runs,
            background: session.background,
            waiting_for_input: runs && look.waits_for_input(session, status),
            started_at_ms: status.started_ms,
            ended_at_ms: status.ended_ms,
            age_ms: now_ms.saturating_sub(status.started_ms),
            runtime_ms: until.saturating_sub(status.started_ms),
            total_bytes: status.outcome.is_final().then_some(status.totals.bytes),
            stale: stale(marks, session, status),
            node: None,
            node_id: None,
        }
    }

    pub(super) fn ended(&self, known: &VisibleSession) -> EndedSession {
        let outcome = match known.state {
            SessionState::Lost => SessionOutcome::Lost,
            _ => known.status.outcome,
        };
        EndedSession::of(
            outcome,
            known.session.out_of_memory,
            &self.directory(&known.session),
        )
    }
}

/// Records that a caller is about to end the session. A failure to record is ignored.
pub(super) fn mark_killed(directory: &Path) {
    let _ = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(killed_mark(directory));
}

/// Removes the record: no caller ended the session after all.
pub(super) fn unmark_killed(directory: &Path) {
    let _ = std::fs::remove_file(killed_mark(directory));
}

fn killed_mark(directory: &Path) -> PathBuf {
    directory.join("killed")
}
