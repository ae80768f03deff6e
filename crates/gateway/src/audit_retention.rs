//! Moves audit records that are older than `audit.retention` to files, now and then.

use std::sync::Arc;
use std::time::Duration;

use interlock_host::{HostError, now_ms};
use interlock_store::{ARCHIVE_NAME, ArchiveError, ArchivedAudit, Author};

use crate::gateway::Gateway;
use interlock_dispatch::work::blocking;

/// The first look comes when the start is over.
const FIRST_LOOK: Duration = Duration::from_mins(1);

/// Between two looks.
const LOOK: Duration = Duration::from_hours(1);

/// Who the record of an archive names.
const AUTHOR: &str = "gateway (audit.retention)";

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Looks for old records until the gateway ends.
pub(crate) async fn follow(gateway: Arc<Gateway>) {
    tokio::time::sleep(FIRST_LOOK).await;
    loop {
        let here = Arc::clone(&gateway);
        match blocking(move || archive(&here)).await {
            Ok(Ok(archived)) => {
                for one in archived {
                    let (first, last) = (one.first, one.head.seq);
                    let file = one.file.display().to_string();
                    tracing::info!(first, last, file, "audit records archived");
                }
            }
            Ok(Err(problem)) => tracing::warn!(problem, "no audit records are archived"),
            // The gateway stops.
            Err(_) => return,
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn archive(gateway: &Gateway) -> Result<Vec<ArchivedAudit>, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let config = gateway
        .dispatcher
        .host
        .config()
        .map_err(|error: HostError| said(&error))?;
    let Some(days) = config.config().audit.retention else {
        return Ok(Vec::new());
    };
    let now = now_ms();
    let before = now.saturating_sub(days.saturating_mul(DAY_MS));
    let number = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let author = Author::new(AUTHOR.to_owned()).map_err(|error| said(&error))?;
    let store = gateway.dispatcher.host.store();
    let directory = store.state_dir().join(ARCHIVE_NAME);
    let archived = store.archive_audit(number(before), &directory, &author, number(now));
    archived.map_err(|error: ArchiveError| said(&error))
}
