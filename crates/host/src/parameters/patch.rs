//! The parameters of `apply_patch`.

use serde_json::Value;

use super::ParameterError;
use super::fields::Fields;

const KNOWN: &[&str] = &["input", "dryRun", "model"];

/// The parameters of an `apply_patch` call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchParameters {
    /// The whole patch.
    pub input: String,
    /// Whether the patch is only checked.
    pub dry_run: bool,
    /// The model behind the agent, if the caller names it.
    pub model: Option<String>,
}

impl PatchParameters {
    pub fn parse(parameters: &Value) -> Result<Self, ParameterError> {
        let fields = Fields::new("apply_patch", parameters, KNOWN)?;
        Ok(Self {
            input: fields.required_text("input")?.to_owned(),
            dry_run: fields.flag("dryRun")?,
            model: fields.filled_text("model")?.map(str::to_owned),
        })
    }
}
