//! Records that an approval was sent to the connected browsers, or why it was not. That an approver
//! saw it is recorded when its card is opened (`approval_views`).

use std::collections::BTreeMap;
use std::sync::Arc;

use interlock_approvals::PendingApproval;
use interlock_connections::Client;
use interlock_dispatch::work::blocking;
use interlock_host::now_ms;
use interlock_store::{Delivery, DeliveryState, StoreError};
use tokio::sync::broadcast::error::RecvError;

use super::patches::receipts_changed;
use crate::gateway::Gateway;

/// The most browsers that get a receipt of their own for one approval. The others share one.
const MOST_NAMED: usize = 8;

/// Records receipts until the gateway ends.
pub async fn follow(gateway: Arc<Gateway>) {
    let mut changes = gateway.dispatcher.approvals.changes();
    loop {
        match changes.recv().await {
            Ok(approval) if approval.ended.is_none() => record(&gateway, &approval).await,
            Ok(_) => {}
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "receipts of pages were not recorded");
            }
            Err(RecvError::Closed) => return,
        }
    }
}

async fn record(gateway: &Arc<Gateway>, approval: &PendingApproval) {
    let mut pages = gateway.dispatcher.hub.approvers("");
    pages.retain(|client| client.topics.has_page());
    let receipts = receipts(&pages, i64::try_from(now_ms()).unwrap_or(i64::MAX));
    if receipts.is_empty() {
        return;
    }
    let (writer, id) = (Arc::clone(gateway), approval.id.clone());
    let written = blocking(move || {
        let store = writer.dispatcher.host.store();
        let written: Result<bool, StoreError> = store.change(|change| {
            let mut is_new = false;
            for receipt in &receipts {
                is_new |= change.record_delivery(&id, receipt)?;
            }
            Ok(is_new)
        });
        if matches!(written, Ok(true)) {
            receipts_changed(&writer, &id);
        }
        written
    });
    if let Ok(Err(error)) = written.await {
        tracing::warn!(%error, "receipts of pages were not recorded");
    }
}

/// Returns the surface of a browser. All its tabs are one target.
pub(super) fn surface(client: &Client) -> String {
    format!("web:{}", client.device.as_deref().unwrap_or("local"))
}

/// Returns one receipt for each browser up to [`MOST_NAMED`], and one for all others.
fn receipts(pages: &[Arc<Client>], at_ms: i64) -> Vec<Delivery> {
    let mut browsers: BTreeMap<String, (bool, &str)> = BTreeMap::new();
    for page in pages {
        let is_reached = !page.is_ending();
        let known = browsers.entry(surface(page)).or_insert((false, ""));
        *known = (known.0 || is_reached, page.name());
    }
    let total = browsers.len();
    let named = browsers.into_iter().take(MOST_NAMED);
    let mut receipts: Vec<Delivery> = named
        .map(|(surface, (is_reached, name))| {
            let name: String = name.chars().take(100).collect();
            let (state, detail) = if is_reached {
                (DeliveryState::Sent, name)
            } else {
                let why = format!("{name}: it reads too slowly, or has gone");
                (DeliveryState::Failed, why)
            };
            Delivery {
                surface,
                state,
                at_ms,
                detail: Some(detail),
            }
        })
        .collect();
    if total > MOST_NAMED {
        receipts.push(Delivery {
            surface: "web".to_owned(),
            state: DeliveryState::Sent,
            at_ms,
            detail: Some(format!("{} more browsers", total - MOST_NAMED)),
        });
    }
    receipts
}
