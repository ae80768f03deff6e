//! Background sessions: what `process.*` and `tasks.*` return, and the payloads of their events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Relayed, or_default};
use crate::params::given;

/// The payload of `process.output`: a piece of a session's output.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessOutput {
    pub session_id: String,
    #[serde(deserialize_with = "or_default")]
    pub offset: u64,
    /// The offset of the next piece.
    #[serde(deserialize_with = "or_default")]
    pub next_offset: u64,
    #[serde(deserialize_with = "or_default")]
    pub text: String,
    /// The number of bytes before this piece that were not sent.
    #[serde(deserialize_with = "or_default")]
    pub missed_bytes: u64,
}

/// The payload of `process.ended`: no more output follows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessEnded {
    pub session_id: String,
    /// Null if the session is already forgotten.
    #[serde(deserialize_with = "or_default")]
    pub status: Option<String>,
    /// The exit code as shells report it: 128 plus the signal, or 124 after a timeout.
    #[serde(deserialize_with = "or_default")]
    pub exit_code: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub signal: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub timed_out: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub next_offset: Option<u64>,
    /// Why the session was lost, so that its end is unknown.
    #[serde(deserialize_with = "or_default")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The payload of `process.ended` for a session that the gateway can no longer follow. Clients read
/// it as a [`ProcessEnded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessLost {
    pub session_id: String,
    /// Always `lost`.
    pub status: String,
    pub reason: String,
}

/// The state of a session: a part of most results of `process.*`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessStanding {
    pub session_id: String,
    /// A title for people: what the session does, and to what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `running`, `completed`, `killed`, `failed`, `lost` or `unreachable`.
    pub status: String,
    /// The exit code as shells report it: 128 plus the signal, or 124 after a timeout.
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    pub timed_out: bool,
    pub out_of_memory: bool,
    /// True if the command was denied later: its output does not count.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The background sessions, of this machine and of the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessListing {
    /// The newest first.
    pub sessions: Vec<ProcessEntry>,
    /// The number of sessions on all pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The number of the agent's sessions in other conversations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_conversations: Option<u64>,
}

/// One background session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessEntry {
    #[serde(flatten)]
    pub standing: ProcessStanding,
    pub agent_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    pub command: String,
    pub cwd: String,
    pub pid: Option<i32>,
    pub pty: bool,
    pub stdin_writable: bool,
    /// True if no call waits for the result of the session.
    pub background: bool,
    pub waiting_for_input: bool,
    pub started_at_ms: u64,
    pub ended_at_ms: Option<u64>,
    /// The time since the start.
    pub age_ms: u64,
    /// The time from the start to the end, or until now.
    pub runtime_ms: u64,
    /// The size of the output, once the session has ended.
    pub total_bytes: Option<u64>,
    /// The name of the session's node, and the node's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
}

/// New output of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessPolled {
    #[serde(flatten)]
    pub standing: ProcessStanding,
    pub output: PolledOutput,
    /// The offset of the next poll.
    pub next_offset: u64,
}

/// Output whose middle is left out if it is long: `totalBytes = shownBytes + omittedBytes`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolledOutput {
    pub text: String,
    pub total_bytes: u64,
    pub shown_bytes: u64,
    pub omitted_bytes: u64,
    pub omitted_lines: u64,
    /// The part of `omittedBytes` that cannot be read in any other way.
    pub gone_bytes: u64,
}

/// Lines of the transcript of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessLogPage {
    #[serde(flatten)]
    pub standing: ProcessStanding,
    pub text: String,
    /// The number of the first line in `text`, counted from 0.
    pub offset: u64,
    /// The next line to request; null at the end.
    pub next_offset: Option<u64>,
    pub total_lines: u64,
    /// Bytes that are not kept, or that are the rest of a line too long for a page.
    pub omitted_bytes: u64,
    pub omitted_lines: u64,
}

/// The input that was written to a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessWritten {
    pub session_id: String,
    pub bytes: u64,
    /// True if the input has ended.
    pub eof: bool,
}

/// The result of an action of the tool `process`. The other fields depend on the action and are as
/// the tool returns them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessPerformed {
    /// The session; absent for a list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

/// A subscription to the output of a session.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessSubscribed {
    pub subscribed: bool,
    pub from_offset: u64,
    pub session: Relayed<ProcessEntry>,
}

/// Whether there was a subscription to end.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessUnsubscribed {
    pub unsubscribed: bool,
}

/// Background sessions as tasks, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskListing {
    /// The number of tasks in this answer.
    pub count: usize,
    /// The number of tasks on all pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    pub tasks: Vec<TaskEntry>,
    /// The cursor of the next page; null on the last page.
    pub next_cursor: Option<String>,
}

/// One background session as a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskEntry {
    pub id: String,
    /// Equal to `id`.
    pub task_id: String,
    /// Always `exec`.
    pub kind: String,
    /// Always `cli`.
    pub runtime: String,
    /// `running`, `completed`, `cancelled`, `timed_out` or `failed`.
    pub status: String,
    pub title: String,
    /// The command.
    pub task: String,
    pub agent_id: String,
    pub session_key: Option<String>,
    pub created_at: u64,
    pub started_at: u64,
    pub updated_at: u64,
    pub ended_at: Option<u64>,
    /// Why a task failed.
    pub error: Option<String>,
}

/// One task, if it exists.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskFound {
    pub found: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskEntry>,
}

/// Whether a task was ended, or why not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskCanceled {
    pub found: bool,
    pub cancelled: bool,
    /// For a task that was found, both this field and `task` are present, perhaps as null.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub reason: Option<Option<String>>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub task: Option<Option<TaskEntry>>,
}
