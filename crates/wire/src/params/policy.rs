//! Questions about the policy: what another one would have said.

use crate::results::PolicyReplayed;
use crate::schema::{PropertyKind, TEXT};

/// Verdicts that one call judges again at most.
pub const MOST_REPLAYED: u64 = 5_000;

params! {
    /// Judges the newest verdicts of the audit by a draft of the approvals document, or by the one in
    /// force. Nothing is run, and nothing is stored. An Interlock extension.
    PolicyReplay for "policy.replay" -> PolicyReplayed {
        optional {
            /// The draft, in JSON5.
            raw "raw": String = TEXT,
            /// Only verdicts of this agent.
            agent_id "agentId": String = TEXT,
            /// How many verdicts; 500 where it is absent.
            limit "limit": u64 = PropertyKind::Integer(1, MOST_REPLAYED),
        }
    }
}
