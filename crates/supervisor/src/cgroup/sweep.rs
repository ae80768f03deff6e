//! Removes groups that crashed supervisors left behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use super::name::{GroupName, PROBE};
use super::{Group, GroupError, Hierarchies, files};

/// The result of a sweep over groups that are no longer needed.
#[derive(Debug, Default)]
pub struct Swept {
    pub removed: Vec<String>,
    pub kept: Vec<KeptGroup>,
}

/// A group that could not be removed. If it contains processes, [`Group::open`] and [`Group::kill`]
/// end them.
#[derive(Debug)]
pub struct KeptGroup {
    pub name: String,
    pub reason: GroupError,
}

/// Removes the groups of runs whose names begin with `prefix` and that `is_alive` does not claim.
/// This ends no process: a group that is not empty is kept and reported.
pub fn sweep(hierarchies: &Hierarchies, prefix: &str, is_alive: impl Fn(&str) -> bool) -> Swept {
    let places: BTreeSet<&Path> = hierarchies
        .v2()
        .into_iter()
        .chain(hierarchies.v1())
        .map(|place| place.parent.as_path())
        .collect();
    let mut names = BTreeSet::new();
    for child in places.into_iter().flat_map(files::children) {
        let Some(directory) = files::file_name(&child) else {
            continue;
        };
        if let Some(name) = GroupName::of_directory(directory) {
            names.insert(name.as_str().to_owned());
        } else if is_of_dead_process(directory, PROBE) {
            let _ = files::remove_tree(&child);
        }
    }
    let mut swept = Swept::default();
    for name in names {
        if !name.starts_with(prefix) || is_alive(&name) {
            continue;
        }
        let removed =
            Group::open(hierarchies, &name).and_then(|group| group.remove(Duration::ZERO));
        match removed {
            Ok(()) => swept.removed.push(name),
            Err(reason) => swept.kept.push(KeptGroup { name, reason }),
        }
    }
    swept
}

/// Whether a directory is named `<prefix><pid>` or `<prefix><pid>-…` after a process that is gone.
pub(super) fn is_of_dead_process(directory: &str, prefix: &str) -> bool {
    let Some(rest) = directory.strip_prefix(prefix) else {
        return false;
    };
    let pid = rest.split('-').next().unwrap_or(rest);
    pid.parse::<u32>()
        .is_ok_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}
