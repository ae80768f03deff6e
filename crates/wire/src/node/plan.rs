//! What would run, as a node prepared it and people approve it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::command::{RawCommandMismatch, command_text};
use crate::schema::{COUNT, Field, Kind, STRING, STRING_OR_NULL, STRINGS, Shape};

/// The plan of a run, as nodes and gateways hand it around.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemRunPlan {
    pub argv: Vec<String>,
    pub cwd: Option<String>,
    pub command_text: String,
    /// The text inside a shell, which is what people want to see.
    pub command_preview: Option<String>,
    pub agent_id: Option<String>,
    pub session_key: Option<String>,
    /// Only when a script is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutable_file_operand: Option<MutableFileOperand>,
    /// Of newer nodes; handed on as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_snapshot: Option<Value>,
}

/// The script that a plan is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MutableFileOperand {
    pub argv_index: u64,
    pub path: String,
    pub sha256: String,
}

impl SystemRunPlan {
    /// Whether the texts say what the words are: people are shown the texts, and the words run.
    pub fn check_texts(&self) -> Result<(), RawCommandMismatch> {
        let texts = [Some(&self.command_text), self.command_preview.as_ref()];
        for text in texts.into_iter().flatten() {
            command_text(&self.argv, Some(text))?;
        }
        Ok(())
    }

    pub const SHAPE: Shape = Shape::closed(&[
        Field::required("argv", STRINGS),
        Field::required("cwd", STRING_OR_NULL),
        Field::required("commandText", STRING),
        Field::optional("commandPreview", STRING_OR_NULL),
        Field::required("agentId", STRING_OR_NULL),
        Field::required("sessionKey", STRING_OR_NULL),
        Field::optional(
            "mutableFileOperand",
            Kind::AnyOf(&[Kind::Object(&MutableFileOperand::SHAPE), Kind::Null]),
        ),
        Field::optional("policySnapshot", Kind::Any),
    ]);
}

impl MutableFileOperand {
    pub const SHAPE: Shape = Shape::closed(&[
        Field::required("argvIndex", COUNT),
        Field::required("path", STRING),
        Field::required("sha256", STRING),
    ]);
}
