//! The handle over the approvals of one host: the store that keeps them and the settings that they
//! depend on.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_config::{ConfigError, ConfigFile};
use interlock_store::{ApprovalEnd, ApprovalSummary, MAX_PAGE, PendingCursor, PendingPage, Store};

use crate::clock::now;
use interlock_rules::RulesError;

/// The host name of runs on this machine; nodes have names of their own.
pub const THIS_HOST: &str = "gateway";

/// How often a wait looks in any case: at the time of the approval, and whether the store is still there.
const LOOK: Duration = Duration::from_secs(1);

/// The same where the kernel has no watch left for this user.
const UNWATCHED_LOOK: Duration = Duration::from_millis(50);

/// What approvals need to know of the owner's config.
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

    /// A page of pending approvals, the one that expires first in front.
    pub fn pending(self, offset: usize, limit: usize) -> Result<PendingPage, RulesError> {
        let now = now();
        self.store.check_in_place()?;
        self.expire(now)?;
        Ok(self.store.pending_approvals(now, offset, limit)?)
    }

    /// A page of the approvals that can still be decided, the one that expires first in front.
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

    /// All of them.
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

    /// How an approval ended, if it has. One whose time is up is ended by this. Fails when the store
    /// was removed: no decision can come there, and a caller must not wait for one.
    pub fn ended(self, id: &str) -> Result<Option<ApprovalEnd>, RulesError> {
        self.store.check_in_place()?;
        let approval = self.store.approval(id)?;
        if approval.ended.is_some() || now() < approval.request.expires_at_ms {
            return Ok(approval.ended);
        }
        self.expire(now())?;
        Ok(self.store.approval(id)?.ended)
    }

    /// Waits until an approval has ended; `None` when it has not in this time.
    pub fn wait(self, id: &str, timeout: Duration) -> Result<Option<ApprovalEnd>, RulesError> {
        let until = Instant::now().checked_add(timeout);
        // Begun before the first look, so that no decision falls between the two.
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
