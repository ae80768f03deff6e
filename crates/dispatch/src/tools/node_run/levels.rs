//! What this gateway adds to the policy of a node.

use std::sync::Arc;

use interlock_config::ConfigFile;
use interlock_host::{HostError, SessionValues};
use interlock_policy::{AgentId, Ask, DenyRule, Layer, Levels, PolicySource, Security, deny_rules};
use interlock_rules::levels_in;
use interlock_wire::node::extension::{LayerDenyRule, PolicyLayer};
use serde_json::json;

use crate::dispatcher::Dispatcher;

/// The levels of the gateway's config, its approvals document, the conversation and the call, joined,
/// and the deny rules of that document. A node can only be stricter.
///
/// Entries of the gateway's allowlist are for its own files: on a node they satisfy nothing, and its
/// own allowlist says what is a miss there.
#[derive(Debug, Clone)]
pub struct GatewayLevels {
    pub(super) levels: Levels,
    pub(super) deny: Arc<Vec<(DenyRule, String)>>,
}

impl GatewayLevels {
    /// As config and document say now.
    pub fn of(
        dispatcher: &Dispatcher,
        config: &ConfigFile,
        agent: &AgentId,
        session: &SessionValues,
        call_ask: Option<Ask>,
    ) -> Result<Self, HostError> {
        let (document, _) = dispatcher.host.document()?;
        let levels = levels_in(
            config.config(),
            &document,
            agent,
            session.levels(),
            call_ask,
        );
        Ok(Self {
            levels,
            deny: Arc::new(deny_rules(&document, agent)),
        })
    }

    /// Lets nothing run: for work whose policy is read right before it runs.
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

    /// For a node that joins it to its own policy.
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
