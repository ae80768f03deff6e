//! The layer that a gateway adds to the policy of the node to which it forwards a run.

use interlock_policy::{Ask, DenyRule, Layer, PolicySource, Security};

/// The levels of a gateway, joined from its config, its approvals document, the conversation and
/// the call, and the deny rules of its document. As another layer of the node's policy they can
/// only tighten it. No allowlist entry is sent, because only the node can resolve its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GatewayLayer {
    pub security: Option<Security>,
    pub ask: Option<Ask>,
    /// The deny rules, each with where the gateway has it written.
    pub deny: Vec<(DenyRule, String)>,
}

impl GatewayLayer {
    /// The levels as a layer of the node's policy.
    pub fn levels(&self) -> Layer {
        Layer::new(PolicySource::Gateway, "gateway ", self.security, self.ask)
    }
}
