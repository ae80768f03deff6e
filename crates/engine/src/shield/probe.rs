//! Whether this system offers what the shield needs. This is really tried, once, in a process of
//! its own.

use std::io;
use std::sync::OnceLock;

use crate::unsafe_spawn::attempt::try_namespaces;

/// How strong the shield of this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShieldKind {
    /// For an ordinary user: a user namespace keeps runs from undoing it.
    User,
    /// For root: a guard rail, which root can undo.
    Root,
}

/// Why there is no shield here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ShieldUnavailable(String);

/// Returns the kind of shield that this system offers to this process.
pub fn probe_shield() -> Result<ShieldKind, ShieldUnavailable> {
    static FOUND: OnceLock<Result<ShieldKind, ShieldUnavailable>> = OnceLock::new();
    FOUND.get_or_init(probe).clone()
}

fn probe() -> Result<ShieldKind, ShieldUnavailable> {
    let is_root = rustix::process::geteuid().is_root();
    match try_namespaces(is_root) {
        Ok(()) if is_root => Ok(ShieldKind::Root),
        Ok(()) => Ok(ShieldKind::User),
        Err((step, error)) => Err(ShieldUnavailable(reason(step, &error))),
    }
}

/// Describes the step that failed, the system's error, and the usual cause.
fn reason(step: &str, error: &io::Error) -> String {
    let known = [
        (
            "/proc/sys/user/max_user_namespaces",
            "0",
            "user.max_user_namespaces is 0",
        ),
        (
            "/proc/sys/kernel/unprivileged_userns_clone",
            "0",
            "kernel.unprivileged_userns_clone is 0",
        ),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "kernel.apparmor_restrict_unprivileged_userns is 1",
        ),
    ];
    let cause = known.iter().find_map(|(path, value, cause)| {
        let found = std::fs::read_to_string(path).ok()?;
        (found.trim() == *value).then_some(*cause)
    });
    match cause {
        Some(cause) => format!("{step}: {error} ({cause})"),
        None => format!("{step}: {error}"),
    }
}
