//! Questions and their answers, as the record tells them.
//!
//! Approvals are put down and decided by several processes: this one, the command line, a
//! companion. All of them write the same record, so reading on in that is how the gateway learns
//! of everything, whoever did it, once and in order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use interlock_host::{AuditFilter, AuditKind, AuditOrder, AuditRecord, HostError};
use tokio::sync::{Notify, broadcast, oneshot};

use crate::gateway::Gateway;
use crate::tools::blocking;

/// How often other processes' changes are looked for.
const LOOK: Duration = Duration::from_millis(100);

/// How often it is looked for approvals whose time is up.
const EXPIRY: Duration = Duration::from_secs(1);

/// News that a slow listener may be behind.
const BACKLOG: usize = 1024;

/// What happened to an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum News {
    Asked { id: String },
    Ended { id: String },
}

#[derive(Debug)]
pub(crate) struct Approvals {
    /// Those who wait for the end of one, by its id.
    waiting: Mutex<HashMap<String, Vec<oneshot::Sender<()>>>>,
    changed: Notify,
    news: broadcast::Sender<News>,
}

impl Default for Approvals {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            changed: Notify::new(),
            news: broadcast::Sender::new(BACKLOG),
        }
    }
}

impl Approvals {
    /// Returns when the approval has ended. Registered at once, so that no end is missed.
    pub(crate) fn wait_for(&self, id: &str) -> impl Future<Output = ()> + use<> {
        let (tell, told) = oneshot::channel();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Those who gave up are forgotten here.
        let all = waiting.entry(id.to_owned()).or_default();
        all.retain(|other| !other.is_closed());
        all.push(tell);
        async move {
            if told.await.is_err() {
                // The gateway is going: whoever waits has its own limit.
                std::future::pending::<()>().await;
            }
        }
    }

    /// This process has changed something: it need not be looked for.
    pub(crate) fn look_now(&self) {
        self.changed.notify_one();
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }

    fn tell(&self, news: &News) {
        if let News::Ended { id } = news {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            for tell in waiting.remove(id).into_iter().flatten() {
                let _ = tell.send(());
            }
        }
        // Nobody may be listening.
        let _ = self.news.send(news.clone());
    }
}

/// Ends what nobody answers in time, and records runs that ended in the background, until the
/// gateway ends.
pub(crate) async fn expire(gateway: Arc<Gateway>) {
    loop {
        tokio::time::sleep(EXPIRY).await;
        let expiring = Arc::clone(&gateway);
        let tidy = move || {
            let desk = expiring.host.desk();
            desk.expire_due()?;
            // Ends of background runs, and of runs whose waiter is gone.
            desk.recover(&expiring.supervisor)
        };
        match blocking(tidy).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "approvals and runs cannot be ended"),
            Err(_) => return,
        }
    }
}

/// Reads on in the record until the gateway ends.
pub(crate) async fn follow(gateway: Arc<Gateway>) {
    let mut next = None;
    loop {
        let (reader, from) = (Arc::clone(&gateway), next);
        match blocking(move || read(&reader, from)).await {
            Ok(Ok((records, following))) => {
                next = Some(following);
                for record in &records {
                    if let Some(news) = news(record) {
                        gateway.approvals.tell(&news);
                    }
                }
                if !records.is_empty() {
                    continue;
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "the record cannot be read"),
            Err(_) => return,
        }
        tokio::select! {
            () = gateway.approvals.changed.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// The records from this one on, and the number of the one after them. Without a number: none, and
/// where to begin.
fn read(gateway: &Gateway, from: Option<u64>) -> Result<(Vec<AuditRecord>, u64), HostError> {
    let desk = gateway.host.desk();
    let Some(from) = from else {
        return Ok((Vec::new(), desk.audit_head()?.seq + 1));
    };
    if desk.audit_head()?.seq < from {
        return Ok((Vec::new(), from));
    }
    let records = desk.audit_log(&AuditFilter {
        from_seq: Some(from),
        order: AuditOrder::OldestFirst,
        ..AuditFilter::default()
    })?;
    let following = records.last().map_or(from, |record| record.seq + 1);
    Ok((records, following))
}

fn news(record: &AuditRecord) -> Option<News> {
    let id = record.body["approvalId"].as_str()?.to_owned();
    match record.kind {
        AuditKind::Prompt => Some(News::Asked { id }),
        AuditKind::Decision => Some(News::Ended { id }),
        _ => None,
    }
}
