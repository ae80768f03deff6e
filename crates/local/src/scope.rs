//! One call of an agent, and the config that holds for all of it.
//!
//! A call takes the config once. Everything that follows from it, from the user that a command runs
//! as to the policy that judges it, is asked of the same [`AgentScope`], so that a config that is
//! written meanwhile counts for the next call, and never for half of this one.

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

/// Where neither call nor config says anything.
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

    /// An agent under the config that its call began with.
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

    /// What the config says about this agent's commands.
    pub fn exec(&self) -> &ExecConfig {
        &self.exec
    }

    /// The user that this agent's commands run as, if not the user of this process.
    pub fn account(&self) -> Option<&RunAccount> {
        self.account.as_ref()
    }

    /// Calls `look` with the file access rights of this agent's commands. It must not use the
    /// state directory, which those rights do not reach.
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

    /// The PATH of this agent's commands, the same for every transport and for `explain`:
    /// `tools.exec.pathPrepend`, then that of the calling program in its own order, then what the
    /// login shell adds. For callers without a PATH of their own, the login shell's comes first, then
    /// that of this service. With a login shell the first call may take as long as that is given.
    pub fn path(&self, caller: &CallerContext) -> String {
        let mut directories: Vec<String> = Vec::new();
        for directory in self.exec.path_prepend.iter().flatten() {
            // Without a home directory there is nothing beneath it.
            match (directory.strip_prefix('~'), self.home()) {
                (Some(rest), Some(home)) => directories.push(format!("{home}{rest}")),
                (Some(_), None) => {}
                (None, _) => directories.push(directory.clone()),
            }
        }
        let host = self.host;
        let of_caller = caller.path().or(host.process_path());
        if let Some(account) = &self.account {
            // What another user's shell finds says little about this one's.
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

    /// Looks names up where this agent's commands will find them.
    pub fn resolver(&self, caller: &CallerContext) -> FsResolver {
        self.resolver_on(&self.path(caller))
    }

    /// The same with a PATH that is known.
    pub fn resolver_on(&self, path: &str) -> FsResolver {
        FsResolver::from_path_value(path, self.home().map(str::to_owned))
    }

    /// How long a run may take: what the call says, else the config, else the default. 0 is no
    /// limit.
    pub fn time_limit(&self, call_seconds: Option<u64>) -> Option<Duration> {
        let limit = call_seconds.or_else(|| self.exec.timeout());
        let limit = limit.map_or(DEFAULT_TIME_LIMIT, Duration::from_secs);
        Some(limit).filter(|limit| !limit.is_zero())
    }

    /// The smaller one of the sandbox's own limit and what else holds for a run.
    pub fn sandbox_timeout(&self, call_seconds: Option<u64>) -> Option<Duration> {
        let own = interlock_sandbox::time_limit(self.config.config(), self.agent.as_str());
        let usual = self.time_limit(call_seconds);
        match (own, usual) {
            (Some(own), Some(usual)) => Some(own.min(usual)),
            (own, usual) => own.or(usual),
        }
    }

    /// Where calls of this agent start that bring no directory of their own: its `workspace`, that of
    /// `agents.defaults`, else a private directory of its own, which this makes. Never the home
    /// directory or `/` by default: both hold files that run later.
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

    /// What `${workspace}` stands for in a call of this agent: the directories that its caller works
    /// in, else the agent's workspace, which need not be there yet. Never one that holds the state of
    /// Interlock.
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

    /// The workspace, made or not. None where neither config nor environment name one.
    fn workspace_path(&self) -> Option<PathBuf> {
        if let Some(configured) = self.configured_workspace() {
            return path_in_home(configured, self.home());
        }
        let is_name = self.agent.as_str().bytes().any(|byte| byte != b'.');
        // The data directory of the service is of no use to another user.
        let data = self.host.data_home().filter(|_| self.account.is_none());
        let own = default_workspaces(data, self.home()).filter(|_| is_name);
        own.map(|own| own.join(self.agent.as_str()))
    }

    /// The workspace that the config names, where it is there.
    pub fn existing_configured_workspace(&self) -> Option<PathBuf> {
        let path = path_in_home(self.configured_workspace()?, self.home())?;
        std::fs::canonicalize(path).ok()
    }

    fn configured_workspace(&self) -> Option<&str> {
        self.config.config().workspace_for(self.agent.as_str())
    }

    /// The policy for this agent in a session that was set to something, with what the gateway adds
    /// that forwards a run to this host.
    pub fn policy(
        &self,
        session: SessionLevels,
        call_ask: Option<Ask>,
        gateway: Option<&GatewayLayer>,
    ) -> Result<Arc<Policy>, HostError> {
        self.policy_in(PolicyPlace::Host, session, call_ask, gateway)
    }

    /// The same for runs on the host, or for those in its sandbox.
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
