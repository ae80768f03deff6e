//! Questions about the policy: the verdicts of another policy.

use crate::results::PolicyReplayed;
use crate::schema::{PropertyKind, TEXT};

/// The largest number of verdicts that one call judges again.
pub const MOST_REPLAYED: u64 = 5_000;

params! {
    /// Judges the newest verdicts of the audit again, by a draft of the approvals document or by
    /// the document in force. Nothing is run, and nothing is stored. An Interlock extension.
    PolicyReplay for "policy.replay" -> PolicyReplayed {
        optional {
            /// The draft, in JSON5.
            raw "raw": String = TEXT,
            /// Only verdicts of this agent.
            agent_id "agentId": String = TEXT,
            /// The number of verdicts; the default is 500.
            limit "limit": u64 = PropertyKind::Integer(1, MOST_REPLAYED),
        }
    }
}
