//! Settings with a fixed set of words, which are defined once for serde, the schema and the
//! reference page.

use interlock_plan::choice;
use serde::{Deserialize, Serialize};

choice! {
    /// Where a command runs.
    Host {
        /// The gateway, or the node that a call asks for.
        Auto = "auto",
        Sandbox = "sandbox",
        Gateway = "gateway",
        Node = "node",
    }

    /// A short form for `security` and `ask` together.
    ExecMode {
        Deny = "deny",
        Allowlist = "allowlist",
        Ask = "ask",
        /// Like `ask`, with a reviewer before the approver. The check of a config refuses it,
        /// because this version has no reviewer. Its levels are needed to import configs of other
        /// programs.
        Auto = "auto",
        Full = "full",
    }

    /// What happens to processes that a run leaves behind.
    Leftovers { End = "end", Keep = "keep" }

    /// Whether runs live in namespaces in which Interlock itself does not exist.
    Shield {
        /// Shield runs if the system can. Programs that cannot work in a shield may run without
        /// one.
        Auto = "auto",
        /// Shield every run, and refuse runs that cannot be shielded.
        On = "on",
        Off = "off",
    }

    /// When the file changes of a command are shown before they are committed.
    ExecEffects {
        Direct = "direct",
        /// For commands that would prompt: the prompt is about the changes instead of the command.
        Ask = "ask",
        Always = "always",
    }

    /// Whether an approver may allow a command that cannot be bound.
    UnboundApprovals { Deny = "deny", Ask = "ask" }

    /// Which conversations are sandboxed.
    SandboxMode {
        Off = "off",
        /// Every conversation except the main one of each agent.
        NonMain = "non-main",
        All = "all",
    }

    /// Which runs share one sandbox.
    SandboxScope { Agent = "agent", Session = "session", Shared = "shared" }

    /// Which addresses the gateway listens on.
    GatewayBind { Loopback = "loopback", Lan = "lan", Tailnet = "tailnet", Custom = "custom" }

    /// What gateways may do with the approvals document of a node.
    RemoteDocument { Write = "write", Tighten = "tighten", Read = "read" }

    /// How much a notification contains.
    PushDetail { None = "none", Summary = "summary", Command = "command" }

    /// Where a channel shows approvals.
    ChatTargets {
        /// In a direct message to each approver.
        Dm = "dm",
        /// In the chats that the owner named.
        Channel = "channel",
        Both = "both",
    }

    /// How callers of the gateway prove themselves.
    GatewayAuthMode { None = "none", Token = "token", Password = "password" }
}
