//! `system.execApprovals.get` and `.set`: the approvals document of this machine.

use interlock_host::{Author, HostError};
use interlock_wire::WireError;
use interlock_wire::node::{ExecApprovalsSnapshot, NodeInvokeRequest, SystemExecApprovalsSet};
use serde_json::Value;

use crate::serve::Service;

/// Who has changed it, as the audit is told.
const AUTHOR: &str = "gateway";

/// The document as others may see it: without the secret of the approval socket.
pub(crate) fn get(service: &Service) -> Result<ExecApprovalsSnapshot, WireError> {
    let unavailable = |error: &dyn std::fmt::Display| WireError::unavailable(error.to_string());
    let (_, stored) = service
        .host
        .document()
        .map_err(|error| unavailable(&error))?;
    let mut file: Value =
        serde_json::from_str(&stored.text).map_err(|error| unavailable(&error))?;
    if let Some(socket) = file.get_mut("socket").and_then(Value::as_object_mut) {
        socket.remove("token");
    }
    Ok(ExecApprovalsSnapshot {
        path: service.host.store().path().display().to_string(),
        exists: true,
        hash: stored.hash,
        file,
    })
}

pub(crate) fn set(
    service: &Service,
    request: &NodeInvokeRequest,
) -> Result<ExecApprovalsSnapshot, WireError> {
    let refuse = |why: &str| WireError::invalid(format!("Error: INVALID_REQUEST: {why}"));
    let set: SystemExecApprovalsSet = request.read()?;
    let file = set.file.filter(Value::is_object);
    let file = file.ok_or_else(|| refuse("exec approvals file required"))?;
    let hash = set.base_hash.filter(|hash| !hash.trim().is_empty());
    let hash = hash.ok_or_else(|| refuse("exec approvals base hash required; reload and retry"))?;
    let author = Author::new(AUTHOR).map_err(|error| WireError::unavailable(error.to_string()))?;
    match service.host.replace_document(&file, hash.trim(), &author) {
        Ok(_) => get(service),
        Err(error) if error.code() == "DOCUMENT_CHANGED" => {
            Err(refuse("exec approvals changed; reload and retry"))
        }
        Err(error @ HostError::Document(_)) => Err(refuse(&error.to_string())),
        Err(error) => Err(WireError::unavailable(error.to_string())),
    }
}
