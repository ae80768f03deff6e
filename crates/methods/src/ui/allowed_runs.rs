//! Shows on cards how allowed runs go on, even if a caller waits for the result and the
//! conversation receives no event.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_dispatch::work::blocking;
use interlock_store::{ApprovalClaim, ClaimState};
use interlock_web::{AllowedRun, run_line};
use tokio::sync::broadcast::error::RecvError;

use super::patches::tell_run;
use crate::gateway::Gateway;

/// The shortest time between two reads of the store while runs are followed.
const LOOK: Duration = Duration::from_millis(100);

/// The most runs that are followed at once. A page learns about other runs when it is opened.
const MOST_FOLLOWED: usize = 256;

/// How long a run is followed. A longer run is followed on the page of its session.
const LONGEST: Duration = Duration::from_hours(1);

/// A run that is followed.
#[derive(Debug)]
struct WatchedAllowedRun {
    since: Instant,
    /// The line that the pages received last.
    said: String,
}

/// Follows allowed runs until the gateway ends.
pub async fn follow(gateway: Arc<Gateway>) {
    let mut changes = gateway.dispatcher.approvals.changes();
    let mut followed: HashMap<String, WatchedAllowedRun> = HashMap::new();
    let mut record = gateway.dispatcher.record.look(LOOK);
    loop {
        tokio::select! {
            change = changes.recv() => match change {
                Ok(approval) => {
                    let ended = approval.ended.as_ref();
                    let is_allowed = ended.is_some_and(|ended| ended.ending.allows());
                    if is_allowed && has_pages(&gateway) && followed.len() < MOST_FOLLOWED {
                        let run = WatchedAllowedRun { since: Instant::now(), said: String::new() };
                        followed.insert(approval.id.clone(), run);
                    }
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            },
            () = record.again(), if !followed.is_empty() => {
                look(&gateway, &mut followed).await;
            }
        }
    }
}

fn has_pages(gateway: &Gateway) -> bool {
    let approvers = gateway.dispatcher.hub.approvers("");
    approvers.iter().any(|client| client.topics.has_page())
}

/// Sends changes to the pages, and forgets runs that have ended.
async fn look(gateway: &Arc<Gateway>, followed: &mut HashMap<String, WatchedAllowedRun>) {
    let (reader, ids) = (Arc::clone(gateway), followed.keys().cloned());
    let ids: Vec<String> = ids.collect();
    let read = blocking(move || {
        let runs = ids.into_iter().map(|id| {
            let run = read(&reader, &id);
            (id, run)
        });
        runs.collect::<Vec<_>>()
    });
    for (id, run) in read.await.unwrap_or_default() {
        let Some(known) = followed.get_mut(&id) else {
            continue;
        };
        let is_over = run.as_ref().is_some_and(is_over);
        let line = run_line(&id, run.as_ref()).into_string();
        if run.is_some() && line != known.said {
            let mut pages = gateway.dispatcher.hub.approvers("");
            pages.retain(|client| client.topics.has_page());
            tell_run(&pages, &id, &line);
            known.said = line;
        }
        if is_over || known.since.elapsed() > LONGEST {
            followed.remove(&id);
        }
    }
}

fn is_over(run: &AllowedRun) -> bool {
    run.claim.state != ClaimState::Unfinished
}

/// Returns the run that an approval allowed, if the approval was claimed.
pub(super) fn read(gateway: &Gateway, id: &str) -> Option<AllowedRun> {
    let store = gateway.dispatcher.host.store();
    let claim: ApprovalClaim = store.approval(id).ok()?.claim?;
    let recorded = match &claim.state {
        ClaimState::Finished { outcome, .. } => outcome.session.value().cloned(),
        _ => None,
    };
    let session = recorded.or_else(|| store.open_run_by_id(&claim.id).ok()??.session);
    Some(AllowedRun { claim, session })
}
