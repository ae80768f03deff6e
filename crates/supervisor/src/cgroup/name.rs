//! The names of Interlock's groups. Every group that this program makes begins with `interlock-`,
//! and a run's group with `interlock-run-`, so that it never joins, ends or removes any other
//! group.

use std::path::Path;
use std::{fs, io};

use serde::{Deserialize, Serialize};

/// Prefix of the groups of runs.
const RUN: &str = "interlock-run-";

/// Prefix of a group that a supervisor moved itself to.
pub(super) const SUPERVISOR: &str = "interlock-supervisor-";

/// Prefix of a group that exists only for a moment.
pub(super) const PROBE: &str = "interlock-probe-";

/// The leaf below its own group that a supervisor moved itself to, so that its own group can have
/// subgroups with controllers.
pub(super) const LEAF: &str = "interlock-leaf";

/// Longest name: enough for a UUID and a word or two.
const LONGEST: usize = 100;

/// Names come from this program, never from a user. A wrong name is a mistake that must not reach
/// the file system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a run's group: {0:?}")]
pub struct BadName(String);

/// The checked name of a run's group: only lower-case letters, digits and `-`. It cannot lead out
/// of the directory, and no file of the kernel has such a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct GroupName(String);

impl GroupName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn directory(&self) -> String {
        format!("{RUN}{}", self.0)
    }

    /// Returns the name of the group in this directory.
    pub fn of_directory(directory: &str) -> Option<Self> {
        Self::try_from(directory.strip_prefix(RUN)?.to_owned()).ok()
    }
}

impl TryFrom<String> for GroupName {
    type Error = BadName;

    fn try_from(name: String) -> Result<Self, BadName> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=LONGEST).contains(&name.len()) && name.bytes().all(fits) {
            Ok(Self(name))
        } else {
            Err(BadName(name))
        }
    }
}

impl From<GroupName> for String {
    fn from(name: GroupName) -> Self {
        name.0
    }
}

/// Returns the run whose group this process is in, however it detached itself from the run. For
/// nested runs, this is the innermost one. It is only for attribution, because a process of root
/// can have left its group.
pub fn run_of(pid: i32) -> io::Result<Option<String>> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("cgroup"))?;
    Ok(run_in(&text).map(String::from))
}

/// Does the same with the text of `/proc/PID/cgroup`.
pub(super) fn run_in(cgroup: &str) -> Option<GroupName> {
    paths(cgroup).find_map(|path| path.rsplit('/').find_map(GroupName::of_directory))
}

/// Returns the groups of the calling process in every tree, for a later comparison. Empty if the
/// system does not report them.
pub(crate) fn own_place() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// Whether such a text says that the process is in this group, or in one below it.
pub(super) fn is_within(cgroup: &str, name: &GroupName) -> bool {
    let directory = name.directory();
    paths(cgroup).any(|path| path.split('/').any(|part| part == directory))
}

fn paths(cgroup: &str) -> impl Iterator<Item = &str> {
    cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2))
}
