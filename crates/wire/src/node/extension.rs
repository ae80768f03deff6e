//! The Interlock extension of the node protocol: background runs, their output from any offset, and
//! their background sessions.
//!
//! A node lists [`INTERLOCK`] among its capabilities, a gateway sends it as its product. These
//! commands are used only where both do, and a node answers them to no other gateway. They belong
//! to `system.run`: a caller that may use `system.run` may use them, and they are not declared
//! separately.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{SystemRun, lenient_node_field};
use crate::secret::Secret;

/// The capability of a node and the product of a gateway.
pub const INTERLOCK: &str = "interlock";

/// Starts a run and answers when it has started.
pub const INTERLOCK_RUN: &str = "interlock.run";
/// How a run stands, and what it wrote behind an offset.
pub const INTERLOCK_READ: &str = "interlock.read";
/// Ends a run, or forgets it.
pub const INTERLOCK_END: &str = "interlock.end";
/// The `process` tool.
pub const INTERLOCK_PROCESS: &str = "interlock.process";
/// The policy that the node has for an agent.
pub const INTERLOCK_POLICY: &str = "interlock.policy";
/// The verdict of the node on a command. Nothing is prepared, asked or run.
pub const INTERLOCK_EXPLAIN: &str = "interlock.explain";

/// The event of a node by which it tells that a run has ended. It is a hint: how it ended is what
/// [`INTERLOCK_READ`] says.
pub const INTERLOCK_RUN_ENDED: &str = "interlock.run.ended";

/// How long a look at a run waits at most.
pub const MAX_READ_WAIT_MS: u64 = 20_000;
/// How much of the output one look gives at most.
pub const MAX_READ_BYTES: usize = 64 * 1024;

/// What an approver should know about a plan besides its text: the property [`INTERLOCK`] of an
/// answer to `system.run.prepare`, for Interlock gateways.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanNotes {
    /// The node's own, joined with what the gateway wants.
    pub ask: String,
    /// What an approval would hold on to, and why that.
    pub binding: String,
    pub binding_reason: String,
    /// Where it would run.
    pub cwd: String,
    /// Why it is asked: the deciding rule first.
    pub reasons: Vec<String>,
    /// The entries that *always* would store on the node; none where it would store nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub always: Vec<Value>,
    /// Why it would store nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_always: Option<String>,
    /// What an approver reads of the node's plan; the gateway makes it visible before it shows it.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub view: Value,
}

/// The parameters of `interlock.run`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunOrder {
    /// What only this gateway knows: who says it later handles the session.
    pub owner: Secret,
    pub run: SystemRun,
    pub pty: bool,
    /// Its input stays open.
    pub stdin_pipe: bool,
    /// So long its end is waited for before it is a session; a node may wait less.
    pub wait_ms: u64,
    /// What the answer shows of a run that ended by then.
    pub show_chars: usize,
}

/// What the gateway adds to the policy of an Interlock node: the property [`INTERLOCK`] of
/// `system.run` and `system.run.prepare`. It can only tighten. Foreign nodes do not read it, and do
/// not get it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyLayer {
    /// Joined from the gateway's config, its approvals document, the conversation and the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
    /// The deny rules of the gateway's document.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<LayerDenyRule>,
}

/// What the caller brings besides the command. A node that knows it before the run says what an
/// approval would hold, and why it asks.
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
    /// As documents write it.
    pub rule: Value,
    /// Where it is written.
    pub origin: String,
}

/// The answer: the run goes on whatever becomes of the connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStarted {
    pub run_id: String,
    /// Two words, on the node.
    pub session_id: String,
    #[serde(default)]
    pub pid: Option<i32>,
    pub started_at_ms: u64,
    pub cwd: String,
    /// Whether the node lets this agent handle sessions.
    pub handles_sessions: bool,
    /// All of a run that has ended already, as `interlock.read` would answer. Then there is no
    /// session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Value>,
}

/// The parameters of `interlock.read`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunRead {
    pub owner: Secret,
    /// Empty where only the name of its session is known.
    pub run_id: String,
    /// What it was called last, which makes it quicker to find.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// None: no output, and only its end is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    pub wait_ms: u64,
    pub max_bytes: usize,
    /// When it has ended: so many characters of its beginning and end.
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
    /// It has ended, and its result was received whole.
    Forget,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunGone {
    pub state: GoneState,
    /// How it ended, where it was over already and that is known.
    #[serde(
        default,
        deserialize_with = "lenient_node_field",
        skip_serializing_if = "Option::is_none"
    )]
    pub outcome: Option<RunGoneOutcome>,
}

/// How a run ended, as its node remembers it. A field that is not what it should be is ignored.
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
    /// The name of its background session, on the node.
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
    /// As asked.
    Done,
    /// It has not run, and never will.
    Never,
    /// It is just being started: ask again.
    Starting,
    /// It was over, and its session was forgotten.
    Over,
}

/// The parameters of `interlock.process`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessCall {
    pub owner: Secret,
    /// The agent whose sessions are meant; `None` is an operator's call, which sees all of this
    /// gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// A poll that begins at this offset and moves no cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_from: Option<u64>,
    /// The page that is wanted, where the arguments ask for a list. A node that does not know this
    /// answers with all sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<ProcessPageAsked>,
    /// The arguments of the tool. The session is called as on the node.
    pub arguments: Value,
}

/// A page of a node's sessions, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProcessPageAsked {
    /// The most sessions; without it, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// The place behind which the page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Only those of this conversation; the others are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// Only those of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// Only those that no call waits for.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Only those whose name begins so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Names that are left out.
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
