//! The approvals document of this host.

use interlock_rules::RulesError;
use interlock_store::Author;
use interlock_wire::node::ExecApprovalsSnapshot;
use interlock_wire::params;
use interlock_wire::{Request, WireError, refusal};
use serde_json::json;

use super::{Context, MethodAnswer, read, store_failed, unavailable, work};
use crate::gateway::Gateway;

pub(super) async fn get(context: Context<'_>, request: &Request) -> MethodAnswer {
    read::<params::ExecApprovalsGet>(request)?;
    work(context, snapshot).await
}

pub(super) async fn set(context: Context<'_>, request: &Request) -> MethodAnswer {
    let set: params::ExecApprovalsSet = read(request)?;
    let hash = set
        .base_hash
        .ok_or_else(|| refusal::APPROVALS_BASE_HASH_REQUIRED.error())?;
    let who = context.client.name().to_owned();
    work(context, move |gateway| {
        let author = Author::new(who).map_err(store_failed)?;
        match gateway
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

/// The document as clients get it.
fn snapshot(gateway: &Gateway) -> MethodAnswer {
    let shown = gateway.host.rules().shown_document();
    let (file, stored) = shown.map_err(|error| unavailable(&error.into()))?;
    let snapshot = ExecApprovalsSnapshot {
        path: gateway.host.store().path().display().to_string(),
        exists: true,
        hash: stored.hash,
        file,
    };
    Ok(json!(snapshot))
}
