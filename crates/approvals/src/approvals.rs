//! The handle for the approvals of one host: the store that keeps them and the settings that they
//! depend on.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_config::{ConfigError, ConfigFile};
use interlock_store::{ApprovalEnd, ApprovalSummary, MAX_PAGE, PendingCursor, PendingPage, Store};

use crate::clock::now;
use interlock_rules::RulesError;

/// The host name of runs on this machine. Nodes have their own names.
pub const THIS_HOST: &str = "gateway";

/// How often a wait checks, without a notification, whether the approval has expired and whether
/// the store still exists.
const LOOK: Duration = Duration::from_secs(1);

/// The interval where the kernel has no file watch left for this user.
const UNWATCHED_LOOK: Duration = Duration::from_millis(50);

/// The access of approvals to the owner's config.
pub trait ApprovalSettings: fmt::Debug + Send + Sync {
    /// The config in force.
    fn config(&self) -> Result<Arc<ConfigFile>, ConfigError>;
}

/// The approvals of one host.
#[derive(Debug, Clone, Copy)]
pub struct Approvals<'a> {
    pub(crate) store: &'a Store,
    settings: &'a dyn ApprovalSettings,
}

impl<'a> Approvals<'a> {
    pub fn new(store: &'a Store, settings: &'a dyn ApprovalSettings) -> Self {
        Self { store, settings }
    }

    pub(crate) fn config(self) -> Result<Arc<ConfigFile>, ConfigError> {
        self.settings.config()
    }

    /// A page of pending approvals, ordered by expiry.
    pub fn pending(self, offset: usize, limit: usize) -> Result<PendingPage, RulesError> {
        let now = now();
        self.store.check_in_place()?;
        self.expire(now)?;
        Ok(self.store.pending_approvals(now, offset, limit)?)
    }

    /// A page of the approvals that can still be decided, ordered by expiry.
    pub fn pending_page(
        self,
        after: Option<PendingCursor>,
        limit: usize,
    ) -> Result<PendingPage, RulesError> {
        let now = now();
        self.store.check_in_place()?;
        self.expire(now)?;
        Ok(self.store.pending_page(now, after, limit)?)
    }

    /// All approvals that can still be decided.
    pub fn all_pending(self) -> Result<Vec<ApprovalSummary>, RulesError> {
        let mut page = self.pending_page(None, MAX_PAGE)?;
        let mut all = page.approvals;
        while let Some(next) = page.next {
            page = self.store.pending_page(now(), Some(next), MAX_PAGE)?;
            all.append(&mut page.approvals);
        }
        Ok(all)
    }

    /// Ends approvals that were not decided in time.
    pub fn expire_due(self) -> Result<(), RulesError> {
        self.expire(now())
    }

    /// How an approval ended; `None` if it has not. Ends an approval whose time is up. Fails if the
    /// store was removed: no decision can arrive there, and a caller must not wait for one.
    pub fn ended(self, id: &str) -> Result<Option<ApprovalEnd>, RulesError> {
        self.store.check_in_place()?;
        let approval = self.store.approval(id)?;
        if approval.ended.is_some() || now() < approval.request.expires_at_ms {
            return Ok(approval.ended);
        }
        self.expire(now())?;
        Ok(self.store.approval(id)?.ended)
    }

    /// Waits until an approval has ended; `None` if it has not within `timeout`.
    pub fn wait(self, id: &str, timeout: Duration) -> Result<Option<ApprovalEnd>, RulesError> {
        let until = Instant::now().checked_add(timeout);
        // The watch begins before the first check, so that no decision is missed in between.
        let watch = (!timeout.is_zero()).then(|| self.store.watch()).flatten();
        loop {
            if let Some(ended) = self.ended(id)? {
                return Ok(Some(ended));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let left = left.unwrap_or(LOOK);
            match &watch {
                Some(watch) => {
                    watch.wait(left.min(LOOK));
                }
                None => std::thread::sleep(left.min(UNWATCHED_LOOK)),
            }
        }
    }
}
