//! `apply_patch`: several files in the agent's workspace, all or nothing.

use std::sync::Arc;

use interlock_config::ConfigFile;
use interlock_host::{PatchError, PatchRequest};
use serde_json::{Value, json};

use super::result::ToolResult;
use super::{Call, CallError, blocking};
use crate::gateway::Gateway;

pub(super) async fn apply_patch(
    gateway: &Arc<Gateway>,
    config: &ConfigFile,
    call: &Call,
    arguments: &Value,
) -> Result<ToolResult, CallError> {
    let parameters = interlock_host::parameters::PatchParameters::parse(arguments)?;
    let root = call
        .cwd
        .clone()
        .unwrap_or_else(|| gateway.workspace(config.config(), &call.agent));
    let (gateway, agent) = (Arc::clone(gateway), call.agent.clone());
    let applied = blocking(move || {
        gateway.host.apply_patch(&PatchRequest {
            agent: &agent,
            model: parameters.model.as_deref(),
            root,
            input: &parameters.input,
            dry_run: parameters.dry_run,
        })
    })
    .await?;
    Ok(match applied {
        Ok(summary) => {
            let mut details = json!({ "status": "completed", "summary": summary });
            details["host"] = "gateway".into();
            ToolResult {
                text: summary.to_string(),
                details,
                is_error: false,
            }
        }
        Err(error) => match error {
            PatchError::Tool(_) | PatchError::Disabled | PatchError::Model(_) => {
                ToolResult::denied(error.code(), &error.to_string(), error.remedy().as_deref())
            }
            error => {
                ToolResult::failed(error.code(), &error.to_string(), error.remedy().as_deref())
            }
        },
    })
}
