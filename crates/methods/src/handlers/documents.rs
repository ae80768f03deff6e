//! The approvals document of this host.

use interlock_rules::RulesError;
use interlock_store::Author;
use interlock_wire::params;
use interlock_wire::results::ApprovalsDocument;
use interlock_wire::{WireError, refusal};
use serde_json::Value;

use super::{Context, store_failed, unavailable, work};
use crate::gateway::Gateway;

pub(super) async fn get(
    context: Context<'_>,
    _params: params::ExecApprovalsGet,
) -> Result<ApprovalsDocument, WireError> {
    work(context, snapshot).await
}

pub(super) async fn set(
    context: Context<'_>,
    set: params::ExecApprovalsSet,
) -> Result<ApprovalsDocument, WireError> {
    let hash = set
        .base_hash
        .ok_or_else(|| refusal::APPROVALS_BASE_HASH_REQUIRED.error())?;
    let who = context.client.name().to_owned();
    work(context, move |gateway| {
        let author = Author::new(who).map_err(store_failed)?;
        match gateway
            .dispatcher
            .host
            .rules()
            .replace_document(&set.file, &hash, &author)
        {
            Ok(_) => snapshot(gateway),
            Err(RulesError::Store(interlock_store::StoreError::DocumentChanged { .. })) => {
                Err(refusal::APPROVALS_CHANGED.error())
            }
            Err(error @ RulesError::Document(_)) => {
                Err(WireError::invalid(error.to_string()).with("code", error.code()))
            }
            Err(error) => Err(unavailable(&error.into())),
        }
    })
    .await
}

/// Returns the document as clients receive it.
fn snapshot(gateway: &Gateway) -> Result<ApprovalsDocument, WireError> {
    let shown = gateway.dispatcher.host.rules().shown_document();
    let (file, stored) = shown.map_err(|error| unavailable(&error.into()))?;
    Ok(ApprovalsDocument {
        path: Some(gateway.dispatcher.host.store().path().display().to_string()),
        exists: Some(true),
        hash: Some(stored.hash),
        gone: gone_entries(gateway, &file),
        file,
    })
}

/// Returns the entries whose pattern names a single file that does not exist. Such entries allow
/// nothing any more.
fn gone_entries(gateway: &Gateway, file: &Value) -> Vec<String> {
    let home = gateway.dispatcher.host.home();
    let agents = file.get("agents").and_then(Value::as_object);
    let lists = agents.into_iter().flat_map(|agents| agents.values());
    let lists = lists.filter_map(|agent| agent.get("allowlist")?.as_array());
    let gone = lists.flatten().filter_map(|entry| {
        let pattern = entry.get("pattern")?.as_str()?;
        let path = match (pattern.strip_prefix("~/"), home) {
            (Some(rest), Some(home)) => format!("{home}/{rest}"),
            _ => pattern.to_owned(),
        };
        let is_one_file = path.starts_with('/') && !path.contains(['*', '?', '[', '{', '$']);
        // A file whose existence cannot be checked counts as present.
        let is_gone = is_one_file && matches!(std::fs::exists(&path), Ok(false));
        let id = entry.get("id")?.as_str()?;
        is_gone.then(|| id.to_owned())
    });
    gone.collect()
}
