//! Restricts the files that `interlock netd` reads, enforced by the kernel: it may read the files
//! by which the system resolves names, and nothing of the user that it runs as. The files that it
//! writes are opened before.

use std::io;
use std::os::fd::AsFd as _;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope,
};

/// The rules name directories, because such files are replaced instead of written to: resolver
/// settings, files that services put in their place, and the libraries that resolve names.
const READ: [&str; 9] = [
    "/etc",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/nix/store",
];

/// Confines the calling process, which has one thread, and everything that it starts. On a kernel
/// without Landlock, only the filter and the user confine it.
pub(super) fn confine_to_name_files() -> io::Result<()> {
    restrict().map_err(|error| io::Error::other(error.to_string()))
}

fn restrict() -> Result<(), RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V6))?
        .scope(Scope::Signal | Scope::AbstractUnixSocket)?
        .create()?;
    for path in READ {
        if let Ok(directory) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(directory.as_fd(), read))?;
        }
    }
    rules.restrict_self().map(drop)
}
