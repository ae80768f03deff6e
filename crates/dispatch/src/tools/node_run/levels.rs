//! The gateway's addition to the policy of a node.

use std::sync::Arc;

use interlock_config::ConfigFile;
use interlock_host::{Elevation, HostError, SessionValues};
use interlock_policy::{AgentId, Ask, DenyRule, Layer, Levels, PolicySource, Security, deny_rules};
use interlock_rules::{layers_in, layers_without_config_prompts};
use interlock_wire::node::extension::{LayerDenyRule, PolicyLayer};
use serde_json::json;

use crate::dispatcher::Dispatcher;

/// The levels of the gateway's config, its approvals document, the conversation and the call,
/// joined, and the deny rules of that document. A node can only be stricter.
///
/// Entries of the gateway's allowlist are for its own files: on a node they allow nothing, and the
/// node's own allowlist decides what is a miss there.
#[derive(Debug, Clone)]
pub struct GatewayLevels {
    pub(super) levels: Levels,
    pub(super) deny: Arc<Vec<(DenyRule, String)>>,
}

impl GatewayLevels {
    /// The present levels of config and document, for a call of a conversation that leaves its
    /// sandbox to this extent.
    pub fn of(
        dispatcher: &Dispatcher,
        config: &ConfigFile,
        agent: &AgentId,
        (session, call_ask, elevation): (&SessionValues, Option<Ask>, Elevation),
    ) -> Result<Self, HostError> {
        let (document, _) = dispatcher.host.document()?;
        let layers = match elevation {
            Elevation::Full => layers_without_config_prompts,
            Elevation::Off | Elevation::On => layers_in,
        };
        let session = session.levels();
        Ok(Self {
            levels: Levels::join(&layers(
                config.config(),
                &document,
                agent,
                session,
                call_ask,
            )),
            deny: Arc::new(deny_rules(&document, agent)),
        })
    }

    /// Levels that let nothing run, for work whose policy is read right before it runs.
    pub(super) fn closed() -> Self {
        let layer = Layer::new(
            PolicySource::Default,
            "",
            Some(Security::Deny),
            Some(Ask::Always),
        );
        Self {
            levels: Levels::join(&[layer]),
            deny: Arc::default(),
        }
    }

    pub(super) fn security(&self) -> Security {
        self.levels.security.value()
    }

    pub(super) fn ask(&self) -> Ask {
        self.levels.ask.value()
    }

    /// The layer for a node, which joins it to its own policy.
    pub fn layer(&self) -> PolicyLayer {
        let rules = self.deny.iter();
        PolicyLayer {
            security: Some(self.security().to_string()),
            ask: Some(self.ask().to_string()),
            deny: rules
                .map(|(rule, origin)| LayerDenyRule {
                    rule: json!(rule),
                    origin: origin.clone(),
                })
                .collect(),
        }
    }
}
