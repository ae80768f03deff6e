//! Settings with a fixed set of words. The words stand here once: for serde, the schema and the
//! pages.

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
        /// As `ask`, with a reviewer in front of the approver. The check of a file refuses it,
        /// because this version has no reviewer; its policy is known for configs of other programs.
        Auto = "auto",
        Full = "full",
    }

    /// What happens to processes that a run leaves behind.
    Leftovers { End = "end", Keep = "keep" }

    /// Whether runs live in namespaces in which Interlock itself does not exist.
    Shield {
        /// Where the system can; programs that cannot work there may run without.
        Auto = "auto",
        /// Every run, or none.
        On = "on",
        Off = "off",
    }

    /// When the effect of a command is shown before it is committed.
    ExecEffects {
        Direct = "direct",
        /// Instead of a prompt about the command.
        Ask = "ask",
        Always = "always",
    }

    /// Whether a human may approve what cannot be bound.
    UnboundApprovals { Deny = "deny", Ask = "ask" }

    /// Which conversations are sandboxed.
    SandboxMode {
        Off = "off",
        /// Every one but the main conversation of its agent.
        NonMain = "non-main",
        All = "all",
    }

    /// What shares one sandbox.
    SandboxScope { Agent = "agent", Session = "session", Shared = "shared" }

    /// Which addresses the gateway listens on.
    GatewayBind { Loopback = "loopback", Lan = "lan", Tailnet = "tailnet", Custom = "custom" }

    /// What gateways may do with the approvals document of a node.
    RemoteDocument { Write = "write", Tighten = "tighten", Read = "read" }

    /// How much a notification says.
    PushDetail { None = "none", Summary = "summary", Command = "command" }

    /// Where a channel shows approvals.
    ChatTargets {
        /// To each approver alone.
        Dm = "dm",
        /// In the chats that the owner named.
        Channel = "channel",
        Both = "both",
    }

    /// How callers of the gateway prove themselves.
    GatewayAuthMode { None = "none", Token = "token", Password = "password" }
}
