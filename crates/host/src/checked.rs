//! [`LocalHost`] as the host whose policies are checked.

use std::sync::Arc;

use interlock_checks::PolicyHost;
use interlock_config::ConfigFile;
use interlock_local::{LocalState, NO_CALLER_CONTEXT};
use interlock_plan::FsResolver;
use interlock_policy::{AgentId, Ask, Document, Policy};
use interlock_rules::{Template, TemplateCaseResult};
use interlock_store::Store;

use crate::local::{HostError, LocalHost, policy};

impl PolicyHost for LocalHost {
    type Error = HostError;

    fn store(&self) -> &Store {
        LocalState::store(self)
    }

    fn config(&self) -> Result<Arc<ConfigFile>, HostError> {
        LocalState::config(self)
    }

    fn home(&self) -> Option<&str> {
        LocalState::home(self)
    }

    fn policy_in_force(&self, agent: &AgentId) -> Result<Arc<Policy>, HostError> {
        self.policy(agent, None)
    }

    fn policy_with(
        &self,
        document: &Document,
        agent: &AgentId,
        call_ask: Option<Ask>,
        home: Option<&str>,
    ) -> Result<Policy, HostError> {
        let config = LocalState::config(self)?;
        Ok(policy(config.config(), document, agent, call_ask, home)?)
    }

    fn call_workspace(&self, agent: &AgentId) -> Result<Vec<String>, HostError> {
        Ok(self.scope(agent)?.call_workspace(&NO_CALLER_CONTEXT))
    }

    fn resolver(&self, agent: &AgentId) -> Result<FsResolver, HostError> {
        Ok(self.scope(agent)?.resolver(&NO_CALLER_CONTEXT))
    }
}

impl LocalHost {
    /// Judges the cases of a template by the config of this host.
    pub fn try_template(
        &self,
        template: &Template,
        agent: &str,
        directory: &str,
    ) -> Result<Vec<TemplateCaseResult>, HostError> {
        let with = |document: &Document, agent: &AgentId| {
            let scope = self.scope(agent)?;
            self.policy_with(document, agent, None, scope.home())
        };
        self.rules().try_template(template, agent, directory, with)
    }
}
