//! `system.execApprovals.get` and `.set`: read and write the approvals document of this machine.

use interlock_config::RemoteDocument;
use interlock_host::{Author, HostError};
use interlock_policy::Document;
use interlock_rules::{RulesError, loosenings};
use interlock_wire::WireError;
use interlock_wire::node::{ExecApprovalsSnapshot, NodeInvokeRequest, SystemExecApprovalsSet};
use serde_json::Value;

use super::foreign_document;
use crate::serve::NodeService;

/// The author of the change in the audit record.
const AUTHOR: &str = "gateway";

/// The refusal if the owner of this machine does not let a gateway write.
const ONLY_READ: &str =
    "exec approvals of this node are written on its own machine only (node.remoteDocument is read)";
const ONLY_TIGHTEN: &str =
    "exec approvals of this node can only be made stricter (node.remoteDocument is tighten)";

/// The document in the form for gateways.
pub(crate) fn get(service: &NodeService) -> Result<ExecApprovalsSnapshot, WireError> {
    let shown = service.host.rules().shown_document();
    let (mut file, stored) = shown.map_err(|error| WireError::unavailable(error.to_string()))?;
    if !service.gateway_is_interlock() {
        file = service.prepared.tell_in(foreign_document::told(&file));
    }
    Ok(ExecApprovalsSnapshot {
        path: service.host.store().path().display().to_string(),
        exists: true,
        hash: stored.hash,
        file,
    })
}

pub(crate) fn set(
    service: &NodeService,
    request: &NodeInvokeRequest,
) -> Result<ExecApprovalsSnapshot, WireError> {
    let refuse = |why: &str| WireError::invalid(format!("Error: INVALID_REQUEST: {why}"));
    let set: SystemExecApprovalsSet = request.read()?;
    let file = set.file.filter(Value::is_object);
    let file = file.ok_or_else(|| refuse("exec approvals file required"))?;
    let file = if service.gateway_is_interlock() {
        file
    } else {
        let shown = service.host.rules().shown_document();
        let (stored, _) = shown.map_err(|error| WireError::unavailable(error.to_string()))?;
        // If the merged document is not the one that gets replaced, the hash differs and the change
        // is refused below.
        foreign_document::merged(&stored, &file)
    };
    let hash = set.base_hash.filter(|hash| !hash.trim().is_empty());
    let hash = hash.ok_or_else(|| refuse("exec approvals base hash required; reload and retry"))?;
    let unavailable = |error: HostError| WireError::unavailable(error.to_string());
    match service.remote_document().map_err(unavailable)? {
        RemoteDocument::Write => {}
        RemoteDocument::Read => return Err(refuse(ONLY_READ)),
        RemoteDocument::Tighten => {
            let (document, stored) = service.host.document().map_err(unavailable)?;
            let config = service.host.config().map_err(unavailable)?;
            // If the compared document is not the one that gets replaced, the change is refused
            // below, like a document that cannot be read.
            if stored.hash == hash.trim()
                && let Ok((new, _)) = Document::import(&file)
                && let Some(what) = loosenings(&document, &new, config.config()).first()
            {
                return Err(refuse(&format!("{ONLY_TIGHTEN}: {what}")));
            }
        }
    }
    let author = Author::new(AUTHOR).map_err(|error| WireError::unavailable(error.to_string()))?;
    match service
        .host
        .rules()
        .replace_document(&file, hash.trim(), &author)
    {
        Ok(_) => get(service),
        Err(error) if error.code() == "DOCUMENT_CHANGED" => {
            Err(refuse("exec approvals changed; reload and retry"))
        }
        Err(error @ RulesError::Document(_)) => Err(refuse(&error.to_string())),
        Err(error) => Err(WireError::unavailable(error.to_string())),
    }
}
