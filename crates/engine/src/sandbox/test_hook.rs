//! For test builds only: removes one mask from a sandbox, so that a test can see that `sandbox
//! explain --verify` notices.

use interlock_plan::{SandboxMount, SandboxPlan};

/// A file in the directory of the scope, which no run sees, that names the mount to leave out.
const FILE: &str = "test-unmask";

pub(super) fn without_mask(mut sandbox: SandboxPlan) -> SandboxPlan {
    let path = std::path::Path::new(&sandbox.scope_directory).join(FILE);
    if let Ok(target) = std::fs::read_to_string(path) {
        let is_mask = |mount: &SandboxMount| {
            matches!(
                mount,
                SandboxMount::Cover { .. } | SandboxMount::Hold { .. }
            )
        };
        sandbox
            .mounts
            .retain(|mount| !is_mask(mount) || mount.target() != target);
    }
    sandbox
}
