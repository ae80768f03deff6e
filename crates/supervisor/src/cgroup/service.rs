//! Moves a process out of the group of a service.
//!
//! A service manager that stops or restarts a service ends everything in its group. A supervisor
//! that a gateway started on demand is in the gateway's group, and must outlive the gateway.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::files;
use super::hierarchies::own_trees;
use super::mounts::{CgroupTree, HierarchyKind};
use super::name::{self, SUPERVISOR};
use super::sweep::is_of_dead_process;
use super::{GroupError, Unavailable};

/// Trees of version 1 in which membership in the service's group also means being stopped, starved
/// or frozen with it. Named trees are those by which service managers keep track without version 2.
const SHARED_FATE: &[&str] = &["freezer", "pids", "memory"];

/// Limits that an owner may have set for the service. Leaving must not lift them, so the new group
/// gets the same. The order matters in version 1: the limit of memory and swap together is never
/// below that of memory.
const CARRIED: &[&str] = &[
    "memory.max",
    "memory.high",
    "memory.swap.max",
    "pids.max",
    "cpu.max",
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
];

/// In version 1, unlimited memory is represented by a number beyond all memory.
const BEYOND: u64 = 1 << 62;

/// What [`leave_service_group`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftGroups {
    pub moved: Vec<Move>,
    pub stayed: Vec<Stay>,
}

/// A move from one group to another in one tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The name of the tree, such as `v2` or `v1 name=systemd`.
    pub tree: String,
    pub from: PathBuf,
    pub to: PathBuf,
}

/// A tree in which the process stays where it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stay {
    pub tree: String,
    pub reason: Unavailable,
}

/// Moves the calling process, with all its threads, out of the group that its starter put it in,
/// into a group of its own beside it, in every tree by which a service manager ends or stops a
/// service. The new group keeps the limits of the service.
///
/// This must be called early, before there are children, because they stay where they are. Empty
/// groups that earlier supervisors made in this way are removed.
///
/// An error means that the process is still in the service's group, and nothing was changed. A
/// process of a run never leaves its run by this.
pub fn leave_service_group() -> Result<LeftGroups, Unavailable> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    if let Some(run) = name::run_in(&own) {
        return Err(Unavailable::new(format!(
            "this process belongs to the run {}",
            run.as_str()
        )));
    }
    leave(own_trees()?)
}

pub(super) fn leave(mut trees: Vec<CgroupTree>) -> Result<LeftGroups, Unavailable> {
    // The decisive trees come first, so that there is little to undo.
    trees.sort_by_key(|tree| !tracks(tree));
    let mut left = LeftGroups::default();
    for tree in trees.into_iter().filter(matters) {
        match leave_tree(&tree) {
            Ok(moved) => left.moved.push(moved),
            Err(LeaveRefusal::NothingToLeave(reason)) => left.stayed.push(Stay {
                tree: tree.title(),
                reason,
            }),
            Err(LeaveRefusal::Cannot(error)) => {
                let reason = Unavailable::new(error.to_string());
                if tracks(&tree) {
                    left.moved.iter().for_each(undo);
                    return Err(reason);
                }
                left.stayed.push(Stay {
                    tree: tree.title(),
                    reason,
                });
            }
        }
    }
    Ok(left)
}

/// Whether service managers use this tree to track the processes of a service.
fn tracks(tree: &CgroupTree) -> bool {
    match &tree.kind {
        HierarchyKind::V2 => true,
        HierarchyKind::V1(words) => words.iter().any(|word| word.starts_with("name=")),
    }
}

fn matters(tree: &CgroupTree) -> bool {
    tracks(tree) || SHARED_FATE.iter().any(|controller| tree.has(controller))
}

enum LeaveRefusal {
    NothingToLeave(Unavailable),
    Cannot(GroupError),
}

fn leave_tree(tree: &CgroupTree) -> Result<Move, LeaveRefusal> {
    let service = service_group(tree).map_err(LeaveRefusal::NothingToLeave)?;
    let Some(parent) = service.parent() else {
        return Err(LeaveRefusal::NothingToLeave(Unavailable::new(
            "it is the top",
        )));
    };
    for sibling in files::children(parent) {
        if files::file_name(&sibling).is_some_and(|name| is_of_dead_process(name, SUPERVISOR)) {
            let _ = files::remove_tree(&sibling);
        }
    }
    let to = parent.join(format!("{SUPERVISOR}{}", std::process::id()));
    match fs::create_dir(&to) {
        Ok(()) => {}
        // An earlier process with the same number left this group. It is empty, or it cannot be
        // removed.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            files::remove_tree(&to).map_err(LeaveRefusal::Cannot)?;
            fs::create_dir(&to).map_err(|error| {
                LeaveRefusal::Cannot(GroupError::file("cannot make", &to)(error))
            })?;
        }
        Err(error) => {
            return Err(LeaveRefusal::Cannot(GroupError::file(
                "cannot make a group in",
                parent,
            )(error)));
        }
    }
    let joined = carry_limits(&service, &to).and_then(|()| files::write(&to, "cgroup.procs", "0"));
    if let Err(error) = joined {
        let _ = fs::remove_dir(&to);
        return Err(LeaveRefusal::Cannot(error));
    }
    Ok(Move {
        tree: tree.title(),
        from: tree.own.clone(),
        to,
    })
}

/// Returns the group that the service manager ends: that of the innermost unit, because a service
/// can have subgroups of its own, or else the own group.
fn service_group(tree: &CgroupTree) -> Result<PathBuf, Unavailable> {
    if tree.own == tree.top {
        return Err(Unavailable::new("the group is the highest one there is"));
    }
    let is_supervisor =
        |path: &Path| files::file_name(path).is_some_and(|name| name.starts_with(SUPERVISOR));
    let is_unit = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("service" | "scope"))
    };
    let mut upwards = tree.own.ancestors().take_while(|path| *path != tree.top);
    match upwards.find(|path| is_unit(path) || is_supervisor(path)) {
        Some(group) if is_supervisor(group) => {
            Err(Unavailable::new("the group is a supervisor's own already"))
        }
        group => Ok(group.unwrap_or(&tree.own).to_owned()),
    }
}

fn carry_limits(from: &Path, to: &Path) -> Result<(), GroupError> {
    for file in CARRIED {
        let Ok(value) = files::read(from, file) else {
            continue;
        };
        let value = value.trim();
        let is_limit = match value.parse::<u64>() {
            Ok(bytes) => bytes < BEYOND,
            Err(_) => !value.starts_with("max"),
        };
        if is_limit {
            files::write(to, file, value)?;
        }
    }
    Ok(())
}

fn undo(moved: &Move) {
    if files::write(&moved.from, "cgroup.procs", "0").is_ok() {
        let _ = fs::remove_dir(&moved.to);
    }
}
