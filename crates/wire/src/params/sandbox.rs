//! The sandboxes of this machine.

use crate::results::{SandboxExplained, SandboxScopesRemoved};
use crate::schema::{PropertyKind, TEXT};

params! {
    /// Whether runs of a conversation are sandboxed, why, and what they see. It is planned as for a run,
    /// and nothing is started. An Interlock extension.
    SandboxExplain for "sandbox.explain" -> SandboxExplained {
        required { agent_id "agentId": String = TEXT, }
        optional {
            /// The agent's main conversation where it is absent.
            session_key "sessionKey": String = TEXT,
        }
    }
}
params! {
    /// Removes the home and scratch directories of sandboxes, which the next run makes anew. One of the
    /// three names which. An Interlock extension.
    SandboxRecreate for "sandbox.recreate" -> SandboxScopesRemoved {
        optional {
            agent_id "agentId": String = TEXT,
            session_key "sessionKey": String = TEXT,
            all "all": bool = PropertyKind::Boolean,
        }
    }
}
params! {
    /// Removes the directories of sandboxes that were not used for as long as the config says. An
    /// Interlock extension.
    SandboxPrune for "sandbox.prune" -> SandboxScopesRemoved {}
}
