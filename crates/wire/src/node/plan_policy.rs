//! A node's statements about its policy with a plan, for gateways of the newer release: whether an
//! approver is needed, whether *always* would be stored, and the rules under which the plan was
//! made.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lenient_node_field;

/// At most this many rules are sent with a plan, because every approval of the plan would contain
/// them.
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

/// What *always* would store: `allowAlwaysCoverage` in the answer to `system.run.prepare`. A
/// gateway offers *always* only where the coverage is complete.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AllowAlwaysCoverage {
    /// Whether the patterns cover the whole command. A node that does not say may store them.
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

/// The policy under which a plan was made: `policySnapshot` of the plan. Gateways carry it and send
/// it back. The node judges the run anew, regardless of the snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanPolicySnapshot {
    pub security: String,
    pub ask: String,
    pub ask_fallback: String,
    pub auto_allow_skills: bool,
    pub allowlist_rules: Vec<PlanPolicyRule>,
}

/// An allowlist rule, without the fields that change with its use.
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
    /// Sorts the rules by pattern, arguments and source and removes duplicates, as gateways do.
    #[must_use]
    pub fn with_rules(mut self, mut rules: Vec<PlanPolicyRule>) -> Self {
        rules.sort();
        rules.dedup();
        self.allowlist_rules = rules;
        self
    }
}

/// A snapshot in a form that does not depend on the order of its rules, because gateways sort them.
pub(super) fn canonical_snapshot(snapshot: &Value) -> Value {
    let mut canonical = snapshot.clone();
    if let Some(Value::Array(rules)) = canonical.get_mut("allowlistRules") {
        rules.sort_by_key(Value::to_string);
        rules.dedup();
    }
    canonical
}
