//! The decision that stands in for an approver who cannot be reached or does not decide. The judge
//! makes it, and the approval stores it as a typed value. A value that this version does not know
//! is a denial.

use interlock_policy::Verdict;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// The version of the stored form. Every form has its own number, so that no form is mistaken for
/// another.
const VERSION: u32 = 1;

/// The decision of `askFallback` about one approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StoredFallback {
    version: u32,
    decision: FallbackVerdict,
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FallbackVerdict {
    Allow,
    Deny,
}

impl StoredFallback {
    /// The fallback that the judge decided on. A verdict without a fallback denies.
    pub(crate) fn of(verdict: &Verdict) -> Self {
        let Some(fallback) = &verdict.fallback else {
            return Self::denied("the verdict has no fallback");
        };
        Self {
            version: VERSION,
            decision: if fallback.allow {
                FallbackVerdict::Allow
            } else {
                FallbackVerdict::Deny
            },
            reason: fallback.reason.clone(),
        }
    }

    /// The fallback for a stored value of an unknown form.
    pub(crate) fn of_another_version() -> Self {
        Self::denied("the stored fallback is of another version")
    }

    fn denied(reason: &str) -> Self {
        Self {
            version: VERSION,
            decision: FallbackVerdict::Deny,
            reason: reason.to_owned(),
        }
    }

    pub(crate) fn allows(&self) -> bool {
        self.decision == FallbackVerdict::Allow
    }

    pub(crate) fn into_reason(self) -> String {
        self.reason
    }
}

/// The default of an approval that stores no fallback is a denial.
impl Default for StoredFallback {
    fn default() -> Self {
        Self::denied("nothing stands in for an approver")
    }
}

/// Reads a stored value. A value of another form is a denial.
pub(crate) fn read_fallback<'de, D>(deserializer: D) -> Result<StoredFallback, D::Error>
where
    D: Deserializer<'de>,
{
    let value = Value::deserialize(deserializer)?;
    Ok(match StoredFallback::deserialize(value) {
        Ok(fallback) if fallback.version == VERSION => fallback,
        _ => StoredFallback::of_another_version(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::stored_verdict::StoredVerdict;

    fn read(stored: &Value) -> StoredFallback {
        StoredVerdict::read(stored).fallback
    }

    #[test]
    fn only_a_value_of_this_version_allows() {
        let stored = |value: Value| json!({ "fallbackDecision": value });
        let allow = json!({ "version": 1, "decision": "allow", "reason": "askFallback is `full`" });
        assert!(read(&stored(allow.clone())).allows());
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
            let denied = read(&closed);
            assert!(!denied.allows(), "{closed}");
            assert!(!denied.into_reason().is_empty(), "{closed}");
        }
    }
}
