//! An agent under the config of one call.
//!
//! A call reads the config once. Everything that depends on it, from the account of a command to
//! the policy that judges it, must come from the same [`AgentScope`]. A config that is written
//! meanwhile then applies to the next call, and never to half of this one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use interlock_config::ConfigFile;
use interlock_config::types::ExecConfig;
use interlock_plan::{FsResolver, RunAccount};
use interlock_policy::{AgentId, Ask, HostIdentity, Levels, Policy, take_entries};
use interlock_rules::{
    GatewayLayer, SessionLevels, layers_in, layers_without_config_prompts, policy_parts,
    read_stored, sandbox_layers_in, stored_document,
};

use crate::caller_context::CallerContext;
use crate::login_path;
use crate::policy_cache::{CachedPolicyParts, PolicyPlace};
use crate::shield::host_identity;
use crate::state::{HostError, LocalState};
use crate::workspace::{WorkspaceError, contains, default_workspaces, make, path_in_home};

/// The time limit of a run if neither the call nor the config sets one.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_mins(30);

/// An agent on this host, under one config.
#[derive(Debug)]
pub struct AgentScope<'a> {
    host: &'a LocalState,
    agent: &'a AgentId,
    config: Arc<ConfigFile>,
    exec: ExecConfig,
    account: Option<RunAccount>,
}

impl LocalState {
    /// An agent under the config in force.
    pub fn scope<'a>(&'a self, agent: &'a AgentId) -> Result<AgentScope<'a>, HostError> {
        self.scope_under(agent, self.config()?)
    }

    /// An agent under the config with which its call began.
    pub fn scope_under<'a>(
        &'a self,
        agent: &'a AgentId,
        config: Arc<ConfigFile>,
    ) -> Result<AgentScope<'a>, HostError> {
        let exec = config.config().exec_for(agent.as_str());
        let account = exec.run_as.as_deref().map(RunAccount::named).transpose()?;
        Ok(AgentScope {
            host: self,
            agent,
            config,
            exec,
            account,
        })
    }

    /// The policy in force for an agent.
    pub fn policy(&self, agent: &AgentId, call_ask: Option<Ask>) -> Result<Arc<Policy>, HostError> {
        self.scope(agent)?
            .policy(SessionLevels::default(), call_ask, None)
    }
}

impl AgentScope<'_> {
    pub fn config(&self) -> &Arc<ConfigFile> {
        &self.config
    }

    /// The exec settings of this agent.
    pub fn exec(&self) -> &ExecConfig {
        &self.exec
    }

    /// The account of this agent's commands, if it is not that of this process.
    pub fn account(&self) -> Option<&RunAccount> {
        self.account.as_ref()
    }

    /// Calls `look` with the file access rights of this agent's commands. `look` must not use the
    /// state directory, which those rights do not include.
    pub fn as_run_account<T>(&self, look: impl FnOnce() -> T) -> Result<T, HostError> {
        let account = self.account.as_ref();
        let assumed = account
            .map(|account| account.identity.assume())
            .transpose()?;
        let result = look();
        drop(assumed);
        Ok(result)
    }

    /// The home directory of this agent's commands.
    pub fn home(&self) -> Option<&str> {
        match &self.account {
            Some(account) => Some(&account.home),
            None => self.host.home(),
        }
    }

    /// The PATH of this agent's commands, the same for every transport and for `explain`. It is
    /// `tools.exec.pathPrepend`, then the PATH of the calling program, then the directories of the
    /// login shell. For callers without a PATH, it is that of the login shell and then that of this
    /// service. The first call may wait for the login shell.
    pub fn path(&self, caller: &CallerContext) -> String {
        let mut directories: Vec<String> = Vec::new();
        for directory in self.exec.path_prepend.iter().flatten() {
            // Without a home directory, an entry with `~` is dropped.
            match (directory.strip_prefix('~'), self.home()) {
                (Some(rest), Some(home)) => directories.push(format!("{home}{rest}")),
                (Some(_), None) => {}
                (None, _) => directories.push(directory.clone()),
            }
        }
        let host = self.host;
        let of_caller = caller.path().or(host.process_path());
        if let Some(account) = &self.account {
            // The PATH of the account's own shell comes first, because the caller's PATH is that of
            // another user.
            directories.extend(host.account_path(account));
            directories.push(of_caller.unwrap_or(host.service_path()).to_owned());
        } else if let Some(path) = of_caller {
            directories.push(path.to_owned());
            directories.extend_from_slice(host.login_directories());
        } else {
            directories.extend_from_slice(host.login_directories());
            directories.push(host.service_path().to_owned());
        }
        login_path::merge(directories.iter().map(String::as_str))
    }

    /// The resolver that finds programs where this agent's commands find them.
    pub fn resolver(&self, caller: &CallerContext) -> FsResolver {
        self.resolver_on(&self.path(caller))
    }

    /// Like [`Self::resolver`], with a known PATH.
    pub fn resolver_on(&self, path: &str) -> FsResolver {
        FsResolver::from_path_value(path, self.home().map(str::to_owned))
    }

    /// The time limit of a run: that of the call, or else of the config, or else the default. 0
    /// means no limit.
    pub fn time_limit(&self, call_seconds: Option<u64>) -> Option<Duration> {
        let limit = call_seconds.or_else(|| self.exec.timeout());
        let limit = limit.map_or(DEFAULT_TIME_LIMIT, Duration::from_secs);
        Some(limit).filter(|limit| !limit.is_zero())
    }

    /// The time limit of a sandboxed run: the smaller one of the sandbox's limit and the usual one.
    pub fn sandbox_timeout(&self, call_seconds: Option<u64>) -> Option<Duration> {
        let own = interlock_sandbox::time_limit(self.config.config(), self.agent.as_str());
        let usual = self.time_limit(call_seconds);
        match (own, usual) {
            (Some(own), Some(usual)) => Some(own.min(usual)),
            (own, usual) => own.or(usual),
        }
    }

    /// The directory in which calls without a directory start: the agent's `workspace`, or that of
    /// `agents.defaults`, or else a private directory, which this creates. The default must never
    /// be the home directory or `/`: both contain files that run later.
    pub fn workspace(&self) -> Result<PathBuf, WorkspaceError> {
        let path = self.workspace_path();
        let path = path.ok_or_else(|| WorkspaceError::Required(self.agent.clone()))?;
        if self.configured_workspace().is_none() {
            let made = self.as_run_account(|| make(&path))?;
            made.map_err(|source| WorkspaceError::NotMade {
                path: path.clone(),
                source,
            })?;
        }
        Ok(path)
    }

    /// The value of `${workspace}` in a call of this agent: the directories of its caller, or else
    /// the agent's workspace, which may not exist yet. A directory that contains the state of
    /// Interlock must never be among them.
    pub fn call_workspace(&self, caller: &CallerContext) -> Vec<String> {
        let directories = match caller.workspace() {
            [] => self.workspace_path().into_iter().collect(),
            own => own.to_vec(),
        };
        let usable = directories.into_iter();
        let usable = usable.filter(|path| !contains(path, self.host.state_dir()));
        usable
            .filter_map(|path| path.into_os_string().into_string().ok())
            .collect()
    }

    /// The path of the workspace, which may not exist yet. `None` if neither the config nor the
    /// environment gives one.
    fn workspace_path(&self) -> Option<PathBuf> {
        if let Some(configured) = self.configured_workspace() {
            return path_in_home(configured, self.home());
        }
        let is_name = self.agent.as_str().bytes().any(|byte| byte != b'.');
        // Another account cannot use the data directory of the service.
        let data = self.host.data_home().filter(|_| self.account.is_none());
        let own = default_workspaces(data, self.home()).filter(|_| is_name);
        own.map(|own| own.join(self.agent.as_str()))
    }

    /// The workspace that the config names, if it exists.
    pub fn existing_configured_workspace(&self) -> Option<PathBuf> {
        let path = path_in_home(self.configured_workspace()?, self.home())?;
        std::fs::canonicalize(path).ok()
    }

    fn configured_workspace(&self) -> Option<&str> {
        self.config.config().workspace_for(self.agent.as_str())
    }

    /// The policy for this agent with the levels of a conversation, and with the layer of a gateway
    /// that forwards a run to this host.
    pub fn policy(
        &self,
        session: SessionLevels,
        call_ask: Option<Ask>,
        gateway: Option<&GatewayLayer>,
    ) -> Result<Arc<Policy>, HostError> {
        self.policy_in(PolicyPlace::Host, session, call_ask, gateway)
    }

    /// Like [`Self::policy`], for runs at a given place.
    pub fn policy_in(
        &self,
        place: PolicyPlace,
        session: SessionLevels,
        call_ask: Option<Ask>,
        gateway: Option<&GatewayLayer>,
    ) -> Result<Arc<Policy>, HostError> {
        let stored = stored_document(self.host.store())?;
        let parts = CachedPolicyParts {
            config: Arc::clone(&self.config),
            document: stored.hash.clone(),
            agent: self.agent.clone(),
            place,
            session,
            call_ask,
            gateway: gateway.cloned(),
            skills: self.host.skills(),
        };
        self.host.policies().get(parts, |parts| {
            let config = self.config.config();
            let mut document = read_stored(self.host.store(), &stored)?;
            let mut layers = match place {
                PolicyPlace::Host => layers_in(config, &document, self.agent, session, call_ask),
                PolicyPlace::HostWithoutPrompts => {
                    layers_without_config_prompts(config, &document, self.agent, session, call_ask)
                }
                PolicyPlace::Sandbox => {
                    sandbox_layers_in(config, &document, self.agent, session, call_ask)
                }
            }
            .to_vec();
            layers.extend(gateway.map(GatewayLayer::levels));
            let entries = take_entries(&mut document, self.agent);
            let mut policy = policy_parts(
                config,
                &document,
                self.agent,
                parts.skills.as_slice(),
                match place {
                    PolicyPlace::Host | PolicyPlace::HostWithoutPrompts => {
                        host_identity(&self.exec)
                    }
                    PolicyPlace::Sandbox => HostIdentity::Works,
                },
            );
            policy.entries = entries;
            policy.levels = Some(Levels::join(&layers));
            policy.deny.extend(gateway.iter().flat_map(|gateway| {
                let rules = gateway.deny.iter();
                rules.map(|(rule, origin)| (rule.clone(), format!("gateway {origin}")))
            }));
            Ok(policy.assemble(self.home())?)
        })
    }
}
