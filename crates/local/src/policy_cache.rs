//! The policies of a process that lives long: put together again only when what they are made of is
//! another.

use std::sync::{Arc, Mutex, PoisonError};

use interlock_config::ConfigFile;
use interlock_policy::{AgentId, Ask, Policy};
use interlock_rules::{GatewayLayer, SessionLevels};

use crate::state::HostError;

/// Agents, and sessions that were set to something, that are remembered at once.
const MOST: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct PolicyCache(Mutex<Vec<(CachedPolicyParts, Arc<Policy>)>>);

/// Runs on the host and runs in its sandbox are judged by different levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyPlace {
    Host,
    /// A run that leaves its sandbox without the config's prompts.
    HostWithoutPrompts,
    Sandbox,
}

/// All that a policy depends on.
#[derive(Debug)]
pub(crate) struct CachedPolicyParts {
    /// Held, so that no other config can be at the same place.
    pub config: Arc<ConfigFile>,
    /// The hash of the text.
    pub document: String,
    pub agent: AgentId,
    pub place: PolicyPlace,
    pub session: SessionLevels,
    pub call_ask: Option<Ask>,
    pub gateway: Option<GatewayLayer>,
    pub skills: Arc<Vec<String>>,
}

impl CachedPolicyParts {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config)
            && self.document == other.document
            && self.agent == other.agent
            && self.place == other.place
            && self.session == other.session
            && self.call_ask == other.call_ask
            && self.gateway == other.gateway
            && self.skills == other.skills
    }
}

impl PolicyCache {
    /// The policy that these parts make; `assemble` is called where that is not known.
    pub(crate) fn get(
        &self,
        parts: CachedPolicyParts,
        assemble: impl FnOnce(&CachedPolicyParts) -> Result<Policy, HostError>,
    ) -> Result<Arc<Policy>, HostError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, policy)) = known.iter().find(|(other, _)| other.is_same(&parts)) {
            return Ok(Arc::clone(policy));
        }
        let policy = Arc::new(assemble(&parts)?);
        if known.len() == MOST {
            known.remove(0);
        }
        known.push((parts, Arc::clone(&policy)));
        Ok(policy)
    }
}
