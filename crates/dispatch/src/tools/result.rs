//! The result of a tool: text in the form of the reference, the same as data for programs, and a
//! text for models (`model_text`).

use interlock_host::parameters::ParameterError;
use serde::Serialize;
use serde_json::{Value, json};

use super::model_text::ModelText;
use super::run_outcome::RunRefusal;

#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The text in the form of the reference.
    pub text: String,
    /// The data, without the events.
    pub(super) details: Value,
    /// The approval that the call waits for, or that the refusal is about.
    pub approval: Option<String>,
    /// Set if the call was refused.
    pub(super) refusal: Option<RefusalLabel>,
    /// Whether the call was not carried out.
    pub is_error: bool,
    /// The text for models, if it differs.
    pub model: Option<ModelText>,
    /// The events that the result delivers to the conversation.
    pub events: Vec<String>,
    /// The events as data.
    pub(super) event_details: Vec<EventDetails>,
    /// Whether no event waits for the conversation, so that none has to be looked for.
    pub(super) has_no_events: bool,
}

/// The kind of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RefusalLabel {
    /// Whether the policy or an approver said no.
    pub(super) is_denial: bool,
    pub(super) code: String,
}

impl RefusalLabel {
    pub(super) fn status(&self) -> &'static str {
        if self.is_denial { "denied" } else { "failed" }
    }
}

/// An event of the conversation in the data of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventDetails {
    pub(super) id: i64,
    pub(super) kind: &'static str,
    pub(super) run_id: String,
    pub(super) text: String,
    pub(super) created_at_ms: i64,
}

/// The data of a result together with its events.
#[derive(Serialize)]
struct DetailsWithEvents<'a> {
    #[serde(flatten)]
    details: &'a Value,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    events: &'a [EventDetails],
}

impl ToolResult {
    pub fn new(text: String, details: Value, is_error: bool) -> Self {
        Self {
            text,
            details,
            approval: None,
            refusal: None,
            is_error,
            model: None,
            events: Vec::new(),
            event_details: Vec::new(),
            has_no_events: false,
        }
    }

    #[must_use]
    pub fn with_model(self, model: ModelText) -> Self {
        Self {
            model: Some(model),
            ..self
        }
    }

    /// The form for callers of HTTP and WebSocket.
    pub fn to_json(&self) -> Value {
        let text = if self.events.is_empty() {
            self.text.clone()
        } else {
            format!("{}\n\n{}", self.events.join("\n"), self.text)
        };
        json!({
            "content": [{ "type": "text", "text": text }],
            "details": self.details(),
        })
    }

    /// The data, with the events.
    pub(super) fn details(&self) -> Value {
        json!(DetailsWithEvents {
            details: &self.details,
            events: &self.event_details,
        })
    }

    /// A denial by the policy or an approver.
    pub(super) fn denied(code: &str, message: &str, remedy: Option<&str>) -> Self {
        RunRefusal::denied(code, message).with_remedy(remedy).into()
    }

    /// The result for invalid parameters.
    pub fn wrong_parameters(error: &ParameterError) -> Self {
        RunRefusal::of_parameters(error).into()
    }

    /// The result for a call that could not be carried out.
    pub fn failed(code: &str, message: &str, remedy: Option<&str>) -> Self {
        RunRefusal::failed(code, message).with_remedy(remedy).into()
    }
}

/// A message followed by its remedy.
pub(super) fn with_hint(message: &str, remedy: Option<&str>) -> String {
    match remedy {
        Some(remedy) => format!("{message}\nhint: {remedy}"),
        None => message.to_owned(),
    }
}
