//! The events, answers and records of `exec.approval.*`, by which approvers are asked.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::hash::sha256_hex;
use crate::node::SystemRunPlan;

/// How long approvers may take, unless the request says otherwise.
pub const DEFAULT_TIMEOUT_MS: u64 = 1_800_000;
/// How long a decided approval can still be read.
pub const RESOLVED_KEPT_MS: u64 = 15_000;
/// Ids with this prefix are reserved for plugins.
pub const RESERVED_ID_PREFIX: &str = "plugin:";

/// The word of a decision in a message, one of those that every client knows. The store defines the
/// decisions; this crate only carries their words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct DecisionWord(&'static str);

impl DecisionWord {
    pub const ALLOW_ONCE: Self = Self("allow-once");
    pub const ALLOW_ALWAYS: Self = Self("allow-always");
    /// Allows the same plan for the rest of this session. An Interlock extension.
    pub const ALLOW_SESSION: Self = Self("allow-session");
    pub const DENY: Self = Self("deny");

    const WORDS: &'static [&'static str] = &[
        Self::ALLOW_ONCE.0,
        Self::ALLOW_ALWAYS.0,
        Self::ALLOW_SESSION.0,
        Self::DENY.0,
    ];

    /// Reads a decision. `None` for any other word.
    pub fn parse(word: &str) -> Option<Self> {
        let mut words = Self::WORDS.iter();
        words.find(|known| **known == word).map(|known| Self(known))
    }

    pub fn as_str(self) -> &'static str {
        self.0
    }

    pub fn allows(self) -> bool {
        self != Self::DENY
    }
}

impl<'de> Deserialize<'de> for DecisionWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::parse(&word).ok_or_else(|| D::Error::unknown_variant(&word, Self::WORDS))
    }
}

/// The decisions that a prompt offers to all clients. With `ask=always` nothing is remembered.
pub fn allowed_decisions(ask: Option<&str>) -> Vec<DecisionWord> {
    match ask {
        Some("always") => vec![DecisionWord::ALLOW_ONCE, DecisionWord::DENY],
        _ => vec![
            DecisionWord::ALLOW_ONCE,
            DecisionWord::ALLOW_ALWAYS,
            DecisionWord::DENY,
        ],
    }
}

/// The payload of `exec.approval.requested`, and an entry of `exec.approval.list`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequested {
    pub id: String,
    pub created_at_ms: u64,
    pub expires_at_ms: u64,
    pub request: ApprovalDetails,
}

/// A pending approval in `exec.approval.list`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalListed {
    pub id: String,
    pub request: ApprovalDetails,
    pub created_at_ms: u64,
    pub expires_at_ms: u64,
}

impl From<ApprovalRequested> for ApprovalListed {
    fn from(requested: ApprovalRequested) -> Self {
        Self {
            id: requested.id,
            request: requested.request,
            created_at_ms: requested.created_at_ms,
            expires_at_ms: requested.expires_at_ms,
        }
    }
}

/// The subject of an approval. The fields of the reference contain only the names of environment
/// variables; `view` contains their values.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalDetails {
    pub command: String,
    /// Only for the gateway's own host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_argv: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_keys: Option<Vec<String>>,
    pub system_run_binding: Option<SystemRunBinding>,
    pub system_run_plan: Option<SystemRunPlan>,
    pub cwd: Option<String>,
    pub node_id: Option<String>,
    pub host: Option<String>,
    pub security: Option<String>,
    pub ask: Option<String>,
    pub warning_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_analysis: Option<CommandAnalysis>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_spans: Option<Vec<crate::params::CommandSpan>>,
    pub allowed_decisions: Vec<DecisionWord>,
    pub agent_id: Option<String>,
    pub resolved_path: Option<String>,
    pub session_key: Option<String>,
    pub turn_source_channel: Option<String>,
    pub turn_source_to: Option<String>,
    pub turn_source_account_id: Option<String>,
    /// A text or a number.
    pub turn_source_thread_id: Option<Value>,
    /// The digest of the plan. An Interlock extension: surfaces send it back with the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_digest: Option<String>,
    /// Everything that an approver should read. An Interlock extension: labeled parts in order,
    /// each value on one line with invisible characters spelled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<Value>,
    /// The view as plain text. An Interlock extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view_text: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CommandAnalysis {
    pub command_count: u64,
    pub nested_command_count: u64,
    pub risk_kinds: Vec<String>,
    pub warning_lines: Vec<String>,
}

/// The subject of an approval, which covers no other run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SystemRunBinding {
    pub argv: Vec<String>,
    pub cwd: Option<String>,
    pub agent_id: Option<String>,
    pub session_key: Option<String>,
    pub env_hash: Option<String>,
}

impl SystemRunBinding {
    /// Makes a binding. Blank texts count as absent.
    pub fn new(
        argv: &[String],
        cwd: Option<&str>,
        agent_id: Option<&str>,
        session_key: Option<&str>,
        env: &BTreeMap<String, String>,
    ) -> Self {
        let given = |text: Option<&str>| {
            let text = text.map(str::trim).filter(|text| !text.is_empty());
            text.map(str::to_owned)
        };
        Self {
            argv: argv.to_vec(),
            cwd: given(cwd),
            agent_id: given(agent_id),
            session_key: given(session_key),
            env_hash: env_hash(env),
        }
    }

    /// The binding of a plan and of the variables that accompany it.
    pub fn of_plan(plan: &SystemRunPlan, env: &BTreeMap<String, String>) -> Self {
        Self::new(
            &plan.argv,
            plan.cwd.as_deref(),
            plan.agent_id.as_deref(),
            plan.session_key.as_deref(),
            env,
        )
    }

    /// Whether an approval for this binding covers a run with the other one. The refusal says which
    /// part differs.
    pub fn covers(&self, run: &Self) -> Result<(), &'static crate::WireRefusal> {
        let what = |binding: &Self| {
            (
                binding.argv.clone(),
                binding.cwd.clone(),
                binding.agent_id.clone(),
                binding.session_key.clone(),
            )
        };
        if self.argv.is_empty() || what(self) != what(run) {
            return Err(&crate::refusal::APPROVAL_REQUEST_MISMATCH);
        }
        match (&self.env_hash, &run.env_hash) {
            (approved, asked) if approved == asked => Ok(()),
            (None, Some(_)) => Err(&crate::refusal::APPROVAL_ENV_BINDING_MISSING),
            _ => Err(&crate::refusal::APPROVAL_ENV_MISMATCH),
        }
    }
}

/// The SHA-256 of the pairs of name and value as JSON, sorted by name; `None` without variables.
pub fn env_hash(env: &BTreeMap<String, String>) -> Option<String> {
    let pairs: Vec<Value> = env
        .iter()
        .map(|(key, value)| Value::from(vec![key.as_str(), value.as_str()]))
        .collect();
    (!pairs.is_empty()).then(|| sha256_hex(Value::from(pairs).to_string()))
}

/// The first answer to a request with `twoPhase`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalAccepted {
    /// `accepted`
    pub status: String,
    pub id: String,
    pub created_at_ms: u64,
    pub expires_at_ms: u64,
}

impl ApprovalAccepted {
    pub fn new(id: &str, created_at_ms: u64, expires_at_ms: u64) -> Self {
        Self {
            status: "accepted".to_owned(),
            id: id.to_owned(),
            created_at_ms,
            expires_at_ms,
        }
    }
}

/// The answer of `exec.approval.askAgain`: the new approval.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalAskedAgain {
    pub id: String,
    pub short_id: String,
    pub expires_at_ms: u64,
}

/// The final answer to an approval request, and the answer to `exec.approval.waitDecision`. There
/// is no decision if no surface could show the approval, or no approver answered in time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalDecided {
    pub id: String,
    pub decision: Option<DecisionWord>,
    pub created_at_ms: u64,
    pub expires_at_ms: u64,
}

/// The payload of `exec.approval.resolved`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalResolved {
    pub id: String,
    pub decision: DecisionWord,
    /// The display name or client id of the approver.
    pub resolved_by: Option<String>,
    pub ts: u64,
    pub request: ApprovalDetails,
}

/// The answer of `exec.approval.get` for any client.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalRecord {
    pub id: String,
    pub command_text: String,
    pub command_preview: Option<String>,
    pub allowed_decisions: Vec<DecisionWord>,
    pub host: Option<String>,
    pub node_id: Option<String>,
    pub agent_id: Option<String>,
    pub expires_at_ms: u64,
    /// The remaining fields are an Interlock extension, see [`ApprovalDetails`].
    pub plan_digest: String,
    pub view_text: String,
    pub view: Value,
    /// Where the run is confined: `backend`, `scope`, `view`, `workspaceAccess` and `network`.
    /// Absent for a run without a sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Value>,
    /// How far the run leaves the sandbox of its conversation, `on` or `full`. Absent for a run
    /// that does not leave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elevated: Option<String>,
}

/// The answer of `exec.approval.get`: an `ApprovalRecord`, or with `inbox` an object whose field
/// `approval` is everything that an inbox shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ApprovalOpened {
    /// For an inbox: everything that it shows. The approvals crate reads and writes the contents.
    Inbox {
        approval: Value,
    },
    Record(Box<ApprovalRecord>),
}

impl ApprovalOpened {
    /// The approval for an inbox; null if the gateway does not know inboxes.
    pub fn into_inbox(self) -> Value {
        match self {
            Self::Inbox { approval } => approval,
            Self::Record(_) => Value::Null,
        }
    }
}

/// The answer of `exec.approval.list`: a list of `ApprovalListed`, or with `summary` an
/// `ApprovalRows`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ApprovalListing {
    Listed(Vec<ApprovalListed>),
    /// A page. For an inbox, which opens approvals one by one, it contains the rows of a list;
    /// otherwise it contains approvals as in the whole list.
    Summary(ApprovalRows),
}

impl ApprovalListing {
    /// The rows for an inbox; empty if the gateway does not know inboxes.
    pub fn into_rows(self) -> ApprovalRows {
        match self {
            Self::Summary(rows) => rows,
            Self::Listed(_) => ApprovalRows::default(),
        }
    }
}

/// The answer of `deliveries.list`: the receipts of one approval, in the order of their times.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalDeliveries {
    pub id: String,
    pub deliveries: Vec<ApprovalReceipt>,
}

/// One receipt: that an approval waits for a surface, was sent to it, was seen there, or why it was not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalReceipt {
    pub surface: String,
    /// `queued`, `sent`, `seen` or `failed`.
    pub state: String,
    pub at_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A page of pending approvals, as a list shows them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalRows {
    /// The rows of the list; null if the gateway sent none. The approvals crate reads and writes a
    /// row.
    pub approvals: Value,
    /// The number of approvals on all pages.
    pub total: Option<u64>,
    /// The cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// The answer of `exec.approval.resolve`. Foreign clients read `ok`; the other fields are for an
/// Interlock inbox.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalDecisionStored {
    pub ok: bool,
    /// True if the same decision was made before.
    pub again: bool,
    /// The form that `allow-always` stored.
    pub form: Option<String>,
    pub reason: Option<String>,
    /// The entries of `allow-always` as they are now in the policy document.
    pub stored: Vec<Value>,
    /// True if no caller waits for the run any more.
    pub caller_has_ended: bool,
}

/// The answer of `exec.approval.resolveMany`: one result per item, in their order.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalsDecided {
    pub results: Vec<ApprovalDecisionResult>,
}

/// The result of one item.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ApprovalDecisionResult {
    pub id: String,
    pub ok: bool,
    /// Why the approval was not decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}
