//! The result of `policy.replay`: the verdicts of another policy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Verdicts of the audit, judged again.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyReplayed {
    /// The number of verdicts that were judged again.
    pub judged: u64,
    /// Asked about then, allowed now.
    pub prompts_saved: u64,
    /// Denied then, allowed now.
    pub newly_allowed: u64,
    /// Asked about now, and not then.
    pub newly_asked: u64,
    /// Denied now, and not then.
    pub newly_refused: u64,
    /// One entry for each command whose verdict changes: first those that become looser, then the
    /// others.
    pub changes: Vec<ReplayedVerdict>,
    /// The number of changes that are not listed.
    pub more_changes: u64,
    /// The reasons why verdicts were not judged again, each with its number.
    pub left_out: BTreeMap<String, u64>,
    /// What the draft allows beyond the document in force, in words.
    pub loosened: Vec<String>,
    /// The draft in the form that `exec.approvals.set` accepts; null without a draft.
    pub file: Value,
    /// The hash of the document in force, with which the draft was compared.
    pub base_hash: String,
    /// The whole result as a page shows it.
    pub html: String,
}

/// A command whose verdict changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplayedVerdict {
    pub agent: String,
    pub cwd: String,
    pub command: String,
    pub before: String,
    pub before_reason: String,
    pub after: String,
    pub after_reason: String,
    pub looser: bool,
    /// How often the command occurs in this part of the history.
    pub times: u64,
}
