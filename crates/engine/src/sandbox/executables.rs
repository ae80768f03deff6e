//! Restricts which files a run may execute (`tree: enforce`). The kernel enforces this for every
//! process of the run's tree.
//!
//! Process 1 makes the rules, in the view of the run: a rule applies to the file that a path leads
//! to there, by its inode. The process of the run puts the rules on itself as one of its last
//! steps, and everything that it starts inherits them.
//!
//! Files in memory have no path that a rule could name. The filter prevents making any that could
//! be executed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use landlock::{
    AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError,
};

/// Returns the rules as a descriptor: these files may be executed, and so may all files in those
/// that are directories. The calling process must see what the run sees.
pub(super) fn execution_rules(executables: &[String]) -> io::Result<OwnedFd> {
    let rules = make(executables).map_err(|error| io::Error::other(error.to_string()))?;
    rules.ok_or_else(|| io::Error::other("this kernel has no Landlock"))
}

fn make(executables: &[String]) -> Result<Option<OwnedFd>, RulesetError> {
    // A ruleset that does not handle `Refer` forbids moving files between directories.
    let handled = AccessFs::Execute | AccessFs::Refer;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(handled)?
        .create()?;
    if let Ok(root) = PathFd::new("/") {
        rules = rules.add_rule(PathBeneath::new(root.as_fd(), AccessFs::Refer))?;
    }
    for path in executables {
        // A file that the view does not show cannot be executed anyway.
        if let Ok(file) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(file.as_fd(), AccessFs::Execute))?;
        }
    }
    Ok(rules.into())
}
