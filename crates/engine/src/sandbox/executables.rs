//! Which files a run may execute, held by the kernel for every process of its tree (`tree: enforce`).
//!
//! Process 1 makes the rules, in the view of the run: a rule holds for the file that a path leads to there,
//! by its inode. The process of the run puts them on itself as one of its last steps, and they stay with
//! everything that it starts.
//!
//! Files in memory have no path that a rule could name. The filter lets none be made that could be executed.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use landlock::{
    AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError,
};

/// The rules, as a descriptor: these files may be executed, and files in directories among them. For a
/// process that sees what the run sees.
pub(super) fn execution_rules(executables: &[String]) -> io::Result<OwnedFd> {
    let rules = make(executables).map_err(|error| io::Error::other(error.to_string()))?;
    rules.ok_or_else(|| io::Error::other("this kernel has no Landlock"))
}

fn make(executables: &[String]) -> Result<Option<OwnedFd>, RulesetError> {
    // A ruleset that says nothing of moving files between directories forbids it.
    let handled = AccessFs::Execute | AccessFs::Refer;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(handled)?
        .create()?;
    if let Ok(root) = PathFd::new("/") {
        rules = rules.add_rule(PathBeneath::new(root.as_fd(), AccessFs::Refer))?;
    }
    for path in executables {
        // What the view does not show cannot be executed anyway.
        if let Ok(file) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(file.as_fd(), AccessFs::Execute))?;
        }
    }
    Ok(rules.into())
}
