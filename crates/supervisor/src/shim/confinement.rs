//! The control group of a shim and its run, and the limits that are set there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use interlock_engine::ForcedEnd;

use super::Birth;
use crate::cgroup::{self, Group, GroupError, RunLimits};
use crate::handover;
use crate::message::{ShimReport, SupervisorRefusal};

/// The process itself and its threads count against a limit of processes, and are added to it: the
/// main thread, one for the run, one for each of a few connections, and those of a line with many
/// commands.
const OWN_THREADS: u64 = 16;

/// How long a group may take to become empty when its only process has left it.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Confinement {
    /// None where the system has no groups for us.
    pub group: Option<Group>,
    /// What is set there.
    limits: RunLimits,
    /// A run was ended by force: this process has left the group for that.
    left: Arc<AtomicBool>,
    /// The groups of this process, of all trees, as they were when this was last changed here.
    place: String,
}

impl Confinement {
    /// Enters a group before anything else is there, so that all that this process starts is in it
    /// too; with the limits that the order will probably want.
    pub fn expecting(birth: &Birth) -> Self {
        let mut confinement = Self {
            group: enter(birth).ok(),
            limits: RunLimits::default(),
            left: Arc::default(),
            place: String::new(),
        };
        if !birth.limits.is_empty() && confinement.apply(birth, birth.limits).is_err() {
            // The order will tell, if it wants them at all.
            confinement.start_anew(birth);
        }
        confinement.place = cgroup::own_place();
        confinement
    }

    /// Ends all that is in the group but this process, which leaves it.
    pub fn forced_end(&self) -> Option<ForcedEnd> {
        let (group, left) = (self.group.clone()?, Arc::clone(&self.left));
        Some(ForcedEnd(Arc::new(move || {
            left.store(true, Ordering::Relaxed);
            drop(group.kill());
        })))
    }

    pub fn was_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Whether this process is still in its groups: a run may move the process above it.
    pub fn is_in_place(&self) -> bool {
        self.place == cgroup::own_place()
    }

    /// A limit that was asked for and cannot be set is an error, never left out.
    pub fn limit(&mut self, birth: &Birth, limits: RunLimits) -> Result<(), SupervisorRefusal> {
        if limits == self.limits {
            return Ok(());
        }
        if !self.limits.is_empty() {
            self.start_anew(birth);
        }
        let _ = handover::send_report(&birth.control, &ShimReport::Limits { limits });
        let applied = self.apply(birth, limits);
        self.place = cgroup::own_place();
        applied.map_err(|why| SupervisorRefusal::new("LIMITS_UNAVAILABLE", why))
    }

    pub fn is_unlimited(&self) -> bool {
        self.limits.is_empty()
    }

    fn apply(&mut self, birth: &Birth, limits: RunLimits) -> Result<(), String> {
        if limits.is_empty() {
            return Ok(());
        }
        let own = RunLimits {
            pids: limits.pids.map(|pids| pids.saturating_add(OWN_THREADS)),
            ..limits
        };
        let possible = birth.hierarchies.check(&own);
        possible.map_err(|error| error.to_string())?;
        let group = self.group.as_ref();
        let group = group.ok_or("no control group could be made")?;
        // Also what is set in part has to be taken back.
        self.limits = limits;
        group.apply(&own).map_err(|error| error.to_string())?;
        // Without version 2 there was nothing to enter before the limits were there.
        if !group.has_caller() {
            group.join_self().map_err(|error| error.to_string())?;
        }
        if group.has_caller() {
            Ok(())
        } else {
            Err("this process could not be put into its control group".to_owned())
        }
    }

    /// In a group of the same name, without limits. Without a group where that fails.
    fn start_anew(&mut self, birth: &Birth) {
        self.limits = RunLimits::default();
        let Some(group) = self.group.take() else {
            return;
        };
        let left = group.leave_self().and_then(|()| group.remove(PATIENCE));
        self.group = left.and_then(|()| enter(birth)).ok();
    }
}

fn enter(birth: &Birth) -> Result<Group, GroupError> {
    let group = Group::create(&birth.hierarchies, &birth.group)?;
    group.join_self()?;
    Ok(group)
}
