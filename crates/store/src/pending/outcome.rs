//! How a run ended, as claims, audit records and session events hold it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// How a run ended. Fields without a value are absent from the JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RecordedOutcome {
    /// The error code of a run that did not start, or of a patch that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
    #[serde(skip_serializing_if = "NullableField::is_absent")]
    pub exit_code: NullableField<i64>,
    /// The files that an approved patch changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<RecordedFile>>,
    /// How many more files the patch changed than `files` lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_left_out: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// Protected paths that appeared or changed in the workspace while the run could write to it.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub protected_created: Box<[String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<i64>,
    /// The programs that the run started, if its sandbox logs them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<Box<serde_json::Value>>,
    /// The name of the background session.
    #[serde(skip_serializing_if = "NullableField::is_absent")]
    pub session: NullableField<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<RecordedStatus>,
}

impl RecordedOutcome {
    pub fn new(status: RecordedStatus) -> Self {
        Self {
            status: Some(status),
            ..Self::default()
        }
    }

    /// The program exited by itself. Some nodes report no exit code.
    pub fn exited(code: Option<i64>) -> Self {
        Self {
            exit_code: code.into(),
            ..Self::new(RecordedStatus::Exited)
        }
    }

    pub fn signaled(signal: impl Into<i64>) -> Self {
        Self {
            signal: Some(signal.into()),
            ..Self::new(RecordedStatus::Signaled)
        }
    }

    pub fn timed_out() -> Self {
        Self::new(RecordedStatus::TimedOut)
    }

    #[must_use]
    pub fn with_code(self, code: impl Into<String>) -> Self {
        Self {
            code: Some(code.into().into_boxed_str()),
            ..self
        }
    }

    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into().into_boxed_str()),
            ..self
        }
    }

    #[must_use]
    pub fn with_duration_ms(self, duration_ms: u64) -> Self {
        Self {
            duration_ms: Some(i64::try_from(duration_ms).unwrap_or(i64::MAX)),
            ..self
        }
    }

    #[must_use]
    pub fn with_programs(self, programs: Option<serde_json::Value>) -> Self {
        Self {
            programs: programs.map(Box::new),
            ..self
        }
    }

    #[must_use]
    pub fn with_output_bytes(self, bytes: u64) -> Self {
        Self {
            output_bytes: Some(i64::try_from(bytes).unwrap_or(i64::MAX)),
            ..self
        }
    }

    #[must_use]
    pub fn with_protected_created(self, paths: &[String]) -> Self {
        Self {
            protected_created: paths.into(),
            ..self
        }
    }

    /// Sets the background session that the run was. `None` is recorded as `null`.
    #[must_use]
    pub fn with_session(self, session: Option<&str>) -> Self {
        Self {
            session: session.map(str::to_owned).into(),
            ..self
        }
    }

    pub fn to_value(&self) -> Value {
        json!(self)
    }
}

/// The way in which a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordedStatus {
    Applied,
    Exited,
    Failed,
    #[serde(rename = "left to the agent program")]
    LeftToAgentProgram,
    NotStarted,
    Refused,
    Signaled,
    TimedOut,
    /// A status that another version of the program recorded.
    #[serde(untagged)]
    Other(Box<str>),
}

impl RecordedStatus {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Applied => "applied",
            Self::Exited => "exited",
            Self::Failed => "failed",
            Self::LeftToAgentProgram => "left to the agent program",
            Self::NotStarted => "not-started",
            Self::Refused => "refused",
            Self::Signaled => "signaled",
            Self::TimedOut => "timed-out",
            Self::Other(status) => status,
        }
    }
}

/// A field that is absent, `null`, or has a value. Records keep the difference, because the same
/// outcome must always be the same bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NullableField<T> {
    #[default]
    Absent,
    Null,
    Value(T),
}

impl<T> NullableField<T> {
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }
}

impl<T> From<Option<T>> for NullableField<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Self::Value)
    }
}

impl<T: Serialize> Serialize for NullableField<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for NullableField<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::from)
    }
}

/// A file that a patch changed: how much, and the hashes of its content before and after.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedFile {
    pub after: Option<String>,
    pub before: Option<String>,
    pub change: RecordedFileChange,
    /// The former path of a moved file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    pub lines_added: usize,
    pub lines_removed: usize,
    pub path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordedFileChange {
    Added,
    Updated,
    Deleted,
    Moved,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_the_same_bytes_after_it_was_read() {
        for text in [
            "{}",
            r#"{"exitCode":0}"#,
            r#"{"durationMs":5,"exitCode":null,"session":null,"status":"exited"}"#,
            r#"{"durationMs":5,"outputBytes":7,"session":"calm-otter","signal":9,"status":"signaled"}"#,
            r#"{"code":"X","message":"no","status":"not-started"}"#,
            r#"{"status":"left to the agent program"}"#,
            r#"{"status":"timed-out"}"#,
            r#"{"status":"a status of another version"}"#,
            r#"{"exitCode":0,"files":[{"after":null,"before":"b","change":"moved","from":"a","linesAdded":1,"linesRemoved":0,"path":"c"}],"filesLeftOut":2,"status":"applied"}"#,
        ] {
            let outcome: RecordedOutcome = serde_json::from_str(text).unwrap();
            assert_eq!(outcome.to_value().to_string(), text);
        }
    }

    #[test]
    fn every_status_is_written_as_it_is_named() {
        use RecordedStatus as Status;
        for status in [
            Status::Applied,
            Status::Exited,
            Status::Failed,
            Status::LeftToAgentProgram,
            Status::NotStarted,
            Status::Refused,
            Status::Signaled,
            Status::TimedOut,
            Status::Other("other".into()),
        ] {
            assert_eq!(json!(status), status.as_str());
        }
    }
}
