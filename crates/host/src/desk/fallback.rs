//! What stands in for an approver who cannot be asked or does not answer: the judge's own decision,
//! stored with the approval as a typed value. A value that this version does not know is a denial.

use interlock_policy::Verdict;
use interlock_store::Approval;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The property of a stored verdict that holds the value.
const STORED: &str = "fallbackDecision";

/// The version of the form below. Another form has another number, so that none is taken for
/// another.
const VERSION: u32 = 1;

/// What `askFallback` decides for one approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StoredFallback {
    version: u32,
    decision: FallbackDecision,
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FallbackDecision {
    Allow,
    Deny,
}

impl StoredFallback {
    /// As the judge decided when the request was judged. A verdict without a fallback denies.
    pub(super) fn of(verdict: &Verdict) -> Self {
        let Some(fallback) = &verdict.fallback else {
            return Self::denied("the verdict has no fallback");
        };
        Self {
            version: VERSION,
            decision: if fallback.allow {
                FallbackDecision::Allow
            } else {
                FallbackDecision::Deny
            },
            reason: fallback.reason.clone(),
        }
    }

    pub(super) fn write(&self, verdict: &mut Value) {
        verdict[STORED] = json!(self);
    }

    pub(super) fn read(approval: &Approval) -> Self {
        Self::parse(&approval.request.verdict)
    }

    fn parse(verdict: &Value) -> Self {
        let Some(stored) = verdict.get(STORED) else {
            return Self::denied("nothing stands in for an approver");
        };
        match Self::deserialize(stored) {
            Ok(fallback) if fallback.version == VERSION => fallback,
            _ => Self::denied("the stored fallback is of another version"),
        }
    }

    fn denied(reason: &str) -> Self {
        Self {
            version: VERSION,
            decision: FallbackDecision::Deny,
            reason: reason.to_owned(),
        }
    }

    pub(super) fn allows(&self) -> bool {
        self.decision == FallbackDecision::Allow
    }

    pub(super) fn into_reason(self) -> String {
        self.reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_value_of_this_version_allows() {
        let stored = |value: Value| json!({ STORED: value });
        let allow = json!({ "version": 1, "decision": "allow", "reason": "askFallback is `full`" });
        assert!(StoredFallback::parse(&stored(allow.clone())).allows());
        let with = |key: &str, value: Value| {
            let mut changed = allow.clone();
            changed[key] = value;
            stored(changed)
        };
        let without = |key: &str| {
            let mut changed = allow.clone();
            changed.as_object_mut().unwrap().remove(key);
            stored(changed)
        };
        for closed in [
            json!({}),
            json!(null),
            json!([]),
            // The form that texts of the verdict had before, and words that look like a yes.
            json!({ "fallback": { "allow": true, "askFallback": "full", "reason": "" } }),
            stored(json!(true)),
            stored(json!("allow")),
            stored(json!({ "allow": true })),
            with("version", json!(0)),
            with("version", json!(2)),
            with("version", json!("1")),
            with("version", json!(true)),
            with("decision", json!("deny")),
            with("decision", json!("full")),
            with("decision", json!(true)),
            with("allow", json!(true)),
            without("version"),
            without("decision"),
            without("reason"),
        ] {
            let read = StoredFallback::parse(&closed);
            assert!(!read.allows(), "{closed}");
            assert!(!read.into_reason().is_empty(), "{closed}");
        }
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let mut verdict = json!({ "outcome": "ask" });
        let denied = StoredFallback::denied("why");
        denied.write(&mut verdict);
        assert_eq!(StoredFallback::parse(&verdict), denied);
    }
}
