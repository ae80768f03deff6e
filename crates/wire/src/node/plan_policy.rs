//! What a node says of its policy with a plan, for gateways of the newer release: whether an approver
//! is needed, whether *always* would be stored, and which rules the plan was made under.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lenient_node_field;

/// More rules than this are not sent with a plan: every approval of it would carry them.
pub const MAX_SNAPSHOT_RULES: usize = 1_000;

/// The levels of the node: `execPolicy` in the answer to `system.run.prepare`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanExecPolicy {
    #[serde(deserialize_with = "lenient_node_field")]
    pub security: String,
    #[serde(deserialize_with = "lenient_node_field")]
    pub ask: String,
}

/// What *always* would store: `allowAlwaysCoverage` in the answer to `system.run.prepare`. A gateway
/// offers *always* only where the coverage is complete.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AllowAlwaysCoverage {
    /// Whether the patterns cover all of the command; a node that does not say may store them.
    #[serde(default = "covers_all")]
    pub complete: bool,
    #[serde(default, deserialize_with = "lenient_node_field")]
    pub patterns: Vec<CoveredPattern>,
}

fn covers_all() -> bool {
    true
}

/// One entry that *always* would store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CoveredPattern {
    pub pattern: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arg_pattern: Option<String>,
}

/// The policy that a plan was made under: `policySnapshot` of the plan. Gateways carry it and send it
/// back; the node judges the run anew whatever it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanPolicySnapshot {
    pub security: String,
    pub ask: String,
    pub ask_fallback: String,
    pub auto_allow_skills: bool,
    pub allowlist_rules: Vec<PlanPolicyRule>,
}

/// A rule of the allowlist, without what changes by its use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanPolicyRule {
    pub pattern: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arg_pattern: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl PlanPolicySnapshot {
    /// With the rules as gateways order them: each once, by pattern, arguments and source.
    #[must_use]
    pub fn with_rules(mut self, mut rules: Vec<PlanPolicyRule>) -> Self {
        rules.sort();
        rules.dedup();
        self.allowlist_rules = rules;
        self
    }
}

/// A snapshot in a form that does not depend on the order of its rules: gateways sort them.
pub(super) fn canonical_snapshot(snapshot: &Value) -> Value {
    let mut canonical = snapshot.clone();
    if let Some(Value::Array(rules)) = canonical.get_mut("allowlistRules") {
        rules.sort_by_key(Value::to_string);
        rules.dedup();
    }
    canonical
}
