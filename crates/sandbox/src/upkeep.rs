//! Removes the directories of scopes: on demand, or if they were not used for long.

use std::io;
use std::time::Duration;

use interlock_config::types::SandboxPrune;

use crate::scope::{ScopeRecord, ScopeStore};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// Limits of `prune`, if the config does not set them.
const IDLE_HOURS: u32 = 24;
const MAX_AGE_DAYS: u32 = 7;

/// Which scopes are removed, so that their next run makes them anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScopeSelection<'a> {
    /// All scopes, even those whose record cannot be read.
    All,
    Agent(&'a str),
    Session(&'a str),
}

/// How many scopes were removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovedScopes {
    pub removed: usize,
    /// Scopes that stay, because something runs in them.
    pub busy: usize,
}

/// A scope that cannot be removed.
#[derive(Debug, thiserror::Error)]
#[error("{id} cannot be removed: {source}")]
pub struct ScopeRemovalError {
    id: String,
    source: io::Error,
}

impl ScopeStore {
    /// Removes these scopes. `end` ends the processes that keep a scope, and returns whether
    /// nothing runs in it.
    pub fn recreate(
        &self,
        selection: ScopeSelection<'_>,
        end: impl Fn(&str) -> bool,
    ) -> Result<RemovedScopes, ScopeRemovalError> {
        let (scopes, unusable) = self.list();
        let is_meant = |scope: &ScopeRecord| match selection {
            ScopeSelection::All => true,
            ScopeSelection::Agent(agent) => scope.agent.eq_ignore_ascii_case(agent),
            ScopeSelection::Session(key) => scope.session_key.as_deref() == Some(key),
        };
        let meant = scopes.into_iter().filter(is_meant).map(|scope| scope.id);
        let mut ids: Vec<String> = meant.collect();
        if selection == ScopeSelection::All {
            ids.extend(unusable.into_iter().map(|scope| scope.id));
        }
        self.remove_all(&ids, end)
    }

    /// Removes the scopes that were not used for as long as the owner's settings say. `end` is the
    /// same as for [`Self::recreate`].
    pub fn prune(
        &self,
        settings: &SandboxPrune,
        end: impl Fn(&str) -> bool,
    ) -> Result<RemovedScopes, ScopeRemovalError> {
        let count = |set: Option<u64>, usual: u32| {
            set.map_or(usual, |set| u32::try_from(set).unwrap_or(u32::MAX))
        };
        let idle = HOUR * count(settings.idle_hours, IDLE_HOURS);
        let age = DAY * count(settings.max_age_days, MAX_AGE_DAYS);
        let (scopes, _) = self.list();
        let due = scopes.iter().filter(|scope| self.is_due(scope, idle, age));
        let ids: Vec<String> = due.map(|scope| scope.id.clone()).collect();
        self.remove_all(&ids, end)
    }

    fn remove_all(
        &self,
        ids: &[String],
        end: impl Fn(&str) -> bool,
    ) -> Result<RemovedScopes, ScopeRemovalError> {
        let mut all = RemovedScopes::default();
        for id in ids {
            // What its runs left in `/tmp` is removed too. A run that begins meanwhile keeps the
            // directory.
            if !end(id) {
                all.busy += 1;
                continue;
            }
            let is_removed = self.remove(id).map_err(|source| ScopeRemovalError {
                id: id.clone(),
                source,
            })?;
            if is_removed {
                all.removed += 1;
            } else {
                all.busy += 1;
            }
        }
        Ok(all)
    }
}
