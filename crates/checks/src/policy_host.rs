//! The interface of a host whose policy judges past and invented calls.

use std::fmt::Display;
use std::sync::Arc;

use interlock_config::ConfigFile;
use interlock_plan::FsResolver;
use interlock_policy::{AgentId, Ask, Document, Policy};
use interlock_rules::RulesError;
use interlock_store::Store;

/// A host whose policy is checked. Calls are judged as if the caller had sent neither a PATH nor a
/// workspace.
pub trait PolicyHost: Sync {
    type Error: Display + From<RulesError>;

    /// The store with the document in force and the history.
    fn store(&self) -> &Store;

    fn config(&self) -> Result<Arc<ConfigFile>, Self::Error>;

    /// The home directory of the user of this process.
    fn home(&self) -> Option<&str>;

    fn policy_in_force(&self, agent: &AgentId) -> Result<Arc<Policy>, Self::Error>;

    /// The policy that the config of this host would give with another document.
    fn policy_with(
        &self,
        document: &Document,
        agent: &AgentId,
        call_ask: Option<Ask>,
        home: Option<&str>,
    ) -> Result<Policy, Self::Error>;

    /// The values of `${workspace}`.
    fn call_workspace(&self, agent: &AgentId) -> Result<Vec<String>, Self::Error>;

    /// The resolver that finds programs where the agent's commands find them.
    fn resolver(&self, agent: &AgentId) -> Result<FsResolver, Self::Error>;
}
