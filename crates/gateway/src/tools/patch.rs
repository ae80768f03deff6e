//! `apply_patch`: several files in the agent's workspace, all or nothing.

use std::sync::Arc;

use interlock_host::{PatchError, PatchRequest};
use serde_json::{Value, json};

use super::result::ToolResult;
use super::{Call, CallError, blocking, directory};
use crate::gateway::Gateway;

pub(super) async fn apply_patch(
    gateway: &Arc<Gateway>,
    call: &Call,
    arguments: &Value,
) -> Result<ToolResult, CallError> {
    let parameters = interlock_host::parameters::PatchParameters::parse(arguments)?;
    let root = match directory(gateway, call).await? {
        Ok(root) => root,
        Err(refused) => return Ok(refused),
    };
    let (gateway, call) = (Arc::clone(gateway), call.clone());
    let applied = blocking(move || {
        gateway.host.apply_patch(&PatchRequest {
            agent: &call.agent,
            session_key: Some(&call.session_key),
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
            PatchError::Tool(_)
            | PatchError::Disabled
            | PatchError::Model(_)
            | PatchError::ModelUnnamed
            | PatchError::Denied(_) => {
                ToolResult::denied(error.code(), &error.to_string(), error.remedy().as_deref())
            }
            error => {
                ToolResult::failed(error.code(), &error.to_string(), error.remedy().as_deref())
            }
        },
    })
}
