//! The error of a response.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Why a request failed. The code is coarse; programs should decide by `details.code` or
/// `details.reason`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{code}: {message}")]
pub struct WireError {
    pub code: ErrorCode,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// The coarse kind of an error. Codes of other programs are kept as they are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ErrorCode(Cow<'static, str>);

impl ErrorCode {
    pub const INVALID_REQUEST: Self = Self::known("INVALID_REQUEST");
    pub const UNAVAILABLE: Self = Self::known("UNAVAILABLE");
    pub const NOT_PAIRED: Self = Self::known("NOT_PAIRED");
    pub const NOT_LINKED: Self = Self::known("NOT_LINKED");
    pub const AGENT_TIMEOUT: Self = Self::known("AGENT_TIMEOUT");
    pub const APPROVAL_NOT_FOUND: Self = Self::known("APPROVAL_NOT_FOUND");
    /// A node denied a run, and nothing of it was started. For newer gateways, every other code of
    /// a node means an unknown outcome.
    pub const SYSTEM_RUN_DENIED: Self = Self::known("SYSTEM_RUN_DENIED");
    /// Newer gateways report a missing scope with this code. An Interlock gateway reports
    /// `INVALID_REQUEST`, which every client understands.
    pub const FORBIDDEN: Self = Self::known("FORBIDDEN");

    const fn known(code: &'static str) -> Self {
        Self(Cow::Borrowed(code))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for ErrorCode {
    fn from(code: String) -> Self {
        Self(Cow::Owned(code))
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl WireError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: None,
            retryable: None,
            retry_after_ms: None,
        }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_REQUEST, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::UNAVAILABLE, message)
    }

    /// The error for wrong parameters of a method.
    pub fn params(method: &str, problems: &[String]) -> Self {
        let problems = problems.join("; ");
        Self::invalid(format!("invalid {method} params: {problems}"))
    }

    /// Adds one property to the details, or replaces it.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        match self.details.as_deref_mut() {
            Some(Value::Object(details)) => {
                details.insert(name.to_owned(), value);
            }
            _ => {
                let details = Map::from_iter([(name.to_owned(), value)]);
                self.details = Some(Box::new(details.into()));
            }
        }
        self
    }

    /// The same request may succeed after this time.
    #[must_use]
    pub fn retry_after(mut self, milliseconds: u64) -> Self {
        self.retryable = Some(true);
        self.retry_after_ms = Some(milliseconds);
        self
    }

    /// The code that programs decide by: `details.code`, or else `details.reason`.
    pub fn detail_code(&self) -> Option<&str> {
        let text = |name| self.detail(name).and_then(Value::as_str);
        text("code").or_else(|| text("reason"))
    }

    /// One property of the details.
    pub fn detail(&self, name: &str) -> Option<&Value> {
        self.details.as_ref()?.get(name)
    }
}

/// The failures of `node.invoke` that are not refusals, and failures that contain values.
impl WireError {
    pub fn unknown_method(method: &str) -> Self {
        Self::invalid(format!("unknown method: {method}"))
    }

    /// `unknown nodeId`
    pub fn unknown_node() -> Self {
        Self::invalid("unknown nodeId")
    }

    /// The node answered with its own error.
    pub fn node_failed(code: Option<&str>, message: Option<&str>) -> Self {
        let text = match (code, message) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (None, Some(message)) => message.to_owned(),
            _ => "node invoke failed".to_owned(),
        };
        let mut error = Map::new();
        for (name, value) in [("code", code), ("message", message)] {
            if let Some(value) = value {
                error.insert(name.to_owned(), value.into());
            }
        }
        Self::unavailable(text).with("nodeError", error)
    }

    /// The node did not answer in time.
    pub fn node_timeout() -> Self {
        Self::unavailable("TIMEOUT: node invoke timed out").with("code", "TIMEOUT")
    }

    /// The node disconnected while it worked.
    pub fn node_disconnected(command: &str) -> Self {
        Self::unavailable(format!("Error: node disconnected ({command})"))
    }

    /// The command is not available on the node's platform.
    pub fn command_not_allowlisted(command: &str, platform: &str) -> Self {
        let message = format!(
            "node command not allowed: \"{command}\" is not in the allowlist for platform \"{platform}\""
        );
        Self::invalid(message).with("reason", "command not allowlisted")
    }

    /// The node did not declare this command.
    pub fn command_not_declared(command: &str, platform: &str) -> Self {
        let message = format!(
            "node command not allowed: the node (platform: {platform}) does not support \"{command}\""
        );
        Self::invalid(message).with("reason", "command not declared by node")
    }

    /// The text that accompanied an argv differs from it.
    pub fn raw_command_mismatch(mismatch: &crate::node::RawCommandMismatch) -> Self {
        Self::invalid("rawCommand does not match command")
            .with("code", "RAW_COMMAND_MISMATCH")
            .with("rawCommand", mismatch.raw_command.as_str())
            .with("inferred", mismatch.inferred.as_str())
            .with("formattedArgv", mismatch.formatted.as_str())
    }
}
