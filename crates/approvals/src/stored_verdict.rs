//! What an approval stores besides its plan: the part of the judge's verdict that approvers read,
//! the fallback for the approver, and the facts for a run that starts after its caller has left.
//!
//! The store holds this value as JSON. [`StoredVerdict::to_value`] is the only writer and
//! [`StoredVerdict::read`] the only reader. Rows of earlier versions have no version number and are
//! read leniently: a part that cannot be read counts as absent, and an absent part allows nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use interlock_binding::{Binding, ProjectRun};
use interlock_policy::{Ask, JudgedCommand, Reason, Verdict};
use interlock_store::Approval;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::fallback::{StoredFallback, read_fallback};
use crate::sender::CallSender;

/// The version of this form. Rows without a version are older than the number.
const VERSION: u32 = 1;

/// A larger environment is not stored. Then a run whose caller has left starts only when it is
/// requested again.
const MAX_RESUME_BYTES: usize = 64 * 1024;

/// The stored form. Its field names are those of rows without a version.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredVerdict {
    version: u32,
    /// The rule that decided.
    #[serde(deserialize_with = "leniently")]
    pub(crate) reason: StoredReason,
    /// The commands of the line, in the order written.
    #[serde(deserialize_with = "leniently")]
    segments: Vec<StoredSegment>,
    #[serde(deserialize_with = "leniently")]
    pub(crate) binding: StoredBinding,
    /// Why *always* would store nothing.
    #[serde(
        deserialize_with = "leniently",
        skip_serializing_if = "Option::is_none"
    )]
    pub no_always: Option<String>,
    /// The fallback for an approver who cannot be reached or does not decide in time.
    #[serde(rename = "fallbackDecision", deserialize_with = "read_fallback")]
    pub(crate) fallback: StoredFallback,
    /// Set if this host starts the run by itself once it is allowed. No surface shows it.
    #[serde(
        rename = "runsLater",
        deserialize_with = "leniently",
        skip_serializing_if = "Option::is_none"
    )]
    resume: Option<ResumeFacts>,
    /// The limits of the run besides its plan.
    #[serde(deserialize_with = "leniently")]
    pub manner: RunManner,
}

/// A rule as a stable code and in words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StoredReason {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

/// One command of the line.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StoredSegment {
    reason: StoredReason,
    /// What allows the command; `None` if nothing does.
    satisfied_by: Option<String>,
}

/// The binding as approvers read it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StoredBinding {
    pub(crate) kind: String,
    pub(crate) reason: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) projects: Vec<StoredProjectRun>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
}

/// A run whose code a project decides.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StoredProjectRun {
    pub(crate) program: String,
    pub(crate) sentence: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) manifests: Vec<String>,
}

/// The limits of a run besides its plan, at the time when the approval was stored.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunManner {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// The run goes to the background after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

/// The facts besides the plan that are judged again when the run starts without its caller.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ResumeFacts {
    /// The overrides of the call.
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<Ask>,
    #[serde(default)]
    pub caller: StoredCaller,
    /// The call's `elevated` parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elevated: Option<bool>,
    /// Who made the call. An unknown sender leaves no sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<CallSender>,
}

/// The PATH and the workspace of the calling program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StoredCaller {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workspace: Vec<PathBuf>,
}

impl StoredVerdict {
    /// The part of the judge's verdict that approvers read, with the judge's fallback.
    pub fn of_verdict(verdict: &Verdict) -> Self {
        Self {
            version: VERSION,
            reason: StoredReason::of(&verdict.reason),
            segments: verdict.segments.iter().map(StoredSegment::of).collect(),
            binding: StoredBinding::of(&verdict.binding),
            fallback: StoredFallback::of(verdict),
            ..Self::default()
        }
    }

    /// A stored verdict for an approval without a verdict of the judge. It has no fallback.
    pub fn of_reason(code: Option<&str>, message: &str) -> Self {
        Self {
            version: VERSION,
            reason: StoredReason {
                code: code.map(str::to_owned),
                message: Some(message.to_owned()),
            },
            ..Self::default()
        }
    }

    /// Lets the run start by itself once it is allowed, unless the facts are too long to be stored.
    pub fn set_resume(&mut self, facts: ResumeFacts) {
        let pairs = facts.env.iter();
        let bytes: usize = pairs.map(|(key, value)| key.len() + value.len()).sum();
        self.resume = (bytes <= MAX_RESUME_BYTES).then_some(facts);
    }

    /// The JSON form for the store.
    pub fn to_value(&self) -> Value {
        json!(self)
    }

    /// Reads the stored verdict of an approval.
    pub fn of_approval(approval: &Approval) -> Self {
        Self::read(&approval.request.verdict)
    }

    /// Reads the form of this version and of every earlier one. Of a later version, only the parts
    /// for approvers are read: it neither allows nor starts anything.
    pub fn read(stored: &Value) -> Self {
        let mut read = Self::deserialize(stored).unwrap_or_default();
        if read.version > VERSION {
            read.fallback = StoredFallback::of_another_version();
            read.resume = None;
        }
        read
    }

    /// The facts for the run, if this host starts it by itself once it is allowed.
    pub fn into_resume(self) -> Option<ResumeFacts> {
        self.resume
    }

    /// Why the approval is needed: the deciding rule first, then each command that nothing allows.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        let segments = self.segments.iter();
        let misses = segments.filter(|segment| segment.satisfied_by.is_none());
        let misses = misses.map(|segment| &segment.reason);
        for reason in std::iter::once(&self.reason).chain(misses) {
            if let Some(message) = &reason.message
                && !reasons.contains(message)
            {
                reasons.push(message.clone());
            }
        }
        reasons
    }
}

/// Why an approver has to decide, as [`StoredVerdict::reasons`] gives it.
pub fn verdict_reasons(verdict: &Verdict) -> Vec<String> {
    StoredVerdict::of_verdict(verdict).reasons()
}

impl StoredReason {
    fn of(reason: &Reason) -> Self {
        Self {
            code: Some(reason.code.to_owned()),
            message: Some(reason.message.clone()),
        }
    }
}

impl StoredSegment {
    fn of(judged: &JudgedCommand) -> Self {
        let satisfied_by = json!(judged.satisfied_by);
        Self {
            reason: StoredReason::of(&judged.reason),
            satisfied_by: satisfied_by.as_str().map(str::to_owned),
        }
    }
}

impl StoredBinding {
    fn of(binding: &Binding) -> Self {
        Self {
            kind: binding.kind.as_str().to_owned(),
            reason: binding.reason.clone(),
            projects: binding.projects.iter().map(StoredProjectRun::of).collect(),
            notes: binding.notes.clone(),
        }
    }
}

impl StoredProjectRun {
    fn of(run: &ProjectRun) -> Self {
        Self {
            program: run.program.clone(),
            sentence: run.sentence.clone(),
            root: run.root.clone(),
            manifests: run.manifests.clone(),
        }
    }
}

/// Reads a part leniently: an unreadable part is absent and must not invalidate the other parts.
fn leniently<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(T::deserialize(value).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row as the versions without a number wrote it.
    fn old_row() -> Value {
        json!({
            "verdict": "ask",
            "reason": { "code": "miss", "message": "nothing allows it", "origin": "x" },
            "segments": [
                { "argv": ["a"], "satisfiedBy": "allowlist", "reason": { "code": "m", "message": "listed" } },
                { "argv": ["b"], "satisfiedBy": null, "reason": { "code": "m", "message": "unknown program" } },
                { "argv": ["c"], "satisfiedBy": null, "reason": { "code": "m", "message": "nothing allows it" } },
            ],
            "transport": "direct",
            "fallback": { "askFallback": "deny", "allow": false, "reason": "no" },
            "binding": {
                "kind": "project", "reason": "runs code of /w",
                "projects": [{ "label": "make", "program": "make", "sentence": "runs code of /w", "root": "/w",
                    "manifests": ["/w/Makefile"], "scope": "whole" }],
                "notes": ["a note"],
            },
            "remember": { "entries": [] },
            "remedies": [],
            "noAlways": "why not",
            "fallbackDecision": { "version": 1, "decision": "allow", "reason": "askFallback is `full`" },
            "runsLater": { "env": { "A": "1" }, "caller": { "path": "/bin" } },
            "manner": { "pids": 7, "cpus": 1.5, "waitMs": 10 },
        })
    }

    #[test]
    fn rows_without_a_version_are_read() {
        let read = StoredVerdict::read(&old_row());
        assert_eq!(read.version, 0);
        assert_eq!(read.reasons(), ["nothing allows it", "unknown program"]);
        assert_eq!(read.no_always.as_deref(), Some("why not"));
        assert_eq!(read.binding.reason, "runs code of /w");
        assert_eq!(read.binding.projects[0].manifests, ["/w/Makefile"]);
        assert_eq!(read.binding.notes, ["a note"]);
        assert_eq!((read.manner.pids, read.manner.wait_ms), (Some(7), Some(10)));
        assert!(read.fallback.allows());
        let resume = read.into_resume().unwrap();
        assert_eq!(resume.env["A"], "1");
        assert_eq!(resume.caller.path.as_deref(), Some("/bin"));
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let mut stored = StoredVerdict::of_reason(Some("protected-path"), "it is protected");
        stored.no_always = Some("once".to_owned());
        stored.set_resume(ResumeFacts::default());
        let value = stored.to_value();
        assert_eq!(value["version"], 1);
        assert_eq!(StoredVerdict::read(&value), stored);
    }

    #[test]
    fn a_part_that_cannot_be_read_takes_no_other_with_it() {
        for key in [
            "reason",
            "segments",
            "binding",
            "noAlways",
            "runsLater",
            "manner",
        ] {
            let mut row = old_row();
            row[key] = json!(7);
            let read = StoredVerdict::read(&row);
            assert!(read.fallback.allows(), "{key}");
            assert!(!read.reasons().is_empty(), "{key}");
        }
    }

    #[test]
    fn a_later_version_allows_and_starts_nothing() {
        let mut row = old_row();
        row["version"] = json!(2);
        let read = StoredVerdict::read(&row);
        assert!(!read.fallback.allows());
        assert_eq!(read.reasons().len(), 2);
        assert_eq!(read.into_resume(), None);
    }

    #[test]
    fn an_environment_that_is_too_long_is_not_resumed_with() {
        let mut stored = StoredVerdict::of_reason(None, "why");
        let env = BTreeMap::from([("A".to_owned(), "x".repeat(MAX_RESUME_BYTES))]);
        stored.set_resume(ResumeFacts {
            env,
            ..ResumeFacts::default()
        });
        assert_eq!(stored.into_resume(), None);
    }
}
