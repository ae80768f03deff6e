//! The Interlock extension of the node protocol: background runs, their output from any offset, and
//! their background sessions.
//!
//! A node lists [`INTERLOCK`] among its capabilities, and a gateway sends it as its product. These
//! commands are only used where both do, and a node answers them to no other gateway. They belong
//! to `system.run`: a caller that may use `system.run` may use them, and they are not declared
//! separately.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{SystemRun, lenient_node_field};
use crate::secret::Secret;

/// The capability of a node and the product of a gateway.
pub const INTERLOCK: &str = "interlock";

/// Starts a run and answers once it has started.
pub const INTERLOCK_RUN: &str = "interlock.run";
/// Reads the state of a run, and its output after an offset.
pub const INTERLOCK_READ: &str = "interlock.read";
/// Ends a run, or forgets it.
pub const INTERLOCK_END: &str = "interlock.end";
/// The `process` tool.
pub const INTERLOCK_PROCESS: &str = "interlock.process";
/// Reads the node's policy for an agent.
pub const INTERLOCK_POLICY: &str = "interlock.policy";
/// Reads the node's verdict about a command. Nothing is prepared, asked or run.
pub const INTERLOCK_EXPLAIN: &str = "interlock.explain";

/// The event by which a node reports that a run has ended. It is only a hint: [`INTERLOCK_READ`]
/// returns the outcome.
pub const INTERLOCK_RUN_ENDED: &str = "interlock.run.ended";

/// The longest wait of one read of a run.
pub const MAX_READ_WAIT_MS: u64 = 20_000;
/// The most output that one read returns.
pub const MAX_READ_BYTES: usize = 64 * 1024;

/// Notes for the approver about a plan, besides its text: the property [`INTERLOCK`] in an answer
/// to `system.run.prepare`, for Interlock gateways.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanNotes {
    /// The node's own level, joined with the gateway's.
    pub ask: String,
    /// What an approval would bind, and why.
    pub binding: String,
    pub binding_reason: String,
    /// The directory in which the command would run.
    pub cwd: String,
    /// Why an approver is asked, with the deciding rule first.
    pub reasons: Vec<String>,
    /// The entries that *always* would store on the node; empty if it would store nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub always: Vec<Value>,
    /// Why *always* would store nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_always: Option<String>,
    /// The approver's view of the node's plan. The gateway makes it visible before it shows it.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub view: Value,
}

/// The parameters of `interlock.run`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunOrder {
    /// A secret that only this gateway knows. The sender of this secret may later handle the
    /// session.
    pub owner: Secret,
    pub run: SystemRun,
    pub pty: bool,
    /// Whether the input stays open.
    pub stdin_pipe: bool,
    /// How long the node waits for the end before the run becomes a session. A node may wait less.
    pub wait_ms: u64,
    /// How much output the answer shows if the run ended in this time.
    pub show_chars: usize,
}

/// The gateway's additions to the policy of an Interlock node: the property [`INTERLOCK`] of
/// `system.run` and `system.run.prepare`. They can only make the policy stricter. Foreign nodes do
/// not read them, and do not get them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyLayer {
    /// Joined from the gateway's config, approvals document, conversation and call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
    /// The deny rules of the gateway's document.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<LayerDenyRule>,
}

/// The caller's input besides the command. A node that knows it before the run can say what an
/// approval would bind, and why it asks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ForwardedCallFacts {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    pub pty: bool,
    pub stdin_pipe: bool,
}

/// A deny rule of a gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LayerDenyRule {
    /// The rule as documents write it.
    pub rule: Value,
    /// Where the rule is written.
    pub origin: String,
}

/// The answer to `interlock.run`. The run continues even if the connection is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStarted {
    pub run_id: String,
    /// Two words; the session's name on the node.
    pub session_id: String,
    #[serde(default)]
    pub pid: Option<i32>,
    pub started_at_ms: u64,
    pub cwd: String,
    /// Whether the node lets this agent handle sessions.
    pub handles_sessions: bool,
    /// The whole result of a run that has already ended, as `interlock.read` would return it. Then
    /// there is no session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Value>,
}

/// The parameters of `interlock.read`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunRead {
    pub owner: Secret,
    /// Empty if only the name of its session is known.
    pub run_id: String,
    /// The last known name of its session, which makes the run quicker to find.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Without an offset, no output is returned, and only the end is awaited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    pub wait_ms: u64,
    pub max_bytes: usize,
    /// How many characters of the beginning and end of the output to show once the run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub show_chars: Option<usize>,
}

/// The parameters of `interlock.end`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEnd {
    pub owner: Secret,
    pub run_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    pub how: EndHow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndHow {
    /// The caller no longer wants the run.
    Cancel,
    /// The run has ended, and its result was received completely.
    Forget,
}

/// The answer to `interlock.end`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunGone {
    pub state: GoneState,
    /// The outcome, if the run was already over and its outcome is known.
    #[serde(
        default,
        deserialize_with = "lenient_node_field",
        skip_serializing_if = "Option::is_none"
    )]
    pub outcome: Option<RunGoneOutcome>,
}

/// The outcome of a run as its node remembers it. A field of the wrong type is ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunGoneOutcome {
    #[serde(
        deserialize_with = "lenient_node_field",
        skip_serializing_if = "Option::is_none"
    )]
    pub code: Option<String>,
    #[serde(
        deserialize_with = "lenient_node_field",
        skip_serializing_if = "Option::is_none"
    )]
    pub duration_ms: Option<i64>,
    #[serde(
        deserialize_with = "lenient_node_field",
        skip_serializing_if = "Option::is_none"
    )]
    pub exit_code: Option<i64>,
    #[serde(
        deserialize_with = "lenient_node_field",
        skip_serializing_if = "Option::is_none"
    )]
    pub message: Option<String>,
    #[serde(
        deserialize_with = "lenient_node_field",
        skip_serializing_if = "Option::is_none"
    )]
    pub output_bytes: Option<i64>,
    /// The name of its background session on the node.
    #[serde(
        deserialize_with = "lenient_node_field",
        skip_serializing_if = "Option::is_none"
    )]
    pub session: Option<String>,
    #[serde(
        deserialize_with = "lenient_node_field",
        skip_serializing_if = "Option::is_none"
    )]
    pub signal: Option<i64>,
    #[serde(
        deserialize_with = "lenient_node_field",
        skip_serializing_if = "Option::is_none"
    )]
    pub status: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GoneState {
    /// The request was carried out.
    Done,
    /// The run has not started, and never will.
    Never,
    /// The run is just being started: ask again.
    Starting,
    /// The run was over, and its session was forgotten.
    Over,
}

/// The parameters of `interlock.process`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessCall {
    pub owner: Secret,
    /// The agent whose sessions are meant. `None` means an operator's call, which sees all sessions
    /// of this gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// The offset at which the poll begins. The poll moves no cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_from: Option<u64>,
    /// The requested page, if the arguments ask for a list. A node that does not know this field
    /// answers with all sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<ProcessPageAsked>,
    /// The arguments of the tool. The session has its name on the node.
    pub arguments: Value,
}

/// A page of a node's sessions, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessPageAsked {
    /// The largest number of sessions; absent means all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The position after which the page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Only sessions of this conversation. The others are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// Only sessions of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Only sessions that no call waits for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Only sessions whose name has this prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The names of sessions to leave out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
}

/// The parameters of `interlock.policy`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyAsked {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

/// The parameters of `interlock.explain`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExplainAsked {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// As in `system.run`.
    pub command: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    pub call_facts: ForwardedCallFacts,
    pub policy_layer: PolicyLayer,
}

/// The payload of [`INTERLOCK_RUN_ENDED`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunHasEnded {
    pub run_id: String,
}
