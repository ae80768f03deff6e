//! Tests whether this system can confine runs, by really making a sandbox or the namespaces of a
//! scope, and ending them again. This runs nothing of a plan.

use std::collections::BTreeMap;

use interlock_plan::{SandboxBackend, SandboxPlan, SandboxUser};
use rustix::process::WaitOptions;

use super::RunSandbox;
use super::keeper::{KeeperOrder, ScopeNamespaces, StartedKeeper};
use super::overlay::RunLayer;
use super::restricted::try_restricted;

/// The id that a root process uses for the trial. No scope has it, because theirs begin one above.
const TRIAL_HOST_ID: u32 = 2_000_000_000;

const TRIAL_ID: u32 = 1_000;

const TRIAL_BYTES: u64 = 64 << 10;

/// Makes a sandbox of this plan, and ends it. The error says which step failed, and why. The
/// calling process must have no other children.
pub fn try_sandbox(sandbox: &SandboxPlan) -> Result<(), String> {
    if sandbox.ssh.is_some() {
        // The trial opens a connection of its own, beside the one that runs may be using.
        let mut order = KeeperOrder::of(sandbox);
        if let Some(ssh) = &mut order.ssh {
            ssh.plan.control.push_str("-t");
        }
        return try_keeper(&order, |_| Ok(()));
    }
    if sandbox.backend == SandboxBackend::Landlock {
        return try_restricted(sandbox);
    }
    let layer = RunLayer::make_for_trial(sandbox)
        .map_err(|error| format!("making the layer of the run: {error}"))?;
    let directory = layer.as_ref().map(|layer| layer.directory().to_owned());
    let made = try_keeper(&KeeperOrder::of(sandbox), |scope| {
        RunSandbox::start(sandbox, layer, false, scope).map(drop)
    });
    if let Some(directory) = directory {
        let _ = std::fs::remove_dir_all(directory);
    }
    made
}

/// Makes the namespaces of a scope with this backend, and ends them. Backends differ only in this;
/// what follows is the same for all. The error says which step failed, and why.
pub fn try_backend(backend: SandboxBackend) -> Result<(), String> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let user = if uid.is_root() {
        SandboxUser {
            uid: TRIAL_ID,
            gid: TRIAL_ID,
            host_uid: TRIAL_HOST_ID,
            host_gid: TRIAL_HOST_ID,
        }
    } else {
        SandboxUser {
            uid: uid.as_raw(),
            gid: gid.as_raw(),
            host_uid: uid.as_raw(),
            host_gid: gid.as_raw(),
        }
    };
    let order = KeeperOrder {
        scope_id: "trial".to_owned(),
        backend,
        user,
        tmp_bytes: TRIAL_BYTES,
        memory: BTreeMap::new(),
        caches: Vec::new(),
        scope_directory: String::new(),
        served: None,
        container: None,
        ssh: None,
    };
    try_keeper(&order, |_| Ok(()))
}

fn try_keeper(
    order: &KeeperOrder,
    use_scope: impl FnOnce(&ScopeNamespaces) -> Result<(), String>,
) -> Result<(), String> {
    let keeper = StartedKeeper::start(order)
        .map_err(|error| format!("starting the keeper of its scope: {error}"))?;
    let made = keeper.receive().and_then(|(scope, _)| use_scope(&scope));
    let StartedKeeper { pid, link } = keeper;
    // The keeper ends when its link is closed.
    drop(link);
    let _ = rustix::process::waitpid(Some(pid), WaitOptions::empty());
    made
}
