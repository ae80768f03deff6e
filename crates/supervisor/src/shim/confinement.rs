//! The control group of a shim and its run, and the limits that are set there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use interlock_engine::ForcedEnd;

use super::Birth;
use crate::cgroup::{self, Group, GroupError, RunLimits};
use crate::handover;
use crate::message::{ShimReport, SupervisorRefusal};

/// Number that is added to a limit of processes, because the shim itself and its threads count
/// against it: the main thread, one for the run, one for each of a few connections, and those of a
/// line with many commands.
const OWN_THREADS: u64 = 16;

/// How long a group may take to become empty after its only process has left it.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Confinement {
    /// `None` if the system has no groups for Interlock.
    pub group: Option<Group>,
    /// The limits that are set in the group.
    limits: RunLimits,
    /// A run was ended by force, and this process has left the group for that.
    left: Arc<AtomicBool>,
    /// The groups of this process in all trees, as they were when this process last changed them.
    place: String,
}

impl Confinement {
    /// Enters a group before anything else exists, so that everything that this process starts is
    /// in it too, and sets the limits that the order will probably ask for.
    pub fn expecting(birth: &Birth) -> Self {
        let mut confinement = Self {
            group: enter(birth).ok(),
            limits: RunLimits::default(),
            left: Arc::default(),
            place: String::new(),
        };
        if !birth.limits.is_empty() && confinement.apply(birth, birth.limits).is_err() {
            // The order reports the failure, if it asks for these limits at all.
            confinement.start_anew(birth);
        }
        confinement.place = cgroup::own_place();
        confinement
    }

    /// Ends everything in the group except this process, which leaves the group.
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

    /// Whether this process is still in its groups. A run may move the process above it.
    pub fn is_in_place(&self) -> bool {
        self.place == cgroup::own_place()
    }

    /// Sets the limits. A requested limit that cannot be set is an error, and is never ignored.
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
        // Limits that were set only in part must be undone too.
        self.limits = limits;
        group.apply(&own).map_err(|error| error.to_string())?;
        // Without version 2, there was no group to enter before the limits were set.
        if !group.has_caller() {
            group.join_self().map_err(|error| error.to_string())?;
        }
        if group.has_caller() {
            Ok(())
        } else {
            Err("this process could not be put into its control group".to_owned())
        }
    }

    /// Starts over in a group of the same name, without limits, or without a group if that fails.
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
