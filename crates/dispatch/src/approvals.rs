//! Approvals and their decisions, as the audit records them.
//!
//! Several processes ask for approvals and decide them: this one, the command line, a companion.
//! All of them write the same record. The gateway follows that record, and so learns of every
//! change once and in order, no matter which process made it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use interlock_approvals::{AuditFilter, AuditKind, AuditOrder, AuditRecord, PendingApproval};
use interlock_command::display::Secrets;
use interlock_host::HostError;
use interlock_store::{ApprovalEnd, ApprovalEnding};
use serde::Deserialize;
use tokio::sync::{Notify, broadcast, oneshot};

use crate::dispatcher::Dispatcher;
use crate::networks;
use crate::work::blocking;
use interlock_connections::Hub;

/// How often other processes' changes are looked for while there are many.
const LOOK: Duration = Duration::from_millis(100);

/// How often overdue approvals are looked for.
const EXPIRY: Duration = Duration::from_secs(1);

/// How many changes are remembered, so that reading the record does not publish them again.
const MOST_PUBLISHED: usize = 4096;

/// How many changes a slow follower may be behind. It misses older ones.
const MOST_UNREAD: usize = 1024;

/// A change of an approval.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum ApprovalChange {
    Asked { id: String },
    Ended { id: String },
}

impl ApprovalChange {
    fn of(approval: &PendingApproval) -> Self {
        let id = approval.id.clone();
        match approval.ended {
            None => Self::Asked { id },
            Some(_) => Self::Ended { id },
        }
    }

    fn id(&self) -> &str {
        match self {
            Self::Asked { id } | Self::Ended { id } => id,
        }
    }
}

/// Shows an approval, or its end, to connected clients. The time is set if the approval had already
/// ended when it was shown: clients that connected after that time have nothing to decide.
pub type ShowApproval = fn(&Hub, &PendingApproval, Option<i64>);

/// The changes of approvals that this process knows of, and the callers that wait for them.
#[derive(Debug)]
pub struct ApprovalFeed {
    show: ShowApproval,
    /// Waiters for the end of an approval, by its id.
    waiting: Mutex<HashMap<String, Vec<ApprovalWaiter>>>,
    changed: Notify,
    published: Mutex<PublishedChanges>,
    held: Arc<HeldApprovals>,
    /// Surfaces that are reached later than connected clients.
    followers: broadcast::Sender<Arc<PendingApproval>>,
}

/// The approvals that calls of this process use, or wait to use.
#[derive(Debug, Default)]
struct HeldApprovals {
    /// How many calls hold an approval, by its id.
    holders: Mutex<HashMap<String, usize>>,
    released: Notify,
}

impl HeldApprovals {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, id: &str) -> usize {
        self.lock().get(id).copied().unwrap_or_default()
    }
}

/// Marks an approval that a call of this process uses, or waits to use. Calls that look for an
/// unused approval leave it alone.
#[derive(Debug)]
pub struct HeldApproval {
    id: String,
    all: Arc<HeldApprovals>,
}

impl HeldApproval {
    /// Returns when no other call holds the approval.
    pub async fn until_alone(&self) {
        loop {
            let released = self.all.released.notified();
            if self.all.count(&self.id) <= 1 {
                return;
            }
            released.await;
        }
    }
}

impl Drop for HeldApproval {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(count) = all.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.id);
            }
        }
        drop(all);
        self.all.released.notify_waiters();
    }
}

/// An ended approval; `None` if it cannot be read.
pub type EndedApproval = Option<Arc<PendingApproval>>;

/// A waiter for the end of an approval.
enum ApprovalWaiter {
    Task(oneshot::Sender<EndedApproval>),
    Call(Box<dyn FnOnce(EndedApproval) + Send>),
}

impl ApprovalWaiter {
    fn has_given_up(&self) -> bool {
        matches!(self, Self::Task(tell) if tell.is_closed())
    }

    fn tell(self, ended: EndedApproval) {
        match self {
            Self::Task(tell) => drop(tell.send(ended)),
            Self::Call(call) => call(ended),
        }
    }
}

impl fmt::Debug for ApprovalWaiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Task(_) => "Task",
            Self::Call(_) => "Call",
        })
    }
}

#[derive(Debug, Default)]
struct PublishedChanges {
    all: HashSet<ApprovalChange>,
    oldest_first: VecDeque<ApprovalChange>,
    /// Published approvals whose end was not published yet, by id.
    pending: HashMap<String, Arc<PendingApproval>>,
}

impl PublishedChanges {
    /// Adds a change. `false` if it was published before.
    fn insert(&mut self, change: ApprovalChange) -> bool {
        if !self.all.insert(change.clone()) {
            return false;
        }
        self.oldest_first.push_back(change);
        if self.oldest_first.len() > MOST_PUBLISHED
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.all.remove(&oldest);
            self.pending.remove(oldest.id());
        }
        true
    }

    fn forget(&mut self, id: &str) {
        self.all.retain(|change| change.id() != id);
        self.oldest_first.retain(|change| change.id() != id);
        self.pending.remove(id);
    }
}

impl ApprovalFeed {
    pub fn new(show: ShowApproval) -> Self {
        Self {
            show,
            waiting: Mutex::default(),
            changed: Notify::default(),
            published: Mutex::default(),
            held: Arc::default(),
            followers: broadcast::Sender::new(MOST_UNREAD),
        }
    }

    /// Every approval from now on, when it is asked and when it ends.
    pub fn changes(&self) -> broadcast::Receiver<Arc<PendingApproval>> {
        self.followers.subscribe()
    }

    /// Returns when the approval has ended. The waiter is registered at once, so that no end is
    /// missed.
    pub fn wait_for(&self, id: &str) -> impl Future<Output = EndedApproval> + use<> {
        let (sender, receiver) = oneshot::channel();
        self.add_waiting(id, ApprovalWaiter::Task(sender));
        async move {
            match receiver.await {
                Ok(ended) => ended,
                // The gateway is stopping. Each waiter has its own limit.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Calls `call` when the approval has ended, on the thread that publishes the end.
    pub fn when_ended(&self, id: &str, call: impl FnOnce(EndedApproval) + Send + 'static) {
        self.add_waiting(id, ApprovalWaiter::Call(Box::new(call)));
    }

    fn add_waiting(&self, id: &str, one: ApprovalWaiter) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Waiters that gave up are removed here.
        let all = waiting.entry(id.to_owned()).or_default();
        all.retain(|other| !other.has_given_up());
        all.push(one);
    }

    pub fn hold(&self, id: &str) -> HeldApproval {
        *self.held.lock().entry(id.to_owned()).or_default() += 1;
        HeldApproval {
            id: id.to_owned(),
            all: Arc::clone(&self.held),
        }
    }

    pub fn is_held(&self, id: &str) -> bool {
        self.held.count(id) > 0
    }

    /// Makes followers read the record now, because this process changed something.
    pub fn look_now(&self) {
        self.changed.notify_one();
    }

    /// Publishes an approval whose present state is on disk: that it was asked, or has ended.
    pub fn tell(&self, dispatcher: &Dispatcher, approval: PendingApproval) {
        let is_end = approval.ended.is_some();
        let approval = Arc::new(approval);
        if !self.note(&approval) {
            return;
        }
        if is_end {
            self.wake(&approval.id, Some(&approval));
        }
        (self.show)(&dispatcher.hub, &approval, None);
        // Without a follower it is dropped.
        let _ = self.followers.send(approval);
    }

    /// Publishes the request of an approval that has ended in the meantime.
    fn tell_past(&self, dispatcher: &Dispatcher, approval: PendingApproval, ended_at_ms: i64) {
        let approval = Arc::new(approval);
        if self.note(&approval) {
            (self.show)(&dispatcher.hub, &approval, Some(ended_at_ms));
        }
    }

    /// Withdraws an approval that could not be written. Its id may be used again.
    pub fn take_back(&self, dispatcher: &Dispatcher, id: &str) {
        let Some(approval) = self.pending(id) else {
            self.wake(id, None);
            return;
        };
        let ended = Some(ApprovalEnd {
            ending: ApprovalEnding::Withdrawn,
            decider: None,
            reason: None,
            at_ms: approval.created_at_ms,
        });
        let approval = Arc::unwrap_or_clone(approval);
        self.tell(dispatcher, PendingApproval { ended, ..approval });
        self.published().forget(id);
    }

    /// A published approval by its full id, if its end was not published. The record decides; the
    /// end is the only change of an approval.
    pub fn pending(&self, id: &str) -> Option<Arc<PendingApproval>> {
        self.published().pending.get(id).cloned()
    }

    /// Notes a change. `false` if it was published before.
    fn note(&self, approval: &Arc<PendingApproval>) -> bool {
        let mut published = self.published();
        let (change, id) = (ApprovalChange::of(approval), &approval.id);
        let has_ended = published
            .all
            .contains(&ApprovalChange::Ended { id: id.clone() });
        if approval.ended.is_some() {
            published.pending.remove(id);
        } else if !has_ended {
            published.pending.insert(id.clone(), Arc::clone(approval));
        }
        published.insert(change)
    }

    fn is_new(&self, change: ApprovalChange) -> bool {
        self.published().insert(change)
    }

    fn is_published(&self, change: &ApprovalChange) -> bool {
        self.published().all.contains(change)
    }

    fn published(&self) -> MutexGuard<'_, PublishedChanges> {
        self.published
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self, id: &str, approval: Option<&Arc<PendingApproval>>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let all = waiting.remove(id);
        drop(waiting);
        for one in all.into_iter().flatten() {
            one.tell(approval.cloned());
        }
    }
}

/// Ends approvals that are not decided in time, and records background runs that ended, until the
/// gateway stops.
pub async fn expire(dispatcher: Arc<Dispatcher>) {
    loop {
        tokio::time::sleep(EXPIRY).await;
        let expiring = Arc::clone(&dispatcher);
        let tidy = move || {
            let approvals = expiring.host.approvals();
            approvals.expire_due()?;
            networks::look_after(&expiring);
            // Records the ends of background runs, and of runs whose waiter is gone.
            expiring.host.recover(&expiring.supervisor)
        };
        match blocking(tidy).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "approvals and runs cannot be ended"),
            Err(_) => return,
        }
    }
}

/// Follows the record until the gateway stops.
pub async fn follow(dispatcher: Arc<Dispatcher>) {
    let mut next = None;
    let mut look = dispatcher.record.look(LOOK);
    loop {
        let (reader, from) = (Arc::clone(&dispatcher), next);
        match blocking(move || read(&reader, from)).await {
            Ok(Ok((records, following))) => {
                next = Some(following);
                if records > 0 {
                    continue;
                }
            }
            Ok(Err(error)) => tracing::warn!(%error, "the record cannot be read"),
            Err(_) => return,
        }
        tokio::select! {
            () = dispatcher.approvals.changed.notified() => {}
            () = look.again() => {}
        }
    }
}

/// Publishes the changes in the records from this number on. Returns how many records there were,
/// and the number of the next one. Without a number, only returns where to begin.
fn read(dispatcher: &Dispatcher, from: Option<u64>) -> Result<(usize, u64), HostError> {
    let approvals = dispatcher.host.approvals();
    let Some(from) = from else {
        return Ok((0, approvals.audit_head()?.seq + 1));
    };
    let records = approvals.audit_log(&AuditFilter {
        from_seq: Some(from),
        order: AuditOrder::OldestFirst,
        ..AuditFilter::default()
    })?;
    let following = records.last().map_or(from, |record| record.seq + 1);
    let feed = &dispatcher.approvals;
    let changes = records.iter().filter_map(approval_change);
    let unpublished: Vec<ApprovalChange> = changes
        .filter(|change| !feed.is_published(change))
        .collect();
    if !unpublished.is_empty() {
        // Other processes may be about to wait for the disk.
        dispatcher.host.store().sync().map_err(HostError::from)?;
    }
    for change in unpublished {
        if feed.is_published(&change) {
            continue;
        }
        match approvals.approval(change.id(), Secrets::Masked) {
            Ok(approval) => {
                // The approval may have ended since it was asked. Both changes are published.
                match (&change, approval.ended.clone()) {
                    (ApprovalChange::Asked { .. }, Some(end)) => {
                        let ended = None;
                        let approval = PendingApproval { ended, ..approval };
                        feed.tell_past(dispatcher, approval, end.at_ms);
                    }
                    _ => feed.tell(dispatcher, approval),
                }
            }
            Err(error) => {
                tracing::warn!(%error, "an approval cannot be shown");
                if matches!(change, ApprovalChange::Ended { .. }) && feed.is_new(change.clone()) {
                    feed.wake(change.id(), None);
                }
            }
        }
    }
    Ok((records.len(), following))
}

/// The body of an audit record about an approval.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApprovalRecordBody {
    approval_id: String,
}

fn approval_change(record: &AuditRecord) -> Option<ApprovalChange> {
    let id = ApprovalRecordBody::deserialize(&record.body)
        .ok()?
        .approval_id;
    match record.kind {
        AuditKind::Prompt => Some(ApprovalChange::Asked { id }),
        AuditKind::Decision => Some(ApprovalChange::Ended { id }),
        _ => None,
    }
}
