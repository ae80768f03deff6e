//! Commands that run as another user: `tools.exec.runAs`.
//!
//! The state belongs to the account of this process. Paths that a caller names are inspected with
//! the rights of the user that its commands run as: [`crate::AgentScope::as_run_account`].

use std::collections::BTreeMap;

use interlock_plan::RunAccount;

/// Variables that mean nothing to another user, or that lead to files of the service's account.
const OF_THE_SERVICE: [&str; 5] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "MAIL",
    "SSH_AUTH_SOCK",
    "SUDO_COMMAND",
    "XAUTHORITY",
];

/// The base environment of a run that has another user than this process. It names that user and
/// contains nothing that belongs to the service's own account.
pub(crate) fn environment_of(
    base: &BTreeMap<String, String>,
    account: &RunAccount,
) -> BTreeMap<String, String> {
    let is_own = |name: &str| OF_THE_SERVICE.contains(&name) || name.starts_with("XDG_");
    let kept = base.iter().filter(|(name, _)| !is_own(name));
    let mut environment: BTreeMap<String, String> = kept
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let user = &account.identity.user;
    for (name, value) in [
        ("HOME", &account.home),
        ("LOGNAME", user),
        ("SHELL", &account.shell),
        ("USER", user),
    ] {
        environment.insert(name.to_owned(), value.clone());
    }
    environment
}
