//! Periodically forgets what is old: approvals, claims and grants that ended more than a day ago,
//! old events, and pairing requests. Audit records that are older than `audit.retention` move to
//! files.

use std::sync::Arc;
use std::time::Duration;

use interlock_host::{HostError, LocalHost, now_ms};
use interlock_store::{ARCHIVE_NAME, ArchiveError, ArchivedAudit, Author};

use crate::gateway::Gateway;
use crate::pairing;
use interlock_dispatch::work::blocking;

/// The first look waits until the start of the gateway is over.
const FIRST_LOOK: Duration = Duration::from_mins(1);

/// The time between two looks.
const LOOK: Duration = Duration::from_hours(1);

/// The author in the audit record of an archive.
const AUTHOR: &str = "gateway (audit.retention)";

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Removes old records until the gateway ends.
pub async fn follow(gateway: Arc<Gateway>) {
    tokio::time::sleep(FIRST_LOOK).await;
    loop {
        let here = Arc::clone(&gateway);
        match blocking(move || forget(&here.dispatcher.host, now_ms())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "old records could not be forgotten"),
            // The gateway stops.
            Err(_) => return,
        }
        let here = Arc::clone(&gateway);
        match blocking(move || archive(&here.dispatcher.host, now_ms())).await {
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

fn forget(host: &LocalHost, now: u64) -> Result<(), HostError> {
    host.forget_old()?;
    host.store()
        .change(|change| pairing::forget_old_requests(change, now))?;
    Ok(())
}

fn archive(host: &LocalHost, now: u64) -> Result<Vec<ArchivedAudit>, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let config = host.config().map_err(|error: HostError| said(&error))?;
    let Some(days) = config.config().audit.retention else {
        return Ok(Vec::new());
    };
    let before = now.saturating_sub(days.saturating_mul(DAY_MS));
    let number = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    let author = Author::new(AUTHOR.to_owned()).map_err(|error| said(&error))?;
    let store = host.store();
    let directory = store.state_dir().join(ARCHIVE_NAME);
    let archived = store.archive_audit(number(before), &directory, &author, number(now));
    archived.map_err(|error: ArchiveError| said(&error))
}

#[cfg(test)]
mod tests {
    use interlock_host::OpenOptions;
    use interlock_store::{AuditKind, StoreError};
    use serde_json::json;

    use super::*;

    #[test]
    fn records_older_than_the_config_says_are_moved_and_without_it_none() {
        let state = tempfile::tempdir().unwrap();
        let options = OpenOptions {
            state_dir: Some(state.path().to_owned()),
            ..OpenOptions::default()
        };
        let (host, _) = LocalHost::open(options).unwrap();
        let made_at = i64::try_from(now_ms()).unwrap();
        let in_ten_days = now_ms() + 10 * DAY_MS;
        let made = host.store().change(|change| {
            for number in 0..1_100 {
                change.append(AuditKind::Patch, &json!({ "n": number }), made_at)?;
            }
            Ok::<_, StoreError>(())
        });
        made.unwrap();
        let keep = |text: &str| std::fs::write(host.config_path(), text).unwrap();
        assert_eq!(
            archive(&host, in_ten_days),
            Ok(Vec::new()),
            "no retention is set"
        );
        keep("{ audit: { retention: 11 } }");
        assert_eq!(
            archive(&host, in_ten_days),
            Ok(Vec::new()),
            "all are younger"
        );
        keep("{ audit: { retention: 9 } }");
        let archived = archive(&host, in_ten_days).unwrap();
        assert_eq!(archived.len(), 1);
        assert!(
            archived[0]
                .file
                .starts_with(state.path().join(ARCHIVE_NAME))
        );
        assert_eq!(
            archive(&host, in_ten_days),
            Ok(Vec::new()),
            "what is left is no whole block"
        );
    }
}
