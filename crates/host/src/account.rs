//! Commands that run as another user: `tools.exec.runAs`.
//!
//! The state belongs to the account of this process. Files that a caller names are looked at with
//! the rights of the user that its commands run as: [`LocalHost::as_run_account`].

use std::collections::BTreeMap;

use interlock_plan::RunAccount;
use interlock_policy::AgentId;

use crate::local::{HostError, LocalHost};

/// Variables of the service's own account, which mean nothing to another user or lead to files of
/// the service.
const OF_THE_SERVICE: [&str; 5] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "MAIL",
    "SSH_AUTH_SOCK",
    "SUDO_COMMAND",
    "XAUTHORITY",
];

impl LocalHost {
    /// The user that this agent's commands run as, if not the user of this process.
    pub fn run_account(&self, agent: &AgentId) -> Result<Option<RunAccount>, HostError> {
        let config = self.config()?;
        let name = config.config().exec_for(agent.as_str()).run_as;
        Ok(name.as_deref().map(RunAccount::named).transpose()?)
    }

    /// Calls `look` with the file access rights of this agent's commands. It must not use the
    /// state directory, which those rights do not reach.
    pub fn as_run_account<T>(
        &self,
        agent: &AgentId,
        look: impl FnOnce() -> T,
    ) -> Result<T, HostError> {
        let account = self.run_account(agent)?;
        let assumed = account
            .map(|account| account.identity.assume())
            .transpose()?;
        let result = look();
        drop(assumed);
        Ok(result)
    }

    /// The home directory of this agent's commands.
    pub fn home_of(&self, agent: &AgentId) -> Result<Option<String>, HostError> {
        Ok(match self.run_account(agent)? {
            Some(account) => Some(account.home),
            None => self.home().map(str::to_owned),
        })
    }
}

/// What a run inherits when it has another user than this process: who it is, and nothing that
/// belongs to the service's own account.
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
