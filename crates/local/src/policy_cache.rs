//! Caches policies in a long-lived process. A policy is assembled again only if one of its inputs
//! has changed.

use std::sync::{Arc, Mutex, PoisonError};

use interlock_config::ConfigFile;
use interlock_policy::{AgentId, Ask, Policy};
use interlock_rules::{GatewayLayer, SessionLevels};

use crate::state::HostError;

/// How many policies are cached: one per agent, and per conversation with its own settings.
const MOST: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct PolicyCache(Mutex<Vec<(CachedPolicyParts, Arc<Policy>)>>);

/// Where a run is judged. Runs on the host and runs in a sandbox have different levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyPlace {
    Host,
    /// A run that leaves its sandbox without the config's prompts.
    HostWithoutPrompts,
    Sandbox,
}

/// All inputs of a policy.
#[derive(Debug)]
pub(crate) struct CachedPolicyParts {
    /// The config. Keeping it alive makes sure that no other config gets the same address.
    pub config: Arc<ConfigFile>,
    /// The hash of the document's text.
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
    /// The policy of these parts. `assemble` is called if it is not cached.
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
