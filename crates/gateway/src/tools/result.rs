//! What a tool answers: text in the form of the reference, the same as data for programs, and a text
//! for models (`model_text`).

use serde_json::{Value, json};

use super::model_text::ModelText;
use super::run_outcome::RunRefusal;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolResult {
    /// As the reference writes it.
    pub(crate) text: String,
    pub(crate) details: Value,
    /// The tool did not do what was asked.
    pub(crate) is_error: bool,
    /// As models read it, where that is not the same text.
    pub(crate) model: Option<ModelText>,
    /// What the conversation is notified of along with this result.
    pub(crate) events: Vec<String>,
}

impl ToolResult {
    pub(crate) fn new(text: String, details: Value, is_error: bool) -> Self {
        Self {
            text,
            details,
            is_error,
            model: None,
            events: Vec::new(),
        }
    }

    pub(crate) fn with_model(self, model: ModelText) -> Self {
        Self {
            model: Some(model),
            ..self
        }
    }

    /// As it goes to callers of HTTP and WebSocket.
    pub(crate) fn to_json(&self) -> Value {
        let text = if self.events.is_empty() {
            self.text.clone()
        } else {
            format!("{}\n\n{}", self.events.join("\n"), self.text)
        };
        json!({
            "content": [{ "type": "text", "text": text }],
            "details": self.details,
        })
    }

    /// Policy or an approver said no.
    pub(super) fn denied(code: &str, message: &str, remedy: Option<&str>) -> Self {
        RunRefusal::denied(code, message).with_remedy(remedy).into()
    }

    /// The call could not be carried out.
    pub(crate) fn failed(code: &str, message: &str, remedy: Option<&str>) -> Self {
        RunRefusal::failed(code, message).with_remedy(remedy).into()
    }
}

/// A message, and what to do about it.
pub(super) fn with_hint(message: &str, remedy: Option<&str>) -> String {
    match remedy {
        Some(remedy) => format!("{message}\nhint: {remedy}"),
        None => message.to_owned(),
    }
}
