//! How a command runs on another machine: the requests of the gateway to a node, and the answers
//! and events of the node. The order of properties is their order on the wire.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::error::{ErrorCode, WireError};
use crate::json::{duplicate_key, duplicate_key_message};

use extension::{
    ExplainAsked, INTERLOCK_END, INTERLOCK_EXPLAIN, INTERLOCK_POLICY, INTERLOCK_PROCESS,
    INTERLOCK_READ, INTERLOCK_RUN, PolicyAsked, ProcessCall, RunEnd, RunGone, RunOrder, RunRead,
    RunStarted,
};

mod command;
pub mod extension;
mod output;
mod plan;
mod plan_policy;
mod registry;

pub use command::{CommandText, RawCommandMismatch, command_text, format_exec_command};
pub use output::{
    EVENT_OUTPUT_CHARS, MAX_OUTPUT_BYTES, OutputStream, RunOutput, TRUNCATED, event_output,
};
pub use plan::{MutableFileOperand, SentPlan, SystemRunPlan};
pub use plan_policy::{
    AllowAlwaysCoverage, CoveredPattern, MAX_SNAPSHOT_RULES, PlanExecPolicy, PlanPolicyRule,
    PlanPolicySnapshot,
};
pub use registry::{MAX_LISTED_NODES, NodeEntry, NodeListing, NodePairRequested, NodePairResolved};

pub const SYSTEM_RUN: &str = "system.run";
pub const SYSTEM_RUN_PREPARE: &str = "system.run.prepare";
pub const SYSTEM_WHICH: &str = "system.which";
pub const SYSTEM_EXEC_APPROVALS_GET: &str = "system.execApprovals.get";
pub const SYSTEM_EXEC_APPROVALS_SET: &str = "system.execApprovals.set";
/// How long an invocation may take by default.
pub const DEFAULT_INVOKE_TIMEOUT_MS: u64 = 30_000;
/// The exit code that newer releases give to a run that its time limit ended. Older releases give
/// none.
pub const TIMEOUT_EXIT_CODE: i64 = 124;
/// The session of events whose run names none.
pub const DEFAULT_SESSION_KEY: &str = "node";

/// The payload of `node.invoke.request`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeInvokeRequest {
    pub id: String,
    pub node_id: String,
    pub command: String,
    /// JSON as text; null if the caller gave no parameters.
    #[serde(rename = "paramsJSON", default)]
    pub params_json: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

impl NodeInvokeRequest {
    /// The typed parameters of the command. The error is the node's answer.
    pub fn read<P: NodeCommandParams>(&self) -> Result<P, WireError> {
        let refuse = |why: &str| WireError::invalid(format!("Error: INVALID_REQUEST: {why}"));
        let text = self.params_json.as_deref();
        let text = text.ok_or_else(|| refuse("paramsJSON required"))?;
        let value: Value = serde_json::from_str(text).map_err(|_| refuse("malformed JSON"))?;
        if let Some(key) = duplicate_key(text.as_bytes()) {
            return Err(refuse(&duplicate_key_message(&key)));
        }
        if !value.is_object() {
            return Err(refuse("paramsJSON must be an object"));
        }
        serde_json::from_value(value).map_err(|error| refuse(&error.to_string()))
    }
}

/// The parameters of a node command. Unknown properties are not refused, because gateways also send
/// properties that only newer nodes know.
pub trait NodeCommandParams: Serialize + DeserializeOwned {
    /// The type of the result. [`Value`] if the result contains types that do not belong to the
    /// protocol.
    type Answer: Serialize + DeserializeOwned;

    const COMMAND: &'static str;
}

macro_rules! node_commands {
    ($($params:ident for $command:ident gives $answer:ty;)*) => {
        $(impl NodeCommandParams for $params {
            type Answer = $answer;
            const COMMAND: &'static str = $command;
        })*
    };
}

node_commands! {
    SystemRun for SYSTEM_RUN gives SystemRunResult;
    SystemRunPrepare for SYSTEM_RUN_PREPARE gives SystemRunPrepared;
    SystemWhich for SYSTEM_WHICH gives SystemWhichResult;
    SystemExecApprovalsGet for SYSTEM_EXEC_APPROVALS_GET gives ExecApprovalsSnapshot;
    SystemExecApprovalsSet for SYSTEM_EXEC_APPROVALS_SET gives ExecApprovalsSnapshot;
    RunOrder for INTERLOCK_RUN gives RunStarted;
    RunEnd for INTERLOCK_END gives RunGone;
    // Sessions, policies and verdicts are not types of the protocol; the two ends know them.
    RunRead for INTERLOCK_READ gives Value;
    ProcessCall for INTERLOCK_PROCESS gives Value;
    PolicyAsked for INTERLOCK_POLICY gives Value;
    ExplainAsked for INTERLOCK_EXPLAIN gives Value;
}

/// Reads a field of a node of another version. A value of another type counts as absent, so that it
/// does not make the other fields unreadable.
fn lenient_node_field<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// The parameters of `system.run`, including everything that a gateway forwards.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SystemRun {
    /// Empty if it is missing or not a list; [`SystemRun::command_text`] refuses that.
    #[serde(deserialize_with = "command::words")]
    pub command: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_command: Option<String>,
    /// The plan as it was sent; see [`SystemRun::plan`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_run_plan: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// Absent and zero mean no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs_screen_recording: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Only a gateway may set it, and only if it recorded the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_decision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppress_notify_on_exit: Option<bool>,
    /// From an Interlock gateway to an Interlock node.
    #[serde(rename = "interlock", skip_serializing_if = "Option::is_none")]
    pub policy_layer: Option<extension::PolicyLayer>,
}

impl SystemRun {
    /// The argv and its text. A text that accompanies the argv must agree with it.
    pub fn command_text(&self) -> Result<CommandText, WireError> {
        if self.command.is_empty() {
            return Err(WireError::invalid("command required"));
        }
        command_text(&self.command, self.raw_command.as_deref())
            .map_err(|mismatch| WireError::raw_command_mismatch(&mismatch))
    }

    /// The plan, if there is a complete one.
    pub fn plan(&self) -> Result<Option<SystemRunPlan>, WireError> {
        let Some(value) = self.system_run_plan.clone().filter(|plan| !plan.is_null()) else {
            return Ok(None);
        };
        let is_object = value.is_object();
        match serde_json::from_value::<SystemRunPlan>(value) {
            Ok(plan)
                if is_object && !plan.argv.is_empty() && !plan.command_text.trim().is_empty() =>
            {
                Ok(Some(plan))
            }
            _ => Err(WireError::invalid("systemRunPlan invalid")),
        }
    }

    /// The accompanying plan, for the node that may have made it. Values that no plan can have are
    /// an error; a plan with other fields than those of a node is [`SentPlan::Partial`].
    pub fn sent_plan(&self) -> Result<SentPlan, WireError> {
        let Some(value) = self.system_run_plan.as_ref().filter(|plan| !plan.is_null()) else {
            return Ok(SentPlan::None);
        };
        let is_words = |value: &Value| {
            let words = value.as_array();
            words.is_some_and(|words| !words.is_empty() && words.iter().all(Value::is_string))
        };
        let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
        let is_wrong = !value.is_object()
            || value.get("argv").is_some_and(|argv| !is_words(argv))
            || value.get("commandText").is_some_and(|text| !is_text(text));
        if is_wrong {
            return Err(WireError::invalid("systemRunPlan invalid"));
        }
        Ok(SentPlan::of(value))
    }

    /// Removes the claim that the run was approved, which an operator must not make.
    #[must_use]
    pub fn without_approval(mut self) -> Self {
        self.approved = None;
        self.approval_decision = None;
        self
    }
}

/// The parameters of `system.run.prepare`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SystemRunPrepare {
    #[serde(deserialize_with = "command::words")]
    pub command: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// Newer gateways send the policy that they ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
    /// Newer gateways send the environment of the run that they prepare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// From an Interlock gateway to an Interlock node.
    #[serde(rename = "interlock", skip_serializing_if = "Option::is_none")]
    pub policy_layer: Option<extension::PolicyLayer>,
    /// From an Interlock gateway to an Interlock node. Older releases send these facts only with
    /// the run.
    #[serde(rename = "interlockCall", skip_serializing_if = "Option::is_none")]
    pub call_facts: Option<extension::ForwardedCallFacts>,
}

/// The result of `system.run.prepare`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemRunPrepared {
    pub plan: SystemRunPlan,
    /// Sent by an Interlock node to an Interlock gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interlock: Option<extension::PlanNotes>,
    /// Newer foreign nodes send the policy in force there, and whether *always* would be stored.
    #[serde(
        default,
        deserialize_with = "lenient_node_field",
        skip_serializing_if = "Option::is_none"
    )]
    pub exec_policy: Option<PlanExecPolicy>,
    #[serde(
        default,
        deserialize_with = "lenient_node_field",
        skip_serializing_if = "Option::is_none"
    )]
    pub allow_always_coverage: Option<AllowAlwaysCoverage>,
}

impl SystemRunPrepared {
    /// Whether the node would store *always*, according to its answer.
    pub fn keeps_always(&self) -> bool {
        match &self.interlock {
            Some(notes) => !notes.always.is_empty(),
            None => {
                let asks_always = |policy: &PlanExecPolicy| policy.ask == "always";
                let coverage = self.allow_always_coverage.as_ref();
                !self.exec_policy.as_ref().is_some_and(asks_always)
                    && coverage.is_none_or(|coverage| coverage.complete)
            }
        }
    }
}

/// The result of `system.run`. A run that was killed, timed out or never started has no exit code,
/// and then the property is absent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemRunResult {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    pub timed_out: bool,
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SystemWhich {
    pub bins: Vec<String>,
}

/// Programs that were not found are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SystemWhichResult {
    pub bins: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SystemExecApprovalsGet {}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SystemExecApprovalsSet {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_hash: Option<String>,
}

/// The policy document of a host, with the hash that a change must name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecApprovalsSnapshot {
    pub path: String,
    pub exists: bool,
    pub hash: String,
    pub file: Value,
}

/// The event `exec.finished` of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecFinished {
    pub session_key: String,
    pub run_id: String,
    pub host: String,
    pub command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    pub timed_out: bool,
    pub success: bool,
    pub output: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppress_notify_on_exit: Option<bool>,
}

impl ExecFinished {
    pub const NAME: &'static str = "exec.finished";

    /// The end of a run for its session.
    pub fn of(run: &SystemRun, run_id: &str, command: &str, result: &SystemRunResult) -> Self {
        Self {
            session_key: session_key(run.session_key.as_deref()),
            run_id: run_id.to_owned(),
            host: "node".to_owned(),
            command: command.to_owned(),
            exit_code: result.exit_code,
            timed_out: result.timed_out,
            success: result.success,
            output: event_output(&result.stdout, &result.stderr, result.error.as_deref()),
            suppress_notify_on_exit: run.suppress_notify_on_exit,
        }
    }
}

/// The event `exec.denied` of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecDenied {
    pub session_key: String,
    pub run_id: String,
    pub host: String,
    pub command: String,
    pub reason: String,
    #[serde(default)]
    pub suppress_notify_on_exit: bool,
}

impl ExecDenied {
    pub const NAME: &'static str = "exec.denied";

    pub fn of(run: &SystemRun, run_id: &str, command: &str, denial: &Denial) -> Self {
        Self {
            session_key: session_key(run.session_key.as_deref()),
            run_id: run_id.to_owned(),
            host: "node".to_owned(),
            command: command.to_owned(),
            reason: denial.reason.to_owned(),
            suppress_notify_on_exit: run.suppress_notify_on_exit == Some(true),
        }
    }
}

fn session_key(key: Option<&str>) -> String {
    let key = key.map(str::trim).filter(|key| !key.is_empty());
    key.unwrap_or(DEFAULT_SESSION_KEY).to_owned()
}

/// A denial by the policy of the node: the reason for the event, and the message for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denial {
    pub reason: &'static str,
    pub message: &'static str,
}

impl Denial {
    pub const SECURITY_DENY: Self =
        Self::new("security=deny", "SYSTEM_RUN_DISABLED: security=deny");
    pub const APPROVAL_REQUIRED: Self =
        Self::new("approval-required", "SYSTEM_RUN_DENIED: approval required");
    pub const ALLOWLIST_MISS: Self =
        Self::new("allowlist-miss", "SYSTEM_RUN_DENIED: allowlist miss");
    pub const PLAN_MISMATCH: Self = Self::new(
        "execution-plan-miss",
        "SYSTEM_RUN_DENIED: execution plan mismatch",
    );
    pub const CWD_CHANGED: Self = Self::new(
        "approval-required",
        "SYSTEM_RUN_DENIED: approval cwd changed before execution",
    );
    pub const SCRIPT_CHANGED: Self = Self::new(
        "approval-required",
        "SYSTEM_RUN_DENIED: approval script operand changed before execution",
    );
    pub const SCREEN_RECORDING: Self = Self::new(
        "permission:screenRecording",
        "PERMISSION_MISSING: screenRecording",
    );

    const fn new(reason: &'static str, message: &'static str) -> Self {
        Self { reason, message }
    }

    pub fn error(&self) -> WireError {
        WireError::new(ErrorCode::SYSTEM_RUN_DENIED, self.message)
    }
}

/// The node's answer to a command that it does not have.
pub fn command_not_supported() -> WireError {
    WireError::unavailable("command not supported")
}
