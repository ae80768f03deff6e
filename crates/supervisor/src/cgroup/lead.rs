//! Makes limits possible in version 2.
//!
//! In version 2, a group whose subgroups have controllers may not have processes of its own. A
//! supervisor whose group was delegated to it (`Delegate=yes`), or which made its group itself,
//! therefore moves one level down; the groups of its runs are then siblings of its own.

use std::fs;
use std::path::{Path, PathBuf};

use super::hierarchies::own_trees;
use super::limits::RunLimit;
use super::mounts::HierarchyKind;
use super::name::LEAF;
use super::{GroupError, Unavailable, files};

/// What [`lead_own_group`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Led {
    /// The group in which groups of runs can now be made.
    pub group: PathBuf,
    /// The controllers that can set limits there.
    pub controllers: Vec<String>,
}

/// Moves the calling process into a leaf below its own group of version 2, and enables the
/// controllers of memory, processes and processors for groups beside it.
///
/// This works only if the process is alone in its group, because other processes are not moved. It
/// is therefore called early, before there are children, and before [`super::Hierarchies::probe`],
/// which finds the place again. An error means that nothing was changed.
pub fn lead_own_group() -> Result<Led, Unavailable> {
    let trees = own_trees()?;
    let tree = trees
        .iter()
        .find(|tree| tree.kind == HierarchyKind::V2)
        .ok_or_else(|| Unavailable::new("control groups v2 are not mounted"))?;
    lead(&tree.own, &RunLimit::ALL.map(RunLimit::controller))
}

pub(super) fn lead(own: &Path, wanted: &[&'static str]) -> Result<Led, Unavailable> {
    let is_leaf = files::file_name(own) == Some(LEAF);
    let group = match own.parent() {
        Some(parent) if is_leaf => parent,
        _ => own,
    };
    let offered = words(group, "cgroup.controllers")?;
    let wanted: Vec<&str> = wanted
        .iter()
        .copied()
        .filter(|name| offered.iter().any(|one| one == name))
        .collect();
    if wanted.is_empty() {
        return Err(Unavailable::new(format!(
            "{} has no controller that sets a limit",
            group.display()
        )));
    }
    // The root group may have processes too. It is the only group without this file.
    let must_move = !is_leaf && group.join("cgroup.events").exists();
    if must_move {
        move_down(group)?;
    }
    let turned_on = turn_on(group, &wanted);
    if turned_on.is_err() && must_move {
        move_back(group);
    }
    Ok(Led {
        group: group.to_owned(),
        controllers: turned_on?,
    })
}

fn move_down(group: &Path) -> Result<(), Unavailable> {
    let own_pid = rustix::process::getpid().as_raw_pid();
    let others = files::read(group, "cgroup.procs").map_err(said)?;
    if others.lines().any(|pid| pid.parse() != Ok(own_pid)) {
        return Err(Unavailable::new(format!(
            "other processes are in {}",
            group.display()
        )));
    }
    let leaf = group.join(LEAF);
    if let Err(error) = fs::create_dir(&leaf)
        && !leaf.is_dir()
    {
        return Err(said(GroupError::file("cannot make a group in", group)(
            error,
        )));
    }
    files::write(&leaf, "cgroup.procs", "0").map_err(|error| {
        let _ = fs::remove_dir(&leaf);
        said(error)
    })
}

fn move_back(group: &Path) {
    if files::write(group, "cgroup.procs", "0").is_ok() {
        let _ = fs::remove_dir(group.join(LEAF));
    }
}

/// Enables controllers one by one, because the refusal of one says nothing about the others.
fn turn_on(group: &Path, wanted: &[&str]) -> Result<Vec<String>, Unavailable> {
    const FILE: &str = "cgroup.subtree_control";
    let mut refused = None;
    for name in wanted {
        if let Err(error) = files::write(group, FILE, &format!("+{name}")) {
            refused = Some(said(error));
        }
    }
    let mut on = words(group, FILE)?;
    on.retain(|name| wanted.contains(&name.as_str()));
    match refused {
        Some(reason) if on.is_empty() => Err(reason),
        _ => Ok(on),
    }
}

fn words(group: &Path, file: &str) -> Result<Vec<String>, Unavailable> {
    let text = files::read(group, file).map_err(said)?;
    Ok(text.split_whitespace().map(ToOwned::to_owned).collect())
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn said(error: GroupError) -> Unavailable {
    Unavailable::new(error.to_string())
}
