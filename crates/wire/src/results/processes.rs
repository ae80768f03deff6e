//! Background sessions: what `process.*` and `tasks.*` return, and the payloads of their events.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Relayed, or_default};
use crate::params::given;

/// The payload of `process.output`: a piece of what a session wrote.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessOutput {
    pub session_id: String,
    #[serde(deserialize_with = "or_default")]
    pub offset: u64,
    /// Where the next piece begins.
    #[serde(deserialize_with = "or_default")]
    pub next_offset: u64,
    #[serde(deserialize_with = "or_default")]
    pub text: String,
    /// Bytes before this piece that are not sent.
    #[serde(deserialize_with = "or_default")]
    pub missed_bytes: u64,
}

/// The payload of `process.ended`: no more output follows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessEnded {
    pub session_id: String,
    /// None where the session is forgotten already.
    #[serde(deserialize_with = "or_default")]
    pub status: Option<String>,
    /// As shells report it: 128 and the signal, 124 when the time was over.
    #[serde(deserialize_with = "or_default")]
    pub exit_code: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub signal: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    pub timed_out: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub next_offset: Option<u64>,
    /// Why the session was lost: its end is not known.
    #[serde(deserialize_with = "or_default")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The payload of `process.ended` for a session that the gateway can follow no longer. A client reads
/// it as a [`ProcessEnded`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessLost {
    pub session_id: String,
    /// `lost`, always.
    pub status: String,
    pub reason: String,
}

/// How a session stands: a part of most results of `process.*`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessStanding {
    pub session_id: String,
    /// What the session does and to what, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `running`, `completed`, `killed`, `failed`, `lost` or `unreachable`.
    pub status: String,
    /// As shells report it: 128 and the signal, 124 when the time was over.
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    pub timed_out: bool,
    pub out_of_memory: bool,
    /// True where the command was denied later: its output does not count.
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
    /// How many there are, on all pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Where the next page begins; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// How many sessions of the agent belong to other conversations.
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
    /// True where no call waits for the result of the session.
    pub background: bool,
    pub waiting_for_input: bool,
    pub started_at_ms: u64,
    pub ended_at_ms: Option<u64>,
    /// The time since the start.
    pub age_ms: u64,
    /// The time from the start to the end, or until now.
    pub runtime_ms: u64,
    /// The size of the output; known when the session has ended.
    pub total_bytes: Option<u64>,
    /// The name of the node that the session is on, and the id of the node.
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

/// Output with its middle left out where it is long: `totalBytes = shownBytes + omittedBytes`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolledOutput {
    pub text: String,
    pub total_bytes: u64,
    pub shown_bytes: u64,
    pub omitted_bytes: u64,
    pub omitted_lines: u64,
    /// The part of `omittedBytes` that cannot be read any other way.
    pub gone_bytes: u64,
}

/// Lines of the transcript of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessLogPage {
    #[serde(flatten)]
    pub standing: ProcessStanding,
    pub text: String,
    /// The number of the first line here, from 0.
    pub offset: u64,
    /// The line to ask for next; none at the end.
    pub next_offset: Option<u64>,
    pub total_lines: u64,
    /// Bytes that are not kept, or the rest of a line too long for a page.
    pub omitted_bytes: u64,
    pub omitted_lines: u64,
}

/// Input that a session got.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessWritten {
    pub session_id: String,
    pub bytes: u64,
    /// True where no more input follows.
    pub eof: bool,
}

/// What an action of the tool `process` did: the rest depends on the action, and is as the tool
/// returns it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessPerformed {
    /// The session; none for a list.
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
    /// How many are in this answer.
    pub count: usize,
    /// How many there are, on all pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    pub tasks: Vec<TaskEntry>,
    /// Where the next page begins; none at the end.
    pub next_cursor: Option<String>,
}

/// One background session as a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskEntry {
    pub id: String,
    /// The same as `id`.
    pub task_id: String,
    /// `exec`, always.
    pub kind: String,
    /// `cli`, always.
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
    /// How a task failed.
    pub error: Option<String>,
}

/// One task, if there is such a task.
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
    /// Both are there, or null, for a task that was found.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub reason: Option<Option<String>>,
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub task: Option<Option<TaskEntry>>,
}
