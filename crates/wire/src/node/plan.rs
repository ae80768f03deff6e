//! The plan of a run, as a node prepares it and approvers allow it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::command::{RawCommandMismatch, command_text};
use super::plan_policy::canonical_snapshot;
use crate::hash::sha256_hex;
use crate::schema::{COUNT, Field, ObjectSchema, PropertyKind, STRING, STRING_OR_NULL, STRINGS};

/// The plan of a run, as nodes and gateways exchange it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SystemRunPlan {
    pub argv: Vec<String>,
    pub cwd: Option<String>,
    pub command_text: String,
    /// The text inside a shell, which approvers want to see.
    pub command_preview: Option<String>,
    pub agent_id: Option<String>,
    pub session_key: Option<String>,
    /// Only present if a script is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutable_file_operand: Option<MutableFileOperand>,
    /// Newer nodes send it. It is forwarded unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_snapshot: Option<Value>,
}

/// The script that a plan is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MutableFileOperand {
    pub argv_index: u64,
    pub path: String,
    pub sha256: String,
}

/// The plan of a `system.run` as it was sent.
#[derive(Debug, Clone, PartialEq)]
pub enum SentPlan {
    None,
    /// A plan with exactly the fields that nodes issue.
    Whole(Box<SystemRunPlan>),
    /// A plan with a field that is missing, additional or of the wrong type. No node issued it.
    Partial,
}

impl SentPlan {
    pub(super) fn of(value: &Value) -> Self {
        let Some(fields) = value.as_object() else {
            return Self::Partial;
        };
        // Serde reads a missing `Option` as null, and ignores unknown fields.
        let has_all = SystemRunPlan::ALWAYS
            .iter()
            .all(|name| fields.contains_key(*name));
        let read = serde_json::from_value::<SystemRunPlan>(value.clone());
        match read {
            Ok(plan) if has_all && serde_json::to_value(&plan).is_ok_and(|own| own == *value) => {
                Self::Whole(Box::new(plan))
            }
            _ => Self::Partial,
        }
    }
}

impl SystemRunPlan {
    /// The fields that every plan has, null or not.
    const ALWAYS: &[&str] = &[
        "argv",
        "cwd",
        "commandText",
        "commandPreview",
        "agentId",
        "sessionKey",
    ];

    /// The digest by which a node recognizes a returned plan. It covers every field, because
    /// gateways exchange plans without a digest. The reference gateways trim the texts and replace
    /// empty ones by null, so the digest does the same; the words of `argv` are compared unchanged.
    pub fn digest(&self) -> String {
        let operand = self.mutable_file_operand.as_ref();
        let fields = (
            &self.argv,
            trimmed(self.cwd.as_deref()),
            trimmed(Some(&self.command_text)),
            trimmed(self.command_preview.as_deref()),
            trimmed(self.agent_id.as_deref()),
            trimmed(self.session_key.as_deref()),
            operand.map(|operand| {
                (
                    operand.argv_index,
                    trimmed(Some(&operand.path)),
                    trimmed(Some(&operand.sha256)),
                )
            }),
            self.policy_snapshot.as_ref().map(canonical_snapshot),
        );
        sha256_hex(serde_json::to_string(&fields).unwrap_or_default())
    }

    /// Checks that the texts agree with the words: approvers are shown the texts, and the words
    /// run.
    pub fn check_texts(&self) -> Result<(), RawCommandMismatch> {
        let texts = [Some(&self.command_text), self.command_preview.as_ref()];
        for text in texts.into_iter().flatten() {
            command_text(&self.argv, Some(text))?;
        }
        Ok(())
    }

    pub const SHAPE: ObjectSchema = ObjectSchema::closed(&[
        Field::required("argv", STRINGS),
        Field::required("cwd", STRING_OR_NULL),
        Field::required("commandText", STRING),
        Field::optional("commandPreview", STRING_OR_NULL),
        Field::required("agentId", STRING_OR_NULL),
        Field::required("sessionKey", STRING_OR_NULL),
        Field::optional(
            "mutableFileOperand",
            PropertyKind::AnyOf(&[
                PropertyKind::Object(&MutableFileOperand::SHAPE),
                PropertyKind::Null,
            ]),
        ),
        Field::optional("policySnapshot", PropertyKind::Any),
    ]);
}

impl MutableFileOperand {
    pub const SHAPE: ObjectSchema = ObjectSchema::closed(&[
        Field::required("argvIndex", COUNT),
        Field::required("path", STRING),
        Field::required("sha256", STRING),
    ]);
}

/// Trims white space as both languages define it: JavaScript also trims a byte order mark.
fn trimmed(text: Option<&str>) -> Option<&str> {
    let is_blank = |c: char| c.is_whitespace() || c == '\u{feff}';
    text.map(|text| text.trim_matches(is_blank))
        .filter(|text| !text.is_empty())
}
