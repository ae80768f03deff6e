//! Moves connections of sandboxed runs into the audit. `netd` records them in a file of the state
//! directory, and a process with the store appends them to the chain.

use std::io;

use interlock_network::ConnectionJournalReader;
use interlock_store::{AuditFilter, AuditKind, AuditOrder};
use serde_json::json;

use crate::state::LocalState;

impl LocalState {
    /// Moves connections that were recorded since the last call into the audit. Every process that
    /// reads the audit or sees the end of a run calls this.
    pub fn record_connections(&self) -> io::Result<()> {
        let Some(journal) = ConnectionJournalReader::open(self.state_dir())? else {
            return Ok(());
        };
        journal.take(|records| {
            let written = self.store().change(|change| {
                for record in records {
                    let body = match record {
                        Ok(record) => json!(record),
                        Err(text) => json!({ "unreadable": text }),
                    };
                    let now = i64::try_from(crate::state::now_ms()).unwrap_or(i64::MAX);
                    change.append(AuditKind::Connection, &body, now)?;
                }
                Ok::<(), interlock_store::StoreError>(())
            });
            written.map_err(io::Error::other)
        })
    }

    /// The hosts that runs of a scope asked for since `since_ms`, as `HOST` or `HOST:PORT`, the
    /// oldest first.
    pub fn connections_since(&self, scope_id: &str, since_ms: i64) -> Vec<String> {
        let filter = AuditFilter {
            kind: Some(AuditKind::Connection),
            since_ms: Some(since_ms),
            order: AuditOrder::OldestFirst,
            ..AuditFilter::default()
        };
        let records = self.store().audit_log(&filter).unwrap_or_default();
        let of_scope = records
            .into_iter()
            .filter(|record| record.body["scopeId"] == scope_id);
        let named = of_scope.filter_map(|record| {
            let host = record.body["host"].as_str()?.to_owned();
            Some(match record.body["port"].as_u64() {
                Some(port) => format!("{host}:{port}"),
                None => host,
            })
        });
        named.collect()
    }
}
