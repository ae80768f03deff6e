//! The sandboxes of this machine.

use crate::results::{SandboxExplained, SandboxScopesRemoved};
use crate::schema::{PropertyKind, TEXT};

params! {
    /// Explains whether runs of a conversation are sandboxed, why, and what they see. Planned like
    /// a run, but nothing is started. An Interlock extension.
    SandboxExplain for "sandbox.explain" -> SandboxExplained {
        required { agent_id "agentId": String = TEXT, }
        optional {
            /// The default is the agent's main conversation.
            session_key "sessionKey": String = TEXT,
        }
    }
}
params! {
    /// Removes the home and scratch directories of sandboxes, which the next run makes anew.
    /// Exactly one parameter selects the sandboxes. An Interlock extension.
    SandboxRecreate for "sandbox.recreate" -> SandboxScopesRemoved {
        optional {
            agent_id "agentId": String = TEXT,
            session_key "sessionKey": String = TEXT,
            all "all": bool = PropertyKind::Boolean,
        }
    }
}
params! {
    /// Removes the directories of sandboxes that were unused for as long as the config says. An
    /// Interlock extension.
    SandboxPrune for "sandbox.prune" -> SandboxScopesRemoved {}
}
