//! Control groups: which processes belong to a run, how much they may use, and how all of them are
//! ended in one step.
//!
//! There are two versions. In version 2, one tree of directories holds everything; in version 1,
//! each controller has a tree of its own; a hybrid system has both at once. [`Hierarchies::probe`]
//! finds out once what this system offers, and says in words what it does not. A [`Group`] is one
//! run's directory there: the same name in every tree, so that a handle needs no state of its own
//! and can be handed to another process (it is serializable).
//!
//! How a run uses it:
//!
//! 1. The supervisor probes, makes a group ahead of time ([`Group::create`]: one directory in
//!    version 2), and puts the run's shim into it; what the shim starts inherits it.
//! 2. The order comes. If it sets limits, [`Group::apply`] writes them, in trees of version 1 too
//!    where version 2 lacks the controller. A limit that cannot be set is an error.
//! 3. To end the tree by force, the shim calls [`Group::kill`], which takes the caller out first.
//! 4. The supervisor reads what the kernel did ([`Group::oom_kills`]) and removes the group
//!    ([`Group::remove`]). What a crashed supervisor left is removed by [`sweep`].
//!
//! A tree that is not permitted, read-only or not mounted is an answer ([`Unavailable`]), not a
//! failure. The kernel keeps a process in its group however it detaches itself, unless it may write
//! to the trees, as root may: a group is no sandbox.
//!
//! Read in this order: `hierarchies`, `group`, `limits`, `ending`, `sweep`, `service`, `lead`.

mod ending;
mod files;
mod group;
mod hierarchies;
mod lead;
mod limits;
mod mounts;
mod name;
mod service;
mod sweep;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use ending::KilledBy;
pub use group::{Group, Joiner};
pub use hierarchies::{CgroupFinding, Hierarchies};
pub use lead::{Led, lead_own_group};
pub use limits::{BadCpus, CgroupVersion, Cpus, NotLimited, RunLimit, RunLimits};
pub(crate) use name::own_place;
pub use name::{BadName, run_of};
pub use service::{LeftGroups, Move, Stay, leave_service_group};
pub use sweep::{KeptGroup, Swept, sweep};

/// Why something is not available on this system, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(String);

impl Unavailable {
    fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }
}

/// An error of an operation on a group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    #[error(transparent)]
    BadName(#[from] BadName),
    #[error("no control group: {0}")]
    Unavailable(#[from] Unavailable),
    #[error("{doing} {}: {}", .path.display(), files::words(.source))]
    File {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The group did not become empty in time.
    #[error("{} processes are still in {}", .members.len(), .path.display())]
    Populated { path: PathBuf, members: Vec<i32> },
}
