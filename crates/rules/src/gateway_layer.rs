//! What a gateway adds to the policy of the node that it forwards a run to.

use interlock_policy::{Ask, DenyRule, Layer, PolicySource, Security};

/// The levels of a gateway, joined from its config, its approvals document, the conversation and the
/// call, and the deny rules of its document. As one more layer of the node's policy they can only
/// tighten it: no entry comes along, since only the node can resolve its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GatewayLayer {
    pub security: Option<Security>,
    pub ask: Option<Ask>,
    /// Each with where the gateway has it written.
    pub deny: Vec<(DenyRule, String)>,
}

impl GatewayLayer {
    /// As a layer of the node's policy.
    pub fn levels(&self) -> Layer {
        Layer::new(PolicySource::Gateway, "gateway ", self.security, self.ask)
    }
}
