//! What judging past and invented calls needs of a host.

use std::fmt::Display;
use std::sync::Arc;

use interlock_config::ConfigFile;
use interlock_plan::FsResolver;
use interlock_policy::{AgentId, Ask, Document, Policy};
use interlock_rules::RulesError;
use interlock_store::Store;

/// A host whose policy is checked. Calls are judged as if no caller had brought a PATH or a workspace.
pub trait PolicyHost: Sync {
    type Error: Display + From<RulesError>;

    /// Holds the document in force and the history.
    fn store(&self) -> &Store;

    fn config(&self) -> Result<Arc<ConfigFile>, Self::Error>;

    /// The home directory of the user of this process.
    fn home(&self) -> Option<&str>;

    fn policy_in_force(&self, agent: &AgentId) -> Result<Arc<Policy>, Self::Error>;

    /// The policy that the config of this host and another document would make.
    fn policy_with(
        &self,
        document: &Document,
        agent: &AgentId,
        call_ask: Option<Ask>,
        home: Option<&str>,
    ) -> Result<Policy, Self::Error>;

    /// The directories that `${workspace}` stands for.
    fn call_workspace(&self, agent: &AgentId) -> Result<Vec<String>, Self::Error>;

    /// Looks names up where the agent's commands will find them.
    fn resolver(&self, agent: &AgentId) -> Result<FsResolver, Self::Error>;
}
